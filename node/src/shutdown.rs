//! Graceful shutdown as a plug-in: the lock, the plan, the run, drains and notices. With all of `winddown-shutdown`.

mod drain;
mod kubelet_look;
mod last_boot;
mod notice;
pub mod reports;
pub(crate) mod running;
mod unit_stop;
mod verdict;
mod view;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_host::OneThread;
use winddown_host::machine::{boot_clock, boot_id};
use winddown_notices::{NoticeAggregator, OperatorSource};
use winddown_shared::{
    Inhibitor, InhibitorState, LockState, Runtime, ShutdownWork, WallTime, WayDown, error_chain,
};
// The rest of what an agent needs for it.
pub use winddown_shutdown::*;

use crate::core::Core;
use crate::links::Objection;
use crate::plugin::{NodePlugin, PluginRegistry};
use drain::OperatorDrain;
use kubelet_look::{LastKubeletLook, Look};
use last_boot::LastBootState;
use winddown_control::api::Protection;
use winddown_control::protection::{AgentRole, ApiServerUse, KubeletFacts};

/// The plug-in that ends the pods in order before the node goes down, or when it is drained.
pub struct Shutdown {
    state_directory: PathBuf,
    notices: NoticeAggregator,
    trigger: Trigger,
    refused_signals: RefusedSignals,
    kubelet_inspector: Option<Look>,
    api_server: ApiServer,
    handle: ShutdownHandle,
}

/// A handle of the shutdown of a node. Clones share their state.
#[derive(Clone)]
pub struct ShutdownHandle {
    inhibitor: Arc<dyn Inhibitor>,
    policy: watch::Receiver<Arc<Policy>>,
    progress: ProgressSender,
    reports: ReportStore,
    /// Set when the node has started.
    end_pods: Arc<OnceLock<EndPods>>,
}

type EndPods = Box<dyn Fn(Option<WayDown>, Instant) -> BoxFuture<'static, ()> + Send + Sync>;
type ApiServer = Box<dyn Fn() -> ApiServerUse + Send + Sync>;
type RefusedSignals = Box<dyn Fn() -> u64 + Send + Sync>;

/// The shutdown of a node, once the plug-in has joined it.
struct Joined<R: Runtime> {
    core: Arc<Core<R>>,
    policy: watch::Receiver<Arc<Policy>>,
    notices: NoticeAggregator,
    operator: OperatorSource,
    progress: ProgressSender,
    /// Set once, when the machine goes down without an announcement.
    unit_stop: watch::Sender<Option<UnitStop>>,
    kept: StoredFiles,
    trigger: Trigger,
    lock: Lock,
    drain: OperatorDrain,
    offered: OnceLock<Offered>,
    kubelet: LastKubeletLook,
    api_server: ApiServer,
    /// The verdict that counts; `None` until one has lasted.
    verdict: watch::Sender<Option<Protection>>,
}

/// What other plug-ins offer to a shutdown, known when all have joined.
struct Offered {
    /// The work at certain points.
    work: Vec<ShutdownWork>,
    objection: Option<Arc<dyn Objection>>,
    drain_remark: Option<&'static str>,
}

/// The lock that delays the shutdown of the machine.
struct Lock {
    inhibitor: Arc<dyn Inhibitor>,
    refused_signals: RefusedSignals,
    held_since: watch::Sender<Option<WallTime>>,
}

/// The state on disk.
struct StoredFiles {
    state_directory: PathBuf,
    reports: ReportStore,
    records: Vec<Arc<dyn RecordStore>>,
    last_boot: LastBootState,
    /// Reads the disk for requests.
    reading: OneThread,
    /// The reports of drains that the disk has not taken yet.
    unstored: UnstoredReports,
}

/// The run that an agent of this boot began and did not finish, by its record in `state_directory`. For rehearsals. Blocks on
/// the disk.
///
/// ```
/// # let state = std::env::temp_dir().join("no-shutdown-is-recorded-here");
/// assert!(winddown_node::shutdown::unfinished(&state).is_none());
/// ```
pub fn unfinished(state_directory: &Path) -> Option<RunRecord> {
    let (places, clock) = (running::places(state_directory, None, |file| file), boot_clock());
    let found = RunRecord::of_boot(&places, (&boot_id(), &clock), clock.system_start());
    found.filter(|run| !run.phase.is_over())
}

// === impl Shutdown ===

impl Shutdown {
    /// Ends the pods by `policy` when `inhibitor` announces a shutdown, and keeps the record of the run and the
    /// reports in `state_directory`. If that fails, the node's own directory ([`NodeBuilder::state_directory`]) has the record.
    ///
    /// [`NodeBuilder::state_directory`]: crate::NodeBuilder::state_directory
    pub fn new(
        inhibitor: Arc<impl Inhibitor>,
        policy: Policy,
        state_directory: impl Into<PathBuf>,
    ) -> Self {
        let state_directory = state_directory.into();
        let reports = ReportStore::new(reports::directory(&state_directory));
        let policy = watch::Sender::new(Arc::new(policy)).subscribe();
        Self {
            state_directory,
            notices: NoticeAggregator::new(),
            trigger: Trigger::LoginManager,
            refused_signals: Box::new(|| 0),
            kubelet_inspector: None,
            api_server: Box::new(|| ApiServerUse::Usable),
            handle: ShutdownHandle {
                inhibitor,
                policy,
                progress: ProgressSender::new(),
                reports,
                end_pods: Arc::default(),
            },
        }
    }

    /// Follows a policy that can change. A change during a run applies to the next run.
    #[must_use]
    pub fn following(mut self, policy: watch::Receiver<Arc<Policy>>) -> Self {
        self.handle.policy = policy;
        self
    }

    /// Sets how many shutdown reports are kept. The default is that of [`ReportStore::new`].
    #[must_use]
    pub fn reports_kept(mut self, kept: usize) -> Self {
        self.handle.reports = self.handle.reports.keeping(kept);
        self
    }

    /// Sets the aggregator of notices that the node will go down at a certain time. The operator's notices are added as
    /// a source; the caller adds any others. By default the operator is the only source.
    #[must_use]
    pub fn notices(mut self, notices: NoticeAggregator) -> Self {
        self.notices = notices;
        self
    }

    /// Sets the trigger that reports name. The default is the login manager. A drill leaves no boot mark.
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.trigger = trigger;
        self
    }

    /// Sets the function that returns how many shutdown signals the inhibitor has rejected, for the metrics. By
    /// default it returns 0.
    #[must_use]
    pub fn refused_signals(mut self, refused: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.refused_signals = Box::new(refused);
        self
    }

    /// Sets the function that returns what use the API server would be to a shutdown of a kubelet's pods. By default it
    /// can be used.
    #[must_use]
    pub fn api_server(mut self, asked: impl Fn() -> ApiServerUse + Send + Sync + 'static) -> Self {
        self.api_server = Box::new(asked);
        self
    }

    /// Sets how to look at the kubelet of this machine, whose pods are not protected unless this node is its companion.
    /// Called once a minute, and when the status or the metrics are asked for, at most once a second; a look that takes more
    /// than a second is given up. By default nobody looks, and a machine whose pods this node runs has no kubelet.
    #[must_use]
    pub fn kubelet_inspector<F>(mut self, look: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = KubeletFacts> + Send + 'static,
    {
        self.kubelet_inspector = Some(Box::new(move || Box::pin(look())));
        self
    }

    /// A handle, for use once the plug-in has been added to a node.
    pub fn handle(&self) -> ShutdownHandle {
        self.handle.clone()
    }
}

impl<R: Runtime> NodePlugin<R> for Shutdown {
    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        let core = Arc::clone(&node.core);
        let end_pods = Arc::clone(&self.handle.end_pods);
        let (joined, carried) = self.joined(node);
        let joined = Arc::new(joined);
        joined.keep_drained();
        core.count(joined.lock.inhibitor.state());
        core.count(joined.progress.subscribe());
        core.count(joined.drain.state.subscribe());
        core.count(joined.kept.unstored.problem());
        core.count(joined.notices.changes());
        core.count(joined.kubelet.found());
        let contributions = &mut node.contributions;
        contributions.sections.push(Arc::clone(&joined) as _);
        contributions.answers.shutdown = Some(Arc::new(Arc::clone(&joined)));
        contributions.links.end = Some(Box::new(joined.end()));
        contributions.lead = Some(Box::pin(Arc::clone(&joined).lead(carried)));
        node.start(move |links| {
            // Called once.
            let (work, objection) = (std::mem::take(&mut links.work), links.objection.take());
            let drain_remark = links.drain_remark;
            let _ = joined.offered.set(Offered { work, objection, drain_remark });
            joined.start();
            let ends = Arc::clone(&joined);
            let _ = end_pods.set(Box::new(move |way, at| {
                Box::pin(Arc::clone(&ends).end_at_unit_stop(way, at))
            }));
        });
    }
}

impl Shutdown {
    /// Returns the shutdown of the node, and the run of this boot that an earlier agent began. Blocks on the disk. The node's
    /// own directory is a second place for what is kept, unless it is the same.
    fn joined<R: Runtime>(self, node: &PluginRegistry<R>) -> (Joined<R>, Option<RunRecord>) {
        let (core, state) = (Arc::clone(&node.core), self.state_directory);
        let volatile = node.state_directory.as_deref().filter(|own| *own != state);
        let boot_id = &core.identity.boot_id;
        let operator = OperatorSource::open(
            self.notices.publisher("operator", None),
            &volatile.into_iter().chain([&*state]).map(Path::to_owned).collect::<Vec<_>>(),
            boot_id,
            core.wall.clone(),
            core.boot_clock.clone(),
        );
        let records = running::places(&state, volatile, std::convert::identity);
        let of_drain = running::places(&state, volatile, RecordFile::of_drain);
        let boot = (&**boot_id, &core.boot_clock);
        let drain = OperatorDrain::of_boot(of_drain, boot, &operator, &self.handle.reports);
        let system = (&**boot_id, core.boot_clock.system_start());
        let carried = running::pick_up(&records, boot, &core.gate);
        if let Some((deadline, text)) = carried.as_ref().and_then(|run| run.notice_of("operator")) {
            operator.restore(deadline, text);
        }
        let ShutdownHandle { inhibitor, policy, progress, reports, .. } = self.handle;
        if let Some(run) = &carried {
            progress.found(run, &policy.borrow());
        }
        let last_boot = match self.trigger {
            Trigger::Drill => LastBootState::nothing(),
            _ => LastBootState::new(&state, &reports, &records, system, core.wall.now()),
        };
        let reports = reports.of_node(&*core.identity.name);
        let StateTimes { start, end } = last_shutdown(&state);
        core.recorders.metrics.last_shutdown(start, end);
        let joined = Joined {
            policy,
            notices: self.notices,
            operator,
            progress,
            unit_stop: watch::Sender::default(),
            kept: StoredFiles {
                state_directory: state,
                unstored: UnstoredReports::new(Arc::new(reports.clone())),
                reports,
                records,
                last_boot,
                reading: OneThread::default(),
            },
            trigger: self.trigger,
            lock: Lock {
                inhibitor,
                refused_signals: self.refused_signals,
                held_since: watch::Sender::new(None),
            },
            drain,
            offered: OnceLock::new(),
            kubelet: LastKubeletLook::new(self.kubelet_inspector, role(&core)),
            api_server: self.api_server,
            verdict: watch::Sender::default(),
            core,
        };
        (joined, carried)
    }
}

// === impl ShutdownHandle ===

impl ShutdownHandle {
    /// The progress of a shutdown, with every step.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The state of the lock, with every change.
    pub fn lock(&self) -> watch::Receiver<InhibitorState> {
        self.inhibitor.state()
    }

    /// How long the policy wants the machine's shutdown to wait; that of a run under way, if shutdowns have been
    /// configured to stop no pods since.
    pub fn delay_wanted(&self) -> Duration {
        self.progress.policy_in_force(&self.policy.borrow()).delay_wanted()
    }

    /// The reports on disk.
    pub fn reports(&self) -> &ReportStore {
        &self.reports
    }

    /// Ends the pods when the agent is stopped because the machine goes down without an announcement by the login
    /// manager. `way` resolves to how the machine goes down; `None` means that it stays up, so that the pods continue.
    ///
    /// Resolves when the pods are gone, or ten seconds after the time that the policy wants, or that the way down leaves,
    /// to which a run in progress is shortened. If the login manager has announced a shutdown, this waits for its run,
    /// and for `way` no longer than for that. Resumes a run that an earlier agent of this boot did not finish. Does nothing
    /// before the node has started.
    pub async fn end_pods_if_going_down(&self, way: impl Future<Output = Option<WayDown>>) {
        // systemd has asked for the stop by now, and may take seconds to say how the machine goes down.
        let since = Instant::now();
        let Some(end_pods) = self.end_pods.get() else { return };
        let announced = self.inhibitor.state().borrow().preparing;
        let way = match announced {
            true => tokio::select! {
                biased;
                way = way => way,
                () = end_pods(None, since) => return,
            },
            false => way.await,
        };
        // For a notice.
        let ends = self.progress.subscribe().borrow().phase == ProgressPhase::Ending;
        if !announced && !ends && way.is_none() {
            tracing::info!("the agent stops, and asks no pod to terminate");
            return;
        }
        end_pods(way, since).await;
    }
}

/// What the agent is on this node: a kubelet admits the pods of a companion.
fn role<R: Runtime>(core: &Core<R>) -> AgentRole {
    match core.fit.admits_all() {
        true => AgentRole::Companion,
        false => AgentRole::Runtime,
    }
}

/// The times of the last shutdown. A file that cannot be read is replaced by the next shutdown.
fn last_shutdown(state_directory: &Path) -> StateTimes {
    StateFile::in_directory(state_directory).load().unwrap_or_else(|error| {
        tracing::warn!("cannot read the time of the last shutdown: {}", error_chain(&error));
        StateTimes::default()
    })
}

// === impl Joined ===

impl<R: Runtime> Joined<R> {
    /// Starts the tasks that are independent of a run.
    fn start(self: &Arc<Self>) {
        let stop = self.core.stop.clone();
        if let Some(event) = self.kept.last_boot.event() {
            winddown_shared::Recorder::record(&*self.core.recorders, &event);
        }
        let board = Arc::clone(self).run_board();
        winddown_shared::critical::spawn_until("notices", stop.clone(), board);
        let verdict = Arc::clone(self).follow_verdict();
        winddown_shared::critical::spawn_until("verdict on the node", stop, verdict);
        tokio::spawn(Arc::clone(self).note_lock());
    }

    /// The work of plug-ins at certain points.
    fn work(&self) -> &[ShutdownWork] {
        self.offered.get().map_or(&[], |offered| &*offered.work)
    }

    /// What other plug-ins have against a shutdown.
    fn objection(&self) -> Option<Arc<dyn Objection>> {
        self.offered.get()?.objection.clone()
    }

    /// Keeps track of since when the lock is held.
    async fn note_lock(self: Arc<Self>) {
        let mut states = self.lock.inhibitor.state();
        loop {
            let held = states.borrow_and_update().lock == LockState::Held;
            let now = self.core.wall.now();
            self.lock.held_since.send_if_modified(|since| {
                let changed = since.is_some() != held;
                if changed {
                    *since = held.then_some(now);
                }
                changed
            });
            tokio::select! {
                changed = states.changed() => if changed.is_err() { return },
                () = self.core.stop.cancelled() => return,
            }
        }
    }
}
