//! Beside a kubelet, against an API server: what the protocol has to do with it. What is decided is
//! tested on the paused clock, in the crate.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod kubelet;
mod node;
mod recorded;
pub(crate) mod scene;

use std::time::Duration;

use serde_json::{Value, json};
use winddown_apiserver::Fault;
use winddown_companion::LocalContainers as _;
use winddown_shared::{
    DisruptionBudget, EvictionConstraints, Grace, Pod, PodStopped, PodUid, Runtime, RuntimeError,
};

use recorded::{Inside, Pods};
use scene::{NODE, Scene, kubelets_client, pod};

const SOON: Duration = Duration::from_millis(100);

fn grace(seconds: u64) -> Grace {
    Grace::fixed(Duration::from_secs(seconds))
}

/// A budget for the pods of this app which lets none of them go.
fn budget(app: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
        "status": {
            "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1,
        },
    })
}

async fn stop(scene: &Scene, uid: &PodUid, seconds: u64) -> Result<PodStopped, RuntimeError> {
    let stopping = scene.runtime.stop_pod(uid, None, grace(seconds));
    tokio::time::timeout(Duration::from_secs(90), stopping).await.unwrap()
}

#[tokio::test]
async fn a_pod_is_evicted_and_gone_when_its_stop_resolves() {
    let scene = Scene::new(&[pod("web", &json!({}))], SOON).await;
    let uid = scene.uid("web");
    let stopped = stop(&scene, &uid, 30).await.unwrap();
    assert_eq!(stopped.containers.len(), 1);
    assert!(!stopped.forced());
    assert_eq!(scene.containers.count(), 0);
    assert_eq!(scene.server.count("create", "pods/eviction"), 1);
    assert!(!scene.runtime.pod_status(&uid).await.unwrap().any_running());
}

/// The answers of the real ones are written by `WINDDOWN_WRITE_RECORDED`, in the test of a real kubelet.
#[tokio::test]
async fn a_kubelet_and_an_api_server_for_tests_answer_as_the_real_ones_did() {
    let owner =
        json!({"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "", "controller": true});
    let mirror = json!({
        "annotations": {"kubernetes.io/config.mirror": "hash"}, "ownerReferences": [owner],
    });
    let pods = [
        pod("web-1", &json!({})),
        pod("web-3", &json!({})),
        pod(&format!("static-0-{NODE}"), &mirror),
    ];
    let scene = Scene::new(&pods, Duration::from_secs(1)).await;
    scene.server.apply(budget("web-1")).unwrap();
    let pods = Pods {
        client: kubelets_client(&scene.server).await,
        node: NODE,
        namespace: "default",
        willing: "web-3",
        guarded: "web-1",
        mirror: &format!("static-0-{NODE}"),
    };
    let answers = pods
        .record(async |uid| {
            let all = scene.containers.look().await.unwrap();
            let pod = all.get(&PodUid::new(uid)).cloned().unwrap_or_default();
            Inside { runs: !pod.running.is_empty(), has_sandbox: pod.has_sandbox }
        })
        .await;
    let real: Value = serde_json::from_str(include_str!("companion/recorded.json")).unwrap();
    for (what, real) in real.as_object().unwrap() {
        assert_eq!(answers[what], *real, "{what}: {:#}", answers[what]);
    }
}

/// A pod that has a responder.
fn moved() -> Value {
    let mut pod = pod("vm", &json!({}));
    pod["spec"]["evictionResponders"] = json!([{"name": "example.com/move", "priority": 9}]);
    pod
}

#[tokio::test]
async fn a_pods_responders_are_asked_by_an_eviction_request_that_goes_with_the_pod() {
    let scene = Scene::new(&[moved()], SOON).await;
    scene.server.serve_version(37);
    let uid = scene.uid("vm");
    let responds = async {
        let request = |all: &winddown_apiserver::Objects<'_>| {
            all.get(&format!("evictionrequests/default/winddown-{}", uid.as_str()))
        };
        let request = scene.server.until("it is asked", request).await.unwrap();
        scene.server.delete("pods/default/vm", Some(20)).unwrap();
        request
    };
    let (stopped, request) = tokio::join!(stop(&scene, &uid, 60), responds);
    assert_eq!(stopped.unwrap().remark, None);
    let target = json!({"pod": {"name": "vm", "uid": uid.as_str()}});
    let wanted =
        json!({"target": target, "requester": "winddown.dev/companion", "intent": "Eviction"});
    assert_eq!(request["spec"], wanted);
    assert_eq!(request["metadata"]["ownerReferences"][0]["uid"], uid.as_str());
    assert_eq!(scene.server.count("create", "pods/eviction"), 0);
}

#[tokio::test]
async fn a_plan_is_told_of_budgets_and_of_responders_that_are_served() {
    let consent = async |scene: &Scene| {
        let pods = ["web", "vm", "free"].map(|name| {
            let object = scene.server.get(&format!("pods/default/{name}")).unwrap();
            Pod::new(serde_json::from_value((*object).clone()).unwrap()).unwrap()
        });
        let told = scene.runtime.eviction_constraints(&pods).await.unwrap();
        let name =
            |uid: &PodUid| pods.iter().find(|pod| pod.uid() == uid).unwrap().name().to_string();
        told.into_iter().map(|(uid, consent)| (name(&uid), consent)).collect::<Vec<_>>()
    };
    let web = DisruptionBudget { name: "web".to_owned(), allowed: Some(0) };
    let web = (
        "web".to_owned(),
        EvictionConstraints { budgets: vec![web], ..EvictionConstraints::default() },
    );
    let vm = EvictionConstraints {
        responders: vec!["example.com/move".to_owned()],
        ..EvictionConstraints::default()
    };
    for (version, wanted) in [(36, vec![web.clone()]), (37, vec![web, ("vm".to_owned(), vm)])] {
        let pods = [pod("web", &json!({})), moved(), pod("free", &json!({}))];
        let scene = Scene::new(&pods, SOON).await;
        scene.server.serve_version(version);
        scene.server.apply(budget("web")).unwrap();
        assert_eq!(consent(&scene).await, wanted, "1.{version}");
    }
}

#[tokio::test]
async fn rights_on_eviction_requests_lack_only_where_they_are_served() {
    let scene = Scene::new(&[moved()], SOON).await;
    let client = kubelets_client(&scene.server).await;
    scene.server.deny("create", "evictionrequests");
    let missing = async || {
        let missing = winddown_companion::missing_for_requests(&client, NODE).await.unwrap();
        missing.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(missing().await, [""; 0]);
    scene.server.serve_version(37);
    assert_eq!(missing().await, ["create evictionrequests.lifecycle.k8s.io"]);
}

#[tokio::test]
async fn a_request_that_fails_is_followed_by_an_eviction() {
    let scene = Scene::new(&[moved()], SOON).await;
    scene.server.serve_version(37);
    let uid = scene.uid("vm");
    let fails = async {
        let name = format!("evictionrequests/default/winddown-{}", uid.as_str());
        let asked = |all: &winddown_apiserver::Objects<'_>| all.get(&name).map(|_| ());
        scene.server.until("it is asked", asked).await.unwrap();
        let failed = json!({"type": "Failed", "status": "True", "message": "it is in a group"});
        scene.server.patch(&name, &json!({"status": {"conditions": [failed]}})).unwrap();
    };
    let (stopped, ()) = tokio::join!(stop(&scene, &uid, 60), fails);
    let remark = stopped.unwrap().remark.unwrap();
    assert!(remark.starts_with("its eviction responders (example.com/move) did not terminate it"));
    assert!(remark.ends_with("it is in a group"), "{remark}");
    assert_eq!(scene.server.count("create", "pods/eviction"), 1);
}

#[tokio::test]
async fn errors_and_lost_answers_delay_a_stop_and_do_not_end_it() {
    for fault in [
        Fault::on("create", "pods/eviction").times(2).status(500),
        Fault::on("create", "pods/eviction").times(1).lose_answer(),
        Fault::on("create", "pods/eviction").times(1).reset(),
        Fault::on("create", "pods/eviction").times(1).status(422),
    ] {
        let scene = Scene::new(&[pod("web", &json!({}))], SOON).await;
        let uid = scene.uid("web");
        scene.server.fault(fault.clone());
        stop(&scene, &uid, 30).await.unwrap();
        assert_eq!(scene.containers.count(), 0, "{fault:?}");
    }
}

#[tokio::test]
async fn a_pod_is_deleted_where_the_right_to_evict_is_missing() {
    let scene = Scene::new(&[pod("web", &json!({}))], SOON).await;
    scene.server.deny("create", "pods/eviction");
    let remark = stop(&scene, &scene.uid("web"), 30).await.unwrap().remark.unwrap();
    assert!(remark.starts_with("its eviction was refused, and it was deleted"), "{remark}");
    assert_eq!(scene.containers.count(), 0);
}
