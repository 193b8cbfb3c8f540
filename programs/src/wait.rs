//! `winddown wait`.

use std::cell::RefCell;

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
    let last = RefCell::new(LastAnswer::Nothing);
    let met = async {
        let mut events = feed::listen(&client, client.watch().await);
        while let Some(event) = events.recv().await {
            match event {
                FeedEvent::Status(status) => match judge(args.condition, &status) {
                    Ok(met) => return Ok(met),
                    Err(unmet) => *last.borrow_mut() = LastAnswer::Unmet(unmet),
                },
                FeedEvent::Gone(error) => *last.borrow_mut() = LastAnswer::NoAgent(error),
                FeedEvent::Failed(error) => return Err(error.into()),
            }
        }
        // The feed ends only after an error that it has passed on.
        Err(CommandError::message(Exit::Failure, "the agent's answers ended")
            .with_hint("run it again"))
    };
    let waiting = format!("waiting for {}", args.condition.name());
    let why = || last.borrow().so_far();
    let met = ask::patiently_because(out, &waiting, why, timeout(args.timeout, met)).await;
    match met {
        Ok(met) => out.line(&clean(&met?))?,
        Err(_) => return Err(last.into_inner().after(args)),
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
    /// What keeps the wait from its end, after what it waits for.
    fn so_far(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::NoAgent(error) => format!(": {}", clean(&error.to_string())),
            Self::Unmet(unmet) => format!(": {}", clean(unmet)),
        }
    }

    /// The error when the time is over.
    fn after(self, args: &WaitArgs) -> CommandError {
        let time = seconds(args.timeout.as_secs_f64());
        let unmet = match self {
            Self::NoAgent(error) => return error.into(),
            Self::Nothing => "the agent has not answered".to_owned(),
            Self::Unmet(unmet) => clean(&unmet).into_owned(),
        };
        let hint = match args.condition {
            WaitCondition::Lock | WaitCondition::Protected => {
                "`winddown doctor` says what to do; --timeout waits longer"
            }
            WaitCondition::Drained => "`winddown status` shows why; --timeout waits longer",
            WaitCondition::Report => {
                "`journalctl -u winddown -e` shows what the agent is doing; --timeout waits longer"
            }
        };
        CommandError::message(Exit::Failure, format!("after {time}: {unmet}")).with_hint(hint)
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
            Some(verdict) if verdict.state == ProtectionState::Protected => {
                with_doubt(&verdict.text, status)
            }
            Some(verdict) if verdict.state == ProtectionState::Limited => {
                let trouble = trouble_beside_kubelet(status);
                let trouble = trouble.map(|trouble| format!(" ({trouble})")).unwrap_or_default();
                Err(format!("the node is protected only in part: {}{trouble}", verdict.text))
            }
            verdict => {
                let why = verdict.as_ref().map(|verdict| verdict.text.as_str());
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

/// The verdict on a protected node, once it is known that the agent can use the API server, or that that is merely away.
fn with_doubt(verdict: &str, status: &Status) -> Result<String, String> {
    let cluster = status.cluster.as_ref().filter(|cluster| cluster.is_beside_kubelet());
    let is = |state| cluster.is_some_and(|cluster| cluster.api.state == state);
    if is(ApiState::Unknown) {
        return Err("the API server has not answered yet".to_owned());
    }
    match trouble_beside_kubelet(status) {
        None => Ok(verdict.to_owned()),
        Some(away) if is(ApiState::Unreachable) => Ok(format!("{verdict}; BUT {away}")),
        // It does not refuse the list: the verdict would say so. The first is waited for.
        Some(away) if is(ApiState::Connected) && !status.pods_unknown => {
            Ok(format!("{verdict}; BUT {away}"))
        }
        Some(trouble) => Err(trouble),
    }
}

/// What an agent lacks that terminates a kubelet's pods.
fn trouble_beside_kubelet(status: &Status) -> Option<String> {
    let cluster = status.cluster.as_ref().filter(|cluster| cluster.is_beside_kubelet())?;
    let pods = || because("the kubelet's pods", Some(&status.runtime.message));
    cluster.api.trouble().or_else(|| (!status.runtime.healthy).then(pods))
}

fn because(what: &str, why: Option<&str>) -> String {
    why.map_or_else(|| what.to_owned(), |why| format!("{what}: {why}"))
}
