//! Errors of credentials and requests.

use std::path::PathBuf;
use std::time::Duration;

use winddown_shared::error_chain;

use super::peer::{self, trouble};

/// Why the API server's address or the credentials for it cannot be obtained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {what} {}", path.display())]
    Read {
        /// What the file is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {what} {}: this agent has to be able to write its folder", path.display())]
    Write {
        /// What the file is for.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// A file is not a valid kubeconfig.
    #[error(
        "{} is not a kubeconfig: YAML of apiVersion v1, kind Config is expected{}", path.display(), in_line(*line)
    )]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line that cannot be read, if it is one.
        line: Option<u64>,
    },
    /// The content of a file or a field of it cannot be used.
    #[error("{place}: {problem}")]
    Contents {
        /// The file, and the field in it.
        place: String,
        /// What is wrong, and what to do.
        problem: String,
        /// The error of the library that read it, if any.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// An environment variable is missing or cannot be used.
    #[error("{name} is {problem}: in-cluster credentials need what Kubernetes sets in each pod")]
    Environment {
        /// The name of the variable.
        name: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Nothing says where credentials are.
    #[error("{why}")]
    Unknown {
        /// What is missing, and what to do.
        why: String,
    },
    /// Reading the credentials was interrupted because this agent is shutting down.
    #[error("reading credentials was interrupted, because this agent is stopping")]
    Ending,
}

/// Why a request got no answer. A [`kube::Error::Service`] of this connection contains one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There was no answer in time. The request may have been carried out.
    #[error("no answer from the API server {server} within {after:?}")]
    Silent {
        /// The server that was asked.
        server: String,
        /// The timeout that passed.
        after: Duration,
    },
    /// There was no answer within its caller's limit. The request may have been carried out.
    #[error("no answer within {after:?}")]
    Late {
        /// The limit.
        after: Duration,
    },
    /// The rate limit held the request back for all of its caller's limit; it was not sent.
    #[error("not sent within {after:?}, because this agent has too many requests to send")]
    Unsent {
        /// The caller's limit.
        after: Duration,
    },
    /// No connection could be made; the request was not sent.
    #[error("cannot reach the API server {server}: {}", trouble(.cause))]
    Unreachable {
        /// The server that could not be reached.
        server: String,
        /// The client's error. Its own words are for programmers, so that it is no [`source`](std::error::Error::source).
        cause: hyper_util::client::legacy::Error,
    },
    /// The connection ended before an answer came. The request may have been carried out.
    #[error("the API server {server} closed the connection before it answered: {}", trouble(.cause))]
    Lost {
        /// The server that was asked.
        server: String,
        /// The client's error, as for [`Self::Unreachable`].
        cause: hyper_util::client::legacy::Error,
    },
    /// There are no credentials yet.
    #[error("there are no credentials for the API server yet: {why}")]
    Unsigned {
        /// What is missing.
        why: String,
    },
    /// The request's URL cannot be built.
    #[error("the path {path:?} is not one of the API server's")]
    Address {
        /// The path of the request.
        path: String,
    },
}

// === impl CredentialsError ===

fn in_line(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| {
        format!("; line {line} is none, or has a value of another type")
    })
}

impl CredentialsError {
    /// The error as one sentence, which does not call it an error that a file is not there yet.
    pub(super) fn as_missing(&self) -> String {
        match self {
            Self::Read { what, path, source } if source.kind() == std::io::ErrorKind::NotFound => {
                format!("{what} {} does not exist", path.display())
            }
            error => error_chain(error),
        }
    }

    pub(super) fn contents(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Contents { place: place.into(), problem: problem.into(), source: None }
    }

    pub(super) fn because(
        place: impl Into<String>,
        problem: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Contents { place: place.into(), problem: problem.into(), source: Some(source.into()) }
    }
}

// === impl RequestError ===

impl RequestError {
    /// Whether this node or the API server does not accept the other's certificate.
    pub(super) fn refuses_certificate(&self) -> bool {
        match self {
            Self::Unreachable { cause, .. } | Self::Lost { cause, .. } => {
                peer::is_of_certificate(cause)
            }
            Self::Silent { .. }
            | Self::Late { .. }
            | Self::Unsent { .. }
            | Self::Unsigned { .. }
            | Self::Address { .. } => false,
        }
    }

    /// Whether other credentials might help: no connection could be made, or the peer closed it
    /// because of a certificate. In TLS 1.3 a client learns only after its first request that its
    /// certificate was rejected.
    pub(super) fn doubts_credentials(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Lost { cause, .. } => is_tls(cause),
            _ => false,
        }
    }
}

/// Whether TLS failed. It reports what it rejects, and alerts, as `InvalidData`.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let found = error.downcast_ref::<std::io::Error>();
    found.is_some_and(|error| error.kind() == std::io::ErrorKind::InvalidData)
        || error.source().is_some_and(is_tls)
}
