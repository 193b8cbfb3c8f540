//! What every plug-in works with: the pods, their workers, and what keeps new ones out.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_shared::status::StatusStore;
use winddown_shared::{
    Admission, AdmissionFailureHandler, AdmissionGate, AdmitHandler, BootClock, DesiredPods,
    Intake, KillRequest, Listed, Pod, PodKiller, PodUidMap, PodWorkers, Recorder, Runtime,
    RuntimeSyncer, WallClock, WorkerObserver, WorkerTimes, critical,
};

use crate::fit::{Fit, Machine, Supported};
use crate::kept_kills::KeptKills;
use crate::links::Links;
use crate::recorders::Recorders;
use crate::{Identity, Settings};

/// How long a shutdown that is already under way waits for the pods to be found again.
pub(crate) const FIRST_PASS: Duration = Duration::from_secs(5);

/// How long what goes before the pods come is waited for.
pub(crate) const FIRST_WORD: Duration = Duration::from_secs(2);

/// What a node is made of without its plug-ins.
pub(crate) struct CoreParts<R> {
    pub(crate) runtime: Arc<R>,
    pub(crate) runtime_health: fn(&R) -> Result<(), String>,
    pub(crate) identity: Identity,
    pub(crate) machine: Option<Machine>,
    pub(crate) wall: WallClock,
    pub(crate) boot_clock: BootClock,
    pub(crate) admits_all: bool,
    pub(crate) kept_in: Option<PathBuf>,
}

/// The node without its plug-ins.
pub(crate) struct Core<R: Runtime> {
    pub(crate) runtime: Arc<R>,
    pub(crate) runtime_health: fn(&R) -> Result<(), String>,
    pub(crate) workers: PodWorkers<RuntimeSyncer<R>>,
    pub(crate) statuses: StatusStore,
    /// What all sources want together; none until each has said it.
    pub(crate) wanted: watch::Sender<Option<Arc<DesiredPods>>>,
    pub(crate) gate: AdmissionGate,
    pub(crate) fit: Fit,
    /// What plug-ins ask of a new pod, in their order. Set when all have joined.
    handlers: OnceLock<Vec<Arc<dyn AdmitHandler>>>,
    /// The recorders that hear each event.
    pub(crate) recorders: Arc<Recorders>,
    pub(crate) identity: Identity,
    pub(crate) wall: WallClock,
    pub(crate) boot_clock: BootClock,
    /// The pods that ran before the agent did are known, or will not be.
    pub(crate) pods_known: watch::Sender<bool>,
    /// Counts up whenever the picture of the node changes.
    pub(crate) changes: watch::Sender<u64>,
    pub(crate) stop: CancellationToken,
}

impl<R: Runtime> Core<R> {
    /// Puts the parts together, and says which pods an earlier agent of this boot was ending; nothing runs
    /// yet. `plugins` are those of other parties that the node has. Blocks on the disk.
    pub(crate) fn new(
        parts: CoreParts<R>,
        settings: &Settings,
        plugins: &[Listed],
    ) -> (Self, PodUidMap<KillRequest>) {
        let (boot_id, clock) = (&parts.identity.boot_id, &parts.boot_clock);
        let kept = parts.kept_in.map(|directory| {
            KeptKills::open(directory.join("kills"), boot_id, clock.clone(), plugins)
        });
        let (kills, asked_before) = kept.unzip();
        let recorders = Arc::new(Recorders::new(&parts.wall, kills, plugins));
        let recorder = Arc::clone(&recorders) as Arc<dyn Recorder>;
        let statuses = StatusStore::default();
        let syncer = RuntimeSyncer::new(
            Arc::clone(&parts.runtime),
            statuses.clone(),
            Arc::clone(&recorder),
            parts.wall.clone(),
        )
        .with_host_ips({
            let addresses = Arc::clone(&settings.host_ips);
            move || addresses()
        });
        let syncer = if parts.admits_all { syncer.beside_a_kubelet() } else { syncer };
        // Exits come as events; the resync is only the safety net, and costs a wake-up each time.
        let times = WorkerTimes { resync: Duration::from_secs(300), ..WorkerTimes::default() };
        let observer: Arc<dyn WorkerObserver> = Arc::clone(&recorders.metrics) as _;
        let workers = PodWorkers::with_observer(syncer, recorder, times, observer);
        let fit = Fit::new(parts.machine, &parts.identity.name, settings, parts.admits_all);
        let core = Self {
            runtime: parts.runtime,
            runtime_health: parts.runtime_health,
            workers,
            statuses,
            wanted: watch::Sender::new(None),
            gate: AdmissionGate::new(),
            fit,
            handlers: OnceLock::new(),
            recorders,
            identity: parts.identity,
            wall: parts.wall,
            boot_clock: parts.boot_clock,
            pods_known: watch::Sender::new(false),
            changes: watch::Sender::new(0),
            stop: CancellationToken::new(),
        };
        (core, asked_before.unwrap_or_default())
    }

    /// Takes what all plug-ins together ask of a new pod.
    pub(crate) fn admit_by(&self, handlers: Vec<Arc<dyn AdmitHandler>>) {
        // It is set once.
        let _ = self.handlers.set(handlers);
    }

    pub(crate) fn recorder(&self) -> Arc<dyn Recorder> {
        Arc::clone(&self.recorders) as _
    }

    /// What is wrong with the runtime, if anything is.
    pub(crate) fn runtime_health(&self) -> Result<(), String> {
        (self.runtime_health)(&self.runtime)
    }

    /// Counts every change of what `changes` shows as one of the picture of the node.
    pub(crate) fn count<T: Send + Sync + 'static>(&self, mut changes: watch::Receiver<T>) {
        let (count, stop) = (self.changes.clone(), self.stop.clone());
        tokio::spawn(async move {
            while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
                changes.mark_unchanged();
                count.send_modify(|n| *n += 1);
            }
        });
    }

    /// Admission: no pod while the node shuts down; then what plug-ins ask; then what fits, and what the
    /// runtime can run. That it could not would come out later as well, but then others would have been
    /// ended for it.
    ///
    /// `room` chooses whom to end for a critical pod that does not fit.
    pub(crate) fn admission(&self, room: Option<Arc<dyn AdmissionFailureHandler>>) -> Admission {
        if self.fit.admits_all() {
            return Admission::default();
        }
        let admission = Admission::default().then(self.gate.clone());
        let handlers = self.handlers.get().into_iter().flatten().cloned();
        let admission = handlers.fold(admission, Admission::then);
        let admission = self.fit.then_fits(admission, room);
        admission.then(Supported(Arc::clone(&self.runtime)))
    }

    /// Waits until the pods that ran before the agent did are known, for as long as a shutdown waits
    /// for that. An agent that is stopped as soon as it was started would pass them over.
    pub(crate) async fn pods_are_known(&self) {
        let mut known = self.pods_known.subscribe();
        let known = known.wait_for(|known| *known);
        let _ = tokio::time::timeout(FIRST_WORD + FIRST_PASS, known).await;
    }

    /// Waits until every pod that runs has a status, though not for long: one by one they are seen again after a
    /// start of the agent, and who compares their ages is to compare all of them.
    pub(crate) async fn pods_are_seen(&self) {
        let mut changes = self.statuses.changes();
        let seen = async {
            let is_seen = |pod: &Pod| self.statuses.get(pod.uid()).is_some();
            while !self.workers.running().pods.iter().all(is_seen)
                && changes.changed().await.is_ok()
            {}
        };
        let _ = tokio::time::timeout(FIRST_WORD, seen).await;
    }

    /// Brings pods in, but for those that were asked to end before, and waits until those that run
    /// already are known, or have not become known for five seconds.
    pub(crate) async fn bring_in(
        &self,
        asked_before: PodUidMap<KillRequest>,
        room: Option<Arc<dyn AdmissionFailureHandler>>,
        links: &mut Links,
    ) {
        let first_pass = self.start_intake(asked_before, room, links);
        // A shutdown need not wait for a runtime that is silent where it knows what to ask.
        let known = tokio::time::timeout(FIRST_PASS, async {
            tokio::select! {
                biased;
                () = first_pass => true,
                () = self.something_may_run() => false,
            }
        });
        if !known.await.unwrap_or(false) {
            tracing::warn!("it is not known yet which pods run; a shutdown would wait for that");
        }
        self.pods_known.send_replace(true);
    }

    /// Resolves when the runtime is silent and there is something that a shutdown can ask to end all
    /// the same.
    async fn something_may_run(&self) {
        let mut more = self.workers.more_known();
        loop {
            let running = self.workers.running();
            if !running.known && !running.pods.is_empty() {
                return;
            }
            if more.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Starts the intake; resolves when it has gone through the desired pods once.
    fn start_intake(
        &self,
        asked_before: PodUidMap<KillRequest>,
        room: Option<Arc<dyn AdmissionFailureHandler>>,
        links: &mut Links,
    ) -> impl Future<Output = ()> + use<R> {
        let for_good = std::mem::take(&mut links.sources);
        let closed = self.fit.admission_closed(&self.gate, std::mem::take(&mut links.relief));
        let intake = Intake::new(
            Arc::clone(&self.runtime),
            self.workers.clone(),
            self.statuses.clone(),
            self.admission(room),
            self.recorder(),
        )
        .with_victim_lock(self.fit.victim_lock())
        .with_earlier_kills(asked_before)
        .with_admission_closed(closed)
        .with_refusals_for_good(move |pod| for_good.iter().any(|source| source.gives_up(pod)));
        let intake = match links.turns.take() {
            Some(turns) => intake.with_turns(turns),
            None => intake,
        };
        let mut passed = intake.passes();
        let intake = intake.run(self.wanted.subscribe());
        critical::spawn_until("intake", self.stop.clone(), intake);
        async move {
            // An intake that is gone will not say more.
            let _ = passed.wait_for(|n| *n > 0).await;
        }
    }

    /// Reads the machine until it can be read.
    pub(crate) async fn read_machine(self: Arc<Self>, settings: watch::Receiver<Settings>) {
        let reading = self.fit.read_until_known(&settings);
        let _ = self.stop.run_until_cancelled(reading).await;
    }

    /// Takes over settings that change.
    pub(crate) async fn follow(self: Arc<Self>, mut settings: watch::Receiver<Settings>) {
        while let Some(Ok(())) = self.stop.run_until_cancelled(settings.changed()).await {
            let now = settings.borrow_and_update().clone();
            self.fit.follow(&now);
            self.changes.send_modify(|n| *n += 1);
        }
    }
}
