//! Why the agent could not be asked, and what to do then.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::ErrorBody;

/// Why the agent could not be asked, or what it answered instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no socket.
    #[error("cannot reach the agent: {} does not exist", socket.display())]
    Missing {
        /// The socket's path.
        socket: PathBuf,
    },
    /// There is a socket without a listener.
    #[error("cannot reach the agent: nothing listens on {}", socket.display())]
    NotListening {
        /// The socket's path.
        socket: PathBuf,
    },
    /// The socket is not for this user.
    #[error("cannot reach the agent: permission denied on {}", socket.display())]
    Denied {
        /// The socket's path.
        socket: PathBuf,
        /// The group whose members may; none if only root may, or if it could not be found out.
        group: Option<String>,
    },
    /// The agent does not answer.
    #[error("no answer from the agent on {} within {after:?}", socket.display())]
    Silent {
        /// The socket's path.
        socket: PathBuf,
        /// How long it was given.
        after: Duration,
    },
    /// The agent went away before it had answered in full.
    #[error("the agent closed the connection on {} before it answered", socket.display())]
    Closed {
        /// The socket's path.
        socket: PathBuf,
    },
    /// The connection failed for another reason.
    #[error("cannot talk to the agent on {}", socket.display())]
    Io {
        /// The socket's path.
        socket: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The agent refused, or failed.
    #[error("{}", body.error)]
    Agent {
        /// The HTTP status.
        status: u16,
        /// What it said.
        body: ErrorBody,
    },
    /// The answer is not understood.
    #[error(
        "the agent's answer is not understood (agent {agent}, this command {})",
        env!("CARGO_PKG_VERSION")
    )]
    Skew {
        /// The agent's version, or that it did not say.
        agent: String,
        /// What is not understood.
        #[source]
        source: serde_json::Error,
    },
}

impl ClientError {
    /// What to do next, for people; empty when there is nothing to add.
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
                "run it again with sudo; controlSocketGroup in the configuration lets a group in"
            }
            Self::Silent { .. } | Self::Closed { .. } => {
                "`journalctl -u winddown -e` shows what the agent is doing"
            }
            Self::Agent { body, .. } => return body.hint.clone(),
            Self::Skew { .. } => {
                "after an upgrade: `systemctl restart winddown` (pods keep running)"
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                "a socket's path has at most 107 bytes: name another one with --socket"
            }
            Self::Io { .. } => {
                "is this the agent's socket? It listens where controlSocket in its configuration says"
            }
        }
        .to_owned()
    }

    /// Whether the agent is not there, now or any more; it may come back.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::NotListening { .. } | Self::Closed { .. })
    }

    /// Whether asking again may help: the agent is not there, or does not answer for now.
    pub fn may_come_back(&self) -> bool {
        self.is_gone() || matches!(self, Self::Silent { .. })
    }
}
