//! What a runtime does for the engine, which decides when.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use winddown_shared::{Grace, Pod, RuntimeError};

use crate::action::{Action, ActionError};
use crate::end_notices::EndNotices;
use crate::environment::NodeFacts;
use crate::pod::{Boundary, PodEntry, PodState, Starting};
use crate::pods::Pods;

/// The pods of a runtime.
pub type Entry<D> = Arc<PodEntry<<D as Driver>::Boundary>>;

/// A container to end.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name in the spec.
    pub name: Arc<str>,
    /// Its run's id.
    pub id: Arc<str>,
    /// Its run's number.
    pub attempt: u32,
    /// A sidecar: its turn comes when those that may need it are gone.
    pub(crate) waits_for_others: bool,
    pub(crate) pre_stop: Option<Action>,
}

/// A container runtime, or the host itself.
pub trait Driver: Sized + Send + Sync + 'static {
    /// What its pods run in.
    type Boundary: Boundary;

    /// All of them.
    fn pods(&self) -> &Pods<Self::Boundary>;

    /// Its end tells tasks that the runtime is gone.
    fn alive(&self) -> watch::Receiver<()>;

    /// Tells pods of their end.
    fn end_notices(&self) -> &EndNotices;

    /// What hooks and probes of the pod are told of the node; its address is where they ask.
    fn node(&self, state: &PodState<Self::Boundary>) -> NodeFacts;

    /// Runs a command in, or beside, a run of a container. Dropping the future gives it up; it ends within `limit`.
    ///
    /// # Errors
    /// The command failed, took too long, or could not be run.
    fn exec(
        self: &Arc<Self>,
        entry: &Entry<Self>,
        run: (&str, &str),
        command: &[String],
        limit: Duration,
    ) -> impl Future<Output = Result<(), ActionError>> + Send;

    /// Asks a gRPC health service.
    ///
    /// # Errors
    /// It does not serve, or gRPC is not spoken.
    fn ask_grpc(
        &self,
        uri: &str,
        _service: &str,
    ) -> impl Future<Output = Result<(), ActionError>> + Send {
        let what = format!("gRPC is not spoken, so {uri} cannot be asked");
        async { Err(ActionError::Unasked { what, source: None }) }
    }

    /// Sees to it that there is what containers are started in. False if the pod is being stopped.
    ///
    /// # Errors
    /// It cannot be made.
    fn make_room(
        self: &Arc<Self>,
        _entry: &Entry<Self>,
        _pod: &Pod,
    ) -> impl Future<Output = Result<bool, RuntimeError>> + Send {
        async { Ok(true) }
    }

    /// Starts the next attempt of a container, and watches it from then on. Resolves with its id when it runs, and
    /// with none if it does not run, which its status tells, or its pod is being stopped. A stop waits for as long as
    /// `starting` lives.
    ///
    /// # Errors
    /// It could not be started, or it is not known whether it was.
    fn start(
        self: &Arc<Self>,
        starting: Starting<Self::Boundary>,
        pod: &Pod,
        name: &Arc<str>,
    ) -> impl Future<Output = Result<Option<Arc<str>>, RuntimeError>> + Send;

    /// Resolves when no start of the pod, which is being stopped, is under way and everything that runs of it is
    /// known.
    ///
    /// # Errors
    /// A start does not come to an end, or what runs is not known.
    fn settle(
        self: &Arc<Self>,
        entry: &Entry<Self>,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Asks a container to end, and has it killed when the grace is over. Resolves when it has ended.
    ///
    /// # Errors
    /// It survives SIGKILL, or whether it does is not known.
    fn end(
        self: &Arc<Self>,
        entry: &Entry<Self>,
        target: &Target,
        grace: Grace,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;
}

/// Does what a hook or a probe says for a container's run, by its name and its id, within `limit`. Gives what there is
/// to warn of. Dropping the future gives it up.
pub(crate) async fn act<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    run: (&str, &str),
    action: &Action,
    limit: Duration,
) -> Result<Option<String>, ActionError> {
    let asked = async {
        match action {
            Action::Sleep(length) => tokio::time::sleep(*length).await,
            Action::Http(get) => return get.ask().await.map_err(ActionError::NoAnswer),
            Action::Tcp(endpoint) => endpoint.connect().await.map_err(ActionError::NoAnswer)?,
            Action::Grpc { uri, service } => driver.ask_grpc(uri, service).await?,
            Action::Exec(_) => {}
        }
        Ok(None)
    };
    if let Action::Exec(command) = action {
        // The driver keeps the time of a command.
        return driver.exec(entry, run, command, limit).await.map(|()| None);
    }
    timeout(limit, asked).await.map_err(|_| ActionError::Timeout)?
}
