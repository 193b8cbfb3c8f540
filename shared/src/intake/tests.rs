mod pending_preemption;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{DesiredPods, Intake, WAITING_FOR_PREEMPTION};
use crate::status::StatusStore;
use crate::testing::{self, FakeRecorder, FakeRuntime, pod_with};
use crate::{
    Admission, AdmitHandler, BootClock, CONFIG_SOURCE_ANNOTATION, EarlierKill, Event, GateReason,
    GateState, Grace, KillReason, KillRequest, NodeEndListener, NodeView, OtherPods, PluginName,
    Pod, PodKiller, PodUid, PodUidMap, PodWorkers, Rejection, RestartCondition, Runtime,
    RuntimeSyncer, StatusOverride, VictimLock, WallClock, WallTime,
};

struct Node {
    runtime: FakeRuntime,
    workers: PodWorkers<RuntimeSyncer<FakeRuntime>>,
    statuses: StatusStore,
    desired: watch::Sender<Option<Arc<DesiredPods>>>,
    gate: watch::Sender<GateState>,
}

/// Refuses everything while the node is shutting down.
struct Gate(watch::Receiver<GateState>);

impl AdmitHandler for Gate {
    fn admit(&self, _pod: &Pod, _others: &OtherPods) -> Result<(), Rejection> {
        if *self.0.borrow() == GateState::Open {
            return Ok(());
        }
        Err(Rejection {
            reason: "NodeShutdown".into(),
            message: "Pod was rejected as the node is shutting down.".into(),
            retryable: true,
        })
    }
}

/// A node on `runtime`, which may hold pods from before the start.
fn node(runtime: FakeRuntime) -> Node {
    node_with(runtime, FakeRecorder::default(), |admission| admission, &VictimLock::new())
}

/// The same with more handlers after the gate, and with an API server that is notified of refusals.
fn node_with(
    runtime: FakeRuntime,
    events: FakeRecorder,
    checks: impl FnOnce(Admission) -> Admission,
    lock: &VictimLock,
) -> Node {
    let with = |intake: Intake<FakeRuntime>| {
        intake.with_victim_lock(lock.clone()).with_final_rejections(|pod| !pod.is_static())
    };
    node_as(runtime, events, checks, with)
}

/// A node of which an earlier agent requested the pods in `asked` to terminate.
fn node_resuming(runtime: FakeRuntime, asked: PodUidMap<KillRequest>) -> Node {
    let until = Duration::from_secs(1030);
    let kills = asked.into_iter().map(|(uid, request)| (uid, EarlierKill::new(request, until)));
    let kills = kills.collect();
    let with = |intake: Intake<FakeRuntime>| {
        intake.with_earlier_kills(kills, BootClock::new(|| Duration::from_secs(1000)))
    };
    node_as(runtime, FakeRecorder::default(), |admission| admission, with)
}

fn node_as(
    runtime: FakeRuntime,
    events: FakeRecorder,
    checks: impl FnOnce(Admission) -> Admission,
    with: impl FnOnce(Intake<FakeRuntime>) -> Intake<FakeRuntime>,
) -> Node {
    let statuses = StatusStore::default();
    let recorder = Arc::new(events);
    let shared = Arc::new(runtime.clone());
    let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
    let syncer = RuntimeSyncer::new(shared.clone(), statuses.clone(), recorder.clone(), wall);
    let workers = PodWorkers::new(syncer, recorder.clone());
    let desired = watch::Sender::new(None);
    let gate = watch::Sender::new(GateState::Open);
    let admission = checks(Admission::default().then(Gate(gate.subscribe())));
    let intake = with(Intake::new(shared, workers.clone(), statuses.clone(), admission, recorder));
    let intake = intake.with_gate(gate.subscribe());
    tokio::spawn(intake.run(desired.subscribe()));
    tokio::spawn(RuntimeSyncer::forward_runtime_changes(workers.clone()));
    Node { runtime, workers, statuses, desired, gate }
}

impl Node {
    async fn want(&self, pods: &[&Pod]) {
        self.want_of(pods, true).await;
    }

    async fn want_of(&self, pods: &[&Pod], complete: bool) {
        let pods = pods.iter().copied().cloned().collect();
        self.desired
            .send_replace(Some(Arc::new(DesiredPods { complete, ..DesiredPods::all(pods) })));
        settle().await;
    }

    fn said(&self, pod: &Pod) -> (String, String) {
        let status = self.statuses.get(pod.uid()).unwrap();
        (status.phase.clone().unwrap(), status.reason.clone().unwrap_or_default())
    }
}

fn pod(uid: &str, restart: &str) -> Pod {
    let name = uid.trim_end_matches(char::is_numeric);
    pod_with(uid, name, |pod| {
        pod.metadata.annotations =
            Some([(CONFIG_SOURCE_ANNOTATION.to_owned(), "file".to_owned())].into());
        if let Some(spec) = &mut pod.spec {
            spec.restart_policy = Some(restart.to_owned());
        }
    })
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// The node will be back soon, and the pod with it.
fn reboot() -> KillRequest {
    KillRequest { status: Some(StatusOverride::staying("NodeReboot", "soon")), ..shutdown() }
}

fn shutdown() -> KillRequest {
    KillRequest {
        status: Some(StatusOverride::failed(
            "Terminated",
            "Pod was terminated in response to imminent node shutdown.",
            Some("why".into()),
        )),
        ..KillRequest::new(KillReason::Shutdown)
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_already_is_known_also_while_admission_is_closed() {
    let runtime = FakeRuntime::default();
    let kept = pod("kept", "Always");
    runtime.sync_pod(&kept).await.unwrap();
    let node = node(runtime);
    node.gate.send_replace(GateState::Shut);
    node.want(&[&kept, &pod("new", "Always")]).await;
    let active: Vec<PodUid> = node.workers.running().pods.iter().map(|p| p.uid().clone()).collect();
    assert_eq!(active, [kept.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_whose_manifest_changed_while_no_agent_ran_starts_again() {
    let marked = |uid: &str, mark: &str| {
        let mut object = pod(uid, "Always").object().clone();
        let mark = (crate::CONFIG_SPEC_ANNOTATION.to_owned(), mark.to_owned());
        object.metadata.annotations.as_mut().unwrap().extend([mark]);
        Pod::new(object).unwrap()
    };
    let old = marked("web1", "old");
    let unmarked = pod("web1", "Always");
    // The last two: it is as it was, and that is not known.
    for (new, starts) in
        [(marked("web1", "new"), 2), (marked("web2", "new"), 2), (old.clone(), 1), (unmarked, 1)]
    {
        let runtime = FakeRuntime::default();
        runtime.sync_pod(&old).await.unwrap();
        runtime.stop_takes(old.uid(), Duration::from_secs(2));
        let node = node(runtime.clone());
        node.want(&[&new]).await;
        let case = (new.uid(), new.spec_mark());
        assert_eq!(runtime.stops().len(), starts - 1, "{case:?}");
        assert_eq!(runtime.graces(old.uid()), vec![Grace::DEFAULT; starts - 1], "its own grace");
        tokio::time::sleep(Duration::from_secs(5)).await;
        node.want(&[&new]).await;
        assert_eq!(runtime.starts().last(), Some(new.uid()), "{case:?}");
        assert_eq!((runtime.starts().len(), runtime.stops().len()), (starts, starts - 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_not_known_before_the_runtime_has_said_so() {
    let runtime = FakeRuntime::default();
    runtime.hang_lists(true);
    let node = node(runtime);
    node.want(&[&pod("web", "Always")]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!node.workers.running().known);
    let mut more = node.workers.more_known();
    node.runtime.hang_lists(false);
    tokio::time::timeout(Duration::from_secs(30), more.changed()).await.unwrap().unwrap();
    let running = node.workers.running();
    assert!(running.known && running.pods.len() == 1 && running.runtime_only.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_may_run_while_the_runtime_is_silent_and_nothing_is_started_for_that() {
    let runtime = FakeRuntime::default();
    runtime.hang_lists(true);
    let node = node(runtime);
    let (web, new) = (pod("web", "Always"), pod("new", "Always"));
    node.want(&[&web]).await;
    assert!(node.workers.running().pods.is_empty(), "it has not been silent for long");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let running = node.workers.running();
    assert!(!running.known && running.pods.len() == 1);
    node.want(&[&web, &new]).await;
    assert_eq!(node.workers.running().pods.len(), 2);
    assert!(node.workers.snapshot().is_empty() && node.runtime.starts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_runs_counts_as_known_although_no_source_can_be_read() {
    let runtime = FakeRuntime::default();
    runtime.sync_pod(&pod("lost", "Always")).await.unwrap();
    let node = node(runtime);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!node.workers.running().known, "the source may have it");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let running = node.workers.running();
    assert!(running.known && running.pods.is_empty() && running.runtime_only.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn what_runs_and_is_missing_from_a_source_that_is_not_whole_is_listed_beside_its_pods() {
    let runtime = FakeRuntime::default();
    let (web, lost) = (pod("web", "Always"), pod("lost", "Always"));
    runtime.sync_pod(&web).await.unwrap();
    runtime.sync_pod(&lost).await.unwrap();
    let node = node(runtime);
    node.want_of(&[&web], false).await;
    let running = node.workers.running();
    let named: Vec<&PodUid> = running.runtime_only.iter().map(|pod| &pod.uid).collect();
    assert_eq!((named, running.pods.len()), (vec![lost.uid()], 1));
    // Its manifest comes back, and then disappears.
    node.want(&[&web, &lost]).await;
    assert_eq!(node.workers.running().pods.len(), 2);
    node.want(&[&web]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let running = node.workers.running();
    assert!(running.pods.len() == 1 && running.runtime_only.is_empty(), "{running:?}");
    assert!(node.runtime.stops().contains(lost.uid()));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_not_whole_terminates_what_it_named_and_keeps_what_it_never_named() {
    let (never, no_more) = (pod("never", "Always"), pod("dropped", "Always"));
    let unread = pod("unread", "Always");
    let runtime = FakeRuntime::default();
    runtime.sync_pod(&never).await.unwrap();
    let node = node(runtime);
    node.want_of(&[&no_more, &unread], false).await;
    let waiting = vec![unread.uid().clone()];
    let rest = DesiredPods { complete: false, waiting, ..DesiredPods::default() };
    node.desired.send_replace(Some(Arc::new(rest)));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.runtime.stops(), [no_more.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn what_runs_in_no_source_and_was_ended_is_not_listed_again() {
    let runtime = FakeRuntime::default();
    let lost = pod("lost", "Always");
    runtime.sync_pod(&lost).await.unwrap();
    let node = node(runtime);
    node.want_of(&[], false).await;
    let found = node.workers.running().runtime_only.remove(0);
    node.workers.kill_pod(Pod::of_runtime(&found), shutdown()).await.unwrap();
    assert!(node.workers.running().is_known_empty());
    node.want_of(&[&pod("new", "Always")], false).await;
    assert_eq!(node.workers.running().runtime_only, []);
}

#[tokio::test(start_paused = true)]
async fn what_is_ended_while_the_runtime_is_listed_does_not_run_whatever_the_list_says() {
    let runtime = FakeRuntime::default();
    let lost = pod("lost", "Always");
    runtime.sync_pod(&lost).await.unwrap();
    let node = node(runtime);
    node.want_of(&[], false).await;
    let found = node.workers.running().runtime_only.remove(0);
    let lists = node.runtime.lists();
    node.runtime.lists_take(Duration::from_secs(5));
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(node.runtime.lists(), lists + 1, "it is under way");
    node.workers.kill_pod(Pod::of_runtime(&found), shutdown()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.workers.running().runtime_only, []);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_an_earlier_agent_asked_to_end_is_not_looked_after_again() {
    let runtime = FakeRuntime::default();
    let (asked, kept) = (pod("asked", "Always"), pod("kept", "Always"));
    runtime.sync_pod(&asked).await.unwrap();
    runtime.sync_pod(&kept).await.unwrap();
    let before = [(asked.uid().clone(), shutdown())].into_iter().collect();
    let node = node_resuming(runtime, before);
    node.gate.send_replace(GateState::Shut);
    node.want(&[&asked, &kept]).await;
    assert_eq!(node.runtime.stops(), [asked.uid().clone()]);
    assert_eq!(node.said(&asked), ("Failed".into(), "Terminated".into()));
    assert_eq!(node.said(&kept).0, "Running");
    assert_eq!(node.runtime.starts().len(), 2, "neither was started again");
}

/// The log of a shutdown has one line each for the request and the end, whichever agent saw it.
#[tokio::test(start_paused = true)]
async fn only_an_end_that_the_earlier_agent_has_not_recorded_is_reported() {
    for (runs, has_terminated, events) in
        [(false, true, 0), (false, false, 2), (true, true, 2), (true, false, 2)]
    {
        let (runtime, web, recorder) =
            (FakeRuntime::default(), pod("web", "Always"), FakeRecorder::default());
        runtime.sync_pod(&web).await.unwrap();
        if !runs {
            runtime.stop_pod(web.uid(), Some(&web), Grace::fixed(Grace::SHORTEST)).await.unwrap();
        }
        let kill = EarlierKill {
            has_terminated,
            ..EarlierKill::new(shutdown(), Duration::from_secs(1030))
        };
        let kills = PodUidMap::from_iter([(web.uid().clone(), kill)]);
        let clock = BootClock::new(|| Duration::from_secs(1000));
        let with = |intake: Intake<FakeRuntime>| intake.with_earlier_kills(kills, clock);
        let node = node_as(runtime, recorder.clone(), |admission| admission, with);
        node.gate.send_replace(GateState::Shut);
        node.want(&[&web]).await;
        assert_eq!(node.said(&web), ("Failed".into(), "Terminated".into()));
        let told = |event: &&Event| {
            matches!(event, Event::KillRequested { .. } | Event::PodStopped { .. })
        };
        let count = recorder.events().iter().filter(told).count();
        assert_eq!(count, events, "{runs} {has_terminated}: {:?}", recorder.events());
    }
}

/// For every reason, and for a restart of the agent before and after the pod has stopped.
#[tokio::test(start_paused = true)]
async fn a_restart_of_the_agent_changes_nothing_of_what_becomes_of_a_pod_that_is_ended() {
    use KillReason::{Drain, Eviction, Operator, Plugin, Preemption, Removed, Shutdown};
    let plugin = Plugin(PluginName::new("mine"));
    for reason in [Shutdown, Preemption, Eviction, Drain, Operator, Removed, plugin] {
        for web in [pod("web", "Always"), testing::pod("web")] {
            let comes_back = match reason.restart_condition() {
                RestartCondition::Terminated
                | RestartCondition::AdmissionReopens
                | RestartCondition::RoomIsFree => web.is_static(),
                RestartCondition::PressureEnds | RestartCondition::Never => false,
                RestartCondition::SourceListsIt => true,
            };
            for at in [RestartAt::Never, RestartAt::Asked, RestartAt::Stopped] {
                let Some(node) = ended_for(reason, &web, at).await else { continue };
                tokio::time::sleep(Duration::from_secs(600)).await;
                let case = (reason, web.is_static(), at);
                assert_eq!(node.runtime.runs(web.uid()), comes_back, "{case:?}");
                assert_eq!(node.runtime.starts().len(), 1 + usize::from(comes_back), "{case:?}");
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestartAt {
    Never,
    /// The pod was asked to stop.
    Asked,
    Stopped,
}

/// A node that a pod was ended on for this reason; none if that cannot be.
async fn ended_for(reason: KillReason, web: &Pod, at: RestartAt) -> Option<Node> {
    let runtime = FakeRuntime::default();
    runtime.stop_takes(web.uid(), Duration::from_secs(2));
    let request = KillRequest {
        status: Some(StatusOverride::failed("Ended", "why", None)),
        ..KillRequest::new(reason)
    };
    if at == RestartAt::Never {
        // Only the intake itself ends a pod for another.
        let can_be_asked = reason != KillReason::Preemption;
        let node = node(runtime);
        node.want(&[web]).await;
        node.gate.send_replace(GateState::Shut);
        node.workers.request_kill(web.clone(), &request);
        if reason == KillReason::Removed {
            node.want(&[]).await;
            node.want(&[web]).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        node.gate.send_replace(GateState::Open);
        return can_be_asked.then_some(node);
    }
    runtime.sync_pod(web).await.unwrap();
    let mut kept = PodUidMap::from_iter([(web.uid().clone(), request)]);
    if at == RestartAt::Stopped {
        runtime.stop_pod(web.uid(), Some(web), Grace::fixed(Duration::from_secs(9))).await.unwrap();
        // The API server knows that its pod has failed.
        if !web.is_static() {
            return None;
        }
        kept.retain(|_, request| request.reason.restart_condition().is_kept_after_end());
    }
    let node = node_resuming(runtime, kept);
    node.want(&[web]).await;
    if matches!(
        reason.restart_condition(),
        RestartCondition::PressureEnds | RestartCondition::Never
    ) && web.is_static()
    {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(node.said(web), ("Failed".into(), "Ended".into()));
    }
    Some(node)
}

/// The shutdown was called off before this agent knew what runs.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_shutdown_that_was_called_off_without_an_agent_ends_and_comes_back() {
    for request in [shutdown(), reboot()] {
        let runtime = FakeRuntime::default();
        let web = pod("web", "Always");
        runtime.sync_pod(&web).await.unwrap();
        let node = node_resuming(runtime, [(web.uid().clone(), request)].into_iter().collect());
        node.want(&[&web]).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(node.runtime.stops(), [web.uid().clone()]);
        assert_eq!(node.runtime.starts().len(), 2);
        assert!(!node.workers.is_termination_requested(web.uid()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_an_operator_ends_starts_again_once_the_node_admits_pods() {
    let node = node(FakeRuntime::default());
    let (web, api) = (pod("web", "Always"), testing::pod("api"));
    node.want(&[&web, &api]).await;
    for pod in [&web, &api] {
        node.workers.request_kill(pod.clone(), &KillRequest::new(KillReason::Operator));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(node.runtime.runs(web.uid()) && !node.runtime.runs(api.uid()));
    node.gate.send_replace(GateState::Shut);
    node.workers.request_kill(
        web.clone(),
        &KillRequest {
            status: Some(StatusOverride::failed("Terminated", "asked for", None)),
            ..KillRequest::new(KillReason::Operator)
        },
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.want(&[&web, &api]).await;
    assert_eq!(node.said(&web), ("Failed".into(), "Terminated".into()), "it is not refused");
    node.gate.send_replace(GateState::Open);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(node.runtime.runs(web.uid()) && !node.runtime.runs(api.uid()));
    assert_eq!(node.runtime.starts().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn pods_that_had_completed_before_the_start_stay_so_and_need_no_admission() {
    let runtime = FakeRuntime::default();
    let (job, failed) = (pod("job", "Never"), pod("failed", "OnFailure"));
    for (pod, code) in [(&job, 0), (&failed, 1)] {
        runtime.sync_pod(pod).await.unwrap();
        runtime.exit(pod.uid(), code);
    }
    // There is room for one pod.
    let one = |admission: Admission| admission.then(One);
    let node = node_with(runtime, FakeRecorder::default(), one, &VictimLock::new());
    let new = pod("new", "Always");
    node.want(&[&job, &new]).await;
    assert_eq!(node.said(&job), ("Succeeded".into(), String::new()));
    assert_eq!(node.said(&new).0, "Running");
    node.want(&[&job, &new, &failed]).await;
    assert_eq!(node.said(&failed).0, "Failed", "it would be started again, so it needs room");
    assert_eq!(node.runtime.starts().len(), 3);
}

/// Admits one pod.
struct One;

impl AdmitHandler for One {
    fn admit(&self, pod: &Pod, others: &OtherPods) -> Result<(), Rejection> {
        if others.non_terminating().iter().all(|other| other.uid() == pod.uid()) {
            return Ok(());
        }
        Err(Rejection { reason: "OutOfcpu".into(), message: "full".into(), retryable: true })
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_without_a_manifest_counts_as_used() {
    let runtime = FakeRuntime::default();
    let lost = pod("lost", "Always");
    runtime.sync_pod(&lost).await.unwrap();
    let one = |admission: Admission| admission.then(Used);
    let node = node_with(runtime, FakeRecorder::default(), one, &VictimLock::new());
    let new = pod("new", "Always");
    node.want_of(&[&new], false).await;
    assert_eq!(node.said(&new), ("Failed".into(), "OutOfpods".into()));
    node.runtime.exit(lost.uid(), 0);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(node.said(&new).0, "Running", "its place is free");
}

#[tokio::test(start_paused = true)]
async fn a_check_that_panics_refuses_its_pod_and_no_other() {
    struct Unwraps;
    impl AdmitHandler for Unwraps {
        fn admit(&self, pod: &Pod, _others: &OtherPods) -> Result<(), Rejection> {
            assert_eq!(&**pod.name(), "good", "a bug");
            Ok(())
        }
    }
    let checks = |admission: Admission| admission.then(Unwraps);
    let node =
        node_with(FakeRuntime::default(), FakeRecorder::default(), checks, &VictimLock::new());
    let (bad, good) = (pod("bad", "Always"), pod("good", "Always"));
    node.want(&[&bad, &good]).await;
    assert_eq!(node.said(&bad), ("Failed".into(), "UnexpectedAdmissionError".into()));
    assert_eq!(node.said(&good).0, "Running");
}

/// Admits a pod beside no other.
struct Used;

impl AdmitHandler for Used {
    fn admit(&self, pod: &Pod, others: &OtherPods) -> Result<(), Rejection> {
        if others.used_without(pod, &NodeView::default()).pods == 0 {
            return Ok(());
        }
        Err(Rejection { reason: "OutOfpods".into(), message: "full".into(), retryable: true })
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_hangs_keeps_no_new_pod_waiting() {
    let node = node(FakeRuntime::default());
    let (gone, kept, new) = (testing::pod("gone"), pod("kept", "Always"), pod("new", "Always"));
    node.want(&[&gone, &kept]).await;
    node.runtime.hang_forgets(true);
    node.want(&[&kept]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.want(&[&kept, &new]).await;
    assert_eq!(node.said(&new).0, "Running");
    // What is being removed is not started beside its removal.
    node.want(&[&kept, &new, &gone]).await;
    assert_eq!(node.runtime.starts().len(), 3);
    node.runtime.hang_forgets(false);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(node.said(&gone).0, "Running");
}

/// A manifest is edited and reverted, or moved away and back. Whatever the old pod left says nothing about the new one.
#[tokio::test(start_paused = true)]
async fn a_pod_that_its_source_dropped_and_lists_again_runs_although_it_runs_only_once() {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Back {
        WhileItTerminates,
        /// And another pod's remains are being removed before its own.
        BeforeItsRemovalBegins,
        UnderTheNextAgent,
        /// It has stopped while no agent ran.
        UnderTheNextAgentAndStopped,
    }
    use Back::{
        BeforeItsRemovalBegins, UnderTheNextAgent, UnderTheNextAgentAndStopped, WhileItTerminates,
    };
    let secs = Duration::from_secs;
    let late = [WhileItTerminates, BeforeItsRemovalBegins].map(|back| (back, true));
    let cases =
        [WhileItTerminates, BeforeItsRemovalBegins, UnderTheNextAgent, UnderTheNextAgentAndStopped];
    for (back, has_completed) in late.into_iter().chain(cases.map(|back| (back, false))) {
        let (runtime, job, other) =
            (FakeRuntime::default(), pod("job", "Never"), pod("other", "Always"));
        runtime.sync_pod(&job).await.unwrap();
        runtime.stop_takes(job.uid(), secs(3));
        if has_completed {
            runtime.exit(job.uid(), 0);
        }
        let by_agent = matches!(back, UnderTheNextAgent | UnderTheNextAgentAndStopped);
        let removed = KillRequest::new(KillReason::Removed);
        let asked = by_agent.then(|| (job.uid().clone(), removed)).into_iter().collect();
        if back == UnderTheNextAgentAndStopped {
            runtime.stop_pod(job.uid(), Some(&job), Grace::fixed(secs(9))).await.unwrap();
        }
        let node = node_resuming(runtime, asked);
        node.want(&[&job, &other]).await;
        if !by_agent {
            assert_eq!(node.runtime.starts().len(), 2, "{back:?}: it runs once");
            if back == BeforeItsRemovalBegins {
                node.runtime.hang_forgets(true);
                node.want(&[&job]).await;
                tokio::time::sleep(secs(1)).await;
            }
            node.want(&[]).await;
            if back == BeforeItsRemovalBegins {
                tokio::time::sleep(secs(4)).await;
                node.runtime.hang_forgets(false);
            }
            node.want(&[&job]).await;
        }
        tokio::time::sleep(secs(20)).await;
        let starts = node.runtime.starts().iter().filter(|uid| *uid == job.uid()).count();
        assert_eq!((starts, node.runtime.runs(job.uid())), (2, true), "{back:?} {has_completed}");
        assert_eq!(node.said(&job), ("Running".into(), String::new()), "{back:?}");
        // It is not dropped any more: an operator's kill does not make it a new pod.
        node.workers.kill_pod(job.clone(), KillRequest::new(KillReason::Operator)).await.unwrap();
        tokio::time::sleep(secs(20)).await;
        assert!(!node.runtime.runs(job.uid()), "{back:?}: it would run twice");
    }
}

/// A disk is broken, for example.
#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_does_not_wait_for_a_removal_that_fails() {
    let node = node(FakeRuntime::default());
    let web = pod("web", "Always");
    node.want(&[&web]).await;
    node.runtime.forget_fails(1000);
    node.runtime.stop_takes(web.uid(), Duration::from_secs(1));
    node.want(&[]).await;
    node.want(&[&web]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(node.runtime.starts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_manifest_went_while_no_agent_ran_gets_the_grace_that_the_runtime_has_kept() {
    for (kept, gets) in [(Some(20), 20), (None, 30)] {
        let runtime = FakeRuntime::default();
        let web = pod_with("web", "web", |pod| {
            pod.spec.get_or_insert_default().termination_grace_period_seconds = kept;
        });
        runtime.stop_takes(web.uid(), Duration::from_secs(100));
        runtime.sync_pod(&web).await.unwrap();
        let node = node(runtime);
        node.want(&[]).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(node.runtime.graces(web.uid()), [Duration::from_secs(gets)], "{kept:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_agent_asked_for_is_not_asked_for_again_if_the_runtime_refuses_it() {
    let runtime = FakeRuntime::default();
    let web = pod("web", "Always");
    runtime.sync_pod(&web).await.unwrap();
    runtime.stops_at_shutdown_only(web.uid());
    let before = [(web.uid().clone(), KillRequest::new(KillReason::Drain))].into_iter().collect();
    let node = node_resuming(runtime, before);
    node.want(&[&web]).await;
    assert!(node.runtime.stops().is_empty());
    assert!(!node.workers.is_termination_requested(web.uid()));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_terminated_has_not_succeeded_when_admission_opens_again() {
    let node = node(FakeRuntime::default());
    let job = pod("job", "Never");
    node.want(&[&job]).await;
    node.gate.send_replace(GateState::Shut);
    node.workers.kill_pod(job.clone(), shutdown()).await.unwrap();
    assert_eq!(node.said(&job), ("Failed".into(), "Terminated".into()));
    node.gate.send_replace(GateState::Open);
    settle().await;
    assert_eq!(node.said(&job), ("Failed".into(), "Terminated".into()));
    assert_eq!(node.runtime.starts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_says_so_in_the_kubelets_words_and_is_asked_again_when_admission_opens() {
    let node = node(FakeRuntime::default());
    let web = pod("web", "Always");
    node.gate.send_replace(GateState::Shut);
    node.want(&[&web]).await;
    let status = node.statuses.get(web.uid()).unwrap();
    assert_eq!(status.reason.as_deref(), Some("NodeShutdown"));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected as the node is shutting down."));
    node.gate.send_replace(GateState::Open);
    settle().await;
    assert_eq!(node.said(&web), ("Running".into(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_arrives_before_the_node_has_decided_waits_and_is_not_refused() {
    for (decided, phase, reason) in
        [(GateState::Open, "Running", ""), (GateState::Shut, "Failed", "NodeShutdown")]
    {
        // As for a pod of an API server: it would be Failed for good.
        let node = node_as(
            FakeRuntime::default(),
            FakeRecorder::default(),
            |admission| admission,
            |intake| intake.with_final_rejections(|_| true),
        );
        let web = pod("web", "Always");
        node.gate.send_replace(GateState::Undecided { why: "nobody knows" });
        settle().await;
        node.want(&[&web]).await;
        assert_eq!(node.said(&web), ("Pending".into(), "WaitingForTurn".into()));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(node.said(&web).0, "Pending");
        node.gate.send_replace(decided);
        settle().await;
        assert_eq!(node.said(&web), (phase.into(), reason.into()), "{decided:?}");
    }
}

/// A kubelet does so when the shutdown was called off.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_shutdown_that_another_agent_runs_again_is_left_alone_and_ends_with_the_next() {
    let node = node(FakeRuntime::default());
    let web = testing::pod("web");
    node.runtime.stops_at_shutdown_only(web.uid());
    node.want(&[&web]).await;
    node.workers.kill_pod(web.clone(), shutdown()).await.unwrap();
    settle().await;
    assert!(node.workers.running().pods.is_empty());
    node.runtime.revive(web.uid());
    tokio::time::sleep(Duration::from_secs(305)).await;
    assert!(node.runtime.runs(web.uid()));
    assert_eq!(node.workers.running().pods.len(), 1);
    assert_eq!(node.runtime.stops(), [web.uid().clone()], "only the shutdown stopped it");
    node.workers.kill_pod(web.clone(), shutdown()).await.unwrap();
    assert!(!node.runtime.runs(web.uid()));
    assert_eq!(node.runtime.stops().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_another_agent_runs_is_no_stray_while_its_source_is_behind() {
    let runtime = FakeRuntime::default();
    let web = testing::pod("web");
    runtime.sync_pod(&web).await.unwrap();
    runtime.stops_at_shutdown_only(web.uid());
    let node = node(runtime);
    node.want(&[]).await;
    assert!(node.runtime.stops().is_empty());
    assert_eq!(node.workers.running().runtime_only.len(), 1, "a shutdown ends it");
    node.want(&[&web]).await;
    assert_eq!(node.workers.running().pods.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_stays_keeps_its_phase_and_comes_back_when_the_shutdown_is_called_off() {
    let node = node(FakeRuntime::default());
    let web = pod("web", "Always");
    node.want(&[&web]).await;
    node.gate.send_replace(GateState::Shut);
    node.workers.kill_pod(web.clone(), reboot()).await.unwrap();
    settle().await;
    assert_eq!(node.said(&web), ("Running".into(), String::new()));
    let said = node.statuses.get(web.uid()).unwrap();
    let ready = said.conditions.iter().flatten().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!((&*ready.status, ready.reason.as_deref()), ("False", Some("NodeReboot")));
    assert!(said.conditions.iter().flatten().all(|c| c.type_ != "DisruptionTarget"));
    assert!(
        node.workers.restarts_on_node(web.uid()) && node.workers.is_known_terminated(web.uid())
    );
    node.gate.send_replace(GateState::Open);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!node.workers.is_termination_requested(web.uid()));
    assert_eq!(node.runtime.starts().len(), 2);
    assert!(node.runtime.forgotten().is_empty(), "its volumes are there still");
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_shutdown_stays_a_disrupted_one_when_an_operator_terminates_it_too() {
    let node = node(FakeRuntime::default());
    let web = pod("web", "Always");
    node.want(&[&web]).await;
    node.runtime.stop_takes(web.uid(), Duration::from_secs(5));
    node.workers.begin_kill(web.clone(), shutdown());
    let status = StatusOverride::failed("Terminated", "by an operator", None);
    let request = KillRequest::new(KillReason::Operator).with_status(status);
    node.workers.kill_pod(web.clone(), request).await.unwrap();
    let said = node.statuses.get(web.uid()).unwrap();
    assert_eq!(said.message.as_deref(), Some("by an operator"));
    let target = said.conditions.iter().flatten().find(|c| c.type_ == "DisruptionTarget");
    assert_eq!(target.and_then(|target| target.message.as_deref()), Some("why"));
}

/// The shutdown is another one, or has become another one: the node does not come back.
#[tokio::test(start_paused = true)]
async fn a_pod_that_was_to_stay_fails_if_it_is_asked_again_without_that_and_never_the_reverse() {
    let drain = || KillRequest { reason: KillReason::Drain, ..shutdown() };
    let removal = KillRequest { reason: KillReason::Operator, ..shutdown() };
    for (first, then, stays) in [
        (reboot(), shutdown(), false),
        (reboot(), drain(), false),
        (reboot(), KillRequest::new(KillReason::Operator), true),
        (shutdown(), reboot(), false),
        (removal, reboot(), false),
    ] {
        let node = node(FakeRuntime::default());
        let web = testing::pod("web");
        node.runtime.stop_takes(web.uid(), Duration::from_secs(5));
        node.want(&[&web]).await;
        node.gate.send_replace(GateState::Shut);
        let case = format!("{first:?} {then:?}");
        node.workers.request_kill(web.clone(), &first);
        settle().await;
        node.workers.kill_pod(web.clone(), then).await.unwrap();
        settle().await;
        let phase = if stays { ("Running", "") } else { ("Failed", "Terminated") };
        assert_eq!(node.said(&web), (phase.0.into(), phase.1.into()), "{case}");
        assert_eq!(node.workers.restarts_on_node(web.uid()), stays, "{case}");
    }
}

/// Nothing would start in its place, and its end now may be before that of pods that need it.
#[tokio::test(start_paused = true)]
async fn a_manifest_that_changes_or_goes_while_the_node_goes_down_costs_its_pod_no_turn() {
    let old = pod("web", "Always");
    let edited = pod("web", "OnFailure");
    let renamed = pod("web2", "OnFailure");
    for (now, starts) in [(Some(&edited), 2), (Some(&renamed), 2), (None, 1)] {
        for is_called_off in [true, false] {
            let node = node(FakeRuntime::default());
            node.want(&[&old]).await;
            node.gate.send_replace(GateState::Shut);
            node.want(now.as_slice()).await;
            let case = format!("{:?} {is_called_off}", now.map(Pod::uid));
            assert!(node.runtime.stops().is_empty(), "{case}");
            if is_called_off {
                node.gate.send_replace(GateState::Open);
                tokio::time::sleep(Duration::from_secs(5)).await;
                assert_eq!(node.runtime.stops(), [old.uid().clone()], "{case}");
                assert_eq!(node.runtime.starts().len(), starts, "{case}");
                continue;
            }
            let stopped = node.workers.kill_pod(old.clone(), shutdown()).await.unwrap();
            assert_eq!(stopped.containers.len(), 1, "{case}");
            tokio::time::sleep(Duration::from_secs(400)).await;
            assert_eq!(node.runtime.starts().len(), 1, "{case}");
            node.gate.send_replace(GateState::Open);
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(node.runtime.starts().len(), starts, "{case}");
        }
    }
}

/// The agent was restarted after the manifest had gone.
#[tokio::test(start_paused = true)]
async fn a_pod_without_a_manifest_has_its_turn_under_the_next_agent_too() {
    for is_cancelled_before in [true, false] {
        let (runtime, web) = (FakeRuntime::default(), pod("web", "Always"));
        runtime.sync_pod(&web).await.unwrap();
        let node = node(runtime);
        node.gate.send_replace(GateState::Undecided { why: "" });
        node.want(&[]).await;
        node.gate.send_replace(GateState::Shut);
        tokio::time::sleep(Duration::from_secs(400)).await;
        let found = node.workers.running().runtime_only;
        assert_eq!((node.runtime.stops().len(), found.len()), (0, 1));
        if !is_cancelled_before {
            node.workers.kill_pod(Pod::of_runtime(&found[0]), shutdown()).await.unwrap();
        }
        node.gate.send_replace(GateState::Open);
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert_eq!(node.runtime.stops(), [web.uid().clone()], "{is_cancelled_before}");
    }
}

/// A run whose plan has the pod asks it when its turn comes.
#[tokio::test(start_paused = true)]
async fn a_pod_that_was_deleted_while_the_node_goes_down_is_known_to_have_exited() {
    let node = node(FakeRuntime::default());
    let web = testing::pod("web");
    node.want(&[&web]).await;
    node.gate.send_replace(GateState::Shut);
    node.want(&[]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(node.workers.lifecycle(web.uid()), None, "it is forgotten");
    let stopped = node.workers.kill_pod(web.clone(), shutdown()).await.unwrap();
    assert!(!stopped.nothing_ran && stopped.containers.len() == 1, "{stopped:?}");
    assert!(stopped.stopped_at.unwrap() + Duration::from_secs(4) < Instant::now());
    assert!(node.workers.running().pods.is_empty());
    node.gate.send_replace(GateState::Open);
    settle().await;
    let stopped = node.workers.kill_pod(web.clone(), shutdown()).await.unwrap();
    assert!(stopped.containers.is_empty(), "it was another shutdown");
}

/// The first shutdown, a reboot, was cancelled while the pod was terminating, and the second one as well.
#[tokio::test(start_paused = true)]
async fn an_api_pod_that_has_failed_after_all_does_not_start_again() {
    let node = node(FakeRuntime::default());
    let web = testing::pod("web");
    node.runtime.stop_takes(web.uid(), Duration::from_secs(5));
    node.want(&[&web]).await;
    node.workers.request_kill(web.clone(), &reboot());
    for state in [GateState::Shut, GateState::Open, GateState::Shut] {
        node.gate.send_replace(state);
        settle().await;
    }
    node.workers.kill_pod(web.clone(), shutdown()).await.unwrap();
    node.gate.send_replace(GateState::Open);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(node.said(&web), ("Failed".into(), "Terminated".into()));
    assert_eq!(node.runtime.starts().len(), 1);
}

/// The pod would have failed in the API otherwise: a refusal is final for its pods.
#[tokio::test(start_paused = true)]
async fn a_pod_that_stays_is_not_refused_by_the_next_agent_of_the_shutdown() {
    let runtime = FakeRuntime::default();
    let api = pod_with("db", "db", |pod| {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_SOURCE_ANNOTATION.into(), "api".into());
    });
    runtime.sync_pod(&api).await.unwrap();
    runtime.exit(api.uid(), 0);
    let asked = PodUidMap::from_iter([(api.uid().clone(), reboot())]);
    let node = node_resuming(runtime, asked);
    node.gate.send_replace(GateState::Shut);
    node.want(&[&api]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(node.said(&api), ("Running".into(), String::new()));
    assert_eq!(node.runtime.starts().len(), 1, "it waits for the node");
    assert!(node.workers.restarts_on_node(api.uid()));
    node.gate.send_replace(GateState::Open);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!node.workers.is_termination_requested(api.uid()));
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_left_is_kept_until_its_source_has_said_that_it_is_not_wanted() {
    let runtime = FakeRuntime::default();
    let (db, gone) = (pod("db", "Always"), pod("gone", "Always"));
    for pod in [&db, &gone] {
        runtime.sync_pod(pod).await.unwrap();
        runtime.exit(pod.uid(), 0);
    }
    let node = node(runtime);
    node.want_of(&[], false).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(node.runtime.forgotten().is_empty());
    node.want(&[&db]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.runtime.forgotten(), [gone.uid().clone()]);
}

/// Its Secret is missing, for example.
#[tokio::test(start_paused = true)]
async fn what_runs_or_is_left_of_a_pod_that_its_source_cannot_hand_over_yet_stays() {
    let runtime = FakeRuntime::default();
    let (db, web) = (pod("db", "Always"), pod("web", "Always"));
    for pod in [&db, &web] {
        runtime.sync_pod(pod).await.unwrap();
    }
    runtime.exit(db.uid(), 0);
    let node = node(runtime);
    let waiting = [&db, &web].map(|pod| pod.uid().clone());
    let wanted = DesiredPods { waiting: waiting.into(), ..DesiredPods::all(Vec::new()) };
    node.desired.send_replace(Some(Arc::new(wanted)));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(node.runtime.runs(web.uid()) && node.runtime.forgotten().is_empty());
    node.want(&[&db]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!node.runtime.runs(web.uid()));
    assert_eq!(node.runtime.forgotten(), [web.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_lame_duck_has_no_ready_pod_and_volumes_are_those_of_the_runtime() {
    let node = node(FakeRuntime::default());
    let (web, late) = (pod("web", "Always"), pod("late", "Always"));
    let ready = |pod: &Pod| {
        let status = node.statuses.get(pod.uid()).unwrap();
        let mut conditions = status.conditions.iter().flatten();
        conditions.any(|c| c.type_ == "Ready" && c.status == "True")
    };
    node.want(&[&web]).await;
    assert!(ready(&web));
    node.workers.lame_duck(GateReason::Shutdown, true);
    assert!(!ready(&web));
    node.want(&[&web, &late]).await;
    assert!(!ready(&late));
    node.workers.lame_duck(GateReason::Shutdown, false);
    assert!(ready(&web) && ready(&late));

    node.runtime.mounted(web.uid(), ["/var/lib/winddown/pods/web/data"]);
    node.runtime.clean_takes(web.uid(), Duration::from_secs(5));
    node.workers.kill_pod(web.clone(), shutdown()).await.unwrap();
    let soon = Instant::now() + Duration::from_secs(1);
    let left = node.workers.volumes_released(web.uid(), soon).await;
    assert_eq!(left, ["/var/lib/winddown/pods/web/data"]);
    let later = Instant::now() + Duration::from_secs(60);
    assert!(node.workers.volumes_released(web.uid(), later).await.is_empty());
    assert_eq!(node.runtime.cleaned(), [web.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_had_finished_before_it_was_asked_keeps_its_success() {
    let node = node(FakeRuntime::default());
    let job = pod("job", "Never");
    node.want(&[&job]).await;
    node.runtime.exit(job.uid(), 0);
    settle().await;
    node.workers.kill_pod(job.clone(), shutdown()).await.unwrap();
    assert_eq!(node.said(&job), ("Succeeded".into(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_fails_at_the_start_is_asked_until_it_answers() {
    let runtime = FakeRuntime::default();
    runtime.fail(true);
    let node = node(runtime);
    let web = pod("web", "Always");
    node.want(&[&web]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(node.runtime.starts().is_empty());
    node.runtime.fail(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.said(&web).0, "Running");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_manifest_cannot_be_read_after_a_restart_is_left_alone_until_it_can() {
    let runtime = FakeRuntime::default();
    let (kept, hidden) = (pod("kept", "Always"), pod("hidden", "Always"));
    runtime.sync_pod(&kept).await.unwrap();
    runtime.sync_pod(&hidden).await.unwrap();
    let node = node(runtime);
    node.want_of(&[&kept], false).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(node.runtime.stops().is_empty());
    node.want(&[&kept, &hidden]).await;
    assert_eq!(node.said(&hidden).0, "Running");
    assert_eq!(node.runtime.starts().len(), 2, "neither was started again");
    node.want(&[&kept]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.runtime.stops(), [hidden.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn remains_that_cannot_be_removed_keep_new_pods_waiting_for_one_call_only() {
    let node = node(FakeRuntime::default());
    let gone: Vec<Pod> = (0..20).map(|i| testing::pod(&format!("gone{i}"))).collect();
    let (kept, new) = (pod("kept", "Always"), pod("new", "Always"));
    let mut want: Vec<&Pod> = gone.iter().collect();
    want.push(&kept);
    node.want(&want).await;
    node.runtime.hang_forgets(true);
    node.want(&[&kept]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.want(&[&kept, &new]).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(node.said(&new).0, "Running");
    node.runtime.hang_forgets(false);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(node.runtime.forgotten().len(), gone.len());
}

#[tokio::test(start_paused = true)]
async fn a_pod_from_before_the_start_that_is_refused_a_restart_is_not_stopped_as_a_stray() {
    let runtime = FakeRuntime::default();
    let kept = pod("kept", "Always");
    runtime.sync_pod(&kept).await.unwrap();
    let full = watch::Sender::new(GateState::Open);
    let checks = |admission: Admission| admission.then(Gate(full.subscribe()));
    let node = node_with(runtime, FakeRecorder::default(), checks, &VictimLock::new());
    node.want(&[&kept]).await;
    node.gate.send_replace(GateState::Shut);
    node.workers.kill_pod(kept.clone(), shutdown()).await.unwrap();
    full.send_replace(GateState::Shut);
    node.gate.send_replace(GateState::Open);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(node.said(&kept).1, "NodeShutdown", "there is no room for it");
    node.want(&[&kept]).await;
    assert_eq!(node.runtime.stops(), [kept.uid().clone()], "only the shutdown stopped it");
}

/// Reads all others, and records how many pods were visited for that.
struct Looking(Arc<AtomicUsize>);

impl AdmitHandler for Looking {
    fn admit(&self, pod: &Pod, others: &OtherPods) -> Result<(), Rejection> {
        let _ = others.used_without(pod, &NodeView::default());
        self.0.store(others.visits(), Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn to_admit_thousands_of_pods_each_is_looked_at_once() {
    let visits = Arc::new(AtomicUsize::new(0));
    let looking = Looking(visits.clone());
    let checks = |admission: Admission| admission.then(looking);
    let node =
        node_with(FakeRuntime::default(), FakeRecorder::default(), checks, &VictimLock::new());
    let pods: Vec<Pod> = (0..2000).map(|i| testing::pod(&format!("p{i}"))).collect();
    node.want(&pods.iter().collect::<Vec<_>>()).await;
    assert_eq!(node.workers.running().pods.len(), pods.len());
    // The first pod is not among those that are read; the last is admitted without counting itself.
    assert!(visits.load(Ordering::Relaxed) < pods.len());
}

/// For every time at which the agent dies, and every time that it is away.
#[tokio::test(start_paused = true)]
async fn a_pod_is_killed_when_that_was_promised_whenever_the_agent_died_and_however_late_the_next_came()
 {
    let (grace, moment) = (Duration::from_secs(4), Duration::from_millis(10));
    for died in (0..=45).map(|tenths| Duration::from_millis(100 * tenths)) {
        for away in [0, 130, 900, 3000].map(Duration::from_millis) {
            let (runtime, web) = (FakeRuntime::default(), pod("web", "Always"));
            runtime.sync_pod(&web).await.unwrap();
            runtime.stop_takes(web.uid(), Duration::from_secs(3600));
            let (asked, booted) = (Instant::now(), Duration::from_secs(1000));
            let kill = EarlierKill::new(KillRequest::new(KillReason::Eviction), booted + grace);
            tokio::time::sleep(died + away).await;
            let kills = PodUidMap::from_iter([(web.uid().clone(), kill)]);
            let clock = BootClock::new(move || booted + asked.elapsed());
            let with = |intake: Intake<FakeRuntime>| intake.with_earlier_kills(kills, clock);
            let node = node_as(runtime, FakeRecorder::default(), |admission| admission, with);
            node.want(&[&web]).await;
            while node.runtime.runs(web.uid()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let (had, promised) = (asked.elapsed(), grace.max(died + away));
            assert!(had.abs_diff(promised) <= moment, "{died:?}, {away:?}: {had:?}");
        }
    }
}
