//! Passes the output pipes of a container under a service manager to the service that writes its log.
//!
//! That service reads both pipes, but systemd passes only one file descriptor for reading: since version 262 it refuses
//! an output descriptor that is not open for writing. So the two are sent as a message in a socket, which is the
//! service's standard input. The message stays in the socket, so a service that systemd restarts finds the pipes too.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Creates the standard input of a service that runs `winddown-shim log`. `out` and `error` are the read ends of the
/// container's standard output and standard error.
///
/// # Errors
/// No file descriptor is left, or the kernel refuses.
pub fn as_input(out: BorrowedFd<'_>, error: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (sender, input) =
        socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let pipes = [out, error];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&pipes));
    sendmsg(&sender, &[IoSlice::new(b"pipes")], &mut control, SendFlags::empty())?;
    Ok(input)
}

/// Receives the two pipes from `input`.
pub(crate) fn in_input(input: BorrowedFd<'_>) -> io::Result<[OwnedFd; 2]> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0; 8];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(input, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    };
    let pipes: Vec<OwnedFd> = control.drain().filter_map(rights).flatten().collect();
    pipes.try_into().map_err(|_| io::Error::other("its input has no two pipes"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_service_that_is_started_again_finds_the_same_two_pipes() {
        let ((out, mut to_out), (error, mut to_error)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let input = as_input(out.as_fd(), error.as_fd()).unwrap();
        to_out.write_all(b"out").unwrap();
        to_error.write_all(b"error").unwrap();
        drop((to_out, to_error, out, error));
        drop(in_input(input.as_fd()).unwrap());
        let pipes = in_input(input.as_fd()).unwrap();
        let read = pipes.map(|pipe| {
            let mut text = String::new();
            std::fs::File::from(pipe).read_to_string(&mut text).unwrap();
            text
        });
        assert_eq!(read, ["out", "error"]);
    }

    #[test]
    fn an_input_without_pipes_is_an_error() {
        let (pipe, _write) = io::pipe().unwrap();
        assert!(in_input(pipe.as_fd()).is_err());
        let (_peer, input) =
            socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        assert!(in_input(input.as_fd()).is_err());
    }
}
