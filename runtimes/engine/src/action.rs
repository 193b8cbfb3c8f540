//! The actions of preStop and postStart hooks and of probes.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use winddown_shared::error_chain;

use crate::environment::EnvironmentFacts;
use crate::probe_client::{HttpGet, ProbeEndpoint};

/// The action of a hook or a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Runs a command as the container would.
    Exec(Vec<String>),
    /// Waits.
    Sleep(Duration),
    /// Sends an HTTP GET request.
    Http(HttpGet),
    /// Opens a TCP connection.
    Tcp(ProbeEndpoint),
    /// Calls the gRPC health service.
    Grpc {
        /// `http://host:port`.
        uri: String,
        /// The service to check; empty means the whole server.
        service: String,
    },
}

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The command exited with a code other than 0.
    #[error("{command}: {how}")]
    Failed {
        /// The command.
        command: String,
        /// How it exited.
        how: String,
        /// Its output; may be empty.
        output: String,
    },
    /// The action took too long.
    #[error("no answer in time")]
    Timeout,
    /// The container does not answer, or not as expected.
    #[error("the container does not answer")]
    NoAnswer(#[source] io::Error),
    /// The command could not be started or watched.
    #[error("cannot run {command}")]
    Broken {
        /// The command.
        command: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The action was not done, for a reason that says nothing about the container.
    #[error("{what}")]
    Unasked {
        /// What prevented it.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

// === impl ActionError ===

impl ActionError {
    /// The kubelet's text for a failed probe: the output of the command, or why there was no answer.
    pub fn output(&self) -> String {
        match self {
            Self::Failed { how, output, .. } if output.is_empty() => how.clone(),
            Self::Failed { output, .. } => output.clone(),
            Self::NoAnswer(error) => error.to_string(),
            other => error_chain(other),
        }
    }
}

// === impl Action ===

impl Action {
    /// The action of a lifecycle handler; none if it has no known action.
    pub fn of_handler(
        handler: &k8s::LifecycleHandler,
        container: &k8s::Container,
        node: &EnvironmentFacts,
    ) -> Option<Self> {
        if let Some(sleep) = &handler.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
            return Some(Self::Sleep(Duration::from_secs(seconds)));
        }
        let asked = (handler.exec.as_ref(), handler.http_get.as_ref(), handler.tcp_socket.as_ref());
        Self::of(asked, container, node)
    }

    /// The action of a probe.
    pub fn of_probe(
        probe: &k8s::Probe,
        container: &k8s::Container,
        node: &EnvironmentFacts,
    ) -> Option<Self> {
        if let Some(grpc) = &probe.grpc {
            let host = match node.address {
                Some(IpAddr::V6(ip)) => format!("[{ip}]"),
                Some(IpAddr::V4(ip)) => ip.to_string(),
                None => "127.0.0.1".to_owned(),
            };
            let service = grpc.service.clone().unwrap_or_default();
            return Some(Self::Grpc { uri: format!("http://{host}:{}", grpc.port), service });
        }
        let asked = (probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref());
        Self::of(asked, container, node)
    }

    fn of(
        (exec, http, tcp): (
            Option<&k8s::ExecAction>,
            Option<&k8s::HTTPGetAction>,
            Option<&k8s::TCPSocketAction>,
        ),
        container: &k8s::Container,
        node: &EnvironmentFacts,
    ) -> Option<Self> {
        if let Some(exec) = exec {
            return Some(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(http) = http {
            return HttpGet::of(http, container, node).map(Self::Http);
        }
        ProbeEndpoint::of(tcp?, container, node).map(Self::Tcp)
    }
}
