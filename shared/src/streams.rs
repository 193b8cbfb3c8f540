//! The seam to what opens streams into pods: exec, attach, port-forward.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use futures_util::future::BoxFuture;

use crate::{PodUid, RuntimeError};

/// Opens streams into pods, for clients over the network. A runtime implements it beside
/// [`Runtime`](crate::Runtime).
///
/// Each call prepares a stream of its own, and nothing happens in the pod before a client comes for it. A call bounds
/// its own time; dropping the future gives it up.
pub trait PodStreams: Send + Sync + 'static {
    /// Prepares the stream. None if no such container of the pod runs, or nothing of the pod.
    ///
    /// # Errors
    /// The runtime refused or did not answer, has no such streams, or serves them at no address of this machine's own.
    fn open<'a>(
        &'a self,
        pod: &'a PodUid,
        wanted: StreamRequest,
    ) -> BoxFuture<'a, Result<Option<PodStream>, RuntimeError>>;
}

/// A stream into a pod.
#[derive(Debug)]
pub enum PodStream {
    /// The runtime serves it.
    Served(StreamServer),
    /// A command whose streams the caller serves.
    Command(CommandStream),
}

/// A command that is to run in, or beside, a container, with this side of its streams: each non-blocking, and none for
/// what was not asked for. With a terminal `stdin` and `stdout` are its controlling side.
pub struct CommandStream {
    /// What it reads. Closing it is the end of its input, unless that is a terminal.
    pub stdin: Option<OwnedFd>,
    /// What it writes.
    pub stdout: Option<OwnedFd>,
    /// Its messages.
    pub stderr: Option<OwnedFd>,
    /// Starts the command when it is first polled, and resolves with its exit code, which is 128 + the signal where
    /// one ended it. The command ends with its container at the latest; dropping this ends it too.
    pub exit: BoxFuture<'static, Result<i32, RuntimeError>>,
}

impl fmt::Debug for CommandStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stdin, stdout, stderr, .. } = self;
        f.debug_tuple("CommandStream").field(&(stdin, stdout, stderr)).finish_non_exhaustive()
    }
}

/// What a client wants of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRequest {
    /// To run a command in a container.
    Exec {
        /// The container's name.
        container: String,
        /// The program and its arguments.
        command: Vec<String>,
        /// What of it goes through the stream.
        stdio: Stdio,
    },
    /// To join what a container runs.
    Attach {
        /// The container's name.
        container: String,
        /// What of it goes through the stream; `tty` is as the container was started.
        stdio: Stdio,
    },
    /// To reach ports of the pod.
    PortForward {
        /// The ports; none where the client names each later, in the stream.
        ports: Vec<u16>,
    },
}

/// What of a program goes through a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stdio {
    /// Its input.
    pub stdin: bool,
    /// Its output.
    pub stdout: bool,
    /// Its messages.
    pub stderr: bool,
    /// It has a terminal.
    pub tty: bool,
}

/// Where a runtime serves one stream: on this machine, reachable from nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamServer {
    address: SocketAddr,
    path: String,
}

impl StreamServer {
    /// The server that a URL names. None unless it is `http` at a loopback address: no other is the runtime's own.
    pub fn of_url(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("http://")?;
        let (authority, path) = rest.split_at(rest.find('/')?);
        let address: SocketAddr = authority.parse().ok()?;
        address.ip().is_loopback().then(|| Self { address, path: path.to_owned() })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The path of the stream there, with its query.
    pub fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_served_on_this_machine_alone() {
        let server = StreamServer::of_url("http://127.0.0.1:4000/exec/token?x=1").unwrap();
        assert_eq!(server.address(), "127.0.0.1:4000".parse().unwrap());
        assert_eq!(server.path(), "/exec/token?x=1");
        assert!(StreamServer::of_url("http://[::1]:4000/attach/token").is_some());
        for foreign in [
            "http://192.0.2.1:4000/exec/token",
            "http://0.0.0.0:4000/exec/token",
            "http://[::ffff:192.0.2.1]:4000/exec/token",
            "http://localhost:4000/exec/token",
            "http://127.0.0.1:4000@192.0.2.1/exec/token",
            "http://127.0.0.1/exec/token",
            "http://127.0.0.1:4000",
            "https://127.0.0.1:4000/exec/token",
            "/exec/token",
            "",
        ] {
            assert_eq!(StreamServer::of_url(foreign), None, "{foreign}");
        }
    }
}
