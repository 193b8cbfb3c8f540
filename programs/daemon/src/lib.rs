//! The agent as a service: the node on a real runtime and the real logind, its log, and the exit of the
//! process when a critical task fails.
//!
//! # When the agent itself is broken
//!
//! An agent that runs on without one of its tasks is worse than one that exits. systemd restarts it within 0.2 s; the next
//! agent takes the lock back from systemd, finds its pods running, and resumes a shutdown from its record. So there are two
//! kinds of panic.
//!
//! * **In a step of one pod** (and in a kill, a check of mounts, a write to disk): the panic stays there. The step fails,
//!   is shown as failed and is tried again.
//! * **In a task that the node depends on**: `shared::critical` starts the task with a name and reports its panic, or its
//!   premature end, to the owner of the process. The agent (`programs/daemon/src/end_process.rs`) logs the name and exits with 9;
//!   `Restart=always` without a start limit does the rest. An embedder's `SystemdService::run` fails, or it installs a
//!   handler of its own; without either the panic is only logged. Critical tasks are, among others, the pod workers and
//!   their timer, the intake and the desired pods, the shutdown controller, logind, notices, eviction, a drain, the
//!   control server, the manifests, the listeners of the runtimes, and everything that keeps the API server up to date.
//!
//! The node is protected without the other tasks, so they are not critical: the shim (a process of its own, watched by its
//! lock), metrics over TCP, tasks that only fill in the status, writing to the journal, notes on disk, and tasks that
//! answer one caller, who notices. A test reads the sources: it fails for a task that is started directly and is not on its
//! list with a reason.
//!
//! A poisoned lock is still used. Records are consistent at every statement, and a panic outside one pod's step ends the
//! process anyway: refusing the lock would only spread the failure.

pub mod command_line;
mod end_process;
pub mod logging;
pub mod service;

use crate::logging::Log;
use winddown_node::block_on;
use winddown_shared::critical;

use end_process::EndProcess;
pub use end_process::TASK_LOST;
use service::{ServiceOptions, StartError};

/// Runs the agent until the service manager or a signal stops it. Logs to the journal or standard error.
///
/// # Errors
/// The agent could not start; nothing was changed and no pod was touched.
pub fn run(options: ServiceOptions) -> Result<(), StartError> {
    let log = crate::logging::start();
    critical::on_failure(EndProcess(log.clone()));
    // Boxed: the first thread's stack would keep a copy for each call that it is passed through.
    let work = Box::pin(service::run(options));
    let ended = block_on(logged(&log, work)).map_err(StartError::Threads)?;
    log.flush();
    ended
}

/// Runs `work`, and meanwhile writes the lines that the log holds back, when they are due.
async fn logged<T>(log: &Log, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        never = log.follow() => match never {},
    }
}
