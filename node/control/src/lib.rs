//! The control socket: HTTP/1.1 and JSON over a Unix socket, with its server and client.
//!
//! # Behaviour
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`Status`] |
//! | `GET /v1/status?watch=1` | one [`Status`] per line, now and after every change |
//! | `GET /v1/plan/shutdown` | `ShutdownPlan`; `?seconds=30` |
//! | `GET /v1/plan/preemption` | [`PreemptionPlan`] |
//! | `POST /v1/plan/preemption` | the same, for the pod whose manifest is the body; `?strategy=minimal` |
//! | `GET /v1/plan/eviction` | [`EvictionPlan`](api::EvictionPlan); `?signal=memory.available` |
//! | `GET /v1/plan/start` | [`StartPlan`] |
//! | `POST /v1/pods/{namespace}/{name}/kill` | [`KillAnswer`], once the pod is gone |
//! | `GET /v1/pods/{namespace}/{name}/log` | the output of a container, as text; `?container=`, `?follow`, `?previous`, `?timestamps`, `?tailLines=` |
//! | `POST /v1/pods/{namespace}/{name}/release` | [`ReleaseAnswer`]: the pod no longer blocks shutdowns |
//! | `POST /v1/drain` | one [`DrainEvent`] per line |
//! | `POST /v1/notice` | announces that the node will go away: one [`DrainEvent`] per line |
//! | `DELETE /v1/notice` | [`WithdrawAnswer`]: the node stays |
//! | `GET /v1/reports`, `/v1/reports/{id}`, `/v1/reports/latest`, `/v1/reports/start` | [`ReportList`], a report |
//! | `GET /v1/config` | [`ConfigView`] |
//! | `GET /metrics`, `/healthz`, `/readyz` | text; `?verbose` lists the checks |
//!
//! Every response that is not a success is an [`ErrorBody`](crate::api::ErrorBody).
//!
//! # Limits
//! Each connection serves one request. The socket's mode decides who may connect: 0600, or 0660 with the configured
//! group. Logs, and requests that change the node's state, also need the credentials of root or of that group, so that a
//! socket that was opened up by hand stays harmless. [`Limits`] bounds connections, watchers, sizes and waits: a client that
//! sends nothing or reads nothing loses its connection and delays no other. A body has at most 64 KiB, a manifest
//! 1 MiB, and only a few manifests are in memory at a time.
//!
//! # Design
//! The server knows the agent only as [`AgentApi`], so it can be tested against a fake.

pub mod api;
mod client;
mod connection;
#[cfg(any(test, fuzzing))]
#[path = "tests/fake.rs"]
mod fake;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod json;
mod limits;
mod peer;
pub mod protection;
mod respond;
mod route;
mod server;
mod slots;
mod socket;
#[cfg(test)]
mod tests;

use futures_util::stream;
use tokio::sync::{mpsc, watch};

use crate::api::{
    ConfigView, DrainEvent, DrainRequest, ErrorCode, Health, KillAnswer, KillBody, LogQuery,
    NoticeBody, PreemptionPlan, ReleaseAnswer, ReportList, StartPlan, Status, WithdrawAnswer,
};

pub use client::{AnswerBlocks, AnswerLines, Client, ClientError};
pub use limits::Limits;
pub use peer::Peer;
pub use server::Server;
pub use socket::{ControlSocket, KeptSocket, SocketError};

/// The default path of the socket.
pub const DEFAULT_SOCKET: &str = "/run/winddown/winddown.sock";

/// The interface of the running agent that the server needs.
///
/// The calls that are not `async` answer from memory: they never wait for a pod, the runtime, logind or a disk, so
/// `status` works when everything else hangs.
pub trait AgentApi: StatusApi + HealthApi + PlanApi + ActApi + ReportApi {}

impl<A: StatusApi + HealthApi + PlanApi + ActApi + ReportApi> AgentApi for A {}

/// What the agent shows of the node and of itself.
pub trait StatusApi: Send + Sync + 'static {
    /// Brings up to date what [`status`](Self::status) and [`metrics`](Self::metrics) say of the node beside the agent.
    /// Called before each; takes at most a few seconds. By default there is nothing to do.
    fn refresh(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The current status of the node.
    fn status(&self) -> Status;

    /// A counter that changes whenever [`status`](Self::status) would answer differently, ages aside. A slow reader
    /// sees only the latest value.
    fn changes(&self) -> watch::Receiver<u64>;

    /// The effective configuration.
    fn config(&self) -> ConfigView;

    /// The metrics in the OpenMetrics text format, `# EOF` included.
    fn metrics(&self) -> String;
}

/// What the agent checks of itself.
pub trait HealthApi: Send + Sync + 'static {
    /// The checks behind `/healthz`: whether the agent makes progress.
    fn health(&self) -> Health;

    /// The checks behind `/readyz`: whether the node is protected (lock, runtime, state directory, …).
    fn readiness(&self) -> Health;
}

/// What the agent would do. Nothing of it changes anything.
pub trait PlanApi: Send + Sync + 'static {
    /// Plans a shutdown, optionally as if the node were gone in `within`. Changes nothing.
    #[cfg(feature = "shutdown")]
    fn shutdown_plan(
        &self,
        within: Option<std::time::Duration>,
    ) -> impl Future<Output = api::ShutdownPlan> + Send;

    /// Plans the order in which the pods would be started after a boot. Changes nothing.
    ///
    /// # Errors
    /// This agent starts no pods.
    fn start_plan(&self) -> Result<StartPlan, ApiError>;

    /// Lists the free resources, the pods that wait for room, and the pods that would be stopped for the critical pod
    /// of `manifest`, by the named strategy or the configured one. Changes nothing.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`] if the manifest is invalid or the strategy is unknown.
    fn preemption_plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError>;

    /// Lists the thresholds, the pods that would be evicted for `signal` or the signal nearest to its threshold, and
    /// the latest decisions. Measures the pods, which takes at most 2 s; changes nothing.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if eviction does not run, as in a rehearsal; [`ErrorCode::BadRequest`] if the signal is
    /// unknown.
    #[cfg(feature = "eviction")]
    fn eviction_plan(
        &self,
        signal: Option<&str>,
    ) -> impl Future<Output = Result<api::EvictionPlan, ApiError>> + Send;
}

/// What an operator asks the agent to do.
pub trait ActApi: Send + Sync + 'static {
    /// Stops one pod. Resolves when it is gone, or when the wait is over and it still runs.
    ///
    /// Dropping the future abandons the wait, not the kill.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if there is no such pod, or it has another UID; [`ErrorCode::Conflict`] if the
    /// runtime does not stop it now.
    fn kill(
        &self,
        namespace: &str,
        name: &str,
        body: KillBody,
    ) -> impl Future<Output = Result<KillAnswer, ApiError>> + Send;

    /// Lets shutdowns proceed although this pod blocks them, for as long as the pod runs.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if no such pod blocks shutdowns.
    fn release(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<ReleaseAnswer, ApiError>> + Send;

    /// Starts stopping the node's pods in shutdown order, and returns the progress.
    ///
    /// The drain belongs to the agent: it continues when the receiver is dropped. The channel closes after
    /// [`DrainEvent::Finished`].
    ///
    /// # Errors
    /// [`ErrorCode::Conflict`] while a drain or a shutdown is in progress.
    fn drain(
        &self,
        request: DrainRequest,
    ) -> impl Future<Output = Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError>> + Send;

    /// Accepts an operator's notice that the node will go away, which replaces an earlier one, and returns the progress
    /// of stopping the pods.
    ///
    /// The notice stays in effect until it is withdrawn or the node goes down, even if the receiver is dropped.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`] if it has no time, or one in the past; [`ErrorCode::Conflict`] if graceful shutdown is
    /// disabled.
    fn give_notice(
        &self,
        body: NoticeBody,
    ) -> impl Future<Output = Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError>> + Send;

    /// Withdraws the operator's notice or ends a finished drain, and opens admission unless something else keeps it
    /// closed.
    fn withdraw_notice(&self) -> impl Future<Output = WithdrawAnswer> + Send;
}

/// A container's output, in blocks, for as long as there is more or the container runs.
pub type LogBlocks = stream::BoxStream<'static, std::io::Result<Vec<u8>>>;

/// What was recorded: the reports of shutdowns, and the output of containers.
pub trait ReportApi: Send + Sync + 'static {
    /// Lists the shutdown reports that are kept, newest first.
    ///
    /// # Errors
    /// The state directory cannot be read.
    fn reports(&self) -> impl Future<Output = Result<ReportList, ApiError>> + Send;

    /// Reads a report as JSON; `latest` names the newest, and `start` that of the last ordered start.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if there is no such report.
    fn report(&self, id: &str) -> impl Future<Output = Result<serde_json::Value, ApiError>> + Send;

    /// Opens the log of a container. By default there are no logs.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if there is no such pod, container or run.
    fn log(
        &self,
        namespace: &str,
        name: &str,
        query: LogQuery,
    ) -> impl Future<Output = Result<LogBlocks, ApiError>> + Send {
        let _ = (namespace, name, query);
        std::future::ready(Err(ApiError::new(ErrorCode::NotFound, "this agent keeps no logs")))
    }
}

/// Why the agent refuses a request.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub struct ApiError {
    /// The kind of error, which determines the HTTP status.
    pub code: ErrorCode,
    /// What is wrong, human-readable.
    pub message: String,
    /// What to do next, human-readable; may be empty.
    pub hint: String,
}

impl ApiError {
    /// Creates an error without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: String::new() }
    }

    /// The answer to a kill that outlives the agent: the next one continues it, so a second one could terminate the pod
    /// that has started again.
    pub fn kill_cut_short() -> Self {
        let text = "the agent is stopping; a pod that was asked to terminate still does";
        Self::new(ErrorCode::Unavailable, text).with_hint(
            "do not repeat this at once: `winddown status` shows the pod when the agent runs again",
        )
    }

    /// Adds a hint about what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
