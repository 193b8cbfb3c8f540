//! The agent as a service: the node on a real runtime and the real logind, its log, and what becomes of
//! the process when a task fails that the node's promise depends on.

pub mod command_line;
mod end_process;
pub mod service;

use std::io;
use std::time::Duration;

use winddown_logging::Log;
use winddown_shared::critical;

use end_process::EndProcess;
pub use end_process::TASK_LOST;
use service::{ServiceOptions, StartError};

/// Threads for work on disks. Each new one costs memory that the allocator does not give back; with
/// this many, several dead disks still leave room for the report.
const DISK_THREADS: usize = 8;

/// How long threads that wait for a disk may take when the process ends.
const LAST_THREADS: Duration = Duration::from_millis(500);

/// Runs the agent until the service manager or a signal ends it. Logs to the journal or standard error.
///
/// # Errors
/// The agent could not start; nothing was changed and no pod was touched.
pub fn run(options: ServiceOptions) -> Result<(), StartError> {
    let log = winddown_logging::start();
    critical::on_failure(EndProcess(log.clone()));
    let ended = block_on(logged(&log, service::run(options))).map_err(StartError::Threads)?;
    log.flush();
    ended
}

/// Does the work of a whole agent. Two threads: one slow moment of one task must not hold up a shutdown.
///
/// # Errors
/// The system gives no threads.
fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(DISK_THREADS)
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    // A thread that waits for a dead disk must not keep the process.
    runtime.shutdown_timeout(LAST_THREADS);
    Ok(result)
}

/// Does `work` while lines that the log held back are written in time.
async fn logged<T>(log: &Log, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        never = log.follow() => match never {},
    }
}
