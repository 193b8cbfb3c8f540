//! A scripted node.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use winddown_shared::testing::{FakeKiller, FakeRecorder, KillCall};
use winddown_shared::{
    Event, Freed, FsLayout, FsStats, GateReasons, MemoryFigure, MemoryStats, NodeStats, Pod,
    PodKiller, PodStats, PodUid, PressureCondition, RuntimeError, VictimLock, WallClock,
};

use crate::{
    Alternative, EarlierEviction, EarlierEvictions, EvictionController, EvictionHookRun,
    EvictionParts, EvictionView, Hook, HookCall, HookRule, MeasureError, MemoryReclaim, PodFigures,
    Policy, Readmit, Reclaim, ReclaimMemory, Reclaimable, SamplingIntervals, Signals,
    WantedFigures,
};

pub(crate) struct World {
    pub(crate) killer: FakeKiller,
    pub(crate) node: Arc<Node>,
    pub(crate) recorder: FakeRecorder,
    pub(crate) view: EvictionView,
    pub(crate) policy: watch::Sender<Arc<Policy>>,
    pub(crate) paused_by: watch::Sender<GateReasons>,
    pub(crate) wake: Arc<Notify>,
    pub(crate) victims: VictimLock,
    pub(crate) task: JoinHandle<()>,
}

/// Fakes the signals, the reclaim, the hook and the readmission.
#[derive(Default)]
pub(crate) struct Node(Mutex<State>);

#[derive(Default)]
pub(crate) struct State {
    pub(crate) stats: NodeStats,
    pub(crate) pods: HashMap<PodUid, PodStats>,
    /// The node's figures once a pod has stopped.
    pub(crate) after: HashMap<PodUid, NodeStats>,
    pub(crate) killer: FakeKiller,
    pub(crate) looks: Vec<Instant>,
    pub(crate) measured: Vec<(usize, WantedFigures)>,
    pub(crate) never_measures: bool,
    pub(crate) hangs: bool,
    pub(crate) fails: bool,
    /// Falling memory: the start time, the initial amount, and the decrease per second.
    pub(crate) falls: Option<(Instant, u64, u64)>,
    pub(crate) reclaimed: Vec<Reclaimable>,
    /// The node's figures after a reclaim, and, below, how long the reclaim takes.
    pub(crate) after_reclaim: Option<NodeStats>,
    pub(crate) reclaim_takes: Duration,
    /// The requests to reclaim memory: the pod, the figure and the amount.
    pub(crate) memory_asked: Vec<(String, MemoryFigure, u64)>,
    pub(crate) brought_back: Vec<Pod>,
    pub(crate) earlier_evictions: Vec<EarlierEviction>,
    /// Whether there may be more of them.
    pub(crate) may_be_more: bool,
    pub(crate) hooks: Vec<HookCall>,
}

impl World {
    pub(crate) fn new(policy: Policy, pods: Vec<(Pod, PodStats)>) -> Self {
        Self::with(policy, pods, |_| {})
    }

    /// A world in which the kernel may reclaim a pod's memory for this time.
    pub(crate) fn reclaiming(policy: Policy, pods: Vec<(Pod, PodStats)>, time: Duration) -> Self {
        let time = watch::Sender::new(Some(time)).subscribe();
        let reclaim = |node| Arc::new(MemoryReclaim::new(node, time)) as Arc<dyn Alternative>;
        Self::begin(policy, pods, |node| Some(reclaim(node)), |_| {})
    }

    /// A world whose loop is changed before it starts.
    pub(crate) fn with(
        policy: Policy,
        pods: Vec<(Pod, PodStats)>,
        change: impl FnOnce(&mut EvictionController<FakeKiller, Node, Node>),
    ) -> Self {
        Self::begin(policy, pods, |_| None, change)
    }

    fn begin(
        policy: Policy,
        pods: Vec<(Pod, PodStats)>,
        alternative: impl FnOnce(Arc<Node>) -> Option<Arc<dyn Alternative>>,
        change: impl FnOnce(&mut EvictionController<FakeKiller, Node, Node>),
    ) -> Self {
        let killer = FakeKiller::with(pods.iter().map(|(pod, _)| pod.clone()));
        let node = Arc::new(Node::default());
        {
            let mut state = node.state();
            state.killer = killer.clone();
            state.pods = pods.into_iter().map(|(pod, stats)| (pod.uid().clone(), stats)).collect();
        }
        let (recorder, alternative) = (FakeRecorder::default(), alternative(Arc::clone(&node)));
        let (policy, policies) = watch::channel(Arc::new(policy));
        let (paused_by, reasons) = watch::channel(GateReasons::NONE);
        let (wake, victims) = (Arc::new(Notify::new()), VictimLock::new());
        let (mut controller, view) = EvictionController::new(EvictionParts {
            killer: Arc::new(killer.clone()),
            signals: node.clone(),
            reclaim: node.clone(),
            alternative,
            recorder: Arc::new(recorder.clone()),
            victims: victims.clone(),
            hook: node.clone(),
            static_pods: node.clone(),
            wall: WallClock::fixed(jiff::Timestamp::UNIX_EPOCH),
            policy: policies,
            paused_by: reasons,
            wake: wake.clone(),
            cadence: SamplingIntervals::default(),
        });
        change(&mut controller);
        let task = tokio::spawn(controller.run());
        Self { killer, node, recorder, view, policy, paused_by, wake, victims, task }
    }

    /// Sets the node's figures, and lets time pass.
    pub(crate) async fn is(&self, stats: NodeStats, time: Duration) {
        self.node.state().stats = stats;
        sleep(time).await;
    }

    /// Sets the node's figures for when the pod has stopped.
    pub(crate) fn helps(&self, pod: &str, stats: NodeStats) {
        self.node.state().after.insert(PodUid::new(pod), stats);
    }

    /// Adds a pod with this usage.
    pub(crate) fn add(&self, pod: Pod, stats: PodStats) {
        self.node.state().pods.insert(pod.uid().clone(), stats);
        self.killer.add(pod);
    }

    /// The names of the pods that were asked to stop, with their grace periods in seconds.
    pub(crate) fn killed(&self) -> Vec<(String, Option<u64>)> {
        let call = |call: &KillCall| {
            (call.pod.name().to_string(), call.request.grace.map(|grace| grace.as_secs()))
        };
        self.killer.calls().iter().map(call).collect()
    }

    pub(crate) fn message(&self, place: usize) -> String {
        let request = &self.killer.calls()[place].request;
        request.status.as_ref().unwrap().message.to_string()
    }

    pub(crate) fn has(&self, condition: PressureCondition) -> bool {
        self.view.conditions().borrow().contains(condition)
    }

    pub(crate) fn count(&self, is: impl Fn(&Event) -> bool) -> usize {
        self.recorder.events().iter().filter(|event| is(event)).count()
    }

    pub(crate) fn looks(&self) -> usize {
        self.node.state().looks.len()
    }
}

impl Node {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Signals for Node {
    async fn node(&self) -> Result<NodeStats, MeasureError> {
        if self.state().hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        state.looks.push(Instant::now());
        if state.fails {
            return Err(MeasureError::new("/proc/meminfo", None));
        }
        let active = state.killer.running().pods;
        let gone = |uid: &PodUid| !active.iter().any(|pod| pod.uid() == uid);
        let ended = state.after.keys().find(|uid| gone(uid)).cloned();
        if let Some(stats) = ended.and_then(|uid| state.after.remove(&uid)) {
            state.stats = stats;
        }
        if let Some((since, from, rate)) = state.falls {
            let fallen = since.elapsed().as_millis() * u128::from(rate) / 1000;
            let fallen = u64::try_from(fallen).unwrap();
            state.stats = memory_left(from.saturating_sub(fallen));
        }
        Ok(at(state.stats, Instant::now()))
    }

    async fn pods(&self, pods: &[Pod], wanted: WantedFigures) -> PodFigures {
        let mut state = self.state();
        state.measured.push((pods.len(), wanted));
        let stats = pods.iter().map(|pod| state.pods.get(pod.uid()).cloned());
        if state.never_measures { PodFigures::Never } else { PodFigures::Measured(stats.collect()) }
    }
}

impl Reclaim for Node {
    async fn reclaim(&self, what: Reclaimable) -> Result<Freed, RuntimeError> {
        let takes = self.state().reclaim_takes;
        sleep(takes).await;
        let mut state = self.state();
        state.reclaimed.push(what);
        if let Some(stats) = state.after_reclaim {
            state.stats = stats;
        }
        Ok(Freed::new(1, 1))
    }
}

impl ReclaimMemory for Arc<Node> {
    async fn reclaim_memory(
        &self,
        pod: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        _: Duration,
    ) -> Result<Freed, RuntimeError> {
        self.state().memory_asked.push((pod.to_string(), figure, bytes));
        let takes = self.state().reclaim_takes;
        sleep(takes).await;
        let mut state = self.state();
        if let Some(stats) = state.after_reclaim {
            state.stats = stats;
        }
        Ok(Freed::new(0, bytes))
    }
}

impl Hook for Node {
    fn run(&self, rule: Arc<HookRule>, call: HookCall) -> BoxFuture<'static, EvictionHookRun> {
        self.state().hooks.push(call);
        let takes = rule.timeout / 2;
        async move {
            sleep(takes).await;
            EvictionHookRun { took_ms: 1, error: None, output: "dumped".to_owned() }
        }
        .boxed()
    }
}

impl Readmit for Node {
    fn readmit(&self, pod: &Pod, _: bool) -> BoxFuture<'static, Result<(), RuntimeError>> {
        self.state().brought_back.push(pod.clone());
        ready(Ok(())).boxed()
    }

    fn earlier_evictions(&self) -> EarlierEvictions {
        let mut state = self.state();
        let known = std::mem::take(&mut state.earlier_evictions);
        EarlierEvictions::new(known, state.may_be_more)
    }
}

pub(crate) fn memory_left(available: u64) -> NodeStats {
    let memory = MemoryStats {
        at: None,
        working_set: (16 << 30) - available,
        available,
        mem_available: Some(available),
    };
    {
        let mut stats = NodeStats::default();
        stats.memory = Some(memory);
        stats.layout = Some(FsLayout::One);
        stats
    }
}

/// The same, measured at `now`.
fn at(mut stats: NodeStats, now: Instant) -> NodeStats {
    let fs = |fs: Option<FsStats>| fs.map(|fs| FsStats { at: Some(now), ..fs });
    let memory = |memory: Option<MemoryStats>| memory.map(|m| MemoryStats { at: Some(now), ..m });
    stats.memory = memory(stats.memory);
    stats.pods_memory = memory(stats.pods_memory);
    (stats.nodefs, stats.imagefs, stats.containerfs) =
        (fs(stats.nodefs), fs(stats.imagefs), fs(stats.containerfs));
    stats
}
