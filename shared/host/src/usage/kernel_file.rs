//! A kernel file that is read repeatedly.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::kernel;

use crate::file::ReadError;

/// No file that is read here is longer; a longer one is truncated.
const MOST_BYTES: usize = 256 * 1024;
const STEP_BYTES: usize = 4096;

/// Stays open between reads, so that its path need not be looked up again.
#[derive(Debug)]
pub(super) struct KernelFile {
    path: PathBuf,
    file: Option<File>,
}

impl KernelFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// Reads it into `text`, which is cleared first. Opens it again if it was replaced (a cgroup that was removed and
    /// created again).
    pub(super) fn read<'a>(&mut self, text: &'a mut Vec<u8>) -> Result<&'a [u8], ReadError> {
        if let Some(file) = &self.file
            && read_all(file, text).is_ok()
        {
            return Ok(text);
        }
        self.file = None;
        let read = kernel::open(&self.path).and_then(|file| {
            read_all(&file, text)?;
            Ok(file)
        });
        self.file = Some(read.map_err(|error| ReadError::unreadable(&self.path, error))?);
        Ok(text)
    }

    /// The error for unexpected content.
    pub(super) fn odd(&self, what: &str) -> ReadError {
        ReadError::odd(&self.path, what)
    }
}

fn read_all(file: &File, text: &mut Vec<u8>) -> io::Result<()> {
    text.clear();
    let mut length = 0;
    while length < MOST_BYTES {
        text.resize(length + STEP_BYTES, 0);
        match file.read_at(&mut text[length..], length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                text.clear();
                return Err(error);
            }
        }
    }
    text.truncate(length);
    Ok(())
}
