//! Copies a container's output from its pipes to its log.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use winddown_shared::WallClock;

use super::log::{LogFile, Stream, StreamLines};
use crate::order::LogTarget;

/// The number of bytes read at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// The number of chunks read from each pipe after the end: the maximum capacity of a pipe, 1 MiB.
pub(crate) const LAST_CHUNKS: usize = 64;

pub(crate) struct ContainerOutput<'a> {
    /// The pipes that are still open.
    pub(crate) sources: Vec<OutputPipe>,
    log: LogFile,
    wall: &'a WallClock,
    chunk: Vec<u8>,
    text: Vec<u8>,
}

pub(crate) struct OutputPipe {
    pub(crate) pipe: File,
    lines: StreamLines,
}

// === impl ContainerOutput ===

impl<'a> ContainerOutput<'a> {
    pub(crate) fn new(sources: Vec<OutputPipe>, target: LogTarget, wall: &'a WallClock) -> Self {
        let log = LogFile::open(target);
        Self { sources, log, wall, chunk: vec![0; CHUNK_BYTES], text: Vec::new() }
    }

    /// Reads what the pipes hold, at most `rounds` chunks of each. Closed pipes are removed. `also` gets everything
    /// that is written to the log.
    pub(crate) fn copy(&mut self, rounds: usize, mut also: impl FnMut(&[u8])) {
        let Self { sources, log, wall, chunk, text } = self;
        sources.retain_mut(|source| {
            for _ in 0..rounds {
                let outcome = source.pipe.read(chunk);
                let at = wall.now();
                text.clear();
                let lines = match outcome {
                    Ok(0) => source.lines.finish(at, text),
                    Ok(n) => source.lines.take(&chunk[..n], at, text),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                    Err(_) => 0,
                };
                log.write(text, lines, at);
                also(text);
                if !matches!(outcome, Ok(n) if n > 0) {
                    return false;
                }
            }
            true
        });
    }

    /// Writes the last lines, which no newline ended.
    pub(crate) fn finish(&mut self, mut also: impl FnMut(&[u8])) {
        let at = self.wall.now();
        for source in &mut self.sources {
            self.text.clear();
            let lines = source.lines.finish(at, &mut self.text);
            self.log.write(&self.text, lines, at);
            also(&self.text);
        }
    }

    /// The end of the log.
    pub(crate) fn tail(&self) -> String {
        self.log.tail()
    }
}

// === impl OutputPipe ===

impl OutputPipe {
    pub(crate) fn new(pipe: OwnedFd, stream: Stream) -> Result<Self, String> {
        let flags = fcntl_getfl(&pipe).map_err(|e| e.to_string())?;
        fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).map_err(|e| e.to_string())?;
        Ok(Self { pipe: pipe.into(), lines: StreamLines::new(stream) })
    }
}
