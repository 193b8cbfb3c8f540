//! Scripted pods that stop as the test says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::{
    GateReason, KillError, KillReason, KillRequest, LateRemark, NodeEndListener, NodeEnding, Pod,
    PodKiller, PodStateProvider, PodStopped, PodUid, RunningPods, RuntimePod, StoppedContainer,
};

/// Why [`FakeKiller::refuses`] lets no pod be stopped.
const REFUSED: &str = "refused as scripted";

/// A [`PodKiller`] whose pods take the scripted time to stop, but at most their grace period. A pod without a script
/// stops at once. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct FakeKiller(Arc<Mutex<KillerState>>);

#[derive(Debug, Default)]
struct KillerState {
    active: Vec<Pod>,
    runtime_only: Vec<RuntimePod>,
    is_unknown: bool,
    more_known: watch::Sender<u64>,
    takes: HashMap<PodUid, Duration>,
    stuck: HashMap<PodUid, Duration>,
    idle: HashSet<PodUid>,
    refused: HashSet<PodUid>,
    mounted: HashMap<PodUid, (Vec<String>, Option<Instant>)>,
    lame_duck: Vec<(GateReason, bool, Instant)>,
    announced: Vec<(GateReason, NodeEnding)>,
    survive: bool,
    afterwards: LateRemark,
    calls: Vec<KillCall>,
}

/// One call to [`PodKiller::kill_pod`].
#[derive(Clone, Debug)]
pub struct KillCall {
    /// The pod.
    pub pod: Pod,
    /// The request.
    pub request: KillRequest,
    /// When the call was made.
    pub at: Instant,
}

impl FakeKiller {
    /// Creates a killer with these active pods; they stay listed until a kill of them resolves.
    pub fn with(pods: impl IntoIterator<Item = Pod>) -> Self {
        let killer = Self::default();
        killer.0.lock().active.extend(pods);
        killer
    }

    /// Adds an active pod.
    pub fn add(&self, pod: Pod) {
        let mut state = self.0.lock();
        state.active.push(pod);
        state.more_known.send_modify(|n| *n += 1);
    }

    /// Adds a running pod that is in no source.
    pub fn add_runtime_only(&self, pod: RuntimePod) {
        let mut state = self.0.lock();
        state.runtime_only.push(pod);
        state.more_known.send_modify(|n| *n += 1);
    }

    /// Sets whether the running pods are known, which they are by default. While they are not, only the pods that are
    /// in no source are listed.
    pub fn knows(&self, known: bool) {
        let mut state = self.0.lock();
        state.is_unknown = !known;
        state.more_known.send_modify(|n| *n += 1);
    }

    /// Sets how long the pod needs after SIGTERM. It is killed if its grace period is shorter.
    pub fn takes(&self, uid: &PodUid, time: Duration) {
        self.0.lock().takes.insert(uid.clone(), time);
    }

    /// Makes nothing of the pod run when it is asked to stop.
    pub fn runs_nothing(&self, uid: &PodUid) {
        self.0.lock().idle.insert(uid.clone());
    }

    /// Makes the pod ignore its grace period and stop only after this time, as with a hung runtime.
    pub fn hangs(&self, uid: &PodUid, time: Duration) {
        self.0.lock().stuck.insert(uid.clone(), time);
    }

    /// Refuses to stop the pod, as a runtime may ([`Runtime::refuses_stop`](crate::Runtime::refuses_stop)).
    pub fn refuses(&self, uid: &PodUid) {
        self.0.lock().refused.insert(uid.clone());
    }

    /// Keeps the pod's volumes mounted at these places for this long from now, or forever.
    pub fn stays_mounted<'a>(
        &self,
        uid: &PodUid,
        places: impl IntoIterator<Item = &'a str>,
        time: Option<Duration>,
    ) {
        let places = places.into_iter().map(str::to_owned).collect();
        let until = time.map(|time| Instant::now() + time);
        self.0.lock().mounted.insert(uid.clone(), (places, until));
    }

    /// Makes every pod survive a soft-reboot.
    pub fn all_survive(&self) {
        self.0.lock().survive = true;
    }

    /// The calls of [`NodeEndListener::lame_duck`], with their times.
    pub fn lame_duck_calls(&self) -> Vec<(GateReason, bool, Instant)> {
        self.0.lock().lame_duck.clone()
    }

    /// The calls of [`NodeEndListener::announce`].
    pub fn announced(&self) -> Vec<(GateReason, NodeEnding)> {
        self.0.lock().announced.clone()
    }

    /// The calls of [`PodKiller::kill_pod`] so far, in order.
    pub fn calls(&self) -> Vec<KillCall> {
        self.0.lock().calls.clone()
    }

    /// The remark of all pods on what became of them since.
    pub fn afterwards(&self) -> LateRemark {
        self.0.lock().afterwards.clone()
    }

    /// How long the stop takes and whether it needs SIGKILL.
    fn stop_time(&self, pod: &Pod, request: &KillRequest) -> (Duration, bool) {
        let state = self.0.lock();
        if let Some(hang) = state.stuck.get(pod.uid()) {
            return (*hang, true);
        }
        let wants = state.takes.get(pod.uid()).copied().unwrap_or_default();
        let grace = request.grace.or(pod.termination_grace_period()).unwrap_or_default();
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let left = request.until.map_or(Duration::MAX, left);
        let grace = grace.max(Duration::from_secs(1)).min(left);
        (wants.min(grace), wants > grace)
    }
}

impl PodKiller for FakeKiller {
    async fn kill_pod(&self, pod: Pod, request: KillRequest) -> Result<Arc<PodStopped>, KillError> {
        let at = Instant::now();
        if let Some(why) = self.refuses_stop(pod.uid(), request.reason) {
            return Err(KillError::Refused { pod: pod.pod_ref().to_string().into(), why });
        }
        self.0.lock().calls.push(KillCall { pod: pod.clone(), request: request.clone(), at });
        let (time, forced) = self.stop_time(&pod, &request);
        let done = at + time;
        let deadline = request.deadline.unwrap_or(done);
        tokio::time::sleep_until(done.min(deadline)).await;
        if deadline < done {
            return Err(KillError::Deadline {
                pod: pod.pod_ref().to_string().into(),
                waited: deadline - at,
                still_running: vec!["main".into()],
            });
        }
        self.0.lock().active.retain(|p| p.uid() != pod.uid());
        self.0.lock().runtime_only.retain(|p| p.uid != *pod.uid());
        if self.0.lock().idle.contains(pod.uid()) {
            return Ok(Arc::new(PodStopped::of_nothing()));
        }
        Ok(Arc::new(PodStopped {
            signalled_at: Some(at),
            stopped_at: Some(done),
            containers: vec![StoppedContainer {
                name: "main".into(),
                exit_code: if forced { 137 } else { 0 },
                forced,
            }],
            afterwards: self.0.lock().afterwards.clone(),
            ..PodStopped::default()
        }))
    }

    fn running(&self) -> RunningPods {
        let state = self.0.lock();
        let pods = if state.is_unknown { Vec::new() } else { state.active.clone() };
        let runtime_only = state.runtime_only.clone();
        RunningPods { pods, runtime_only, known: !state.is_unknown }
    }

    fn more_known(&self) -> watch::Receiver<u64> {
        self.0.lock().more_known.subscribe()
    }

    fn non_terminating_pods(&self) -> Vec<Pod> {
        let state = self.0.lock();
        let asked = |pod: &&Pod| state.calls.iter().any(|call| call.pod.uid() == pod.uid());
        state.active.iter().filter(|pod| !asked(pod)).cloned().collect()
    }

    async fn volumes_released(&self, uid: &PodUid, deadline: Instant) -> Vec<String> {
        let Some((places, until)) = self.0.lock().mounted.get(uid).cloned() else {
            return Vec::new();
        };
        match until {
            Some(until) if until <= deadline => {
                tokio::time::sleep_until(until).await;
                Vec::new()
            }
            _ => {
                tokio::time::sleep_until(deadline).await;
                places
            }
        }
    }
}

impl PodStateProvider for FakeKiller {
    fn survives_soft_reboot(&self, _: &PodUid) -> bool {
        self.0.lock().survive
    }

    fn refuses_stop(&self, uid: &PodUid, _: KillReason) -> Option<Arc<str>> {
        self.0.lock().refused.contains(uid).then(|| REFUSED.into())
    }

    fn prior_reason(&self, uid: &PodUid) -> Option<KillReason> {
        let state = self.0.lock();
        let call = state.calls.iter().find(|call| call.pod.uid() == uid);
        call.map(|call| call.request.reason)
    }

    fn grace_left(&self, uid: &PodUid) -> Option<Duration> {
        let state = self.0.lock();
        let call = state.calls.iter().find(|call| call.pod.uid() == uid)?;
        Some(call.request.grace?.saturating_sub(call.at.elapsed()))
    }
}

impl NodeEndListener for FakeKiller {
    fn announce(&self, reason: GateReason, ending: NodeEnding) {
        self.0.lock().announced.push((reason, ending));
    }

    fn lame_duck(&self, reason: GateReason, on: bool) {
        self.0.lock().lame_duck.push((reason, on, Instant::now()));
    }
}
