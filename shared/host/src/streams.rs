//! The interface for streams into pods: exec, attach, port-forward. They are descriptors and local sockets of this
//! machine.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use futures_util::future::BoxFuture;

use winddown_shared::{PodUid, RuntimeError};

/// Opens streams into pods for network clients. A runtime implements it in addition to
/// [`Runtime`](winddown_shared::Runtime).
///
/// Each call prepares a new stream, and nothing happens in the pod before a client connects to it.
/// A call bounds its own time; dropping the future cancels it.
pub trait PodStreams: Send + Sync + 'static {
    /// Prepares the stream. `None` if no such container of the pod runs, or nothing of the pod does.
    ///
    /// # Errors
    /// The runtime refused or did not answer, has no such streams, or serves them at an address that is not local.
    fn open<'a>(
        &'a self,
        pod: &'a PodUid,
        wanted: StreamRequest,
    ) -> BoxFuture<'a, Result<Option<PodStream>, RuntimeError>>;
}

/// A stream into a pod.
#[derive(Debug)]
pub enum PodStream {
    /// A stream that the runtime serves.
    Served(StreamServer),
    /// A command whose streams the caller serves.
    Command(CommandStream),
}

/// A command to run in, or alongside, a container, with this side of its streams: each non-blocking, and `None` if not
/// requested. With a terminal, `stdin` and `stdout` are its controlling side.
pub struct CommandStream {
    /// Its standard input. Closing it signals end of file, unless it is a terminal.
    pub stdin: Option<OwnedFd>,
    /// Its standard output.
    pub stdout: Option<OwnedFd>,
    /// Its standard error.
    pub stderr: Option<OwnedFd>,
    /// Starts the command when first polled, and resolves with its exit code, or 128 + signal number if a signal killed
    /// it. The command ends with its container at the latest; dropping this future ends it too.
    pub exit: BoxFuture<'static, Result<i32, RuntimeError>>,
}

impl fmt::Debug for CommandStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stdin, stdout, stderr, .. } = self;
        f.debug_tuple("CommandStream").field(&(stdin, stdout, stderr)).finish_non_exhaustive()
    }
}

/// The stream that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRequest {
    /// Runs a command in a container.
    Exec {
        /// The container's name.
        container: String,
        /// The program and its arguments.
        command: Vec<String>,
        /// The streams of the command to connect.
        stdio: Stdio,
    },
    /// Attaches to the process that a container runs.
    Attach {
        /// The container's name.
        container: String,
        /// The streams to connect; `tty` is as the container was started.
        stdio: Stdio,
    },
    /// Forwards ports of the pod.
    PortForward {
        /// The ports; empty if the client names each one later, in the stream.
        ports: Vec<u16>,
    },
}

/// The standard streams to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stdio {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// Whether there is a terminal.
    pub tty: bool,
}

/// The address at which a runtime serves one stream: local to this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamServer {
    address: SocketAddr,
    path: String,
}

impl StreamServer {
    /// Parses a URL. `None` unless it is `http` at a loopback address: no other server is the runtime's own.
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

    /// The path of the stream, with its query.
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
