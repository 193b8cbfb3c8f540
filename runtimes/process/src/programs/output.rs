//! What the command of a hook or a probe writes.

use std::io;

use tokio::net::unix::pipe::Receiver;

use super::streams::CommandFiles;

/// The most that is kept of it, in bytes: its beginning, as with a kubelet.
const MAX_OUTPUT_BYTES: usize = 10 * 1024;
/// The size of one read, in bytes.
const CHUNK: usize = 4096;
/// The number of reads that empty a full pipe.
const LAST_READS: usize = 16;

/// Runs a command whose output is read meanwhile. Resolves with what `run` resolved with, and the beginning of the output.
///
/// # Errors
/// No file descriptor is left.
pub(crate) async fn of<T>(run: impl AsyncFnOnce(CommandFiles) -> T) -> io::Result<(T, Vec<u8>)> {
    let (read, write) = io::pipe()?;
    let (out, error) = (Some(write.try_clone()?.into()), Some(write.into()));
    let files = CommandFiles { out, error, held: Vec::new() };
    let pipe = Receiver::from_owned_fd(read.into())?;
    let mut kept = Vec::new();
    let mut run = std::pin::pin!(run(files));
    let mut is_open = true;
    let outcome = loop {
        tokio::select! {
            outcome = &mut run => break outcome,
            _ = pipe.readable(), if is_open => is_open = take(&pipe, &mut kept, 1),
        }
    };
    take(&pipe, &mut kept, LAST_READS);
    Ok((outcome, kept))
}

/// Reads what there is, at most that many times. Returns whether there may be more later.
fn take(pipe: &Receiver, kept: &mut Vec<u8>, reads: usize) -> bool {
    for _ in 0..reads {
        let mut chunk = [0; CHUNK];
        match pipe.try_read(&mut chunk) {
            Ok(0) => return false,
            Ok(read) => {
                kept.extend_from_slice(&chunk[..read]);
                kept.truncate(MAX_OUTPUT_BYTES);
            }
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}
