//! Reads files that only the kernel makes: those of procfs, sysfs and control groups.
//!
//! Nobody can put anything else in their place, so they are opened in one step; [`regular`](crate::regular) is for all
//! others. A test may name a directory of its own in place of `/proc`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// More than any of them has: 64 MiB.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Opens a file of the kernel's for reading.
///
/// # Errors
/// It does not exist, or may not be opened.
#[allow(clippy::disallowed_methods, reason = "nobody can replace a file of the kernel's")]
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// Reads a file of the kernel's, at most its first 64 MiB.
///
/// # Errors
/// It does not exist, or cannot be read.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of the kernel's as text, at most its first 64 MiB.
///
/// # Errors
/// As [`read`]; also if it is not UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
