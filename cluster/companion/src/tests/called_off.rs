//! Shutdowns that were called off: what the kubelet runs again, beside a whole agent, and the next shutdown.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep, timeout};
use winddown_shared::status::StatusStore;
use winddown_shared::{
    Admission, BootClock, EarlierKill, Grace, Intake, KillError, KillReason, KillRequest,
    Lifecycle, Pod, PodKiller, PodRuntimeStatus, PodStopped, PodUid, PodUidMap, PodWorkers,
    Recorder, Runtime, RuntimeError, RuntimePod, RuntimeSyncer, SyncedPod, WallClock, WallTime,
};

use super::super::stop::StopCore;
use super::pods::*;
use super::world::*;

/// The agent's runtime, in place of a `KubeletRuntime`.
pub(super) struct Kubelet(Arc<StopCore<World, World>>);

type Workers = PodWorkers<RuntimeSyncer<Kubelet>>;

impl Runtime for Kubelet {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        Ok(self.0.sync(pod).into())
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        self.0.stop(uid, pod, grace).await
    }

    async fn clean_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        self.0.give_network_back(uid).await.unwrap();
        let held = self.0.held(uid).await.unwrap();
        let failed = |what| Err(RuntimeError::Failed { what, source: None });
        held.into_iter().next().map_or(Ok(()), failed)
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        self.0.known.forget(uid);
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        Ok(self.0.known.status(uid).unwrap_or_default())
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        Ok(self.0.known.list())
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.0.known.changes()
    }

    fn refuses_stop(&self, uid: &PodUid, reason: KillReason) -> Option<Arc<str>> {
        self.0.refuses_stop(uid, reason)
    }
}

/// Starts the agent's workers and its intake, and returns when they have the pods.
pub(super) async fn agent(core: &Arc<StopCore<World, World>>) -> Workers {
    agent_after(core, PodUidMap::default()).await
}

/// The same after an agent that requested these kills. The boot begins with it.
async fn agent_after(core: &Arc<StopCore<World, World>>, kills: PodUidMap<EarlierKill>) -> Workers {
    let runtime = Arc::new(Kubelet(Arc::clone(core)));
    let recorder: Arc<dyn Recorder> = Arc::new(());
    let (statuses, wall) = (StatusStore::default(), WallClock::fixed(WallTime::UNIX_EPOCH));
    let syncer =
        RuntimeSyncer::new(Arc::clone(&runtime), statuses.clone(), Arc::clone(&recorder), wall);
    let workers = PodWorkers::new(syncer.beside_a_kubelet(), Arc::clone(&recorder));
    let intake = Intake::new(runtime, workers.clone(), statuses, Admission::default(), recorder)
        .with_earlier_kills(kills, BootClock::new(|| Duration::ZERO));
    tokio::spawn(intake.run(core.known.desired()));
    tokio::spawn(RuntimeSyncer::forward_runtime_changes(workers.clone()));
    sleep(secs(1)).await;
    workers
}

/// Ends a pod as a shutdown does.
pub(super) async fn shut_down(
    workers: &Workers,
    core: &StopCore<World, World>,
    name: &str,
    grace: u64,
) -> Result<Arc<PodStopped>, KillError> {
    let pod = core.known.look(&uid(name)).unwrap().pod;
    let grace = Some(secs(grace));
    let request = KillRequest::new(KillReason::Shutdown).with_grace(grace);
    workers.kill_pod(pod, request).await
}

/// The kubelet starts another container of the pod, and the API server learns of it.
async fn start_again(world: &World, name: &str, metadata: &Value) {
    let mut another = running();
    another["containerID"] = json!("containerd://2");
    let status = json!({"containerStatuses": [another]});
    world.runs_inside(uid(name).as_str());
    world.apply(pod(name, json!({"metadata": metadata, "status": status})));
    sleep(secs(1)).await;
}

/// Nothing ends the pod `web` while the runtime is listed twice, and the next shutdown ends it.
async fn is_left_alone_until_the_next(
    world: &World,
    workers: &Workers,
    core: &StopCore<World, World>,
) {
    let before = world.log().len();
    sleep(secs(700)).await;
    assert_eq!(world.log().split_off(before), [""; 0]);
    assert!(world.has_running("web"));
    world.set_going_down();
    shut_down(workers, core, "web", 60).await.unwrap();
    let log = world.log();
    assert!(log[before].ends_with(": evict web 60"), "{log:?}");
    assert!(!world.has_running("web"));
}

fn mirror() -> Value {
    json!({"annotations": {"kubernetes.io/config.mirror": "hash"}})
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_again_after_a_shutdown_was_called_off_ends_with_the_next_one() {
    for (unmounts_after, lifecycle) in [(0, Lifecycle::Finished), (1000, Lifecycle::Terminated)] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        let workers = agent(&core).await;
        world.end_in_kernel("web");
        world.state().unmounts_after = secs(unmounts_after);
        world.set_api_away(true);
        world.set_going_down();
        shut_down(&workers, &core, "web", 60).await.unwrap();
        sleep(secs(20)).await;
        assert_eq!(workers.lifecycle(&uid("web")), Some(lifecycle));

        world.set_staying_up();
        world.set_api_away(false);
        sleep(secs(20)).await;
        assert_eq!(workers.lifecycle(&uid("web")), Some(lifecycle), "it does not run yet");
        start_again(&world, "web", &json!({})).await;
        assert_eq!(workers.lifecycle(&uid("web")), Some(Lifecycle::Syncing));
        is_left_alone_until_the_next(&world, &workers, &core).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ran_again_before_a_shutdown_was_called_off_is_not_evicted_either() {
    let (world, core) = World::new([pod("web", json!({}))]).await;
    // As in k3s.
    world.state().kubelet_is_service = false;
    let workers = agent(&core).await;
    world.set_api_away(true);
    world.set_going_down();
    shut_down(&workers, &core, "web", 60).await.unwrap();
    world.set_api_away(false);
    sleep(secs(20)).await;
    start_again(&world, "web", &json!({})).await;
    assert_eq!(workers.lifecycle(&uid("web")), Some(Lifecycle::Terminated), "it has its network");
    world.set_staying_up();
    sleep(secs(20)).await;
    assert_eq!(workers.lifecycle(&uid("web")), Some(Lifecycle::Syncing));
    is_left_alone_until_the_next(&world, &workers, &core).await;
}

#[tokio::test(start_paused = true)]
async fn a_manifests_pod_that_runs_again_holds_nothing_of_the_run_that_a_shutdown_ended() {
    let (world, core) = World::new([pod("etcd", json!({"metadata": mirror()}))]).await;
    // As in k3s.
    world.state().kubelet_is_service = false;
    let workers = agent(&core).await;
    world.set_going_down();
    shut_down(&workers, &core, "etcd", 30).await.unwrap();
    world.set_staying_up();
    sleep(secs(60)).await;
    assert_eq!(core.held(&uid("etcd")).await.unwrap(), ["its network"]);
    assert_eq!(workers.lifecycle(&uid("etcd")), Some(Lifecycle::Terminated));
    start_again(&world, "etcd", &mirror()).await;
    assert_eq!(core.held(&uid("etcd")).await.unwrap(), [""; 0]);
    assert_eq!(workers.lifecycle(&uid("etcd")), Some(Lifecycle::Syncing));
    world.set_going_down();
    assert_eq!(core.held(&uid("etcd")).await.unwrap(), ["its network"]);
    shut_down(&workers, &core, "etcd", 30).await.unwrap();
    assert!(!world.has_running("etcd"));
}

#[tokio::test(start_paused = true)]
async fn a_manifests_pod_whose_end_was_called_off_runs_on_and_has_its_whole_grace_next_time() {
    let pods = [pod("etcd", json!({"metadata": mirror()})), pod("web", json!({}))];
    let (world, core) = World::new(pods).await;
    let workers = agent(&core).await;
    world.set_going_down();
    let stopping = tokio::spawn({
        let (workers, core) = (workers.clone(), Arc::clone(&core));
        async move { shut_down(&workers, &core, "etcd", 10).await }
    });
    // It waits until no other pod needs the kubelet.
    sleep(secs(2)).await;
    world.set_staying_up();
    let error = stopping.await.unwrap().unwrap_err();
    assert!(matches!(error, KillError::Refused { .. }), "{error}");
    sleep(secs(1)).await;
    assert_eq!(workers.lifecycle(&uid("etcd")), Some(Lifecycle::Syncing));
    assert_eq!(core.refuses_stop(&uid("etcd"), KillReason::Shutdown), None);
    sleep(secs(700)).await;
    assert_eq!(world.log(), [""; 0]);

    world.set_going_down();
    has_its_whole_grace(&world, &workers, &core).await;
}

async fn has_its_whole_grace(world: &World, workers: &Workers, core: &Arc<StopCore<World, World>>) {
    shut_down(workers, core, "etcd", 60).await.unwrap();
    let log = world.log();
    let stop = log.iter().find(|line| line.contains("stop uid-etcd")).unwrap();
    assert!(stop.ends_with("stop uid-etcd 30"), "half of it was waited: {stop}");
}

/// The next agent takes the request up before it is decided whether the shutdown resumes.
#[tokio::test(start_paused = true)]
async fn a_manifests_pod_of_a_shutdown_cancelled_without_an_agent_runs_on_and_ends_in_its_turn() {
    for is_said in [false, true] {
        let pods = [pod("etcd", json!({"metadata": mirror()})), pod("web", json!({}))];
        let (world, core) = World::new(pods).await;
        let kill = EarlierKill::new(KillRequest::new(KillReason::Shutdown), secs(20));
        let workers = agent_after(&core, [(uid("etcd"), kill)].into_iter().collect()).await;
        assert_eq!(workers.lifecycle(&uid("etcd")), Some(Lifecycle::Terminating), "it may go on");
        assert_eq!(
            core.refuses_stop(&uid("etcd"), KillReason::Shutdown),
            None,
            "so may the shutdown"
        );
        if is_said {
            world.set_staying_up();
        } else {
            sleep(secs(60)).await;
        }
        sleep(secs(1)).await;
        assert_eq!(workers.lifecycle(&uid("etcd")), Some(Lifecycle::Syncing), "{is_said}");

        world.set_going_down();
        sleep(secs(20)).await;
        assert_eq!(world.log(), [""; 0], "its turn has not come");
        has_its_whole_grace(&world, &workers, &core).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifests_pod_that_is_asked_just_before_the_node_goes_down_is_stopped_without_a_retry() {
    let (world, core) = World::new([pod("etcd", json!({"metadata": mirror()}))]).await;
    let workers = agent(&core).await;
    let goes_down = async {
        sleep(Duration::from_millis(10)).await;
        world.set_going_down();
    };
    let (stopped, ()) = tokio::join!(shut_down(&workers, &core, "etcd", 30), goes_down);
    stopped.unwrap();
    assert_eq!(world.log()[..2], ["1: stop the kubelet", "1: stop uid-etcd 30"]);
}

/// Without the node's object no kubelet creates another one.
#[tokio::test(start_paused = true)]
async fn a_manifests_pod_whose_mirror_pod_is_deleted_as_the_node_goes_down_keeps_its_turn_and_grace()
 {
    let of = |more: Value| {
        let mut metadata = json!({"annotations": {
            "kubernetes.io/config.mirror": "uid-static", "kubernetes.io/config.hash": "uid-static",
        }});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pod("etcd", json!({"metadata": metadata}))
    };
    let marked =
        json!({"deletionTimestamp": "2033-05-18T03:33:20Z", "deletionGracePeriodSeconds": 30});
    for (is_gone, is_before, known_as) in
        [(false, false, "etcd"), (true, false, "static"), (true, true, "static")]
    {
        let (world, core) = World::new([of(json!({})), pod("web", json!({}))]).await;
        let workers = agent(&core).await;
        world.state().takes = secs(40);
        let delete = async || {
            world.apply(of(marked.clone()));
            if is_gone {
                world.remove("etcd");
            }
            sleep(secs(1)).await;
        };
        if is_before {
            delete().await;
        }
        world.set_going_down();
        let web = tokio::spawn({
            let (workers, core) = (workers.clone(), Arc::clone(&core));
            async move { shut_down(&workers, &core, "web", 60).await }
        });
        sleep(secs(1)).await;
        if !is_before {
            delete().await;
        }
        web.await.unwrap().unwrap();
        let log = world.log();
        assert!(
            log.iter().all(|line| !line.contains("kubelet") && !line.contains("static")),
            "{log:?}"
        );
        shut_down(&workers, &core, known_as, 60).await.unwrap();
        let log = world.log();
        assert!(log.iter().any(|line| line.ends_with("stop uid-static 60")), "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_which_a_shutdown_is_called_off_goes_on_with_the_next_one() {
    for kernel_tells in [false, true] {
        let (world, core) = World::new([pod("web", json!({}))]).await;
        world.state().takes = secs(600);
        world.state().kernel_tells = kernel_tells;
        world.state().lags = secs(if kernel_tells { 600 } else { 0 });
        world.set_going_down();
        let (sender, grace) = Grace::until(Instant::now() + secs(600));
        let stopping = tokio::spawn(async move { core.stop(&uid("web"), None, grace).await });
        sleep(secs(5)).await;
        world.set_staying_up();
        sleep(secs(20)).await;
        world.state().kubelet_dead = true;
        world.set_going_down();
        sender.shorten_to(Instant::now() + secs(10));
        let stopped = timeout(secs(60), stopping).await;
        assert!(stopped.is_ok(), "{kernel_tells} {:?}", world.log());
        assert_eq!(world.elapsed_ms() / 1000, 35, "{kernel_tells} {:?}", world.log());
    }
}
