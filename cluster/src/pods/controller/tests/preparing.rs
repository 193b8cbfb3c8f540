//! Pods that wait for what they refer to.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1 as api;
use tokio::sync::mpsc;
use winddown_shared::{CONFIG_SOURCE_ANNOTATION, Pod, PodUid, Rejection};

use super::world::{World, pod};
use crate::pods::{AdmittedPods, Judgement, NodeAdmission, Prepare, PrepareError};

const S: Duration = Duration::from_secs(1);

/// Knows whether the one ConfigMap exists, and turns it into a variable.
#[derive(Clone)]
struct OneConfigMap(Arc<State>);

struct State {
    answer: Mutex<Option<PrepareError>>,
    log: Mutex<Vec<String>>,
    arrived: mpsc::Sender<PodUid>,
    arrivals: Mutex<Option<mpsc::Receiver<PodUid>>>,
}

impl OneConfigMap {
    fn new(answer: Option<PrepareError>) -> Self {
        let (arrived, arrivals) = mpsc::channel(8);
        let arrivals = Mutex::new(Some(arrivals));
        Self(Arc::new(State {
            answer: Mutex::new(answer),
            log: Mutex::default(),
            arrived,
            arrivals,
        }))
    }

    fn log(&self, line: String) {
        self.0.log.lock().unwrap().push(line);
    }

    fn logged(&self) -> Vec<String> {
        self.0.log.lock().unwrap().clone()
    }
}

impl Prepare for OneConfigMap {
    async fn prepare(&self, pod: &Pod) -> Result<Pod, PrepareError> {
        self.log(format!("prepare {}", pod.uid()));
        if let Some(error) = self.0.answer.lock().unwrap().clone() {
            return Err(error);
        }
        let mut object = pod.object().clone();
        object.spec.as_mut().unwrap().containers[0].env = Some(vec![api::EnvVar {
            name: "FROM_CONFIG".into(),
            value: Some("literal".into()),
            value_from: None,
        }]);
        Ok(Pod::new(object).unwrap())
    }

    fn adopt(&self, given: &Pod) {
        self.log(format!("adopt {}", given.uid()));
    }

    fn refresh(&self, pod: &Pod) {
        self.log(format!("refresh {}", pod.uid()));
    }

    async fn forget(&self, uid: &PodUid) {
        self.log(format!("forget {uid}"));
    }

    fn arrivals(&self) -> Option<mpsc::Receiver<PodUid>> {
        self.0.arrivals.lock().unwrap().take()
    }
}

fn missing(is_for_volume: bool) -> PrepareError {
    PrepareError::Missing {
        kind: "ConfigMap",
        name: "settings".into(),
        is_for_volume,
        message: "configmap \"settings\" not found".into(),
    }
}

fn waiting_reason(world: &World) -> Option<String> {
    let said = world.said("u1").pop()?;
    let containers = said.status.container_statuses.clone()?;
    containers[0].state.clone()?.waiting?.reason
}

#[tokio::test(start_paused = true)]
async fn a_missing_configmap_shows_as_the_kubelet_shows_it() {
    for (is_for_volume, reason) in
        [(true, "ContainerCreating"), (false, "CreateContainerConfigError")]
    {
        let world = World::new();
        let prepare = OneConfigMap::new(Some(missing(is_for_volume)));
        world.start_preparing(world.config(), prepare).ready().await;
        world.apply(pod("a", "u1"));
        world.until("it waits", |w| waiting_reason(w).as_deref() == Some(reason)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_configmap_starts_the_pod_at_once() {
    // https://github.com/virtual-kubelet/virtual-kubelet/issues/158
    let world = World::new();
    let prepare = OneConfigMap::new(Some(missing(false)));
    world.start_preparing(world.config(), prepare.clone()).ready().await;
    world.apply(pod("a", "u1"));
    tokio::time::sleep(2000 * S).await;
    assert_eq!(waiting_reason(&world).as_deref(), Some("CreateContainerConfigError"));
    assert_eq!(world.phase("u1").as_deref(), Some("Pending"));
    assert_eq!(world.calls("create"), 0);
    *prepare.0.answer.lock().unwrap() = None;
    let before = world.since_start();
    prepare.0.arrived.send(PodUid::new("u1")).await.unwrap();
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    assert!(world.since_start() - before < S);
    let env = world.with(|s| s.running["u1"].pod.spec.as_ref().unwrap().containers[0].env.clone());
    assert_eq!(env.unwrap()[0].name, "FROM_CONFIG");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_prepared_is_tried_again_only_when_the_spec_changes() {
    let world = World::new();
    let invalid = PrepareError::Invalid { field: "spec.volumes[0]".into(), why: "no".into() };
    let prepare = OneConfigMap::new(Some(invalid));
    world.start_preparing(world.config(), prepare.clone()).ready().await;
    world.apply(pod("a", "u1"));
    world.holds_for(1000 * S, "it waits", |w| w.calls("create") == 0).await;
    assert_eq!(prepare.logged(), ["prepare u1"]);
    *prepare.0.answer.lock().unwrap() = None;
    world.edit("u1", |p| p.spec.as_mut().unwrap().containers[0].image = Some("image:2".into()));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
}

#[tokio::test(start_paused = true)]
async fn an_update_needs_nothing_that_was_resolved_before() {
    // https://github.com/virtual-kubelet/virtual-kubelet/issues/649
    let world = World::new();
    let prepare = OneConfigMap::new(None);
    world.start_preparing(world.config(), prepare.clone()).ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    *prepare.0.answer.lock().unwrap() = Some(missing(false));
    world.holds_for(900 * S, "what was resolved is no change", |w| w.calls("update") == 0).await;
    world.edit("u1", |p| p.metadata.labels = Some([("a".into(), "b".into())].into()));
    world.until("it is updated", |w| w.calls("update u1") == 1).await;
    let env = world.with(|s| s.running["u1"].pod.spec.as_ref().unwrap().containers[0].env.clone());
    assert_eq!(env.unwrap()[0].name, "FROM_CONFIG");
    world.delete("u1", 10);
    world.until("it goes", |w| w.calls("forget u1") == 1).await;
    tokio::time::sleep(S).await;
    assert_eq!(prepare.logged(), ["prepare u1", "refresh u1", "forget u1", "forget u1"]);
}

/// Takes ten seconds, as while the API server is slow.
struct Slow;

impl Prepare for Slow {
    async fn prepare(&self, pod: &Pod) -> Result<Pod, PrepareError> {
        tokio::time::sleep(10 * S).await;
        Ok(pod.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_while_it_is_prepared_never_starts() {
    let world = World::new();
    world.start_preparing(world.config(), Slow).ready().await;
    world.apply(pod("a", "u1"));
    tokio::time::sleep(S).await;
    world.delete("u1", 30);
    world.until("it is removed", |w| w.object("u1").is_none()).await;
    world.until("it is forgotten", |w| w.with(|s| s.kept.is_empty())).await;
    assert_eq!(world.calls("create"), 0);
}

/// virtual-kubelet: a hung call pins one worker. The kubelet has a goroutine for each pod.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pod_does_not_wait_for_what_other_pods_refer_to() {
    let world = World::new();
    world.start_preparing(world.config(), Slow).ready().await;
    world.apply(pod("a", "u1"));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    for n in 0..40 {
        world.apply(pod(&format!("b{n}"), &format!("b{n}")));
    }
    tokio::time::sleep(S).await;
    world.delete("u1", 30);
    tokio::time::sleep(S).await;
    assert_eq!(world.calls("delete u1 30s"), 1);
    // One that waits for its turn is not prepared when it is deleted meanwhile.
    world.delete("b39", 30);
    world.until("the others run", |w| w.calls("create b") == 39).await;
    world.until("it is removed", |w| w.object("b39").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn for_a_pod_that_the_node_refuses_nothing_is_resolved_nor_kept() {
    let world = World::new();
    let prepare = OneConfigMap::new(None);
    let mut config = world.config();
    // The node has room again before it has the pod.
    let refused = || Rejection::new("OutOfcpu", "no room");
    config.admission = Some(NodeAdmission {
        judge: Arc::new(move |_| ready(Judgement::Refused(refused())).boxed()),
        supports: Arc::new(|_| Ok(())),
        resize: Arc::new(move |_| Err(refused())),
        admitted: AdmittedPods::default(),
    });
    world.start_preparing(config, prepare.clone()).ready().await;
    world.apply(pod("a", "u1"));
    world.until("it fails", |w| failure(w).as_deref() == Some("OutOfcpu")).await;
    assert!(!prepare.logged().contains(&"prepare u1".to_owned()), "{:?}", prepare.logged());
    assert_eq!(world.calls("create"), 0);
    let kept = world.with(|s| s.kept["u1"].status.as_ref().and_then(|s| s.phase.clone()));
    assert_eq!(kept.as_deref(), Some("Failed"), "the next agent knows that it is over");
    world.delete("u1", 30);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

/// If it failed, a ReplicaSet would make the next one at once, and so on.
#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_cannot_run_waits_until_it_is_changed_and_does_not_fail() {
    let world = World::new();
    let prepare = OneConfigMap::new(None);
    let mut config = world.config();
    let image = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.clone();
    config.admission = Some(NodeAdmission {
        judge: Arc::new(|_| ready(Judgement::Resolve).boxed()),
        supports: Arc::new(move |pod| match image(pod).as_deref() {
            Some("image:1") => Err(PrepareError::Invalid {
                field: "spec.volumes[0].nfs".into(),
                why: "write hostPath".into(),
            }),
            _ => Ok(()),
        }),
        resize: Arc::new(|_| Ok(())),
        admitted: AdmittedPods::default(),
    });
    let mut running = world.start_preparing(config, prepare.clone());
    running.ready().await;
    world.apply(pod("a", "u1"));
    world
        .until("it waits", |w| waiting_reason(w).as_deref() == Some("CreateContainerConfigError"))
        .await;
    let is_waiting = |w: &World| w.phase("u1").as_deref() == Some("Pending");
    world.holds_for(1000 * S, "it waits", |w| is_waiting(w) && w.calls("create") == 0).await;
    assert_eq!(prepare.logged(), ["prepare u1", "forget u1"], "once, and nothing is kept of it");
    let shown = || running.statuses.all().pop().map(|entry| entry.status);
    let state = shown().unwrap().container_statuses.clone().unwrap()[0].state.clone().unwrap();
    let message = state.waiting.unwrap().message;
    assert_eq!(message.as_deref(), Some("spec.volumes[0].nfs: write hostPath"));
    world.edit("u1", |p| p.spec.as_mut().unwrap().containers[0].image = Some("image:2".into()));
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    assert_eq!(running.statuses.all().len(), 1);
    world.apply(pod("b", "u2"));
    world.until("it waits too", |_| running.statuses.all().len() == 2).await;
    world.delete("u2", 0);
    world.until("it is gone", |_| running.statuses.all().len() == 1).await;
}

/// The kubelet overwrites the annotation before anything looks at the pod: pkg/kubelet/config/config.go.
#[tokio::test(start_paused = true)]
async fn a_pod_that_says_it_comes_from_a_file_is_judged_as_one_of_the_api_server() {
    let world = World::new();
    let mut config = world.config();
    let judged = Arc::new(Mutex::new(Vec::new()));
    let seen = judged.clone();
    config.admission = Some(NodeAdmission {
        judge: Arc::new(move |pod| {
            seen.lock().unwrap().push((pod.is_static(), pod.is_critical()));
            ready(Judgement::Resolve).boxed()
        }),
        supports: Arc::new(|_| Ok(())),
        resize: Arc::new(|_| Ok(())),
        admitted: AdmittedPods::default(),
    });
    world.start_with(config).ready().await;
    let mut says = pod("a", "u1");
    let annotations = [(CONFIG_SOURCE_ANNOTATION.to_owned(), "file".to_owned())];
    says.metadata.annotations = Some(annotations.into());
    says.metadata.managed_fields = Some(Vec::new());
    world.apply(says);
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    assert_eq!(*judged.lock().unwrap(), [(false, false)]);
    let prepared = world.calls("update u1");
    world.relist();
    world.holds_for(60 * S, "it is no change", |w| w.calls("update u1") == prepared).await;
    // It was looked up, as a list did not have it.
    world.with(|s| s.empty_lists = true);
    world.relist();
    world.holds_for(60 * S, "it is no change", |w| w.calls("update u1") == prepared).await;
    assert_ne!(world.calls("get u1"), 0);
    let given = world.with(|s| s.running["u1"].pod.clone());
    assert!(!given.is_static() && given.metadata.managed_fields.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_variables_find_no_room_waits_and_holds_nothing_until_there_is() {
    let world = World::new();
    world.with(|s| s.keeps_nothing = true);
    let prepare = OneConfigMap::new(None);
    world.start_preparing(world.config(), prepare.clone()).ready().await;
    world.apply(pod("a", "u1"));
    world.until("it waits", |w| waiting_reason(w).as_deref() == Some("ContainerCreating")).await;
    world.holds_for(60 * S, "it waits", |w| w.calls("create") == 0).await;
    assert_eq!(prepare.logged().last().unwrap(), "forget u1");
    world.with(|s| s.keeps_nothing = false);
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    // What runs is told that it has to terminate, recorded or not.
    world.with(|s| s.keeps_nothing = true);
    world.delete("u1", 10);
    world.until("it goes", |w| w.object("u1").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_made_for_a_pod_goes_with_its_end_and_not_only_with_its_object() {
    let world = World::new();
    let prepare = OneConfigMap::new(None);
    let mut running = world.start_preparing(world.config(), prepare.clone());
    running.ready().await;
    let mut once = pod("a", "u1");
    once.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    world.apply(once);
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    world.ends("u1", 0);
    world.until("it has ended", |w| w.phase("u1").as_deref() == Some("Succeeded")).await;
    assert_eq!(prepare.logged(), ["prepare u1", "forget u1"]);
    let kept = world.with(|s| s.kept["u1"].spec.as_ref().unwrap().containers[0].env.clone());
    assert_eq!(kept, None, "its variables go, too");
    running.stop().await.unwrap();
    let prepare = OneConfigMap::new(None);
    world.start_preparing(world.config(), prepare.clone()).ready().await;
    world.holds_for(60 * S, "it stays", |w| w.phase("u1").as_deref() == Some("Succeeded")).await;
    assert_eq!(prepare.logged(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_runs_since_before_the_start_is_adopted() {
    let world = World::new();
    world.apply(pod("a", "u1"));
    world.runs(pod("a", "u1"), None);
    let prepare = OneConfigMap::new(None);
    world.start_preparing(world.config(), prepare.clone()).ready().await;
    assert_eq!(prepare.logged(), ["adopt u1"]);
}

#[tokio::test(start_paused = true)]
async fn t20_without_preparing_a_pod_reaches_the_node_as_it_is() {
    let world = World::new();
    world.start().ready().await;
    let mut refers = pod("a", "u1");
    let variable = api::EnvVar {
        name: "NAME".into(),
        value: None,
        value_from: Some(api::EnvVarSource {
            field_ref: Some(api::ObjectFieldSelector {
                field_path: "metadata.name".into(),
                api_version: None,
            }),
            ..api::EnvVarSource::default()
        }),
    };
    refers.spec.as_mut().unwrap().containers[0].env = Some(vec![variable.clone()]);
    world.apply(refers);
    world.until("it runs", |w| w.phase("u1").as_deref() == Some("Running")).await;
    let env = world.with(|s| s.running["u1"].pod.spec.as_ref().unwrap().containers[0].env.clone());
    assert_eq!(env, Some(vec![variable]));
    assert_eq!(world.calls("create"), 1);
}

fn failure(world: &World) -> Option<String> {
    let status = world.said("u1").pop()?.status;
    (status.phase.as_deref() == Some("Failed")).then(|| status.reason.clone())?
}

/// A pod that may be active for a minute.
fn for_a_minute() -> api::Pod {
    let mut object = pod("a", "u1");
    object.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
    object
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_is_active_and_fails_when_its_deadline_has_passed() {
    let invalid = PrepareError::Invalid { field: "spec.volumes[0]".into(), why: "no".into() };
    for why in [missing(true), invalid] {
        let world = World::new();
        let prepare = OneConfigMap::new(Some(why));
        world.start_preparing(world.config(), prepare.clone()).ready().await;
        let begun = world.since_start();
        world.apply(for_a_minute());
        world.until("it fails", |w| failure(w).as_deref() == Some("DeadlineExceeded")).await;
        let took = (world.since_start() - begun).as_secs();
        assert!((59..63).contains(&took), "{took}");
        assert_eq!(prepare.logged().last().unwrap(), "forget u1");
        *prepare.0.answer.lock().unwrap() = None;
        world.relist();
        world.holds_for(600 * S, "it never starts", |w| w.calls("create") == 0).await;
    }
}

/// Whether the API has got the status of the pod that waited or not.
#[tokio::test(start_paused = true)]
async fn the_time_that_a_pod_waited_counts_when_it_runs() {
    for acks in [true, false] {
        let world = World::new();
        world.acks(acks);
        let prepare = OneConfigMap::new(Some(missing(false)));
        world.start_preparing(world.config(), prepare.clone()).ready().await;
        let begun = world.since_start();
        world.apply(for_a_minute());
        tokio::time::sleep(40 * S).await;
        *prepare.0.answer.lock().unwrap() = None;
        prepare.0.arrived.send(PodUid::new("u1")).await.unwrap();
        world.until("it runs", |w| w.calls("create u1") == 1).await;
        world.until("it ends", |w| w.calls("delete u1") == 1).await;
        let took = (world.since_start() - begun).as_secs();
        assert!((59..63).contains(&took), "{acks}: {took}");
        world.until("it fails", |w| failure(w).as_deref() == Some("DeadlineExceeded")).await;
    }
}
