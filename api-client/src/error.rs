//! What can be wrong with credentials.

use std::path::PathBuf;
use std::time::Duration;

/// Why the API server's address and the credentials for it cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {what} {}", path.display())]
    Read {
        /// What the file is for.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {what} {}: this agent has to be able to write its folder", path.display())]
    Write {
        /// What the file is for.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A kubeconfig is not one.
    #[error("{} is not a kubeconfig: YAML of apiVersion v1, kind Config is expected", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// What the parser said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What a file or a field of it says cannot be used.
    #[error("{place}: {problem}")]
    Contents {
        /// The file, and the field in it.
        place: String,
        /// What is wrong, and what to do.
        problem: String,
        /// What the library that read it said.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// A variable of the environment is missing or cannot be used.
    #[error("{name} is {problem}: in-cluster credentials need what Kubernetes sets in each pod")]
    Environment {
        /// Which variable.
        name: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The credentials could not be read because this agent is ending.
    #[error("reading credentials was cut short by the end of this agent")]
    Ending,
}

/// Why a request has no answer. What a [`kube::Error::Service`] of this connection holds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There was no answer in time. The request may have been carried out.
    #[error("no answer from the API server {server} within {after:?}")]
    Silent {
        /// The server asked.
        server: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// No connection could be made; the request was not sent.
    #[error("cannot reach the API server {server}")]
    Unreachable {
        /// The server asked.
        server: String,
        /// What happened.
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    /// The connection ended before an answer came. The request may have been carried out.
    #[error("the API server {server} closed the connection before it answered")]
    Lost {
        /// The server asked.
        server: String,
        /// What happened.
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    /// There are no credentials yet.
    #[error("there are no credentials for the API server yet: {why}")]
    Unsigned {
        /// What is missing.
        why: String,
    },
    /// The request's address cannot be made.
    #[error("the path {path:?} is not one of the API server's")]
    Address {
        /// What was asked for.
        path: String,
    },
}

// === impl CredentialsError ===

impl CredentialsError {
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
    /// Other credentials might have been taken: no connection came about, or the other side ended it
    /// for its certificates. In TLS 1.3 a client hears only after its first request that its
    /// certificate was refused.
    pub(super) fn doubts_credentials(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Lost { source, .. } => is_tls(source),
            _ => false,
        }
    }
}

/// TLS reports what it does not accept, and alerts, as data that is not valid.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let found = error.downcast_ref::<std::io::Error>();
    found.is_some_and(|error| error.kind() == std::io::ErrorKind::InvalidData)
        || error.source().is_some_and(is_tls)
}
