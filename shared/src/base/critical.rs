//! Tasks without which the agent would stay alive and do nothing.
//!
//! A panic in a tokio task ends only that task. Where the node depends on the task, a process that lives on without it
//! is worse than one that exits: it is restarted, finds its pods, and resumes a shutdown in progress. So each such task
//! is spawned here, with a name, and its failure is reported to the owner of the process, which decides what happens
//! ([`on_failure`], [`first_failure`]): a library never exits the process.
//!
//! There is one handler per process, as with the panic hook, because the process is what exits.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::SetOnce;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

static HANDLER: OnceLock<Box<dyn OnTaskFailure>> = OnceLock::new();
static FIRST: SetOnce<TaskFailure> = SetOnce::const_new();

/// Decides what happens to a process in which a critical task has failed.
pub trait OnTaskFailure: Send + Sync + 'static {
    /// Called when a critical task has failed, on the thread on which it ran, once per failure.
    fn failed(&self, failure: &TaskFailure);
}

/// The failure of a critical task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskFailure {
    /// The name of the task, for people.
    pub task: &'static str,
    /// The panic message; `None` when the task ended without being stopped.
    pub panic: Option<String>,
}

impl std::error::Error for TaskFailure {}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.panic {
            Some(text) => write!(f, "the task `{}` panicked: {text}", self.task),
            None => write!(f, "the task `{}` exited unexpectedly", self.task),
        }
    }
}

/// Installs the failure handler of the process. Returns whether it was the first: a second one is
/// not installed. Without a handler, a failure is logged.
pub fn on_failure(handler: impl OnTaskFailure) -> bool {
    HANDLER.set(Box::new(handler)).is_ok()
}

/// The first failure of a critical task of this process, if there was one.
pub fn failure() -> Option<&'static TaskFailure> {
    FIRST.get()
}

/// Resolves when a critical task of this process fails, or has failed. Cancel-safe.
pub async fn first_failure() -> &'static TaskFailure {
    FIRST.wait().await
}

/// Spawns a task that may end by itself, and whose panic is reported. Aborting it is not a failure.
/// Must be called inside a tokio runtime.
pub fn spawn<T: Send + 'static>(
    name: &'static str,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(Supervised { name, task })
}

/// Like [`spawn`], for a task that runs until `stop`, and is dropped then: if it ends earlier, that is reported too.
pub fn spawn_until(
    name: &'static str,
    stop: CancellationToken,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let stopped = stop.clone();
    spawn_stopping(name, stop, async move {
        tokio::select! {
            biased;
            () = stopped.cancelled() => {}
            () = task => {}
        }
    })
}

/// Like [`spawn_until`], for a task that watches `stop` itself because it has something to finish then.
pub fn spawn_stopping(
    name: &'static str,
    stop: CancellationToken,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    spawn(name, async move {
        task.await;
        if !stop.is_cancelled() {
            report(&TaskFailure { task: name, panic: None });
        }
    })
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

pin_project! {
    /// A task whose panic is reported. A future of its own and not an `async fn`, which would store
    /// the task twice: as its argument and where it awaits it.
    struct Supervised<F> {
        name: &'static str,
        #[pin]
        task: F,
    }
}

impl<F: Future> Future for Supervised<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = catch_unwind(AssertUnwindSafe(|| this.task.poll(cx)));
        polled.unwrap_or_else(|panic| {
            let text = panic_text(panic.as_ref()).to_owned();
            report(&TaskFailure { task: this.name, panic: Some(text) });
            resume_unwind(panic)
        })
    }
}

fn report(failure: &TaskFailure) {
    // Only the first one stays.
    let _ = FIRST.set(failure.clone());
    match HANDLER.get() {
        Some(handler) => handler.failed(failure),
        None => {
            tracing::error!("bug: {failure}; this task has stopped");
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::base::lock::Mutex;

    static FAILED: Mutex<Vec<TaskFailure>> = Mutex::new(Vec::new());

    struct Note;

    impl OnTaskFailure for Note {
        fn failed(&self, failure: &TaskFailure) {
            FAILED.lock().push(failure.clone());
        }
    }

    fn failures_of(task: &str) -> Vec<Option<String>> {
        let failed = FAILED.lock();
        failed.iter().filter(|f| f.task == task).map(|f| f.panic.clone()).collect()
    }

    // A single test, because there is one handler per process.
    #[tokio::test]
    async fn a_panic_and_an_unexpected_end_are_reported_and_a_stop_and_an_abort_are_not() {
        assert_eq!(failure(), None);
        assert!(on_failure(Note));
        assert!(!on_failure(Note), "the first one counts");
        let text = String::from("broken");
        let panicked = spawn("panics", async move { std::panic::panic_any(text) });
        assert!(panicked.await.unwrap_err().is_panic(), "and its handle says so, too");
        assert_eq!(failures_of("panics"), [Some("broken".to_owned())]);

        let pending = std::future::pending::<()>;
        let stop = CancellationToken::new();
        spawn_until("ends", stop.clone(), async {}).await.unwrap();
        assert_eq!(failures_of("ends"), [None]);

        let stopped = spawn_until("is stopped", stop.clone(), pending());
        let aborted = spawn("is aborted", pending());
        stop.cancel();
        stopped.await.unwrap();
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        assert_eq!(spawn("answers", async { 7 }).await.unwrap(), 7);
        assert_eq!(first_failure().await.task, "panics", "the first one stays");
        for quiet in ["is stopped", "is aborted", "answers"] {
            assert_eq!(failures_of(quiet), [], "{quiet}");
        }
    }
}
