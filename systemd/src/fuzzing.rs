//! Properties that must hold for any bytes that arrive on the bus. Called by tests/fuzz.

use std::io;
use std::os::fd::OwnedFd;

use futures_util::FutureExt as _;
use zbus::Message;
use zbus::connection::socket::ReadHalf;
use zbus::export::async_trait::async_trait;

use crate::logind::bus_fuzzing;
use crate::{inspect, units};

/// Reads the bytes as zbus reads a socket, and passes each message to every listener of this crate. Panics if a
/// property does not hold.
pub fn wire(bytes: &[u8]) {
    let mut socket = Received(bytes.to_vec());
    let (mut early, mut fds) = (Vec::new(), Vec::new());
    let mut number = 0;
    while socket.has_message() {
        number += 1;
        // The socket never waits, so this future is ready at once.
        let message = socket.receive_message(number, &mut early, &mut fds).now_or_never();
        let Some(Ok(message)) = message else { return };
        laws(&message);
    }
}

fn laws(message: &Message) {
    bus_fuzzing::laws(message);
    units::fuzzing::laws(message);
    inspect::fuzzing::laws(message);
}

/// A socket that delivers these bytes and then nothing.
#[derive(Debug)]
struct Received(Vec<u8>);

impl Received {
    /// Whether a whole message is left. For a partial one zbus would allocate the announced length, up to 128 MiB, and
    /// then wait for the rest.
    fn has_message(&self) -> bool {
        let number = |at: usize| {
            let bytes: [u8; 4] = self.0.get(at..at + 4)?.try_into().ok()?;
            let is_little = self.0.first() == Some(&b'l');
            Some(if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
        };
        let (Some(body), Some(fields)) = (number(4), number(12)) else { return false };
        let length = u64::from(fields).next_multiple_of(8) + u64::from(body) + 16;
        usize::try_from(length).is_ok_and(|length| length <= self.0.len())
    }
}

#[async_trait]
impl ReadHalf for Received {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let taken = self.0.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&self.0[..taken]);
        self.0.drain(..taken);
        Ok((taken, Vec::new()))
    }
}

#[test]
fn any_message_on_the_bus_keeps_the_laws() {
    winddown_fuzz::short("dbus", wire);
}
