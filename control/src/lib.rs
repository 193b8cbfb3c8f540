//! The control socket: HTTP/1.1 and JSON over a unix socket, the server and the client of it.
//!
//! # Behaviour
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`Status`] |
//! | `GET /v1/status?watch=1` | one [`Status`] per line, now and after every change |
//! | `GET /v1/plan/shutdown` | [`ShutdownPlan`]; `?seconds=30` |
//! | `GET /v1/plan/preemption` | [`PreemptionPlan`] |
//! | `POST /v1/plan/preemption` | the same, for the pod whose manifest is the body; `?strategy=minimal` |
//! | `GET /v1/plan/eviction` | [`EvictionPlan`]; `?signal=memory.available` |
//! | `GET /v1/plan/start` | [`StartPlan`] |
//! | `POST /v1/pods/{namespace}/{name}/kill` | [`KillAnswer`], once the pod is gone |
//! | `POST /v1/pods/{namespace}/{name}/release` | [`ReleaseAnswer`]: it holds shutdowns no longer |
//! | `POST /v1/drain` | one [`DrainEvent`] per line |
//! | `POST /v1/notice` | the node goes away: one [`DrainEvent`] per line |
//! | `DELETE /v1/notice` | [`WithdrawAnswer`]: the node stays |
//! | `GET /v1/reports`, `/v1/reports/{id}`, `/v1/reports/latest`, `/v1/reports/start` | [`ReportList`], a report |
//! | `GET /v1/config` | [`ConfigView`] |
//! | `GET /metrics`, `/healthz`, `/readyz` | text; `?verbose` lists the checks |
//!
//! Everything that is not a success is an [`ErrorBody`](crate::api::ErrorBody).
//!
//! # Limits
//! One request per connection. Who may connect is decided by the socket's mode: 0600, or 0660 with the
//! configured group. What changes the node's state also needs the credentials of root or of that
//! group, so that a socket opened wider by hand stays harmless. Connections, watchers, sizes and waits are bounded
//! by [`Limits`]: a client that sends nothing or reads nothing loses its connection and holds up
//! no other.
//!
//! # Design
//! The server knows the agent only as [`AgentApi`], so it is tested against a stand-in.

pub mod api;
mod client;
mod connection;
#[cfg(any(test, debug_assertions))]
#[path = "tests/fake.rs"]
mod fake;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
pub mod json;
mod limits;
mod peer;
mod respond;
mod route;
mod server;
mod shared;
mod slots;
mod socket;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::api::{
    ConfigView, DrainEvent, DrainRequest, ErrorCode, EvictionPlan, Health, KillAnswer, KillBody,
    NoticeBody, PreemptionPlan, ReleaseAnswer, ReportList, ShutdownPlan, StartPlan, Status,
    WithdrawAnswer,
};

pub use client::{Client, ClientError, Lines};
pub use limits::Limits;
pub use peer::Peer;
pub use server::Server;
pub use socket::{ControlSocket, SocketError};

/// Where the agent listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/winddown/winddown.sock";

/// What the control socket needs of the running agent.
///
/// The calls that are not `async` answer from what is in memory: they never wait for a pod, the
/// runtime, logind or a disk, so `status` works when everything else hangs.
pub trait AgentApi: Send + Sync + 'static {
    /// The node as it is now.
    fn status(&self) -> Status;

    /// Changes whenever [`status`](Self::status) would answer differently, ages aside. The value
    /// counts up; a reader that was slow sees only the last one.
    fn changes(&self) -> watch::Receiver<u64>;

    /// What a shutdown would do now, or if the node were gone in `within`. Touches nothing.
    fn shutdown_plan(&self, within: Option<Duration>) -> impl Future<Output = ShutdownPlan> + Send;

    /// In which order the pods would start after a boot. Touches nothing.
    fn start_plan(&self) -> StartPlan;

    /// How much room there is, who waits for some, and who would end for a critical pod whose
    /// manifest this is; by the strategy of that name, or the one in force. Touches nothing.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`] when the manifest is none, or there is no such strategy.
    fn preemption_plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError>;

    /// What is short or nearest to it, who would end for that or for `signal`, and what was decided
    /// lately. Measures the pods, which takes 2 s at most; touches nothing.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] where nothing is evicted, as in a rehearsal; [`ErrorCode::BadRequest`]
    /// when there is no such signal.
    fn eviction_plan(
        &self,
        signal: Option<&str>,
    ) -> impl Future<Output = Result<EvictionPlan, ApiError>> + Send;

    /// Ends one pod and resolves when it is gone, or when the wait is over and it still runs.
    ///
    /// Dropping the future abandons the wait, not the kill.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] when there is no such pod, or not with that UID.
    fn kill(
        &self,
        namespace: &str,
        name: &str,
        body: KillBody,
    ) -> impl Future<Output = Result<KillAnswer, ApiError>> + Send;

    /// Lets shutdowns through although this pod holds them, for as long as it runs.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] when no such pod holds shutdowns.
    fn release(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<ReleaseAnswer, ApiError>> + Send;

    /// Starts ending the node's pods in shutdown order and answers with the progress.
    ///
    /// The drain belongs to the agent: it goes on when the receiver is dropped. The channel ends
    /// after [`DrainEvent::Finished`].
    ///
    /// # Errors
    /// [`ErrorCode::Conflict`] while a drain or a shutdown is under way.
    fn drain(
        &self,
        request: DrainRequest,
    ) -> impl Future<Output = Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError>> + Send;

    /// Takes an operator's notice that the node goes away, in place of an earlier one, and answers
    /// with the progress of ending the pods.
    ///
    /// The notice stays in force until it is withdrawn or the node goes down, with or without a listener.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`] when it names no time, or one that is over;
    /// [`ErrorCode::Conflict`] when graceful shutdown is switched off.
    fn give_notice(
        &self,
        body: NoticeBody,
    ) -> impl Future<Output = Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError>> + Send;

    /// Takes the operator's notice back, and opens admission unless something else keeps it closed.
    /// Ends the aftermath of a drain as well.
    fn withdraw_notice(&self) -> impl Future<Output = WithdrawAnswer> + Send;

    /// The shutdown reports that are kept, the newest first.
    ///
    /// # Errors
    /// The state directory cannot be read.
    fn reports(&self) -> impl Future<Output = Result<ReportList, ApiError>> + Send;

    /// One report as JSON; `latest` names the newest, `start` that of the last ordered start.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] when there is no such report.
    fn report(&self, id: &str) -> impl Future<Output = Result<serde_json::Value, ApiError>> + Send;

    /// The configuration in force.
    fn config(&self) -> ConfigView;

    /// The checks behind `/healthz`: the agent makes progress.
    fn health(&self) -> Health;

    /// The checks behind `/readyz`: the node is protected (lock, runtime, state directory, …).
    fn readiness(&self) -> Health;

    /// The metrics in the OpenMetrics text format, `# EOF` included.
    fn metrics(&self) -> String;
}

/// Why the agent does not do what it was asked.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub struct ApiError {
    /// What kind of refusal it is; chooses the HTTP status.
    pub code: ErrorCode,
    /// What is wrong, for people.
    pub message: String,
    /// What to do next, for people; may be empty.
    pub hint: String,
}

impl ApiError {
    /// An error without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: String::new() }
    }

    /// The same error with what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}
