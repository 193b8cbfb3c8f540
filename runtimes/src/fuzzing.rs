//! What must hold of what the kernel, the container runtime and containers say, whatever it is. Called by
//! tests/fuzz.

use crate::{cri, mount_table, process};

/// Reads the text as files of a process and as a table of mounts. Panics if a law is broken.
pub fn procfs(text: &[u8]) {
    process::fuzzing::procfs(text);
    let points: Vec<_> = mount_table::points(text).collect();
    let lines = text.split(|&byte| byte == b'\n').count();
    assert!(points.len() <= lines, "a line has one mount point at most");
    let bytes: usize = points.iter().map(|point| point.as_os_str().len()).sum();
    assert!(bytes <= text.len() && points.iter().all(|point| !point.as_os_str().is_empty()));
}

/// Takes the bytes as output of a container, cut at every newline-free length that the first byte names.
/// Panics if the log loses, adds or changes anything.
pub fn container_log(output: &[u8]) {
    process::fuzzing::log_lines(output);
}

/// Takes the bytes as an answer of the container runtime. Panics if a law is broken.
pub fn cri_answer(answer: &[u8]) {
    cri::fuzzing::laws(answer);
}
