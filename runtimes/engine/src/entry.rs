//! A pod in a runtime's memory, and waiting for changes of its state.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard};

use tokio::sync::{broadcast, watch};
use winddown_host::PodFiles;
use winddown_shared::{Mutex, PodUid, RuntimeError};

use crate::failure::blocking_on;

/// A pod whose state is `S`. All waiters check the state after each change.
#[derive(Debug)]
pub struct StateEntry<S> {
    uid: PodUid,
    state: Mutex<S>,
    changed: watch::Sender<()>,
    changes: broadcast::Sender<PodUid>,
    files: Arc<tokio::sync::Mutex<()>>,
    /// Whether a link to one of its logs could not be made, which is told once.
    pub(crate) lacks_log_links: AtomicBool,
}

impl<S: Default> StateEntry<S> {
    /// Creates a pod about which nothing is known yet. `changes` reports spontaneous changes to the pod workers.
    pub fn new(uid: PodUid, changes: broadcast::Sender<PodUid>) -> Self {
        let (state, changed, files) = (Mutex::default(), watch::Sender::new(()), Arc::default());
        Self { uid, state, changed, changes, files, lacks_log_links: AtomicBool::new(false) }
    }
}

impl<S> StateEntry<S> {
    /// The UID of the pod.
    pub fn uid(&self) -> &PodUid {
        &self.uid
    }

    /// Locks the state. The lock must not be held across an await or a system call that can wait.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock()
    }

    /// Held while files of the pod are made or removed.
    pub fn files(&self) -> &Arc<tokio::sync::Mutex<()>> {
        &self.files
    }

    /// Makes or removes files of the pod, one such work after the other. A work goes on when its caller gives up: the
    /// caller's next try waits for it, and does not begin the same beside it.
    ///
    /// # Errors
    /// Errors of `work`.
    pub async fn with_files<T: Send + 'static>(
        &self,
        files: PodFiles,
        work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let turn = Arc::clone(&self.files).lock_owned().await;
        let held = move || {
            let _turn = turn;
            work()
        };
        blocking_on(files, held).await
    }

    /// Wakes waiters within the runtime.
    pub fn bump(&self) {
        self.changed.send_replace(());
    }

    /// Wakes waiters, and tells the pod workers about a spontaneous change.
    pub fn announce(&self) {
        self.bump();
        // Fails only without receivers.
        let _ = self.changes.send(self.uid.clone());
    }

    /// Resolves when `found` returns something; it is called again after every change. Cancel-safe.
    pub async fn wait_for<T>(&self, mut found: impl FnMut(&mut S) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(found) = found(&mut self.lock()) {
                return found;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::failure::blocking;

    /// With the threads of the agent, see `block_on` of the node.
    #[test]
    fn mounts_of_pods_that_hang_leave_threads_for_the_agents_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("hangs");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime
            .enable_time()
            .max_blocking_threads(PodFiles::MOST_THREADS + 2)
            .build()
            .unwrap()
            .block_on(async {
                let changes = broadcast::Sender::new(1);
                let mut hung = Vec::new();
                for (count, files) in [PodFiles::Remove, PodFiles::Unmount, PodFiles::Make]
                    .into_iter()
                    .cycle()
                    .take(30)
                    .enumerate()
                {
                    let entry =
                        StateEntry::<()>::new(PodUid::new(count.to_string()), changes.clone());
                    let fifo = fifo.clone();
                    let work = move || {
                        File::options()
                            .read(true)
                            .open(fifo)
                            .map(drop)
                            .map_err(|e| crate::failure::caused("a fifo", e))
                    };
                    hung.push(tokio::spawn(async move { entry.with_files(files, work).await }));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                let kept = dir.path().join("kept");
                let write = blocking(move || Ok(std::fs::write(kept, "").is_ok()));
                let written = timeout(Duration::from_secs(5), write).await;
                // From now on it can be opened.
                let _open = File::options().read(true).write(true).open(&fifo).unwrap();
                for work in hung {
                    work.await.unwrap().unwrap();
                }
                assert!(written.unwrap().unwrap());
            });
    }
}
