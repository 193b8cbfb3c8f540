//! What must hold of what the kernel says, whatever it is. Called by tests/fuzz.

use crate::mount_table;

/// Reads the text as a table of mounts. Panics if a law is broken.
pub fn mounts(text: &[u8]) {
    let points: Vec<_> = mount_table::points(text).collect();
    let lines = text.split(|&byte| byte == b'\n').count();
    assert!(points.len() <= lines, "a line has one mount point at most");
    let bytes: usize = points.iter().map(|point| point.as_os_str().len()).sum();
    assert!(bytes <= text.len() && points.iter().all(|point| !point.as_os_str().is_empty()));
}
