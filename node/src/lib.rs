//! The node: pods, workers, shutdown and the control API joined together, for whatever runtime and
//! whatever announces the shutdown. The service runs it on the real ones, the drill on stand-ins.

mod api;
mod builder;
pub mod cluster;
mod cluster_status;
mod decisions;
mod drain;
mod fit;
mod kept_file;
mod kept_kills;
mod last_boot;
mod measured;
pub mod metrics;
mod notice;
mod plugins;
mod preemption_plan;
mod pressure;
pub mod reports;
mod running;
mod status_view;
mod strategy;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use winddown_cluster::node::Draining;
use winddown_notices::{NoticeAggregator, Operator};
use winddown_shared::status::StatusStore;
use winddown_shared::{
    AdmitHandler, Inhibitor, LockState, PluginNotes, PodKiller, PodWorkers, Recorder, Runtime,
    RuntimeSyncer, WallClock, WallTime, WorkerObserver, WorkerTimes, critical, error_chain,
};
use winddown_shutdown::{
    AdmissionGate, BootClock, GroupPeriod, Policy, ProgressSender, RecordPlace, ReportStore,
    Trigger,
};

use crate::cluster::Cluster;
use crate::metrics::{Metrics, ProcessReader};
use winddown_config::{Config, ShutdownOrder, ShutdownPeriods, ShutdownSettings};
use winddown_static_pods::DesiredManifests;

pub use api::plan_view;
pub use builder::NodeBuilder;
use builder::NodeParts;
use cluster_status::{RuntimePing, prepare};
pub use decisions::{Decisions, log_decision};
use fit::Fit;
pub use fit::Machine;
use kept_kills::KeptKills;
use last_boot::LookBack;
use pressure::{Around, Pressure};
pub use pressure::{PressureSource, RuntimeFigures};

/// A configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// What is in force.
    pub config: Arc<Config>,
    /// The file; none when the defaults are in force.
    pub file: Option<PathBuf>,
    /// What was noticed in it.
    pub warnings: Vec<String>,
    /// When it was read.
    pub loaded_at: WallTime,
}

/// Who the node is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The node's name.
    pub name: String,
    /// The kernel's boot id.
    pub boot_id: String,
}

/// The running node. Cheap to clone.
pub struct Node<R: Runtime, I: Inhibitor>(Arc<Inner<R, I>>);

struct Inner<R: Runtime, I: Inhibitor> {
    runtime: Arc<R>,
    runtime_health: fn(&R) -> Result<(), String>,
    configuration: RwLock<Configuration>,
    policy: watch::Sender<Arc<Policy>>,
    inhibitor: Arc<I>,
    workers: PodWorkers<RuntimeSyncer<R>>,
    statuses: StatusStore,
    manifests: watch::Receiver<Arc<DesiredManifests>>,
    notice_aggregator: NoticeAggregator,
    operator: Operator,
    gate: AdmissionGate,
    fit: Fit,
    /// What plug-ins ask of a new pod.
    plugin_admission: Vec<Arc<dyn AdmitHandler>>,
    plugin_notes: PluginNotes,
    /// None in a rehearsal.
    pressure: Option<Pressure>,
    progress: ProgressSender,
    decisions: Decisions,
    metrics: Arc<Metrics>,
    process: ProcessReader,
    refused_signals: fn(&I) -> u64,
    /// Everyone who is told of events.
    recorder: Arc<dyn Recorder>,
    reports: ReportStore,
    last_boot: LookBack,
    /// Where the mark of this start is; none in a rehearsal.
    marked: Option<PathBuf>,
    identity: Identity,
    wall: WallClock,
    boot_clock: BootClock,
    records: Vec<Arc<dyn RecordPlace>>,
    started: tokio::time::Instant,
    started_at: WallTime,
    held_since: watch::Sender<Option<WallTime>>,
    /// The pods that ran before the agent did are known, or will not be.
    pods_known: watch::Sender<bool>,
    changes: watch::Sender<u64>,
    /// One drain at a time.
    draining: Arc<Semaphore>,
    /// How far a drain is.
    drained: watch::Sender<Draining>,
    cluster: Option<Cluster>,
    admits_all: bool,
    stop: CancellationToken,
}

impl<R: Runtime, I: Inhibitor> Clone for Node<R, I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Runtime, I: Inhibitor> Node<R, I> {
    /// Begins a node on `runtime`, whose shutdown `inhibitor` announces and holds back.
    pub fn builder(runtime: Arc<R>, inhibitor: Arc<I>) -> NodeBuilder<R, I> {
        NodeBuilder::new(runtime, inhibitor)
    }

    pub(crate) fn of_parts(parts: NodeParts<R, I>) -> Self {
        let state = parts.configuration.config.state_directory.clone();
        let decisions = Decisions::new(parts.wall.clone());
        let metrics = Arc::new(Metrics::new(parts.wall.clone(), measured::last_shutdown(&state)));
        let ping = RuntimePing::new(&parts.runtime, parts.runtime_health);
        let joined = parts.cluster.and_then(|c| prepare(c, &parts.identity, ping, &parts.wall));
        let (cluster, cluster_work) = joined.unzip();
        let volatile = parts.volatile_directory.as_deref();
        let (kills, asked_before) = KeptKills::open(
            volatile.unwrap_or(&state).join("kills"),
            &parts.identity.boot_id,
            parts.boot_clock.clone(),
            &parts.plugins.iter().map(|plugin| plugin.name()).collect::<Vec<_>>(),
        );
        let recorder: Arc<dyn Recorder> = Arc::new(measured::Everyone {
            kills,
            decisions: decisions.clone(),
            metrics: Arc::clone(&metrics),
            cluster: cluster.as_ref().map(Cluster::recorder),
        });
        let statuses = StatusStore::default();
        let syncer = RuntimeSyncer::new(
            Arc::clone(&parts.runtime),
            statuses.clone(),
            Arc::clone(&recorder),
            parts.wall.clone(),
        )
        .with_host_ips({
            let config = Arc::clone(&parts.configuration.config);
            move || config.cluster.node_addresses()
        });
        // A kubelet ends its own pods when their time is over.
        let syncer = if parts.admits_all { syncer.without_deadlines() } else { syncer };
        // Exits come as events; the resync is only the safety net, and costs a wake-up each time.
        let times = WorkerTimes { resync: Duration::from_secs(300), ..WorkerTimes::default() };
        let observer: Arc<dyn WorkerObserver> = Arc::clone(&metrics) as _;
        let workers = PodWorkers::with_observer(syncer, Arc::clone(&recorder), times, observer);
        let policy = watch::Sender::new(Arc::new(policy_of(&parts.configuration.config.shutdown)));
        let operator = Operator::open(
            parts.notice_aggregator.publisher("operator", None),
            &state,
            &*parts.identity.boot_id,
            parts.wall.clone(),
            parts.boot_clock.clone(),
        );
        let records = running::places(&state, parts.volatile_directory.as_deref());
        let gate = AdmissionGate::new();
        let fit = Fit::new(parts.machine, &parts.identity.name, &parts.configuration.config);
        let around = Around {
            workers: workers.clone(),
            manifests: parts.manifests.clone(),
            recorder: Arc::clone(&recorder),
            victims: fit.victim_lock(),
            gate: gate.clone(),
            wall: parts.wall.clone(),
        };
        let config = &parts.configuration.config;
        let prepared = parts.pressure.map(|source| Pressure::prepare(source, config, around));
        let (pressure, pressure_loop) = prepared.unzip();
        let carried = running::pick_up(&records, &parts.identity.boot_id, &gate);
        let reports = reports::store(&parts.configuration.config);
        let marked = (parts.trigger != Trigger::Drill).then_some(state);
        let last_boot = marked.as_ref().map_or_else(LookBack::nothing, |state| {
            let boot_id = &parts.identity.boot_id;
            LookBack::new(state, &reports, &records, boot_id, parts.wall.now())
        });
        if let Some(event) = last_boot.event() {
            recorder.record(&event);
        }
        let inner = Arc::new(Inner {
            notice_aggregator: parts.notice_aggregator,
            operator,
            runtime: Arc::clone(&parts.runtime),
            runtime_health: parts.runtime_health,
            policy,
            inhibitor: parts.inhibitor,
            workers,
            statuses,
            manifests: parts.manifests,
            gate,
            fit,
            plugin_admission: plugins::admission(&parts.plugins),
            plugin_notes: PluginNotes::default(),
            pressure,
            progress: ProgressSender::new(),
            decisions,
            metrics,
            process: ProcessReader::new("/proc"),
            refused_signals: parts.refused_signals,
            recorder,
            reports,
            last_boot,
            marked,
            identity: parts.identity,
            started: tokio::time::Instant::now(),
            started_at: parts.wall.now(),
            wall: parts.wall,
            boot_clock: parts.boot_clock,
            records,
            configuration: RwLock::new(parts.configuration),
            held_since: watch::Sender::new(None),
            pods_known: watch::Sender::new(false),
            changes: watch::Sender::new(0),
            draining: Arc::new(Semaphore::new(1)),
            drained: watch::Sender::new(Draining::No),
            cluster: cluster.clone(),
            admits_all: parts.admits_all,
            stop: CancellationToken::new(),
        });
        let node = Self(inner);
        node.keep_drained();
        let stop = || node.0.stop.clone();
        critical::spawn(
            "changes of the runtime",
            RuntimeSyncer::follow_changes(node.0.workers.clone()),
        );
        critical::spawn_until("notices", stop(), node.clone().run_board());
        tokio::spawn(node.clone().note_lock());
        tokio::spawn(node.clone().count_changes());
        tokio::spawn(node.clone().measure_starts());
        critical::spawn("reader of the machine", node.clone().read_machine());
        node.start_plugins(parts.plugins);
        if let Some(work) = pressure_loop {
            critical::spawn_until("eviction", stop(), node.clone().watch_pressure(work));
        }
        if let (Some(cluster), Some(work)) = (cluster, cluster_work) {
            node.clone().join(cluster, work);
        }
        let left = running::Left { run: carried, kills: asked_before };
        let run = node.clone().run(parts.runtime, parts.trigger, left);
        critical::spawn_stopping("shutdown controller", stop(), run);
        node
    }

    /// Takes over what can change while running from a configuration that was read again.
    pub fn reconfigure(&self, configuration: Configuration) {
        self.0.fit.follow(&configuration.config);
        if let Some(pressure) = &self.0.pressure {
            pressure.follow(&configuration.config);
        }
        self.0.policy.send_replace(Arc::new(policy_of(&configuration.config.shutdown)));
        let mut current =
            self.0.configuration.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        *current = configuration;
        drop(current);
        self.0.changes.send_modify(|n| *n += 1);
    }

    /// The configuration in force.
    pub fn configuration(&self) -> Configuration {
        self.0.configuration.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// How far a shutdown is, and every step.
    pub fn progress(&self) -> watch::Receiver<winddown_shutdown::Progress> {
        self.0.progress.subscribe()
    }

    /// The pod workers.
    pub fn workers(&self) -> &PodWorkers<RuntimeSyncer<R>> {
        &self.0.workers
    }

    /// Reports that are kept.
    pub fn reports(&self) -> &ReportStore {
        &self.0.reports
    }

    /// Stops all work; containers are left as they are.
    pub async fn shut_down(&self) {
        self.0.stop.cancel();
        self.note_stop().await;
        self.0.workers.shut_down().await;
    }

    /// Remembers since when the lock is held.
    async fn note_lock(self) {
        let mut states = self.0.inhibitor.state();
        loop {
            let held = states.borrow_and_update().lock == LockState::Held;
            let now = self.0.wall.now();
            self.0.held_since.send_if_modified(|since| {
                let changed = since.is_some() != held;
                if changed {
                    *since = held.then_some(now);
                }
                changed
            });
            tokio::select! {
                changed = states.changed() => if changed.is_err() { return },
                () = self.0.stop.cancelled() => return,
            }
        }
    }

    /// Counts up whenever the picture of the node changes.
    async fn count_changes(self) {
        let mut statuses = self.0.statuses.changes();
        let mut manifests = self.0.manifests.clone();
        let mut inhibitor = self.0.inhibitor.state();
        let mut progress = self.0.progress.subscribe();
        let mut decisions = self.0.decisions.changes();
        let mut notices = self.0.notice_aggregator.changes();
        let mut plugins = self.0.plugin_notes.changes();
        let mut more_known = self.0.workers.more_known();
        loop {
            tokio::select! {
                Ok(()) = more_known.changed() => {}
                Ok(()) = statuses.changed() => {}
                Ok(()) = manifests.changed() => {}
                Ok(()) = inhibitor.changed() => {}
                Ok(()) = progress.changed() => {}
                Ok(()) = decisions.changed() => {}
                Ok(()) = notices.changed() => {}
                Ok(()) = plugins.changed() => {}
                () = self.0.stop.cancelled() => return,
                else => return,
            }
            self.0.changes.send_modify(|n| *n += 1);
        }
    }
}

/// The policy that a configuration describes.
///
/// The configuration was validated when it was read; what the policy refuses all the same is logged,
/// and a shutdown is then not delayed.
pub fn policy_of(settings: &ShutdownSettings) -> Policy {
    let policy = match &settings.periods {
        ShutdownPeriods::Total { total, critical } => match settings.order {
            ShutdownOrder::Role => Policy::by_role(*total, *critical),
            ShutdownOrder::Priority => Policy::from_periods(*total, *critical),
        },
        ShutdownPeriods::ByPriority(groups) => {
            Policy::by_priority(groups.iter().map(|group| GroupPeriod {
                priority: group.priority,
                shutdown_grace_period_seconds:
                    i64::try_from(group.period.as_secs()).unwrap_or(i64::MAX),
            }))
        }
    };
    let policy = policy.unwrap_or_else(|error| {
        tracing::error!(
            error = error_chain(&error),
            "the shutdown periods cannot be used; shutdown is not delayed"
        );
        Policy::disabled()
    });
    policy.with_reserve(settings.reserve).with_endpoint_drain(settings.endpoint_drain)
}
