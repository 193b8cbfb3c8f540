use std::sync::mpsc;

use serde::Serializer;
use serde::ser::Error as _;

use super::*;

/// Content that keeps the disk busy until it is released.
struct Slow {
    begun: tokio::sync::mpsc::UnboundedSender<()>,
    gate: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Serialize for Slow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.begun.send(()).map_err(S::Error::custom)?;
        let gate = self.gate.lock().map_err(S::Error::custom)?;
        gate.recv().map_err(S::Error::custom)?;
        serializer.serialize_str("slow")
    }
}

#[test]
fn a_slow_write_never_undoes_the_change_after_it() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().max_blocking_threads(2).build().expect("a runtime").block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let file = KeptFile::at(directory.path().join("kept"));
        let (go, gate) = mpsc::channel();
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let slow = file.store(Some(Slow { begun, gate: std::sync::Mutex::new(gate) }));
        let removed = async {
            begins.recv().await.expect("it begins");
            let changes = async { tokio::join!(file.store(Some("a")), file.store(None::<String>)) };
            let let_go = async {
                tokio::task::yield_now().await;
                let free = tokio::time::timeout(DISK_TIMEOUT * 5, spawn_blocking(|| ())).await;
                go.send(()).expect("it waits");
                assert!(free.is_ok(), "changes that wait leave a thread to others");
            };
            let _ = tokio::join!(changes, let_go);
        };
        // The disk of a busy machine may take longer than the changes wait for it, so they may say that it hangs.
        let _ = tokio::join!(slow, removed);
        // All of them have been made once this one gets its turn.
        drop(file.changing.lock().await);
        assert!(!file.path().exists());
    });
}
