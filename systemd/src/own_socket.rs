//! systemd's own socket, over which root reaches it without a bus.
//!
//! Each message that comes from there has a sender, `org.freedesktop.systemd1`, although only a bus gives names. zbus takes
//! for a sender only what a bus makes of one, a unique name, and closes the connection at any other. So it reads a
//! unique name of the same length.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;

/// Where systemd listens.
pub(crate) const PATH: &str = "/run/systemd/private";

/// The most file descriptors that a message takes along. A service has three: its input and its two outputs.
const MAX_FDS: usize = 8;

/// A connection to systemd's own socket.
#[derive(Debug)]
pub(crate) struct OwnSocket(UnixStream);

/// The half that reads.
#[derive(Debug)]
pub(crate) struct FromSystemd {
    stream: OwnedReadHalf,
    sender: SenderField,
}

#[derive(Debug)]
pub(crate) struct ToSystemd(OwnedWriteHalf);

// === impl OwnSocket ===

impl OwnSocket {
    pub(crate) async fn connect(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).await.map(Self)
    }
}

impl Socket for OwnSocket {
    type ReadHalf = FromSystemd;
    type WriteHalf = ToSystemd;

    fn split(self) -> Split<FromSystemd, ToSystemd> {
        let (read, write) = self.0.into_split();
        Split::new(FromSystemd { stream: read, sender: SenderField::default() }, ToSystemd(write))
    }
}

#[async_trait]
impl ReadHalf for FromSystemd {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let read = self.stream.read(buffer).await?;
        self.sender.rename(&mut buffer[..read]);
        // No answer that is asked for has file descriptors.
        Ok((read, Vec::new()))
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }
}

#[async_trait]
impl WriteHalf for ToSystemd {
    async fn sendmsg(&mut self, buffer: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let stream: &UnixStream = self.0.as_ref();
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            Ok(sendmsg(stream, &[IoSlice::new(buffer)], &mut beside, SendFlags::NOSIGNAL)?)
        };
        stream.async_io(Interest::WRITABLE, send).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }

    fn can_pass_unix_fd(&self) -> bool {
        true
    }
}

/// Finds the sender in the headers of a stream of messages, wherever a read ends.
#[derive(Debug, Default)]
struct SenderField {
    /// How many bytes of [`Self::before`] were the last ones.
    seen: usize,
}

// === impl SenderField ===

impl SenderField {
    /// What is before the name in a header: the field's code, its type, and the length of systemd's name.
    fn before() -> [u8; 8] {
        let [a, b, c, d] = 24_u32.to_ne_bytes();
        [7, 1, b's', 0, a, b, c, d]
    }

    /// Makes `org.freedesktop.systemd1` a unique name, which begins with a colon.
    fn rename(&mut self, read: &mut [u8]) {
        let before = Self::before();
        for byte in read {
            match before.get(self.seen) {
                None => {
                    *byte = b':';
                    self.seen = 0;
                }
                Some(next) if next == byte => self.seen += 1,
                // The first byte occurs only once.
                Some(_) => self.seen = usize::from(*byte == before[0]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;
    use zbus::proxy::CacheProperties;

    use super::*;
    use crate::bus::directly;
    use crate::manager::ManagerProxy;

    const LONG: Duration = Duration::from_secs(20);

    /// systemd's answer to a query of a property, `stopping`, with the sender that it names without a bus.
    fn answer(serial: [u8; 4]) -> Vec<u8> {
        let number = u32::to_ne_bytes;
        let order = if cfg!(target_endian = "little") { b'l' } else { b'B' };
        let fields = [
            &[5, 1, b'u', 0][..],
            &serial,
            &[7, 1, b's', 0],
            &number(24),
            b"org.freedesktop.systemd1\0",
            &[0; 7],
            &[8, 1, b'g', 0, 1, b'v', 0],
        ];
        let body = [&[1, b's', 0, 0][..], &number(8), b"stopping\0"].concat();
        let fields = fields.concat();
        let body_size = number(u32::try_from(body.len()).unwrap());
        let fields_size = number(u32::try_from(fields.len()).unwrap());
        let head = [&[order, 2, 1, 1][..], &body_size, &number(1), &fields_size];
        [&head.concat()[..], &fields, &[0], &body].concat()
    }

    /// Answers one query as systemd does, in pieces of this size.
    async fn systemd(listener: UnixListener, piece: usize) -> io::Result<()> {
        let (mut stream, _) = listener.accept().await?;
        let mut read = [0; 1024];
        while !read.windows(7).any(|end| end == b"BEGIN\r\n") {
            assert!(stream.read(&mut read).await? > 0);
        }
        stream.write_all(b"OK 0123456789abcdef0123456789abcdef\r\nAGREE_UNIX_FD\r\n").await?;
        assert!(stream.read(&mut read).await? >= 16);
        for piece in answer(read[8..12].try_into().unwrap()).chunks(piece) {
            stream.write_all(piece).await?;
            tokio::task::yield_now().await;
        }
        // Until the client has what it wanted.
        while stream.read(&mut read).await? > 0 {}
        Ok(())
    }

    #[tokio::test]
    async fn systemd_is_understood_without_a_bus_although_its_messages_have_a_sender() {
        for piece in [1, 7, 1024] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("private");
            let served = tokio::spawn(systemd(UnixListener::bind(&path).unwrap(), piece));
            let connection = directly(&path, LONG).await.unwrap();
            let manager = ManagerProxy::builder(&connection).cache_properties(CacheProperties::No);
            let state = manager.build().await.unwrap().system_state().await;
            assert_eq!(state.unwrap(), "stopping", "in pieces of {piece}");
            drop(connection);
            served.await.unwrap().unwrap();
        }
    }

    #[test]
    fn only_the_name_of_a_sender_is_changed() {
        let sender = [&SenderField::before()[..], b"org.freedesktop.systemd1\0"].concat();
        let others =
            [b"\x07\x07\x01s\0org.freedesktop.systemd1\0\x03".to_vec(), sender.clone()].concat();
        let mut read = [&others[..], &others].concat();
        SenderField::default().rename(&mut read);
        let expected = [&others[..others.len() - 25], b":rg.freedesktop.systemd1\0"].concat();
        assert_eq!(read, [&expected[..], &expected].concat());
    }
}
