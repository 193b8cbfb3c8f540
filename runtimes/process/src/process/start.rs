//! Starts one attempt of a container.
//!
//! The order of the steps makes it safe for the agent to die between any two of them: the attempt's directory is
//! created (durably) first, its lock is taken before the supervisor exists and passes to it, and the supervisor runs
//! nothing before it has received the whole order and recorded the pid. An attempt that is found later without that
//! record and without a holder of the lock never ran.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use winddown_engine::container_plan;
use winddown_host::{PodFiles, ready::Ready, regular};
use winddown_shared::{Pod, RuntimeError, error_chain};
use winddown_shim::procfs::{self, Process};
use winddown_shim::record::{self, RecordError};

use super::{Context, watcher};
use crate::programs::config::SHIM;
use crate::programs::draft::AttemptDraft;
use crate::programs::pod::{self, PodEntry, Starting};
use crate::programs::{blocking_on, caused, failed};

/// What a pipe holds unless it is enlarged, in bytes.
const PIPE_BYTES: usize = 64 * 1024;

/// Starts an attempt. Resolves when its process runs; the start continues if the future is dropped.
///
/// # Errors
/// The supervisor cannot be started, or does not report in time that the container runs.
pub(super) async fn start(
    context: &Arc<Context>,
    starting: Starting,
    pod: &Pod,
    name: &Arc<str>,
    next: (u32, Duration),
) -> Result<(), RuntimeError> {
    let (context, pod, name) = (Arc::clone(context), pod.clone(), Arc::clone(name));
    blocking_on(PodFiles::Make, move || {
        let mut left = START_TRIES;
        loop {
            let attempt = Attempt::prepare(&context, &starting, &pod, &name, next)?;
            let Some(attempt) = attempt else { return Ok(()) };
            left -= 1;
            match attempt.run() {
                Err(Failure { error, has_lost_cgroup: true }) if left > 0 => {
                    tracing::debug!(%name, error = error_chain(&error), "its cgroup was removed");
                }
                outcome => return outcome.map_err(|failure| failure.error),
            }
        }
    })
    .await
}

/// How often a start is tried again whose empty cgroup was removed before its process entered it: by systemd, or by a
/// cleanup of the pod that was abandoned and goes on in its thread.
const START_TRIES: u32 = 3;

/// Why an attempt does not run.
struct Failure {
    error: RuntimeError,
    /// Whether one of its cgroups does not exist any more.
    has_lost_cgroup: bool,
}

/// An attempt that exists on disk but does not run yet.
struct Attempt<'a> {
    context: &'a Arc<Context>,
    starting: &'a Starting,
    name: &'a Arc<str>,
    number: u32,
    draft: AttemptDraft,
    /// Excludes other starts of the container.
    _turn: Arc<()>,
}

impl<'a> Attempt<'a> {
    fn prepare(
        context: &'a Arc<Context>,
        starting: &'a Starting,
        pod: &Pod,
        name: &'a Arc<str>,
        next: (u32, Duration),
    ) -> Result<Option<Self>, RuntimeError> {
        let number = next.0;
        let turn = take_turn(starting.entry(), name, number)?;
        let Some(found) = container_plan::find(pod, name) else { return Ok(None) };
        let cgroups = context.driver.cgroups.make(pod, &found.container, number)?;
        let draft = AttemptDraft::new(context, pod, name, next, cgroups)?;
        let Some(draft) = draft else { return Ok(None) };
        let attempt = Self { context, starting, name, number, draft, _turn: turn };
        attempt.write(pod).map_err(|e| {
            caused(format!("cannot prepare container {name} of pod {}", pod.pod_ref()), e)
        })?;
        Ok(Some(attempt))
    }

    fn write(&self, pod: &Pod) -> Result<(), RecordError> {
        let Self { context, draft, .. } = self;
        draft.make_room(context, pod)?;
        // A failed start may have left it, because no file descriptor was left to remove it.
        if is_supervised(&draft.dir).is_ok_and(|is_supervised| !is_supervised) {
            let _ = std::fs::remove_dir_all(&draft.dir);
        }
        // Fails if it exists: the same attempt is never started twice.
        std::fs::create_dir(&draft.dir).map_err(RecordError::new("create", &draft.dir))?;
        record::make_passage(&draft.dir)?;
        draft.write(|| Ok(()))
    }

    /// Starts the supervisor and waits until it reports that the container runs.
    fn run(self) -> Result<(), Failure> {
        let outcome = self.spawn().and_then(|(supervisor, report)| {
            let entry = self.starting.entry();
            let launching = || entry.lock();
            launching().own.push(Arc::clone(&supervisor));
            let said = self.await_report(&supervisor, report);
            launching().own.retain(|s| !Arc::ptr_eq(s, &supervisor));
            if said.is_err() {
                // Whatever went wrong, no process of the attempt may remain.
                let _ = supervisor.signal(rustix::process::Signal::KILL);
                watcher::end_leftovers(
                    &self.context.config,
                    (entry.uid(), self.name),
                    &self.draft.record.cgroups,
                );
                supervisor.ended_within(1000);
                supervisor.reap();
            }
            said
        });
        outcome.map_err(|error| {
            let has_lost_cgroup = self.draft.record.cgroups.iter().any(|dir| !dir.exists());
            self.draft.withdraw();
            Failure { error, has_lost_cgroup }
        })
    }

    /// Returns the supervisor and its stdout.
    fn spawn(&self) -> Result<(Arc<Process>, File), RuntimeError> {
        let lock_path = self.draft.dir.join(record::SUPERVISOR);
        let broken = |what: &str| {
            let what = format!("{what} of container {}", self.name);
            move |e: io::Error| caused(what, e)
        };
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(broken("cannot create the lock"))?;
        lock.lock_shared().map_err(broken("cannot take the lock"))?;
        let (report, report_end) = io::pipe().map_err(broken("cannot make a pipe"))?;
        if self.starting.entry().lock().stopping {
            return Err(failed("the pod is being stopped".to_owned()));
        }
        let shim = &self.context.config.shim;
        let mut command = Command::new(&shim.program);
        command.arg0(SHIM);
        command.args(&shim.args).arg("run").arg(&self.draft.dir).env_clear();
        command.stdin(Stdio::piped()).stdout(report_end).stderr(Stdio::from(lock));
        let mut child = command.spawn().map_err(broken("cannot start the supervisor"))?;
        let pid = i32::try_from(child.id()).unwrap_or(0);
        // It is our child and not reaped yet, so the pid cannot have been reused.
        let opened = Process::open_any(pid).and_then(|p| p.ok_or(io::ErrorKind::NotFound.into()));
        let process = match opened {
            Ok(process) => process,
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(broken("cannot watch the supervisor")(error));
            }
        };
        let order =
            serde_json::to_vec(&self.draft.order).map_err(|e| broken("the order")(e.into()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // EPIPE: the supervisor has failed and reports why through the other pipe.
            let _ = send(&mut stdin, &order);
        }
        Ok((Arc::new(process), File::from(OwnedFd::from(report))))
    }

    /// Waits for the supervisor's report and enters the run in the pod's state.
    fn await_report(
        &self,
        supervisor: &Arc<Process>,
        mut report: File,
    ) -> Result<(), RuntimeError> {
        let config = &self.context.config;
        let line = first_line(&mut report, config.start_timeout).map_err(|e| {
            if e.kind() == io::ErrorKind::TimedOut {
                let what = format!("starting container {}", self.name);
                return RuntimeError::Timeout { what, after: config.start_timeout };
            }
            caused(format!("the supervisor of container {} said nothing", self.name), e)
        })?;
        let mut words = line.splitn(2, ' ');
        let numbers = match (words.next(), words.next()) {
            (Some("started"), Some(rest)) => rest.split_once(' '),
            (Some("failed"), Some(why)) => {
                return Err(failed(format!("cannot start container {}: {why}", self.name)));
            }
            _ => None,
        };
        let main = numbers.and_then(|(pid, at)| Some((pid.parse().ok()?, at.parse().ok()?)));
        let Some((pid, start_time)) = main else {
            let what = format!("the supervisor of container {} said {line:?}", self.name);
            return Err(failed(what));
        };
        // None: the process has exited already, and its record is about to be written.
        let main = Process::open(&config.proc_root, record::ProcessIdentity { pid, start_time });
        let main = main.ok().flatten().map(Arc::new);
        let ended = Ready::new(report.into())
            .map_err(|e| caused(format!("cannot watch container {}", self.name), e))?;
        self.enter(supervisor, main);
        let watched = watcher::WatchedRun {
            name: Arc::clone(self.name),
            attempt: self.number,
            dir: self.draft.dir.clone(),
            supervisor: Arc::clone(supervisor),
        };
        watcher::watch(self.context, self.starting.entry(), watched, ended);
        Ok(())
    }

    fn enter(&self, supervisor: &Arc<Process>, main: Option<Arc<Process>>) {
        let backoff = Duration::from_millis(self.draft.record.backoff_ms);
        let entry = self.starting.entry();
        let attempt = (entry.uid(), &**self.name, self.number);
        let mut run = pod::run(attempt, self.draft.record.created_at, backoff);
        run.own.supervisor = Some(Arc::clone(supervisor));
        run.own.main = main;
        run.own.cgroups.clone_from(&self.draft.record.cgroups);
        pod::enter(entry, self.name, run);
    }
}

/// Returns what excludes other starts of the container for as long as it exists. A start whose caller is gone
/// continues, so it may be in progress, or may have succeeded since `number` was chosen.
fn take_turn(entry: &PodEntry, name: &str, number: u32) -> Result<Arc<()>, RuntimeError> {
    let turn = Arc::new(());
    let mut state = entry.lock();
    let container = state.container(name).filter(|container| {
        let is_next = container.run.as_ref().is_none_or(|run| run.attempt < number);
        is_next && container.own.strong_count() == 0
    });
    let Some(container) = container else {
        return Err(failed(format!("container {name} is already being started")));
    };
    container.own = Arc::downgrade(&turn);
    Ok(turn)
}

/// Writes an order to a supervisor. The pipe is enlarged for it, so that a supervisor that does not read it delays
/// nothing.
pub(super) fn send(stdin: &mut ChildStdin, order: &[u8]) -> io::Result<()> {
    if order.len() > PIPE_BYTES {
        // Refused above the limit for users without privileges.
        let _ = fcntl_setpipe_size(&*stdin, order.len());
    }
    stdin.write_all(order)
}

/// Reads the first line of a supervisor's stdout.
fn first_line(report: &mut File, within: Duration) -> io::Result<String> {
    let deadline = tokio::time::Instant::now() + within;
    let mut line = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut fds = [PollFd::new(&*report, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            // The agent was stopped and continued, and has missed nothing.
            Err(Errno::INTR) => continue,
            ready => ready?,
        };
        // One byte at a time: nothing after the line may be consumed.
        let mut byte = [0];
        match report.read(&mut byte)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if byte == *b"\n" => return Ok(String::from_utf8_lossy(&line).into_owned()),
            _ => line.extend_from_slice(&byte),
        }
    }
}

/// Whether a process holds the attempt's lock, i.e. whether its supervisor runs.
pub(crate) fn is_supervised(dir: &Path) -> io::Result<bool> {
    let lock = match regular::open(&dir.join(record::SUPERVISOR)) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        opened => opened?,
    };
    match lock.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Finds the supervisor of an attempt that has not recorded its identity yet.
///
/// # Errors
/// The processes cannot be listed, or the supervisor cannot be opened.
pub(crate) fn find_supervisor(proc_root: &Path, dir: &Path) -> io::Result<Option<Process>> {
    let all = procfs::supervisors(proc_root)?;
    let Some((seen, _)) = all.into_iter().find(|(_, of)| of == dir) else { return Ok(None) };
    Process::open(proc_root, seen)
}
