//! preStop and postStart handlers, and what probes ask.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_engine::environment::NodeFacts;
use winddown_engine::probe_client::{Endpoint, HttpGet};
use winddown_shared::Pod;
use winddown_shim::order::Command;

use super::{Context, Driver};

/// What a lifecycle handler does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    /// Runs a command with the container's user, environment and working directory.
    Exec(Vec<String>),
    /// Waits.
    Sleep(Duration),
    /// Asks over HTTP.
    Http(HttpGet),
    /// Connects.
    Tcp(Endpoint),
}

/// Why a hook did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    /// It ended with another exit code than 0.
    #[error("{command}: exit code {code}")]
    Failed { command: String, code: i32 },
    /// It could not be started or watched.
    #[error("cannot run {command}")]
    Broken {
        command: String,
        #[source]
        source: io::Error,
    },
    /// The container does not answer as it should.
    #[error("the container does not answer")]
    NoAnswer(#[source] io::Error),
}

impl Handler {
    /// What a spec's handler asks for; none for kinds that are refused beforehand.
    pub(crate) fn of(
        handler: &api::LifecycleHandler,
        container: &api::Container,
        node: &NodeFacts,
    ) -> Option<Self> {
        if let Some(exec) = &handler.exec {
            return Some(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(get) = &handler.http_get {
            return HttpGet::of(get, container, node).map(Self::Http);
        }
        if let Some(socket) = &handler.tcp_socket {
            return Endpoint::of(socket, container, node).map(Self::Tcp);
        }
        let seconds = handler.sleep.as_ref()?.seconds;
        Some(Self::Sleep(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
    }
}

/// Does what the handler says, beside the pod's container. `as_container` is the container's own command,
/// of which everything but the words is taken. Dropping the future ends what runs; `limit` is when that
/// will be at the latest.
///
/// # Errors
/// The command failed, or could not be run.
pub(crate) async fn run<D: Driver>(
    context: &Arc<Context<D>>,
    beside: (&Pod, &str),
    handler: &Handler,
    as_container: &Command,
    limit: Option<Duration>,
) -> Result<(), HookError> {
    match handler {
        Handler::Sleep(length) => {
            tokio::time::sleep(*length).await;
            Ok(())
        }
        Handler::Http(get) => get.ask().await.map_err(HookError::NoAnswer),
        Handler::Tcp(endpoint) => endpoint.connect().await.map_err(HookError::NoAnswer),
        Handler::Exec(argv) => {
            let command = Command { argv: argv.clone(), ..as_container.clone() };
            D::exec(context, beside, command, limit).await
        }
    }
}
