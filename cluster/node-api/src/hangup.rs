//! Notices that a client is gone while nothing is read from its connection.
//!
//! A stream is not read while its far end takes no more input, for example a command that never reads what it was sent.
//! If the client has sent more than the kernel takes, only keep-alive probes notice that it is gone.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::sleep;

/// How long it may take to pass on what a client sent before it closed the connection.
const LAST_INPUT: Duration = Duration::from_secs(1);

/// Resolves shortly after the client has closed or reset the connection.
pub(crate) fn hangup(stream: &TcpStream) -> impl Future<Output = ()> + use<> {
    let socket = stream.as_fd().try_clone_to_owned();
    async move {
        match closed(socket).await {
            Ok(()) => sleep(LAST_INPUT).await,
            // No file descriptor is left, for example. Reading still notices it.
            Err(_) => pending().await,
        }
    }
}

async fn closed(socket: io::Result<OwnedFd>) -> io::Result<()> {
    let socket = TcpStream::from_std(socket?.into())?;
    // Data, which an interest in reading would report too, does not wake this one.
    socket.ready(Interest::PRIORITY).await?;
    Ok(())
}
