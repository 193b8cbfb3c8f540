//! The termination message of a container.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;
use winddown_host::OneThread;
use winddown_shim::{exit, log};

/// How long a message may take to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the exit of a container in a stop may wait for its message, which is lost otherwise. Pods that are killed at the end
/// of a shutdown's time have no more until they count as running.
const READ_IN_STOP_TIMEOUT: Duration = Duration::from_millis(100);

/// Reads termination messages, one at a time: if the disk hangs that pods write them to, one thread does, and no end of
/// a container waits for it longer than two seconds.
#[derive(Debug, Default)]
pub struct TerminationMessages(OneThread);

impl TerminationMessages {
    /// Returns what [`of_container`] returns, or nothing if it takes longer than two seconds. Cancel-safe.
    pub async fn of_container(&self, file: PathBuf, log: Option<PathBuf>) -> String {
        let read = self.0.run(move |()| of_container(&file, log.as_deref()));
        timeout(READ_TIMEOUT, read).await.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// The same where a stop waits for it, for less time. Cancel-safe.
    pub async fn in_stop(&self, file: PathBuf, log: Option<PathBuf>) -> String {
        timeout(READ_IN_STOP_TIMEOUT, self.of_container(file, log)).await.unwrap_or_default()
    }
}

/// Returns what a container wrote to `file`, or the end of `log` if it wrote nothing. Blocking.
pub fn of_container(file: &Path, log: Option<&Path>) -> String {
    let text = exit::written_message(file);
    match log {
        Some(log) if text.is_empty() => log::tail(log).unwrap_or_default(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;
    use tokio::task::spawn_blocking;

    use super::*;

    #[test]
    fn the_end_of_the_log_stands_in_for_an_empty_message() {
        let dir = tempfile::tempdir().unwrap();
        let (file, log) = (dir.path().join("message"), dir.path().join("0.log"));
        let line = |text: &str| format!("2026-01-01T00:00:00.000000000Z stderr F {text}\n");
        fs::write(&log, line("one") + &line("two words")).unwrap();
        assert_eq!(of_container(&file, Some(&log)), "one\ntwo words");
        assert_eq!(of_container(&file, None), "");
        fs::write(&file, "own").unwrap();
        assert_eq!(of_container(&file, Some(&log)), "own");
        fs::write(&file, "x".repeat(10_000)).unwrap();
        assert_eq!(of_container(&file, None).len(), 4096);
        fs::write(&file, "").unwrap();
        fs::write(&log, line(&"é".repeat(200)).repeat(300)).unwrap();
        let long = of_container(&file, Some(&log));
        assert!(long.len() <= 2048 && long.ends_with("éé"), "{}", long.len());
    }

    /// Has the disk hang until the sender is dropped.
    async fn hang(messages: &TerminationMessages) -> std::sync::mpsc::Sender<()> {
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let (begins, begun) = oneshot::channel();
        let hangs = messages.0.run(move |()| begins.send(()).is_ok() && gate.recv().is_ok());
        tokio::select! {
            _ = hangs => unreachable!("it hangs"),
            begun = begun => begun.unwrap(),
        }
        go
    }

    #[test]
    fn a_disk_that_hangs_takes_one_thread_and_delays_an_end_by_two_seconds() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).max_blocking_threads(2);
        runtime.build().unwrap().block_on(async {
            let messages = TerminationMessages::default();
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("message");
            fs::write(&file, "bye").unwrap();
            let go = hang(&messages).await;
            let read = || messages.of_container(file.clone(), None);
            let mut both = std::pin::pin!(async { tokio::join!(read(), read()) });
            assert!(both.as_mut().now_or_never().is_none());
            // A thread that works keeps the clock from going on by itself.
            tokio::time::advance(READ_TIMEOUT).await;
            assert_eq!(both.await, (String::new(), String::new()));
            spawn_blocking(|| ()).await.unwrap();
            drop(go);
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_a_message_no_longer_than_a_killed_pod_has_until_it_counts_as_running()
    {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("message");
        fs::write(&file, "bye").unwrap();
        for (answers_after, wanted) in [(50, "bye"), (150, "")] {
            let messages = TerminationMessages::default();
            let go = hang(&messages).await;
            let mut read = std::pin::pin!(messages.in_stop(file.clone(), None));
            assert!(read.as_mut().now_or_never().is_none());
            // A thread that works keeps the clock from going on by itself.
            tokio::time::advance(Duration::from_millis(answers_after)).await;
            let over = read.as_mut().now_or_never();
            drop(go);
            let message = match over {
                Some(message) => message,
                None => read.await,
            };
            assert_eq!(message, wanted, "{answers_after} ms");
        }
    }

    #[test]
    fn a_message_file_that_is_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("message");
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert_eq!(of_container(&file, None), "");
    }
}
