//! Why a call to the runtime failed, and what to do about it.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Status};
use winddown_shared::RuntimeError;

/// The endpoint is not a Unix socket.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("containerRuntimeEndpoint: {endpoint:?} is not a socket: write unix:///path/to/socket")]
pub struct RuntimeEndpointError {
    /// The endpoint as configured.
    pub(super) endpoint: String,
}

/// Why a call to the runtime failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The runtime cannot be reached, or the connection broke during the call.
    #[error("{call}: {endpoint}: {hint}")]
    Unreachable { call: &'static str, endpoint: String, hint: String },
    /// The runtime answered with an error.
    #[error("{call}: {} ({:?})", said(.status), .status.code())]
    Refused { call: &'static str, status: Box<Status> },
    /// Something answers, but it does not offer the CRI service.
    #[error(
        "{call}: {endpoint} does not offer the CRI v1 service: {}", to_offer_cri(.endpoint)
    )]
    NoCri { call: &'static str, endpoint: String },
    /// The runtime did not answer in time.
    #[error("{call}: no answer within {after:?}: the runtime hangs or is overloaded")]
    Timeout { call: &'static str, after: Duration },
}

impl CallError {
    pub(super) fn of(call: &'static str, status: Status, endpoint: &str) -> Self {
        let endpoint = || endpoint.to_owned();
        match status.code() {
            Code::Unimplemented if status.message().contains("unknown service runtime.") => {
                Self::NoCri { call, endpoint: endpoint() }
            }
            // No connection, or one that broke during the call. The runtime's own errors have no
            // source: a registry that is not available does not make the runtime unreachable.
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
                if status.source().is_some() =>
            {
                Self::Unreachable { call, endpoint: endpoint(), hint: hint(&status) }
            }
            _ => Self::Refused { call, status: Box::new(status) },
        }
    }

    fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { status, .. } => Some(status.code()),
            _ => None,
        }
    }

    /// Whether the runtime does not know the container or sandbox.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    /// Whether the runtime does not implement the call.
    pub(crate) fn is_unimplemented(&self) -> bool {
        self.code() == Some(Code::Unimplemented)
    }

    /// Whether the answer is longer than the runtime sends (Go's gRPC), or than this client reads (tonic).
    pub(crate) fn is_too_long(&self) -> bool {
        matches!(self.code(), Some(Code::ResourceExhausted | Code::OutOfRange))
    }

    /// Whether the runtime reports that its own work took too long.
    pub(crate) fn is_deadline_of_the_runtime(&self) -> bool {
        self.code() == Some(Code::DeadlineExceeded)
    }

    /// Whether the name of the new object is taken. Neither containerd nor CRI-O has a code for it.
    pub(crate) fn is_name_taken(&self) -> bool {
        self.says(&["is reserved for", "name is reserved"])
    }

    /// Whether the container's state does not allow a start: another start is or was in progress. Neither
    /// containerd nor CRI-O has a code for it.
    pub(crate) fn is_wrong_state(&self) -> bool {
        self.says(&["already in starting state", "is in CONTAINER_", "is not in created state"])
    }

    fn says(&self, words: &[&str]) -> bool {
        match self {
            Self::Refused { status, .. } => words.iter().any(|w| status.message().contains(w)),
            _ => false,
        }
    }

    /// The error in the words of Go's gRPC library, and thus of the kubelet; other errors as they are.
    pub(crate) fn in_grpc_words(&self) -> String {
        match self {
            Self::Refused { status, .. } => {
                let code = match status.code() {
                    Code::Cancelled => "Canceled".to_owned(),
                    code => format!("{code:?}"),
                };
                format!("rpc error: code = {code} desc = {}", said(status))
            }
            other => other.to_string(),
        }
    }

    /// The same of a pull, of which the kubelet leaves out a code that says nothing.
    pub(crate) fn in_words_of_pull(&self) -> String {
        match self.code() {
            Some(Code::Unknown) => self.message(),
            _ => self.in_grpc_words(),
        }
    }

    /// The runtime's message without the code; other errors as they are.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Refused { status, .. } => said(status).to_owned(),
            other => other.to_string(),
        }
    }

    /// Converts the error for the pod workers; `what` is the attempted action.
    pub(crate) fn during(self, what: impl Into<String>) -> RuntimeError {
        let what = what.into();
        match self {
            Self::Timeout { call, after } => {
                RuntimeError::Timeout { what: format!("{what} ({call})"), after }
            }
            other => RuntimeError::Failed { what, source: Some(Arc::new(other)) },
        }
    }
}

/// What is wrong with the connection, and how to fix it.
fn hint(status: &Status) -> String {
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::NotFound => {
                    "there is no such socket: start the container runtime, or correct \
                     containerRuntimeEndpoint"
                        .to_owned()
                }
                io::ErrorKind::PermissionDenied => {
                    "the socket may not be opened: run as root or as a member of the socket's group"
                        .to_owned()
                }
                io::ErrorKind::ConnectionRefused => {
                    "nothing listens at the socket: start the container runtime".to_owned()
                }
                _ => format!("the connection was lost: {error}: the runtime's log may say why"),
            };
        }
        source = error.source();
    }
    // What is left is written for programmers.
    "the connection was lost: the runtime's log may say why".to_owned()
}

/// The runtime's own words. CRI-O ends those of its helpers with a line feed.
fn said(status: &Status) -> &str {
    status.message().trim_end()
}

/// What to do if the service at this endpoint is not a container runtime, or does not let it be one.
fn to_offer_cri(endpoint: &str) -> &'static str {
    if endpoint.contains("containerd") {
        "the plugin is off or failed to load; take \"cri\" out of disabled_plugins in \
         /etc/containerd/config.toml and restart containerd"
    } else if endpoint.contains("crio") {
        "CRI-O is too old; winddown needs 1.28"
    } else {
        "it is too old, or no container runtime; correct containerRuntimeEndpoint"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_that_is_not_available_does_not_make_the_runtime_unreachable() {
        let said = "unexpected status from GET request to https://registry/v2/: 503";
        for code in [Code::Unavailable, Code::ResourceExhausted, Code::Unknown] {
            let error = CallError::of("PullImage", Status::new(code, said), "/run/cri.sock");
            assert!(matches!(error, CallError::Refused { .. }), "{error}");
        }
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        let mut status = Status::unavailable("transport error");
        status.set_source(Arc::new(broken));
        let error = CallError::of("PullImage", status, "/run/cri.sock");
        assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
    }

    #[test]
    fn an_answer_that_is_longer_than_either_side_allows_is_known_as_that() {
        let of = |status| CallError::of("ListContainers", status, "/run/cri.sock").is_too_long();
        let too_long = "grpc: trying to send message larger than max (16882231 vs. 16777216)";
        assert!(of(Status::resource_exhausted(too_long)));
        assert!(of(Status::out_of_range("Error, decoded message length too large")));
        assert!(!of(Status::unknown("the database is locked")));
    }

    /// What the libraries below say has layers of its own, and structures of the protocol.
    #[test]
    fn a_failed_call_names_call_endpoint_and_next_step_in_no_librarys_words() {
        #[derive(Debug, thiserror::Error)]
        #[error("h2 protocol error: Error {{ kind: GoAway(b\"\", NO_ERROR, Remote) }}")]
        struct Library(#[source] Option<io::Error>);
        let table = [
            (Some(io::ErrorKind::NotFound), "there is no such socket: start the container runtime"),
            (Some(io::ErrorKind::PermissionDenied), "the socket may not be opened: run as root"),
            (
                Some(io::ErrorKind::ConnectionRefused),
                "nothing listens at the socket: start the container",
            ),
            (
                Some(io::ErrorKind::BrokenPipe),
                "the connection was lost: broken pipe: the runtime's log",
            ),
            (None, "the connection was lost: the runtime's log may say why"),
        ];
        for (kind, wanted) in table {
            let mut status = Status::unavailable("transport error");
            status.set_source(Arc::new(Library(kind.map(io::Error::from))));
            let said = CallError::of("Version", status, "/run/cri.sock").to_string();
            assert!(said.starts_with(&format!("Version: /run/cri.sock: {wanted}")), "{said}");
            assert!(!said.contains(['{', '(']) && !said.contains("transport"), "{said}");
        }
    }

    #[test]
    fn what_is_to_be_done_is_of_the_runtime_at_the_endpoint_and_its_words_end_without_a_line_feed()
    {
        let status = || Status::unimplemented("unknown service runtime.v1.RuntimeService");
        for (endpoint, wanted) in [
            ("/run/containerd/containerd.sock", "/etc/containerd/config.toml"),
            ("/run/k3s/containerd/containerd.sock", "restart containerd"),
            ("/run/crio/crio.sock", "CRI-O is too old"),
            ("/run/cri.sock", "correct containerRuntimeEndpoint"),
        ] {
            let said = CallError::of("Version", status(), endpoint).to_string();
            assert!(said.contains(wanted), "{said}");
            assert_eq!(said.contains("containerd"), endpoint.contains("containerd"), "{said}");
        }
        let status = Status::unknown("container create failed: unknown version specified\n");
        let error = CallError::of("CreateContainer", status, "/run/crio/crio.sock");
        for said in [error.to_string(), error.in_grpc_words(), error.message()] {
            assert!(!said.contains('\n') && said.contains("unknown version specified"), "{said:?}");
        }
    }
}
