//! Learns when a container exits.
//!
//! There are two sources, and the first to report wins: the runtime's own events ([`events`](super::events)), and a
//! pidfd of the container's first process. The kernel reports before a busy runtime does, so the exit of a
//! container that was asked to stop is taken from the kernel, including the code where the kernel provides it
//! (Linux 6.15), with the termination message and what its control group says (`OOMKilled`): the status of a pod that has
//! terminated is final. The runtime's report is recorded when it arrives.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::time::{Instant, sleep, timeout};
use winddown_engine::stats::CgroupDirs;
use winddown_host::ready::Ready;
use winddown_shared::{Backoff, critical, error_chain};

use super::direct::Direct;
use super::pod::{self, PodEntry};
use super::process_note::{self, Note};
use super::{CriContext, labels, observe, pod_groups};

mod code;

/// The longest wait between two questions to a runtime that has not noticed an exit yet.
const MAX_QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// How long the runtime is given to notice an exit that the kernel has reported.
const EXIT_NOTICE_TIMEOUT: Duration = Duration::from_secs(30);

/// Records the runtime's report about a container, and watches it if it runs. Returns whether it has exited.
pub(super) fn enter(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    seen: &observe::ObservedContainer,
) -> bool {
    let has_ended = observe::enter(context, entry, seen);
    let status = &seen.status;
    if !has_ended
        && let Some(process) = &seen.process
        && let Some(facts) = labels::read_container(&status.labels, &status.annotations)
    {
        watch(context, entry, (&facts.name, &status.id), process, facts.stop_signal.as_deref());
    }
    has_ended
}

/// Waits for the exit of the container's first process, once per run.
///
/// Costs one small task and one descriptor, and no CPU while the container runs.
pub(super) fn watch(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    (name, id): (&str, &str),
    process: &observe::FirstProcess,
    stop_signal: Option<&str>,
) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Some(name) = claim(entry, name, id) else { return };
    let ended = match pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from) {
        // It has exited already; the runtime is asked at once.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => None,
        opened => match opened.and_then(Ready::new) {
            Ok(ended) => Some(Arc::new(ended)),
            Err(error) => {
                // The next listing tries again.
                tracing::warn!(pod = %pod::title(entry), container = %name, error = error_chain(&error), "cannot watch a container's process");
                if let Some(run) = entry.lock().run(&name, id) {
                    run.own.watched = false;
                }
                return;
            }
        },
    };
    let places = (&*context.config.paths.proc, &*context.config.cgroups.mount);
    let cgroup = CgroupDirs::of_process(places, process.pid, id).map(Box::new);
    if let Some(run) = entry.lock().run(&name, id) {
        run.own.pid = (process.pid > 0).then_some(process.pid);
        run.own.cgroup = cgroup;
    }
    if let Some(ended) =
        ended.as_ref().filter(|_| context.config.signal_directly && process.is_plain)
    {
        signal_directly(context, entry, (&name, id), (ended, process.pid), stop_signal);
    }
    let pid = process.pid;
    let (context, entry, id) = (Arc::clone(context), Arc::clone(entry), Arc::<str>::from(id));
    let mut alive = context.alive.clone();
    critical::spawn("watcher of a container", async move {
        let work = async {
            if let Some(ended) = ended {
                let _ = ended.readable().await;
                // Boxed, to keep the task small while the container runs.
                Box::pin(take_end(&context, &entry, (&name, &id), (&ended, pid))).await;
            }
            Box::pin(settle(&context, &entry, &name, &id)).await;
        };
        tokio::select! {
            () = work => {}
            () = pod::settled(&entry, &name, &id) => {}
            _ = alive.changed() => {}
        }
    });
}

/// Notes that the run is watched. Returns the container's name, unless the run is over or watched already.
fn claim(entry: &PodEntry, name: &str, id: &str) -> Option<Arc<str>> {
    let mut state = entry.lock();
    let container = state.container(name)?;
    let name = Arc::clone(&container.name);
    let run = container.run.as_mut().filter(|run| &*run.id == id && run.end.is_none())?;
    let was_watched = std::mem::replace(&mut run.own.watched, true);
    (!was_watched).then_some(name)
}

/// Prepares to signal the container's first process directly, and keeps on disk which one that is.
fn signal_directly(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    (name, id): (&str, &str),
    (ended, pid): (&Arc<Ready>, i32),
    stop_signal: Option<&str>,
) {
    let direct = Direct::of(ended, pid, id, stop_signal).map(Arc::new);
    if let Some(run) = entry.lock().run(name, id).filter(|run| run.end.is_none()) {
        if direct.is_some() {
            let known = Note {
                id: id.to_owned(),
                sandbox: run.own.sandbox.to_string(),
                pid,
                signal: stop_signal.map(str::to_owned),
            };
            process_note::write(&context.config, entry.uid(), (name, run.attempt), &known);
        }
        run.own.direct = direct;
    }
}

/// Records the exit of a container's first process, as far as the kernel reports it and it is needed now.
async fn take_end(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    (name, id): (&str, &str),
    (ended, pid): (&Ready, i32),
) {
    tracing::trace!(pod = %pod::title(entry), container = name, "its first process has ended");
    // First of all: the runtime removes the control group.
    let cgroup = entry.lock().run(name, id).and_then(|run| run.own.cgroup.take());
    let is_out_of_memory = cgroup.as_ref().is_some_and(|cgroup| cgroup.ran_out_of_memory());
    let code = code::exit_code(ended, pid).await;
    let enter_early = async || {
        let Some(code) = code else { return false };
        let has_left = cgroup.as_ref().is_some_and(|cgroup| has_left(cgroup));
        let end = observe::EarlyEnd { code, is_out_of_memory, has_left };
        observe::enter_early(context, entry, (name, id), end).await
    };
    if enter_early().await {
        // The runtime is busy with other containers; the details that it adds can wait.
        return sleep(MAX_QUERY_INTERVAL).await;
    }
    let patience = entry.lock().exit_report_timeout();
    let settled = timeout(patience, settle(context, entry, name, id)).await;
    // It has exited, and a stop does not have to wait for a hung runtime.
    if settled.is_err() && !enter_early().await && code.is_none() && entry.lock().stopping {
        observe::enter_lost(context, entry, name, id);
    }
}

/// Whether nothing is left in a container's cgroup, which may be removed by now.
fn has_left(cgroup: &CgroupDirs) -> bool {
    let path = cgroup.path();
    path.try_exists().is_ok_and(|there| !there) || pod_groups::have_left(&[path.to_owned()])
}

/// Records the exit of a container in whose cgroup nothing is left although the kernel does not report that its first
/// process has exited: that one waits for what was executed in the container to be reaped, and a hung shim reaps nothing.
/// Returns whether that is so.
pub(super) async fn take_unreaped(
    context: &CriContext,
    entry: &PodEntry,
    (name, id): (&str, &str),
    (ended, pid): (&Ready, i32),
) -> bool {
    let cgroup = entry.lock().run(name, id).and_then(|run| run.own.cgroup.clone());
    let Some(cgroup) = cgroup.filter(|_| !ended.is_readable()) else { return false };
    if !has_left(&cgroup) {
        return false;
    }
    let Some(code) = code::exit_code(ended, pid).await else { return false };
    let is_out_of_memory = cgroup.ran_out_of_memory();
    let end = observe::EarlyEnd { code, is_out_of_memory, has_left: true };
    observe::enter_early(context, entry, (name, id), end).await
}

/// Like [`settle`], in a task of its own. If the task fails, the container counts as running for ever, so the process
/// fails with it.
pub(super) fn settle_apart(context: &Arc<CriContext>, entry: &Arc<PodEntry>, name: &str, id: &str) {
    let (context, entry) = (Arc::clone(context), Arc::clone(entry));
    let (name, id) = (name.to_owned(), id.to_owned());
    critical::spawn("exit of a container", async move {
        settle(&context, &entry, &name, &id).await;
    });
}

/// Asks the runtime how an exited container ended, until the runtime knows that it has; only one caller asks
/// at a time. Gives up after a while; the next listing then finds it.
pub(super) async fn settle(context: &Arc<CriContext>, entry: &Arc<PodEntry>, name: &str, id: &str) {
    let begun = {
        let mut state = entry.lock();
        let run = state.run(name, id).filter(|run| !pod::is_settled(run));
        run.is_some_and(|run| !std::mem::replace(&mut run.own.settling, true))
    };
    if !begun {
        return;
    }
    let settling = Settling { entry, name, id };
    let deadline = Instant::now() + EXIT_NOTICE_TIMEOUT;
    let mut backoff = Backoff::new(Duration::from_millis(2), MAX_QUERY_INTERVAL);
    while Instant::now() < deadline {
        match observe::ask(context, entry, id, false).await {
            Ok(seen) if observe::enter(context, entry, &seen) => break,
            Err(error) if error.is_not_found() => {
                observe::enter_lost(context, entry, name, id);
                break;
            }
            _ => {}
        }
        sleep(backoff.next_delay()).await;
    }
    drop(settling);
}

/// Lets other callers ask again when it is dropped, even if the asking future itself is dropped.
struct Settling<'a> {
    entry: &'a PodEntry,
    name: &'a str,
    id: &'a str,
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.entry.lock().run(self.name, self.id) {
            run.own.settling = false;
        }
        self.entry.bump();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests make what is read")]

    use std::fs;
    use std::process::Command;

    use serde_json::json;
    use winddown_runtimes_tests::Fault;
    use winddown_shared::{ContainerExit, Runtime as _};

    use super::*;
    use crate::dirs;
    use crate::scene::scene_of;

    /// The exit of a container, in a stop, whose first process exits with this code after one was killed for its memory.
    async fn exit_in_a_stop(code: i32, shares_processes: bool) -> ContainerExit {
        let dir = tempfile::tempdir().unwrap();
        let spec = json!({"shareProcessNamespace": shares_processes,
            "containers": [{"name": "main", "image": "app:1"}]});
        let (cri, config, runtime, pod) = scene_of(dir.path(), &spec).await;
        runtime.sync_pod(&pod).await.unwrap();
        fs::write(dirs::termination_log(&config, pod.uid(), "main", 0), "bye").unwrap();
        let group = dir.path().join("group");
        fs::create_dir(&group).unwrap();
        let files = [
            ("memory.current", "0"),
            ("memory.events", "oom 1\noom_kill 1\n"),
            ("cgroup.procs", ""),
        ];
        for (file, text) in files {
            fs::write(group.join(file), text).unwrap();
        }

        let entry = runtime.context.pods.get(pod.uid()).unwrap();
        let id = {
            let mut state = entry.lock();
            state.stopping = true;
            let run = state.containers[0].run.as_mut().unwrap();
            let cgroup = CgroupDirs::among(&[group]).unwrap();
            run.own.cgroup = Some(Box::new(cgroup));
            Arc::clone(&run.id)
        };
        let mut child = Command::new("sh").args(["-c", &format!("exit {code}")]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        let ended = Ready::new(process).unwrap();
        ended.readable().await.unwrap();
        cri.script("ContainerStatus", 1000, Fault::Hang);
        // The time that the message has does not go by while a thread reads it.
        tokio::time::pause();
        take_end(&runtime.context, &entry, ("main", &id), (&ended, pid)).await;
        tokio::time::resume();
        child.wait().unwrap();
        let mut state = entry.lock();
        state.run("main", &id).unwrap().end.clone().unwrap().exit
    }

    /// The runtime says more only later, and the status of a pod that has terminated is final.
    #[tokio::test]
    async fn an_exit_in_a_stop_has_its_message_and_names_a_lack_of_memory() {
        for (code, reason) in [(3, "OOMKilled"), (0, "Completed")] {
            // With containers that share one, nothing may be left in its control group.
            for shares_processes in [false, true] {
                let exit = exit_in_a_stop(code, shares_processes).await;
                let said = (exit.exit_code, &*exit.reason, exit.message.as_str());
                assert_eq!(said, (code, reason, "bye"));
            }
        }
    }
}
