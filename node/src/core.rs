//! The core of a node, which all plug-ins share: the pods, their workers and admission.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_shared::status::StatusStore;
use winddown_shared::{
    Admission, AdmissionFailureHandler, AdmissionGate, AdmitHandler, Backoff, BootClock,
    DesiredPods, EarlierKill, Intake, Pod, PodKiller, PodUidMap, PodWorkers, Recorder, Runtime,
    RuntimeSyncer, WallClock, WorkerObserver, critical,
};
use winddown_static_pods::ManifestDirectory;

use crate::fit::{Fit, Supported};
use crate::kept_kills::KeptKills;
use crate::links::{Links, next_change};
use crate::recorders::Recorders;
use crate::registered_plugin::RegisteredPlugin;
use crate::{NodeBuilder, NodeIdentity, PodSource, Product, Settings};

/// How long a shutdown that is already in progress waits for the pods to be found again.
pub(crate) const FIRST_PASS: Duration = Duration::from_secs(5);

/// How long pods are held back until the login manager's state is known, as a shutdown's `take_over` does.
pub(crate) const FIRST_WORD: Duration = Duration::from_secs(2);

/// How often a directory of manifests is read without a sign of a change, as by a kubelet.
const RESCAN_INTERVAL: Duration = winddown_host::beat::beats(5);

/// After the machine could not be read.
const READ_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The node without its plug-ins.
pub(crate) struct Core<R: Runtime> {
    pub(crate) runtime: Arc<R>,
    pub(crate) runtime_health: fn(&R) -> Result<(), String>,
    pub(crate) workers: PodWorkers<RuntimeSyncer<R>>,
    pub(crate) statuses: StatusStore,
    /// The desired pods of all sources; `None` until each source has reported.
    pub(crate) wanted: watch::Sender<Option<Arc<DesiredPods>>>,
    pub(crate) gate: AdmissionGate,
    pub(crate) fit: Fit,
    /// Set when all plug-ins have joined.
    joined: OnceLock<JoinedChecks>,
    /// The recorders that receive each event.
    pub(crate) recorders: Arc<Recorders>,
    pub(crate) identity: NodeIdentity,
    pub(crate) wall: WallClock,
    pub(crate) boot_clock: BootClock,
    /// Whether the pods that ran before the agent started are known, or are no longer waited for.
    pub(crate) pods_known: watch::Sender<bool>,
    /// Incremented whenever the node's status changes.
    pub(crate) changes: watch::Sender<u64>,
    pub(crate) stop: CancellationToken,
}

/// What the plug-ins have to say about admission.
pub(crate) struct JoinedChecks {
    /// Their checks, in their order.
    pub(crate) handlers: Vec<Arc<dyn AdmitHandler>>,
    /// Chooses the victims for a critical pod that does not fit.
    pub(crate) preemption: Option<Arc<dyn AdmissionFailureHandler>>,
}

impl<R: Runtime> Core<R> {
    /// Assembles the parts, and returns the kill requests that an earlier agent of this boot recorded. Nothing runs
    /// yet. `plugins` are the node's third-party plug-ins. Blocks on the disk.
    pub(crate) fn new(
        parts: NodeBuilder<R>,
        settings: &Settings,
        plugins: &[RegisteredPlugin],
    ) -> (Self, PodUidMap<EarlierKill>) {
        let (boot_id, clock) = (&parts.identity.boot_id, &parts.boot_clock);
        let kept = parts.state_directory.map(|directory| {
            KeptKills::open(KeptKills::directory(&directory), boot_id, clock.clone(), plugins)
        });
        let (kills, pending_kills) = kept.unzip();
        let recorders = Arc::new(Recorders::new(&parts.wall, kills, plugins, &parts.product));
        let recorder = Arc::clone(&recorders) as Arc<dyn Recorder>;
        parts.runtime.identify_as(&parts.product.program());
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
        // Exits arrive as events; the resync is only a safety net, and costs a wake-up each time.
        let resync = Duration::from_secs(300);
        let observer: Arc<dyn WorkerObserver> = Arc::clone(&recorders) as _;
        let workers = PodWorkers::with_observer(syncer, recorder, resync, observer);
        let fit = Fit::new(
            &*parts.runtime,
            parts.machine,
            &parts.identity.name,
            settings,
            parts.admits_all,
        );
        let core = Self {
            runtime: parts.runtime,
            runtime_health: parts.runtime_health,
            workers,
            statuses,
            wanted: watch::Sender::new(None),
            gate: AdmissionGate::new(),
            fit,
            joined: OnceLock::new(),
            recorders,
            identity: parts.identity,
            wall: parts.wall,
            boot_clock: parts.boot_clock,
            pods_known: watch::Sender::new(false),
            changes: watch::Sender::new(0),
            stop: CancellationToken::new(),
        };
        (core, pending_kills.unwrap_or_default())
    }

    /// Sets what all plug-ins have to say about admission.
    pub(crate) fn admit_by(&self, checks: JoinedChecks) {
        // Called once.
        let _ = self.joined.set(checks);
    }

    /// Watches a directory of manifests until the node stops, and returns its pods.
    pub(crate) fn watch_manifests(&self, directory: &Path) -> PodSource {
        let (name, wall) = (&self.identity.name, self.wall.clone());
        let (watched, pods) =
            ManifestDirectory::new(directory.to_owned(), name, RESCAN_INTERVAL, wall);
        critical::spawn_until("manifests", self.stop.clone(), watched.run(self.stop.clone()));
        pods.into()
    }

    /// The program that the node is part of.
    pub(crate) fn product(&self) -> &Product {
        self.recorders.metrics.product()
    }

    pub(crate) fn recorder(&self) -> Arc<dyn Recorder> {
        Arc::clone(&self.recorders) as _
    }

    /// Checks the runtime; the error is the problem, for display.
    pub(crate) fn runtime_health(&self) -> Result<(), String> {
        (self.runtime_health)(&self.runtime)
    }

    /// Counts every change in `changes` as a change of the node's status.
    pub(crate) fn count<T: Send + Sync + 'static>(&self, mut changes: watch::Receiver<T>) {
        let (count, stop) = (self.changes.clone(), self.stop.clone());
        tokio::spawn(async move {
            while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
                changes.mark_unchanged();
                count.send_modify(|n| *n += 1);
            }
        });
    }

    /// Drops what is recorded of pods that no source wants any more, whenever that changes. While a source could not be
    /// read completely, it may still want them.
    pub(crate) async fn forget_unwanted(self: Arc<Self>) {
        let mut wanted = self.wanted.subscribe();
        while let Some(Ok(())) = self.stop.run_until_cancelled(wanted.changed()).await {
            let now = wanted.borrow_and_update().clone();
            if let Some(now) = now.filter(|now| now.complete && !now.awaited) {
                let is_over = |uid: &_| self.workers.runs(uid) == Some(false);
                self.recorders.forget_unwanted(&now, is_over);
            }
        }
    }

    /// The admission checks: the shutdown gate, the checks of plug-ins, the fit, and whether the runtime supports the
    /// pod. An unsupported pod would fail later anyway, but others might have been ended for it by then.
    pub(crate) fn admission(
        &self,
        preemption_handler: Option<Arc<dyn AdmissionFailureHandler>>,
    ) -> Admission {
        if self.fit.admits_all() {
            return Admission::default();
        }
        // Before the fit: what the runtime does not support, no room makes possible.
        let (runtime, fit) = (Arc::clone(&self.runtime), self.fit.clone());
        let admission = self.checks_before_fit().then(Supported { runtime, fit });
        let fit = self.fit.check(preemption_handler);
        #[cfg(feature = "cluster")]
        let fit = fit.map(|fit| fit.beside(self.fit.admitted().kept_room()));
        fit.into_iter().fold(admission, Admission::then)
    }

    pub(crate) fn checks_before_fit(&self) -> Admission {
        let admission = Admission::default().then(self.gate.clone());
        let handlers = self.joined.get().into_iter().flat_map(|joined| &joined.handlers).cloned();
        #[cfg(feature = "cluster")]
        let handlers = handlers.map(|check| self.fit.admitted().passed(check));
        handlers.fold(admission, Admission::then)
    }

    pub(crate) fn preemption_handler(&self) -> Option<Arc<dyn AdmissionFailureHandler>> {
        self.joined.get()?.preemption.clone()
    }

    /// Waits until the pods that ran before the agent started are known, for as long as a shutdown waits
    /// for that. An agent that is stopped right after its start would otherwise miss them.
    pub(crate) async fn pods_are_known(&self) {
        let mut known = self.pods_known.subscribe();
        let known = known.wait_for(|known| *known);
        let _ = tokio::time::timeout(FIRST_WORD + FIRST_PASS, known).await;
    }

    /// Waits for up to [`FIRST_WORD`] until every running pod has a status. After a start of the agent statuses appear
    /// one by one, and a plug-in that compares the pods' ages has to see all of them.
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

    /// Starts the intake, which resumes the kills in `pending_kills` first, and waits up to [`FIRST_PASS`] for the
    /// pods that already run to be known.
    pub(crate) async fn bring_in(&self, pending_kills: PodUidMap<EarlierKill>, links: &mut Links) {
        let first_pass = self.start_intake(pending_kills, links);
        // A shutdown need not wait for a silent runtime if it already knows pods that it can request to stop.
        let known = tokio::time::timeout(FIRST_PASS, async {
            tokio::select! {
                biased;
                () = first_pass => true,
                () = self.something_may_run() => false,
            }
        });
        if !known.await.unwrap_or(false) {
            tracing::warn!("running pods are not known yet; a shutdown would wait for the runtime");
        }
        self.pods_known.send_replace(true);
    }

    /// Resolves when the runtime is silent but there are pods that a shutdown can request to stop all the same.
    async fn something_may_run(&self) {
        let mut more = self.workers.more_known();
        loop {
            let running = self.workers.running();
            if !running.known && !running.pods.is_empty() {
                return;
            }
            next_change(&mut more).await;
        }
    }

    /// Starts the intake. The future resolves when it has handled the desired pods once.
    fn start_intake(
        &self,
        pending_kills: PodUidMap<EarlierKill>,
        links: &mut Links,
    ) -> impl Future<Output = ()> + use<R> {
        let for_good = std::mem::take(&mut links.sources);
        let gate = self.fit.gate(&self.gate, std::mem::take(&mut links.relief));
        let intake = Intake::new(
            Arc::clone(&self.runtime),
            self.workers.clone(),
            self.statuses.clone(),
            self.admission(self.preemption_handler()),
            self.recorder(),
        )
        .with_victim_lock(self.fit.victim_lock())
        .with_earlier_kills(pending_kills, self.boot_clock.clone())
        .with_gate(gate)
        .with_final_rejections(move |pod| for_good.iter().any(|source| source.gives_up(pod)));
        let intake = match links.turns.take() {
            Some(turns) => intake.with_turns(turns),
            None => intake,
        };
        let mut passed = intake.passes();
        let intake = intake.run(self.wanted.subscribe());
        critical::spawn_until("intake", self.stop.clone(), intake);
        async move {
            // An error means that the intake has stopped, which is not waited for.
            let _ = passed.wait_for(|n| *n > 0).await;
        }
    }

    /// Applies changed settings, and reads the machine with backoff until that succeeds.
    pub(crate) async fn follow(self: Arc<Self>, mut settings: watch::Receiver<Settings>) {
        let mut backoff = READ_BACKOFF;
        let mut wait = backoff.next_delay();
        loop {
            tokio::select! {
                () = next_change(&mut settings) => {}
                () = tokio::time::sleep(wait), if self.fit.is_unknown() => {
                    wait = backoff.next_delay();
                }
                () = self.stop.cancelled() => return,
            }
            let now = settings.borrow_and_update().clone();
            self.fit.follow(&now).await;
            self.changes.send_modify(|n| *n += 1);
        }
    }
}
