//! Errors of the client, and what to do about them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::ErrorBody;

/// Why a request to the agent failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The socket does not exist.
    #[error("cannot reach the agent: {} does not exist", socket.display())]
    Missing {
        /// The socket's path.
        socket: PathBuf,
    },
    /// The socket exists, but nothing listens on it.
    #[error("cannot reach the agent: nothing listens on {}", socket.display())]
    NotListening {
        /// The socket's path.
        socket: PathBuf,
    },
    /// Something else than a socket is there.
    #[error("cannot reach the agent: {} is {what}, not a socket", socket.display())]
    NotASocket {
        /// The path.
        socket: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// The user may not connect to the socket.
    #[error("cannot reach the agent: permission denied on {}", socket.display())]
    Denied {
        /// The socket's path.
        socket: PathBuf,
        /// The group whose members may connect; none if only root may, or if it is unknown.
        group: Option<String>,
    },
    /// The agent did not answer in time.
    #[error("no answer from the agent on {} within {after:?}", socket.display())]
    Silent {
        /// The socket's path.
        socket: PathBuf,
        /// The timeout.
        after: Duration,
    },
    /// The agent closed the connection before the response was complete.
    #[error("the agent closed the connection on {} before its answer was complete", socket.display())]
    Closed {
        /// The socket's path.
        socket: PathBuf,
    },
    /// The connection failed for another reason.
    #[error("cannot talk to the agent on {}", socket.display())]
    Io {
        /// The socket's path.
        socket: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// The agent returned an error.
    #[error("{}", body.error)]
    Agent {
        /// The HTTP status.
        status: u16,
        /// The error from the agent.
        body: ErrorBody,
    },
    /// The response could not be parsed.
    #[error(
        "cannot parse the agent's answer (agent {agent}, this command {})",
        env!("CARGO_PKG_VERSION")
    )]
    Skew {
        /// The agent's version, or a note that it is unknown.
        agent: String,
        /// The parse error.
        source: serde_json::Error,
    },
}

impl ClientError {
    /// What to do next, human-readable; empty if there is nothing to add.
    pub fn hint(&self) -> String {
        match self {
            Self::Missing { .. } | Self::NotListening { .. } => {
                "`sudo systemctl start winddown` starts the agent (where there is no such unit, \
                 `sudo winddown install` first); `systemctl status winddown` says why it does not run"
            }
            Self::Denied { group: Some(group), .. } => {
                return format!(
                    "run it again with sudo, or join the group that may: \
                     `sudo usermod -aG {group} $USER`, then log in again"
                );
            }
            Self::Denied { .. } => {
                "run it again with sudo; controlSocketGroup in the configuration gives a group access"
            }
            Self::Silent { .. } | Self::Closed { .. } => {
                "`journalctl -u winddown -e` shows what the agent is doing; if it hangs: `systemctl restart winddown`"
            }
            Self::Agent { body, .. } => return body.hint.clone(),
            Self::Skew { .. } => {
                "after an upgrade: `systemctl restart winddown` (pods keep running)"
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                "a socket's path has at most 107 bytes: name another one with --socket"
            }
            Self::NotASocket { .. } | Self::Io { .. } => {
                "is this the agent's socket? It listens where controlSocket in its configuration says"
            }
        }
        .to_owned()
    }

    /// Whether no agent listens, or it went away; it may come back.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::NotListening { .. } | Self::Closed { .. })
    }

    /// Whether a retry may help: the agent is gone, or does not answer for now.
    pub fn may_come_back(&self) -> bool {
        self.is_gone() || matches!(self, Self::Silent { .. })
    }
}
