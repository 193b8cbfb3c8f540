//! The termination message of a container.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use winddown_shim::containers_file;

/// The maximum length of a termination message, in bytes; the kubelet's limit.
const MAX_MESSAGE: u64 = 4096;
/// How much of a log's end may replace it, in bytes and lines.
const MAX_TAIL: usize = 2048;
const MAX_TAIL_LINES: usize = 80;

/// Returns what a container wrote to `file`, or the end of `log` if it wrote nothing. Blocking.
pub fn of_container(file: &Path, log: Option<&Path>) -> String {
    let text = containers_file::first_bytes(file, MAX_MESSAGE).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    match log {
        Some(log) if text.is_empty() => tail(log).unwrap_or_default(),
        _ => text,
    }
}

/// Returns the last lines of a log, without the prefix of the CRI format.
///
/// # Errors
/// The log cannot be read.
pub fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    // The prefix of a line has some 40 bytes.
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
    use std::fs;

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
        assert!(long.len() <= MAX_TAIL && long.ends_with("éé"), "{}", long.len());
    }

    #[test]
    fn a_message_file_that_is_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("message");
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert_eq!(of_container(&file, None), "");
    }
}
