//! Scripted sync steps that record their calls.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::lock::Mutex;
use crate::{
    GateReason, Grace, KillReason, NodeEndListener, Pod, PodStopped, PodSyncer, PodUid, RuntimePod,
    RuntimeStateProvider, RuntimeView, StatusOverride, Stop, StoppedContainer, SyncError,
    SyncUpdate, Synced, UpdateKind,
};
use tokio::time::Instant;

/// A [`PodSyncer`] without a runtime. A step succeeds at once unless the pod's [`Script`] says otherwise. It panics if
/// two steps of one UID overlap, because the workers must prevent that.
#[derive(Clone, Debug, Default)]
pub struct FakeSyncer(Arc<Mutex<SyncerState>>);

#[derive(Debug, Default)]
struct SyncerState {
    scripts: HashMap<PodUid, Script>,
    calls: Vec<SyncCall>,
    in_flight: HashSet<PodUid>,
    views: HashMap<PodUid, RuntimeView>,
    running: HashSet<PodUid>,
    graces: HashMap<PodUid, Grace>,
    lame_duck: Vec<(GateReason, bool)>,
}

/// How the steps of one pod behave.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// How long a sync takes.
    pub sync_takes: Duration,
    /// Whether the pod terminated by itself.
    pub terminal: bool,
    /// The delay after which the sync should be called again.
    pub again_in: Option<Duration>,
    /// How many syncs fail before one succeeds.
    pub sync_fails: u32,
    /// Whether the sync panics.
    pub sync_panics: bool,
    /// How long the containers need after SIGTERM. They are killed if the grace period is shorter.
    pub stop_takes: Duration,
    /// How many stops fail before one succeeds.
    pub stop_fails: u32,
    /// Whether only a shutdown may stop the pod.
    pub stops_at_shutdown_only: bool,
    /// How many cleanups fail before one succeeds.
    pub finish_fails: u32,
    /// How long a cleanup takes.
    pub finish_takes: Duration,
    /// The mount points that remain until the cleanup is done.
    pub mounts: Vec<String>,
    /// Whether calls of `mounts` hang.
    pub mounts_hang: bool,
}

/// A call of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncCall {
    /// The pod's UID.
    pub uid: PodUid,
    /// The pod's name, which distinguishes objects with the same UID.
    pub name: Arc<str>,
    /// The step.
    pub step: SyncStep,
    /// The UID of the mirror pod that was passed to a sync.
    pub mirror: Option<PodUid>,
    /// When the step started.
    pub at: Instant,
}

/// A step and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncStep {
    /// `sync_pod`.
    Sync(UpdateKind),
    /// `sync_terminating_pod`.
    Terminate {
        /// The requested grace period, if any.
        grace: Option<Duration>,
        /// The status override of the kill.
        status: Option<StatusOverride>,
    },
    /// `sync_terminating_runtime_pod`.
    TerminateRuntime,
    /// `sync_terminated_pod`.
    Finish,
}

impl FakeSyncer {
    /// Sets how the steps of a pod behave from now on.
    pub fn script(&self, uid: &PodUid, script: Script) {
        self.0.lock().scripts.insert(uid.clone(), script);
    }

    /// The calls so far, in the order in which they started.
    pub fn calls(&self) -> Vec<SyncCall> {
        self.0.lock().calls.clone()
    }

    /// The steps of one pod so far.
    pub fn steps(&self, uid: &PodUid) -> Vec<SyncStep> {
        self.calls().into_iter().filter(|c| c.uid == *uid).map(|c| c.step).collect()
    }

    /// The grace period of the pod's last stop, which changes while that is in flight.
    pub fn grace_of_stop(&self, uid: &PodUid) -> Option<Grace> {
        self.0.lock().graces.get(uid).cloned()
    }

    /// Sets what the workers learn about a pod's containers when they first see it. By default, a pod is stopped unless
    /// it was synced, and then it runs until it is stopped.
    pub fn set_runtime_view(&self, uid: &PodUid, view: RuntimeView) {
        self.0.lock().views.insert(uid.clone(), view);
    }

    /// Whether the pod was synced, and not stopped since.
    pub fn runs(&self, uid: &PodUid) -> bool {
        self.0.lock().running.contains(uid)
    }

    /// The calls of `lame_duck`.
    pub fn lame_duck_calls(&self) -> Vec<(GateReason, bool)> {
        self.0.lock().lame_duck.clone()
    }

    fn set_running(&self, uid: &PodUid, runs: bool) {
        let view = if runs { RuntimeView::Running } else { RuntimeView::Stopped };
        self.set_runtime_view(uid, view);
        let running = &mut self.0.lock().running;
        let _ = if runs { running.insert(uid.clone()) } else { running.remove(uid) };
    }

    fn begin(
        &self,
        uid: &PodUid,
        name: &Arc<str>,
        step: SyncStep,
        mirror: Option<PodUid>,
    ) -> (Script, InFlight) {
        let mut state = self.0.lock();
        assert!(state.in_flight.insert(uid.clone()), "two steps of {uid} at once");
        state.calls.push(SyncCall {
            uid: uid.clone(),
            name: name.clone(),
            step,
            mirror,
            at: Instant::now(),
        });
        let script = state.scripts.get(uid).cloned().unwrap_or_default();
        (script, InFlight { syncer: self.clone(), uid: uid.clone() })
    }

    /// Whether this call fails; counts one scripted failure down.
    fn fails(&self, uid: &PodUid, which: impl Fn(&mut Script) -> &mut u32) -> bool {
        let mut state = self.0.lock();
        let Some(left) = state.scripts.get_mut(uid).map(which) else { return false };
        let fails = *left > 0;
        *left = left.saturating_sub(1);
        fails
    }

    async fn stop(&self, script: &Script, mut grace: Grace) -> PodStopped {
        let begun = Instant::now();
        let forced = tokio::select! {
            biased;
            () = tokio::time::sleep(script.stop_takes) => false,
            () = grace.expired() => true,
        };
        PodStopped {
            signalled_at: Some(begun),
            stopped_at: Some(Instant::now()),
            containers: vec![StoppedContainer {
                name: "main".into(),
                exit_code: if forced { 137 } else { 0 },
                forced,
            }],
            ..PodStopped::default()
        }
    }
}

/// Marks the end of a step, even if its future is dropped.
struct InFlight {
    syncer: FakeSyncer,
    uid: PodUid,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.syncer.0.lock().in_flight.remove(&self.uid);
    }
}

impl PodSyncer for FakeSyncer {
    #[allow(clippy::panic, reason = "the script asks for a panic, to see that it is contained")]
    async fn sync_pod(&self, update: SyncUpdate) -> Result<Synced, SyncError> {
        let uid = update.pod.uid();
        self.set_running(uid, true);
        let mirror = update.mirror.map(|m| m.uid().clone());
        let step = SyncStep::Sync(update.kind);
        let (script, _in_flight) = self.begin(uid, update.pod.name(), step, mirror);
        tokio::time::sleep(script.sync_takes).await;
        if script.sync_panics {
            panic!("as scripted");
        }
        if self.fails(uid, |s| &mut s.sync_fails) {
            return Err(SyncError::new("the sync fails as scripted"));
        }
        Ok(Synced { terminal: script.terminal, again_in: script.again_in, ended: None })
    }

    async fn sync_terminating_pod(&self, pod: Pod, stop: Stop) -> Result<PodStopped, SyncError> {
        let step = SyncStep::Terminate { grace: stop.grace, status: stop.status.lock().clone() };
        let (script, _in_flight) = self.begin(pod.uid(), pod.name(), step, None);
        self.0.lock().graces.insert(pod.uid().clone(), stop.until.clone());
        if self.fails(pod.uid(), |s| &mut s.stop_fails) {
            return Err(SyncError::new("the stop fails as scripted"));
        }
        let stopped = self.stop(&script, stop.until).await;
        self.set_running(pod.uid(), false);
        Ok(stopped)
    }

    async fn sync_terminating_runtime_pod(
        &self,
        pod: RuntimePod,
        grace: Grace,
    ) -> Result<PodStopped, SyncError> {
        let (script, _in_flight) =
            self.begin(&pod.uid, &pod.name, SyncStep::TerminateRuntime, None);
        self.0.lock().graces.insert(pod.uid.clone(), grace.clone());
        if self.fails(&pod.uid, |s| &mut s.stop_fails) {
            return Err(SyncError::new("the stop fails as scripted"));
        }
        let stopped = self.stop(&script, grace).await;
        self.set_running(&pod.uid, false);
        Ok(stopped)
    }

    async fn sync_terminated_pod(&self, pod: Pod) -> Result<(), SyncError> {
        let (script, _in_flight) = self.begin(pod.uid(), pod.name(), SyncStep::Finish, None);
        tokio::time::sleep(script.finish_takes).await;
        if self.fails(pod.uid(), |s| &mut s.finish_fails) {
            return Err(SyncError::new("the cleanup fails as scripted"));
        }
        Ok(())
    }
}

impl RuntimeStateProvider for FakeSyncer {
    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, SyncError> {
        let script = self.0.lock().scripts.get(uid).cloned().unwrap_or_default();
        if script.mounts_hang {
            std::future::pending::<()>().await;
        }
        Ok(script.mounts)
    }

    fn refuses_stop(&self, uid: &PodUid, reason: KillReason) -> Option<Arc<str>> {
        let state = self.0.lock();
        let script = state.scripts.get(uid).filter(|_| reason != KillReason::Shutdown)?;
        script.stops_at_shutdown_only.then(|| "refused as scripted".into())
    }

    fn last_seen_running(&self, _uid: &PodUid) -> Vec<String> {
        vec!["main".to_owned()]
    }

    fn runtime_view(&self, uid: &PodUid) -> RuntimeView {
        self.0.lock().views.get(uid).copied().unwrap_or(RuntimeView::Stopped)
    }
}

impl NodeEndListener for FakeSyncer {
    fn lame_duck(&self, reason: GateReason, on: bool) {
        self.0.lock().lame_duck.push((reason, on));
    }
}
