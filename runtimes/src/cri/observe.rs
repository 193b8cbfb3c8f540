//! Takes in what the runtime says of a container.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{ContainerExit, WallTime};

use super::pod::{End, PodEntry, Run};
use super::{Context, api, dirs, exits, labels, logs};
use crate::plan::Backoff;

/// What the runtime said of a container, with what it left on disk.
pub(super) struct Seen {
    pub(super) status: api::ContainerStatus,
    /// The host's pid of the container's first process; none unless it was asked for and runs.
    pub(super) pid: Option<i32>,
    /// The termination message of one that ended.
    message: String,
}

/// Asks for a container's status and reads its termination message if it ended.
///
/// # Errors
/// The runtime does not know it or does not answer.
pub(super) async fn ask(
    context: &Context,
    entry: &PodEntry,
    id: &str,
    with_pid: bool,
) -> Result<Seen, super::client::CallError> {
    let request = api::ContainerStatusRequest { container_id: id.to_owned(), verbose: with_pid };
    let answer = context.client.container_status(request).await?;
    let status = answer.status.unwrap_or_default();
    let pid = if with_pid { pid(&answer.info) } else { None };
    let message = match status.state() {
        api::ContainerState::ContainerExited => termination_message(context, entry, &status).await,
        _ => String::new(),
    };
    Ok(Seen { status, pid, message })
}

/// Enters it into the pod's state. True if the container ended with that, and was not known to.
pub(super) fn enter(context: &Arc<Context>, entry: &Arc<PodEntry>, seen: &Seen) -> bool {
    let status = &seen.status;
    let Some(name) = status.labels.get(labels::CONTAINER_NAME) else { return false };
    let ended = {
        let mut state = entry.lock();
        let is_unfinished = |run: &&mut Run| run.end.is_none();
        let Some(run) = state.run(name, &status.id).filter(is_unfinished) else { return false };
        run.started_at = time(status.started_at).or(run.started_at);
        let exited = status.state() == api::ContainerState::ContainerExited;
        if exited {
            let exit = exit(status, &seen.message);
            run.end = Some(end(exit, run.backoff, context));
        }
        exited
    };
    if ended {
        entry.announce();
    } else if seen.pid.is_some() {
        exits::watch(context, entry, name, &status.id, seen.pid);
    }
    ended
}

/// Enters that a container is gone and nobody saw how it ended.
pub(super) fn enter_lost(context: &Context, entry: &PodEntry, name: &str, id: &str) {
    let is_news = {
        let mut state = entry.lock();
        match state.run(name, id).filter(|run| run.end.is_none()) {
            Some(run) => {
                let exit = ContainerExit {
                    exit_code: 137,
                    signal: None,
                    reason: "ContainerStatusUnknown".into(),
                    message: "the container is gone and its exit code is not known".to_owned(),
                    started_at: run.started_at,
                    finished_at: Some(context.config.wall.now()),
                };
                run.end = Some(end(exit, run.backoff, context));
                true
            }
            None => false,
        }
    };
    if is_news {
        entry.announce();
    }
}

/// A moment as the wire has it: nanoseconds since 1970, 0 for none.
pub(super) fn time(nanoseconds: i64) -> Option<WallTime> {
    (nanoseconds > 0).then(|| WallTime::from_nanosecond(i128::from(nanoseconds)).ok())?
}

fn end(exit: ContainerExit, follows: Duration, context: &Context) -> End {
    let length = |from: Option<WallTime>, to: Option<WallTime>| {
        let (from, to) = (from?, to?);
        Duration::try_from(to.duration_since(from)).ok()
    };
    let ran = length(exit.started_at, exit.finished_at).unwrap_or_default();
    let since = length(exit.finished_at, Some(context.config.wall.now())).unwrap_or_default();
    let wait = wait(&context.config.backoff, follows, ran).saturating_sub(since);
    End { exit, ran, restart_at: Instant::now() + wait }
}

fn wait(backoff: &Backoff, follows: Duration, ran: Duration) -> Duration {
    backoff.after(follows, ran)
}

fn exit(status: &api::ContainerStatus, message: &str) -> ContainerExit {
    let reason = match (status.reason.as_str(), status.exit_code) {
        ("", 0) => "Completed",
        ("", _) => "Error",
        (reason, _) => reason,
    };
    let message = if message.is_empty() { &status.message } else { message };
    ContainerExit {
        exit_code: status.exit_code,
        // The interface does not tell a signal's victim from a program that chose the same code.
        signal: None,
        reason: reason.into(),
        message: message.to_owned(),
        started_at: time(status.started_at),
        finished_at: time(status.finished_at),
    }
}

async fn termination_message(
    context: &Context,
    entry: &PodEntry,
    status: &api::ContainerStatus,
) -> String {
    let attempt = status.metadata.as_ref().map_or(0, |m| m.attempt);
    let Some(facts) = labels::read_container(&status.labels, &status.annotations) else {
        return String::new();
    };
    let file = dirs::termination_log(&context.config, entry.uid(), &facts.name, attempt);
    let policy = facts.spec.termination_message_policy.as_deref();
    let fall_back = policy == Some(labels::FALL_BACK_TO_LOGS) && status.exit_code != 0;
    let log = fall_back.then(|| PathBuf::from(&status.log_path));
    let read = move || logs::termination_message(&file, log.as_deref());
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

/// The pid that containerd and CRI-O put into the verbose answer.
fn pid(info: &HashMap<String, String>) -> Option<i32> {
    #[derive(serde::Deserialize)]
    struct Info {
        pid: i32,
    }
    let info: Info = serde_json::from_str(info.get("info")?).ok()?;
    (info.pid > 0).then_some(info.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_is_read_from_the_verbose_answer_or_is_not_there() {
        let info = |text: &str| HashMap::from([("info".to_owned(), text.to_owned())]);
        assert_eq!(pid(&info(r#"{"sandboxID":"x","pid":4711,"removing":false}"#)), Some(4711));
        for text in [r#"{"pid":0}"#, r#"{"pid":"x"}"#, "{}", "", "[]"] {
            assert_eq!(pid(&info(text)), None, "{text}");
        }
        assert_eq!(pid(&HashMap::new()), None);
    }

    #[test]
    fn an_exit_without_a_reason_gets_one_from_its_code() {
        let status = |code, reason: &str| api::ContainerStatus {
            exit_code: code,
            reason: reason.to_owned(),
            message: "from the runtime".to_owned(),
            ..api::ContainerStatus::default()
        };
        assert_eq!(&*exit(&status(0, ""), "").reason, "Completed");
        assert_eq!(&*exit(&status(2, ""), "").reason, "Error");
        assert_eq!(&*exit(&status(137, "OOMKilled"), "").reason, "OOMKilled");
        assert_eq!(exit(&status(2, ""), "own words").message, "own words");
        assert_eq!(exit(&status(2, ""), "").message, "from the runtime");
    }

    #[test]
    fn zero_is_no_time() {
        assert_eq!((time(0), time(-1)), (None, None));
        assert_eq!(time(1_000_000_000).map(|t| t.as_second()), Some(1));
    }
}
