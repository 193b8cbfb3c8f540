//! The termination message of a container.

use std::path::Path;

use winddown_shim::{exit, log};

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

    #[test]
    fn a_message_file_that_is_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("message");
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert_eq!(of_container(&file, None), "");
    }
}
