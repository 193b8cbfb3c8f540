//! The interface between the engine, which decides when, and a runtime, which acts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use winddown_shared::{Grace, Pod, RuntimeError, instant_after};

use crate::action::Action;
use crate::action_error::ActionError;
use crate::disk_notes::RunNote;
use crate::pod::{EnginePodState, PodEntry, RunScope, StartInProgress};
use crate::pods::Pods;
use crate::probe_client::ProbeHost;
use crate::termination_notices::TerminationNotices;

/// A pod of a runtime.
pub type Entry<D> = Arc<PodEntry<<D as Driver>::RunScope>>;

/// A container to stop.
#[derive(Clone, Debug)]
pub struct StopTarget {
    /// Its name in the spec.
    pub name: Arc<str>,
    /// The id of its run.
    pub id: Arc<str>,
    /// The number of its run.
    pub attempt: u32,
    /// Whether it is a sidecar, which stops after the containers that may need it.
    pub(crate) waits_for_others: bool,
    pub(crate) pre_stop: Option<Action>,
    /// Whether it was sent the stop signal before, by this agent or an earlier one.
    pub(crate) is_asked: bool,
}

/// A container runtime, or the host itself.
// Over the limit because it is all in which runtimes differ, and one type has it.
pub trait Driver: Sized + Send + Sync + 'static {
    /// The sandbox or boot that its pods run in.
    type RunScope: RunScope;

    /// All pods.
    fn pods(&self) -> &Pods<Self::RunScope>;

    /// A channel that closes when the runtime is dropped, to stop tasks.
    fn alive(&self) -> watch::Receiver<()>;

    /// The writer of the pods' termination notices.
    fn termination_notices(&self) -> &TerminationNotices;

    /// The directory of the containers' logs, laid out as `/var/log/pods` is.
    fn pod_logs(&self) -> &Path;

    /// The directory of the [links](crate::log_links) to the logs; none if none are made.
    fn log_links(&self) -> Option<&Path>;

    /// Where the pod's hooks and probes connect that name no host.
    fn probe_host(&self, state: &EnginePodState<Self::RunScope>) -> ProbeHost;

    /// Notes for the next agent whether this holds of the run with this number of a container. Returns at once.
    fn note(&self, entry: &Entry<Self>, run: (&str, u32), note: RunNote, holds: bool);

    /// Runs a command in, or beside, a run of a container. Dropping the future abandons it; it ends within `limit`.
    ///
    /// # Errors
    /// The command failed, took too long, or cannot be run.
    fn exec(
        self: &Arc<Self>,
        entry: &Entry<Self>,
        run: (&str, &str),
        command: &[String],
        limit: Duration,
    ) -> impl Future<Output = Result<(), ActionError>> + Send;

    /// Calls a gRPC health service. By default, gRPC is not supported.
    ///
    /// # Errors
    /// The service is not serving, or gRPC is not supported.
    fn ask_grpc(
        &self,
        uri: &str,
        _service: &str,
    ) -> impl Future<Output = Result<(), ActionError>> + Send {
        let what = format!("gRPC is not supported, so {uri} cannot be probed");
        async { Err(ActionError::unasked(what)) }
    }

    /// Creates what containers are started in (a sandbox, say), if needed. Returns false if the pod is being stopped.
    ///
    /// # Errors
    /// It cannot be created.
    fn make_room(
        self: &Arc<Self>,
        _entry: &Entry<Self>,
        _pod: &Pod,
    ) -> impl Future<Output = Result<bool, RuntimeError>> + Send {
        async { Ok(true) }
    }

    /// Starts the next attempt of a container, and watches it from then on. Resolves with its id when it runs, or with
    /// none if it does not run (its status says why) or its pod is being stopped. A stop waits for as long as
    /// `starting` lives.
    ///
    /// # Errors
    /// The attempt cannot be started, or it is unknown whether it was.
    fn start(
        self: &Arc<Self>,
        starting: StartInProgress<Self::RunScope>,
        pod: &Pod,
        name: &Arc<str>,
    ) -> impl Future<Output = Result<Option<Arc<str>>, RuntimeError>> + Send;

    /// Resolves when no start of the pod, which is being stopped, is in progress and all its running containers are
    /// known.
    ///
    /// # Errors
    /// A start does not finish, or it is unknown what runs.
    fn settle(
        self: &Arc<Self>,
        entry: &Entry<Self>,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Sends a container the stop signal, and kills it when the grace period is over. Resolves when it has exited.
    ///
    /// # Errors
    /// The container survives SIGKILL, or it is unknown whether it does.
    fn end(
        self: &Arc<Self>,
        entry: &Entry<Self>,
        target: &StopTarget,
        grace: Grace,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;
}

/// Performs the action of a hook or a probe for a container's run (its name and its id) within `limit`. Resolves with a
/// warning, if any. Dropping the future abandons the action.
pub(crate) async fn act<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    run: (&str, &str),
    action: &Action,
    limit: Duration,
) -> Result<Option<String>, ActionError> {
    // The address may have become known, or be another, since the last time.
    let pod = || driver.probe_host(&entry.lock());
    let (asker, until) = (entry.uid().as_str(), instant_after(Instant::now(), limit));
    let asked = async {
        match action {
            Action::Sleep(length) => tokio::time::sleep(*length).await,
            Action::Http(get) => {
                return get.ask(asker, &pod(), &driver.pods().program(), until).await;
            }
            Action::Tcp(endpoint) => endpoint.connect(asker, &pod()).await?,
            Action::Grpc { endpoint, service } => {
                let (_, server) = endpoint.open(asker, &pod()).await?;
                driver.ask_grpc(&format!("http://{}", server.authority()), service).await?;
            }
            Action::Exec(_) => {}
        }
        Ok(None)
    };
    if let Action::Exec(command) = action {
        // The driver enforces the time limit of a command.
        return driver.exec(entry, run, command, limit).await.map(|()| None);
    }
    timeout_at(until, asked).await.map_err(|_| ActionError::Timeout)?
}
