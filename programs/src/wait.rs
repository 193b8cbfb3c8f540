//! `winddown wait`.

use tokio::time::timeout;

use winddown_shared::display::{clean, seconds};

use super::watch::feed::{self, FeedEvent};
use super::{CommandError, Exit, GlobalArgs, Output, WaitArgs, WaitCondition, ask};
use winddown_control::api::{ApiState, ClosedBy, LockState, ProtectionState, Status};
use winddown_control::{Client, ClientError};

#[cfg(test)]
mod tests;

pub(super) async fn run(
    global: &GlobalArgs,
    args: &WaitArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let mut last = LastAnswer::Nothing;
    let met = async {
        let mut events = feed::listen(&client, client.watch().await);
        while let Some(event) = events.recv().await {
            match event {
                FeedEvent::Status(status) => match judge(args.condition, &status) {
                    Ok(met) => return Ok(met),
                    Err(unmet) => last = LastAnswer::Unmet(unmet),
                },
                FeedEvent::Gone(error) => last = LastAnswer::NoAgent(error),
                FeedEvent::Failed(error) => return Err(error.into()),
            }
        }
        // The feed ends only after an error that it has passed on.
        Err(CommandError::message(Exit::Failure, "the agent's answers ended")
            .with_hint("run it again"))
    };
    let waiting = format!("waiting for {}", args.condition.name());
    let met = ask::patiently(out, &waiting, timeout(args.timeout, met)).await;
    match met {
        Ok(met) => out.line(&clean(&met?))?,
        Err(_) => return Err(last.after(args)),
    }
    Ok(Exit::Success)
}

/// What was last heard of the agent.
enum LastAnswer {
    Nothing,
    NoAgent(ClientError),
    Unmet(String),
}

impl LastAnswer {
    /// The error when the time is over.
    fn after(self, args: &WaitArgs) -> CommandError {
        let time = seconds(args.timeout.as_secs_f64());
        let unmet = match self {
            Self::NoAgent(error) => return error.into(),
            Self::Nothing => "the agent has not answered".to_owned(),
            Self::Unmet(unmet) => clean(&unmet).into_owned(),
        };
        CommandError::message(Exit::Failure, format!("after {time}: {unmet}"))
            .with_hint("`winddown status` shows why; --timeout waits longer")
    }
}

/// Says what holds, or what does not hold yet.
fn judge(condition: WaitCondition, status: &Status) -> Result<String, String> {
    match condition {
        WaitCondition::Lock => match status.lock.state {
            LockState::Held => Ok("the shutdown lock is held".to_owned()),
            _ => Err(because("the shutdown lock is not held", status.lock.why.as_deref())),
        },
        WaitCondition::Protected => match &status.protection {
            Some(protection) if protection.state == ProtectionState::Protected => {
                Ok(with_doubt(&protection.text, status))
            }
            protection => {
                let why = protection.as_ref().map(|protection| protection.text.as_str());
                Err(because("the node is not protected", why))
            }
        },
        WaitCondition::Drained => {
            let is_closed = status.admission_closed_by.contains(&ClosedBy::Drain);
            match &status.drain {
                _ if !is_closed => Err("the node is not being drained".to_owned()),
                Some(drain) if drain.pods_unknown => {
                    Err("it is not known yet which pods still run".to_owned())
                }
                Some(drain) => Err(format!("pods that still run: {}", drain.pods_remaining)),
                None => Ok("the node is drained".to_owned()),
            }
        }
        WaitCondition::Report => match &status.last_boot {
            Some(last) => Ok(last.text.clone()),
            None => Err("it is not known how the node last went down".to_owned()),
        },
    }
}

/// The verdict, and what an agent lacks that would terminate a kubelet's pods without knowing them well.
fn with_doubt(verdict: &str, status: &Status) -> String {
    let Some(cluster) = status.cluster.as_ref().filter(|cluster| cluster.is_beside_kubelet())
    else {
        return verdict.to_owned();
    };
    let doubt = match cluster.api.state {
        ApiState::Connected if status.runtime.healthy => return verdict.to_owned(),
        ApiState::Connected => because("the kubelet's pods", Some(&status.runtime.message)),
        ApiState::Unknown => "the API server has not answered yet".to_owned(),
        _ => because("the API server cannot be used", cluster.api.why.as_deref()),
    };
    format!("{verdict}; BUT {doubt}")
}

fn because(what: &str, why: Option<&str>) -> String {
    why.map_or_else(|| what.to_owned(), |why| format!("{what}: {why}"))
}
