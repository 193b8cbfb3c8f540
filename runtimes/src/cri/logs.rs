//! Containers' logs and termination messages.
//!
//! The runtime writes the logs and never turns them, so the agent does: it renames a log that has
//! become too long and asks the runtime to begin a new one.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use winddown_shared::error_chain;

use super::{Context, api, dirs};
use crate::containers_file;

/// How often the length of the logs is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// Longest termination message, in bytes; that of the kubelet.
const MAX_MESSAGE: u64 = 4096;
/// How much of a log's end may stand in for it, in bytes and lines.
const MAX_TAIL: usize = 2048;
const MAX_TAIL_LINES: usize = 80;

/// Turns logs that have become too long, for as long as the agent lives.
pub(super) async fn follow(context: Arc<Context>) {
    if context.config.log_max_bytes == 0 {
        return;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let (logs, max_bytes, max_files) =
            (running(&context), context.config.log_max_bytes, context.config.log_max_files);
        let turn_all = move || turn_all(logs, max_bytes, max_files);
        for id in tokio::task::spawn_blocking(turn_all).await.unwrap_or_default() {
            let request = api::ReopenContainerLogRequest { container_id: id.to_string() };
            if let Err(error) = context.client.reopen_container_log(request).await {
                tracing::warn!(container = %id, error = error_chain(&error), "cannot begin a new log");
            }
        }
    }
}

/// Turns what is too long, and gives the containers whose logs were. Blocking.
fn turn_all(logs: Vec<(Arc<str>, PathBuf)>, max_bytes: u64, max_files: u32) -> Vec<Arc<str>> {
    let turned = logs.into_iter().filter(|(_, path)| match turn(path, max_bytes, max_files) {
        Ok(turned) => turned,
        Err(error) => {
            tracing::warn!(path = %path.display(), error = error_chain(&error), "cannot turn a log");
            false
        }
    });
    turned.map(|(id, _)| id).collect()
}

/// What a container wrote into `file`, or the end of `log` if it wrote nothing. Blocking.
pub(super) fn termination_message(file: &Path, log: Option<&Path>) -> String {
    let text = containers_file::first_bytes(file, MAX_MESSAGE).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    match log {
        Some(log) if text.is_empty() => tail(log).unwrap_or_default(),
        _ => text,
    }
}

fn running(context: &Context) -> Vec<(Arc<str>, PathBuf)> {
    let entries: Vec<_> = context.pods().values().cloned().collect();
    let mut all = Vec::new();
    for entry in entries {
        let state = entry.lock();
        let (namespace, name) = &state.label;
        let logs = dirs::logs(&context.config, namespace, name, entry.uid());
        for container in &state.containers {
            if let Some(run) = container.run.as_ref().filter(|run| run.is_running()) {
                let file = dirs::log_file(&container.name, run.attempt);
                all.push((Arc::clone(&run.id), logs.join(file)));
            }
        }
    }
    all
}

/// Moves a log that is longer than `max_bytes` out of the way: `0.log` becomes `0.log.1`, and so on up
/// to `max_files` files. True if the runtime has to begin a new one: one that is not there was turned
/// before, and the runtime did not do it.
fn turn(path: &Path, max_bytes: u64, max_files: u32) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && found.size() > max_bytes => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        _ => return Ok(false),
    }
    let numbered = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    };
    if max_files <= 1 {
        fs::remove_file(path)?;
        return Ok(true);
    }
    for n in (1..max_files - 1).rev() {
        match fs::rename(numbered(n), numbered(n + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, numbered(1))?;
    Ok(true)
}

/// The last lines of a log, without what the CRI format puts before each.
pub(crate) fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    // A line carries some 40 bytes of its own.
    let window = u64::try_from(MAX_TAIL + MAX_TAIL_LINES * 48).unwrap_or(0);
    let begins = length.saturating_sub(window);
    file.seek(SeekFrom::Start(begins))?;
    let mut bytes = Vec::new();
    file.take(window).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let skipped = usize::from(begins > 0);
    let lines: Vec<&str> =
        text.lines().skip(skipped).filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
    let first = lines.len().saturating_sub(MAX_TAIL_LINES);
    let text = lines[first..].join("\n");
    let cut = text.len().saturating_sub(MAX_TAIL);
    let cut = (cut..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    Ok(text[cut..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_makes_room_and_the_oldest_one_goes() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        fs::write(&log, "short").unwrap();
        assert!(!turn(&log, 5, 3).unwrap());
        fs::remove_file(&log).unwrap();
        assert!(turn(&log, 5, 3).unwrap(), "the runtime writes into a file without a name");
        for text in ["one...", "two...", "three.", "four.."] {
            fs::write(&log, text).unwrap();
            assert!(turn(&log, 5, 3).unwrap());
        }
        assert_eq!(read("0.log"), None);
        assert_eq!(read("0.log.1").unwrap(), "four..");
        assert_eq!(read("0.log.2").unwrap(), "three.");
        assert_eq!(read("0.log.3"), None);
        fs::write(&log, "five..").unwrap();
        assert!(turn(&log, 5, 1).unwrap());
        assert_eq!((read("0.log"), read("0.log.1").unwrap()), (None, "four..".to_owned()));
    }

    #[test]
    fn the_end_of_the_log_stands_in_for_an_empty_message() {
        let dir = tempfile::tempdir().unwrap();
        let (file, log) = (dir.path().join("message"), dir.path().join("0.log"));
        let line = |text: &str| format!("2026-01-01T00:00:00.000000000Z stderr F {text}\n");
        fs::write(&log, line("one") + &line("two words")).unwrap();
        assert_eq!(termination_message(&file, Some(&log)), "one\ntwo words");
        assert_eq!(termination_message(&file, None), "");
        fs::write(&file, "own").unwrap();
        assert_eq!(termination_message(&file, Some(&log)), "own");
        fs::write(&file, "x".repeat(10_000)).unwrap();
        assert_eq!(termination_message(&file, None).len(), 4096);
        fs::write(&file, "").unwrap();
        fs::write(&log, line(&"é".repeat(200)).repeat(300)).unwrap();
        let long = termination_message(&file, Some(&log));
        assert!(long.len() <= MAX_TAIL && long.ends_with("éé"), "{}", long.len());
    }

    #[test]
    fn a_message_file_that_is_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("message");
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert_eq!(termination_message(&file, None), "");
    }
}
