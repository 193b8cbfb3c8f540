//! Records the runtime's report about a container.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use winddown_engine::files;
use winddown_engine::stopping::{KILLED, unknown_end};
use winddown_shared::{ContainerExit, WallTime};

use super::pod::{self, PodEntry, Run};
use super::{CriContext, api, dirs, labels};

/// The runtime's report about a container, with the termination message from disk.
pub(super) struct ObservedContainer {
    pub(super) status: api::ContainerStatus,
    /// The container's first process; `None` unless it was requested and the container runs.
    pub(super) process: Option<FirstProcess>,
    /// The termination message of an exited container.
    message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FirstProcess {
    /// PID in the node's PID namespace.
    pub(super) pid: i32,
    /// Whether it is an ordinary process of this kernel.
    pub(super) is_plain: bool,
}

/// What the verbose answer of containerd and CRI-O says of a container's first process.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ReportedProcess {
    /// PID in the node's PID namespace.
    pub(super) pid: i32,
    /// For example `io.containerd.runc.v2`; empty for CRI-O.
    pub(super) runtime_type: String,
    #[serde(rename = "sandboxID")]
    pub(super) sandbox: String,
}

/// The stage of a container's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerStage {
    /// It was created but not started, or is being started.
    Created,
    /// It was started, and may have exited since.
    Started,
    /// It exited without ever having been started.
    NeverRun,
    /// The runtime does not know.
    Unknown,
}

impl ObservedContainer {
    /// The runtime's report without the message on disk.
    #[cfg(any(test, fuzzing))]
    pub(super) fn without_message(status: api::ContainerStatus) -> Self {
        Self { status, process: None, message: String::new() }
    }

    pub(super) fn stage(&self) -> ContainerStage {
        match self.status.state() {
            api::ContainerState::ContainerCreated => ContainerStage::Created,
            api::ContainerState::ContainerRunning => ContainerStage::Started,
            api::ContainerState::ContainerExited if never_ran(&self.status) => {
                ContainerStage::NeverRun
            }
            api::ContainerState::ContainerExited => ContainerStage::Started,
            api::ContainerState::ContainerUnknown => ContainerStage::Unknown,
        }
    }

    pub(super) fn exit(&self) -> Option<ContainerExit> {
        let ended = self.status.state() == api::ContainerState::ContainerExited;
        ended.then(|| exit(&self.status, &self.message))
    }
}

/// Asks for a container's status, and reads its termination message if it has exited.
///
/// # Errors
/// The runtime does not know the container, or does not answer.
pub(super) async fn ask(
    context: &CriContext,
    entry: &PodEntry,
    id: &str,
    with_pid: bool,
) -> Result<ObservedContainer, super::client::CallError> {
    let request = api::ContainerStatusRequest { container_id: id.to_owned(), verbose: with_pid };
    let answer = context.client.container_status(request).await?;
    let status = answer.status.unwrap_or_default();
    let process = match process(&answer.info).filter(|_| with_pid) {
        Some(ReportedProcess { pid, runtime_type, sandbox }) => {
            let handler = entry.lock().own.handler_of(&sandbox);
            let runtime = (&context.client, context.health.borrow().epoch);
            let is_plain =
                context.handlers.is_plain(runtime, &runtime_type, handler.as_deref()).await?;
            Some(FirstProcess { pid, is_plain })
        }
        None => None,
    };
    let message = match status.state() {
        api::ContainerState::ContainerExited => termination_message(context, entry, &status).await,
        _ => String::new(),
    };
    Ok(ObservedContainer { status, process, message })
}

/// Records the report in the pod's state. Returns whether the container has exited.
pub(super) fn enter(context: &CriContext, entry: &PodEntry, seen: &ObservedContainer) -> bool {
    let status = &seen.status;
    let Some(name) = status.labels.get(labels::CONTAINER_NAME) else { return false };
    let ended = {
        let mut state = entry.lock();
        let Some(run) = state.run(name, &status.id) else { return false };
        if pod::is_settled(run) {
            return true;
        }
        run.started_at = time(status.started_at).or(run.started_at);
        run.image_id = status.image_ref.as_str().into();
        let exited = status.state() == api::ContainerState::ContainerExited;
        if exited {
            run.undone = never_ran(status) && !run.own.refused;
            finish(run, exit(status, &seen.message), context);
        }
        exited
    };
    if ended {
        entry.announce();
    }
    ended
}

/// Records that a container is gone without its exit having been observed.
pub(super) fn enter_lost(context: &CriContext, entry: &PodEntry, name: &str, id: &str) {
    let is_news = {
        let mut state = entry.lock();
        match state.run(name, id).filter(|run| !pod::is_settled(run)) {
            // The kernel reported how it ended; there is no better source.
            Some(run) if run.end.is_some() => {
                run.own.early = false;
                true
            }
            Some(run) => {
                let message = "the container is gone and its exit code is not known";
                let exit = unknown_end(message, run.started_at, context.config.wall.now());
                finish(run, exit, context);
                true
            }
            None => false,
        }
    };
    if is_news {
        entry.announce();
    }
}

/// Records that a container was removed without having been started. Its start is made again if the pod comes back.
pub(super) fn enter_removed(context: &CriContext, entry: &PodEntry, name: &str, id: &str) {
    let mut state = entry.lock();
    let Some(run) = state.run(name, id).filter(|run| run.end.is_none()) else { return };
    run.undone = true;
    let exit = unknown_end("it was never started", None, context.config.wall.now());
    finish(run, exit, context);
}

/// How a container ended, as far as the kernel shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyEnd {
    pub(super) code: i32,
    /// Whether the kernel killed a process of the container because it ran out of memory.
    pub(super) is_out_of_memory: bool,
    /// Whether nothing is left in the container's cgroup.
    pub(super) has_left: bool,
}

/// Records the exit of a container that was asked to stop, as the kernel shows it, with its termination message. Returns
/// false if the pod is not being stopped: then there is time to ask the runtime, which knows more.
///
/// When the first process of a PID namespace exits, everything in the namespace is killed. Containers that share one
/// may leave processes behind, which the runtime kills: also false while there are any.
pub(super) async fn enter_early(
    context: &CriContext,
    entry: &PodEntry,
    (name, id): (&str, &str),
    end: EarlyEnd,
) -> bool {
    let Some((file, log)) = message_of_early(context, entry, (name, id), end) else {
        return false;
    };
    let finished_at = Some(context.config.wall.now());
    let message = context.messages.in_stop(file, log).await;
    {
        let mut state = entry.lock();
        let Some(run) = state.run(name, id).filter(|run| run.end.is_none()) else { return false };
        let mut exit = ContainerExit::new(end.code);
        if end.is_out_of_memory && end.code != 0 {
            exit.reason = "OOMKilled".into();
        }
        exit.message = message;
        (exit.started_at, exit.finished_at) = (run.started_at, finished_at);
        finish(run, exit, context);
        run.own.early = true;
    }
    entry.announce();
    true
}

/// Where the termination message of a run is whose exit may be recorded early.
fn message_of_early(
    context: &CriContext,
    entry: &PodEntry,
    (name, id): (&str, &str),
    end: EarlyEnd,
) -> Option<(PathBuf, Option<PathBuf>)> {
    let mut state = entry.lock();
    let shares = state.pod.as_ref().is_none_or(|pod| {
        let spec = pod.spec.as_ref();
        spec.is_none_or(|s| s.host_pid == Some(true) || s.share_process_namespace == Some(true))
    });
    if (shares && !end.has_left) || !state.stopping {
        return None;
    }
    let attempt = state.run(name, id).filter(|run| run.end.is_none())?.attempt;
    let container = state.containers.iter().find(|container| *container.name == *name)?;
    let policy = state.spec_of(container).and_then(|spec| spec.termination_message_policy.clone());
    let pod = state.pod_ref(entry.uid());
    let logs = files::pod_logs(&context.config.logs.dir, &pod.namespace, &pod.name, &pod.uid);
    let log = logs.join(files::run_log(name, attempt));
    let file = dirs::termination_log(&context.config, entry.uid(), name, attempt);
    Some((file, falls_back(policy.as_deref(), end.code).then_some(log)))
}

/// Whether the end of the log stands in for an empty termination message.
fn falls_back(policy: Option<&str>, exit_code: i32) -> bool {
    policy == Some(labels::FALL_BACK_TO_LOGS) && exit_code != 0
}

/// Whether an exited container never started its program.
fn never_ran(status: &api::ContainerStatus) -> bool {
    status.started_at <= 0
}

/// A time as CRI encodes it: nanoseconds since 1970, 0 for none.
pub(super) fn time(nanoseconds: i64) -> Option<WallTime> {
    (nanoseconds > 0).then(|| WallTime::from_nanosecond(i128::from(nanoseconds)).ok())?
}

pub(super) fn finish(run: &mut Run, exit: ContainerExit, context: &CriContext) {
    let length = |from: Option<WallTime>, to: Option<WallTime>| {
        let (from, to) = (from?, to?);
        Duration::try_from(to.duration_since(from)).ok()
    };
    let ran = length(exit.started_at, exit.finished_at).unwrap_or_default();
    let since = length(exit.finished_at, Some(context.config.wall.now())).unwrap_or_default();
    run.own.early = false;
    run.own.direct = None;
    // A container that exited by itself while it was about to be killed was not killed.
    run.forced &= exit.exit_code == KILLED;
    run.finish(exit, (ran, since), &context.config.backoff);
}

fn exit(status: &api::ContainerStatus, message: &str) -> ContainerExit {
    let message = if message.is_empty() { &status.message } else { message };
    let finished_at = time(status.finished_at);
    // containerd records the start when the call returns: on a busy machine a short run has exited by then.
    let started_at =
        time(status.started_at).map(|at| finished_at.map_or(at, |finished| at.min(finished)));
    // CRI does not distinguish a process killed by a signal from one that exited with the same code.
    let mut exit = ContainerExit::new(status.exit_code);
    if !status.reason.is_empty() {
        exit.reason = status.reason.as_str().into();
    }
    message.clone_into(&mut exit.message);
    (exit.started_at, exit.finished_at) = (started_at, finished_at);
    exit
}

async fn termination_message(
    context: &CriContext,
    entry: &PodEntry,
    status: &api::ContainerStatus,
) -> String {
    let attempt = status.metadata.as_ref().map_or(0, |m| m.attempt);
    let Some(facts) = labels::read_container(&status.labels, &status.annotations) else {
        return String::new();
    };
    let file = dirs::termination_log(&context.config, entry.uid(), &facts.name, attempt);
    let policy = facts.spec.termination_message_policy.as_deref();
    let log = falls_back(policy, status.exit_code).then(|| PathBuf::from(&status.log_path));
    context.messages.of_container(file, log).await
}

pub(super) fn process(info: &HashMap<String, String>) -> Option<ReportedProcess> {
    let process: ReportedProcess = serde_json::from_str(info.get("info")?).ok()?;
    (process.pid > 0).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_read_from_the_verbose_answer_or_is_not_there() {
        let info = |text: &str| HashMap::from([("info".to_owned(), text.to_owned())]);
        let told = r#"{"sandboxID":"x","pid":4711,"runtimeType":"io.containerd.runc.v2"}"#;
        let found = process(&info(told)).unwrap();
        assert_eq!((found.pid, found.runtime_type.as_str()), (4711, "io.containerd.runc.v2"));
        assert_eq!(found.sandbox, "x");
        assert_eq!(process(&info(r#"{"pid":1}"#)).unwrap().runtime_type, "");
        for text in [r#"{"pid":0}"#, r#"{"pid":"x"}"#, "{}", "", "[]"] {
            assert_eq!(process(&info(text)), None, "{text}");
        }
        assert_eq!(process(&HashMap::new()), None);
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
    fn a_run_that_was_over_before_its_start_was_noted_did_not_end_before_it_began() {
        let exit = |started_at, finished_at| {
            let times = api::ContainerStatus { started_at, finished_at, ..Default::default() };
            let exit = exit(&times, "");
            (exit.started_at.map(|at| at.as_second()), exit.finished_at.map(|at| at.as_second()))
        };
        let second = 1_000_000_000;
        assert_eq!(exit(5 * second, 4 * second), (Some(4), Some(4)));
        assert_eq!(exit(3 * second, 4 * second), (Some(3), Some(4)));
        assert_eq!(exit(3 * second, 0), (Some(3), None));
        assert_eq!(exit(0, 4 * second), (None, Some(4)));
    }

    #[test]
    fn zero_is_no_time() {
        assert_eq!((time(0), time(-1)), (None, None));
        assert_eq!(time(1_000_000_000).map(|t| t.as_second()), Some(1));
    }
}
