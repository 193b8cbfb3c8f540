//! Blocking work, one piece at a time.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

/// A value that blocking work uses, one piece of work at a time: a disk that hangs takes one thread, however often it
/// is queried.
#[derive(Debug, Default)]
pub struct OneThread<T = ()>(Arc<Mutex<T>>);

impl<T: Send + 'static> OneThread<T> {
    /// Creates one for `value`.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    /// Runs `work` on a blocking thread once all earlier work has ended. Cancel-safe: work that has begun continues,
    /// and other work is given up.
    ///
    /// # Errors
    /// `work` panicked.
    pub async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Result<R, JoinError> {
        let mut value = Arc::clone(&self.0).lock_owned().await;
        spawn_blocking(move || work(&mut value)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn work_that_hangs_takes_one_thread_and_no_later_work_begins_before_its_end() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().max_blocking_threads(2).build().unwrap().block_on(async {
            let thread = OneThread::new(());
            let (go, gate) = mpsc::channel();
            let hangs = move |(): &mut ()| gate.recv().is_ok();
            assert!(timeout(Duration::ZERO, thread.run(hangs)).await.is_err());
            for _ in 0..3 {
                assert!(timeout(Duration::ZERO, thread.run(|()| true)).await.is_err());
            }
            spawn_blocking(|| ()).await.unwrap();
            go.send(()).unwrap();
            assert!(thread.run(|()| true).await.unwrap());
        });
    }
}
