//! Blocking work, one piece at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use winddown_shared::Mutex;

/// A value that blocking work uses, one piece of work at a time: a disk that hangs takes one thread, however often it
/// is queried. Work that is requested while other work is done is done by the same thread: a hundred pieces at once do not
/// wake a hundred threads, one after the other.
pub struct OneThread<T = ()>(Arc<OneThreadState<T>>);

/// The work panicked, or the process is about to exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work did not end")]
pub struct WorkLost;

struct OneThreadState<T> {
    queue: Mutex<Queue<T>>,
    /// Locked by the thread alone.
    value: Mutex<T>,
}

struct Queue<T> {
    /// In the order of the requests.
    work: BTreeMap<u64, Work<T>>,
    requests: u64,
    has_thread: bool,
}

/// Takes the work out of the queue that is given up before it begins: a disk that hangs for days gathers none.
struct Request<'a, T>(&'a OneThreadState<T>, u64);

type Work<T> = Box<dyn FnOnce(&mut T) + Send>;

impl<T: Send + 'static> OneThread<T> {
    /// Creates one for `value`.
    pub fn new(value: T) -> Self {
        let queue = Mutex::new(Queue { work: BTreeMap::new(), requests: 0, has_thread: false });
        Self(Arc::new(OneThreadState { queue, value: Mutex::new(value) }))
    }

    /// Runs `work` on a blocking thread once all earlier work has ended. Cancel-safe: work that has begun continues,
    /// and other work is given up.
    ///
    /// # Errors
    /// The work panicked, or the process is about to exit.
    pub async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, WorkLost> {
        let (done, result) = oneshot::channel();
        let work = move |value: &mut T| {
            // It may be given up by now.
            let _ = done.send(work(value));
        };
        let (request, had_thread) = {
            let mut queue = self.0.queue.lock();
            queue.requests += 1;
            let request = queue.requests;
            queue.work.insert(request, Box::new(work));
            (Request(&self.0, request), std::mem::replace(&mut queue.has_thread, true))
        };
        if !had_thread {
            let shared = Arc::clone(&self.0);
            spawn_blocking(move || shared.work());
        }
        let result = result.await.map_err(|_| WorkLost);
        drop(request);
        result
    }
}

impl<T> OneThreadState<T> {
    /// Does all work that is there, and that comes meanwhile.
    fn work(&self) {
        let mut value = self.value.lock();
        while let Some(work) = self.next() {
            // Who waits for it sees that its sender is gone.
            let _ = catch_unwind(AssertUnwindSafe(|| work(&mut value)));
        }
    }

    fn next(&self) -> Option<Work<T>> {
        let mut queue = self.queue.lock();
        let next = queue.work.pop_first().map(|(_, work)| work);
        queue.has_thread = next.is_some();
        next
    }
}
impl<T> Drop for Request<'_, T> {
    fn drop(&mut self) {
        // Dropped when the queue is unlocked again.
        let _given_up = self.0.queue.lock().work.remove(&self.1);
    }
}

impl<T: Default + Send + 'static> Default for OneThread<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for OneThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneThread").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn work_that_hangs_takes_one_thread_and_no_later_work_begins_before_its_end() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().max_blocking_threads(2).build().unwrap().block_on(async {
            let thread = OneThread::new(());
            let ((go, gate), (begun, begins)) = (mpsc::channel(), oneshot::channel());
            let hangs = move |(): &mut ()| begun.send(()).is_ok() && gate.recv().is_ok();
            // What is given up before it begins does not hang.
            tokio::select! {
                _ = thread.run(hangs) => panic!("it hangs"),
                begun = begins => begun.unwrap(),
            }
            for _ in 0..3 {
                assert!(timeout(Duration::ZERO, thread.run(|()| true)).await.is_err());
            }
            assert!(thread.0.queue.lock().work.is_empty(), "what is given up is not kept");
            spawn_blocking(|| ()).await.unwrap();
            go.send(()).unwrap();
            assert!(thread.run(|()| true).await.unwrap());
        });
    }

    #[tokio::test]
    async fn work_that_is_requested_meanwhile_is_done_by_the_same_thread() {
        let (thread, (go, gate)) = (OneThread::new(Vec::new()), mpsc::channel());
        let first = thread.run(move |_| {
            let _ = gate.recv();
            std::thread::current().id()
        });
        let more = (0..20).map(|n| {
            thread.run(move |done| {
                done.push(n);
                std::thread::current().id()
            })
        });
        let requested = async { go.send(()) };
        let (first, more, _) = tokio::join!(first, join_all(more), requested);
        assert!(first.is_ok() && more.iter().all(|at| *at == first));
        let done = thread.run(std::mem::take).await;
        assert_eq!(done, Ok((0..20).collect::<Vec<_>>()));
    }

    #[tokio::test]
    async fn work_that_panics_is_lost_and_the_next_is_done() {
        let thread = OneThread::new(1);
        assert_eq!(thread.run(|_| panic!("on purpose")).await, Err::<(), _>(WorkLost));
        assert_eq!(thread.run(|value| *value).await, Ok(1));
    }
}
