//! Beside a kubelet, against an API server: what the protocol has to do with it. What is decided is
//! tested on the paused clock, in the crate.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod kubelet;
mod node;
mod recorded;
pub(crate) mod scene;

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use winddown_apiserver::Fault;
use winddown_companion::LocalContainers as _;
use winddown_shared::{
    Consent, DisruptionBudget, Grace, Pod, PodStopped, PodUid, Runtime, RuntimeError,
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

#[tokio::test]
async fn a_budget_is_heard_until_its_time_is_over() {
    let scene = Scene::new(&[pod("web", &json!({}))], SOON).await;
    scene.server.apply(budget("web")).unwrap();
    let uid = scene.uid("web");
    // A third of it is for the budget: on a quick machine, about one request in each of five seconds.
    let stopping = stop(&scene, &uid, 15);
    let deleted = async {
        let deleting = |pod: &Value| pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let what = "the pod is deleted";
        scene.server.until(what, |all| deleting(&*all.get("pods/default/web")?)).await.unwrap()
    };
    let (stopped, told) = tokio::join!(stopping, deleted);
    stopped.unwrap();
    assert!((8..=10).contains(&told), "what was left of fifteen seconds: {told}");
    assert!(scene.server.count("create", "pods/eviction") >= 3);
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
        let told = scene.runtime.consent(&pods).await.unwrap();
        let name =
            |uid: &PodUid| pods.iter().find(|pod| pod.uid() == uid).unwrap().name().to_string();
        told.into_iter().map(|(uid, consent)| (name(&uid), consent)).collect::<Vec<_>>()
    };
    let web = DisruptionBudget { name: "web".to_owned(), allowed: Some(0) };
    let web = ("web".to_owned(), Consent { budgets: vec![web], ..Consent::default() });
    let vm = Consent { responders: vec!["example.com/move".to_owned()], ..Consent::default() };
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
    assert!(remark.starts_with("its eviction responders (example.com/move) did not end it"));
    assert!(remark.ends_with("it is in a group"), "{remark}");
    assert_eq!(scene.server.count("create", "pods/eviction"), 1);
}

#[tokio::test]
async fn a_shorter_grace_reaches_the_kubelet() {
    let scene = Scene::new(&[pod("web", &json!({}))], Duration::from_secs(600)).await;
    let uid = scene.uid("web");
    let begun = tokio::time::Instant::now();
    let (sender, grace) = Grace::until(begun + Duration::from_secs(300));
    let shortens = async {
        let deleting = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string().then_some(());
        let what = "the pod is evicted";
        scene.server.until(what, |all| deleting(&*all.get("pods/default/web")?)).await.unwrap();
        sender.shorten_to(tokio::time::Instant::now() + Duration::from_secs(2));
    };
    let (stopped, ()) = tokio::join!(scene.runtime.stop_pod(&uid, None, grace), shortens);
    assert!(stopped.unwrap().forced());
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_pod_with_the_name_of_another_is_not_touched() {
    let scene = Scene::new(&[pod("web", &json!({}))], SOON).await;
    let old = scene.uid("web");
    scene.server.pause_watches(true);
    scene.server.remove("pods/default/web");
    scene.server.apply(pod("web", &json!({}))).unwrap();
    // The kubelet's watch is silent as well: what it would have ended is ended here.
    scene.containers.keep_only(&HashSet::new());
    stop(&scene, &old, 30).await.unwrap();
    let new = scene.server.get("pods/default/web").unwrap();
    assert!(new["metadata"]["deletionTimestamp"].is_null());
    assert_ne!(new["metadata"]["uid"], old.as_str());
}

#[tokio::test]
async fn a_pod_that_others_delete_is_waited_for() {
    let scene = Scene::new(&[pod("web", &json!({}))], Duration::from_secs(1)).await;
    let uid = scene.uid("web");
    scene.server.delete("pods/default/web", Some(20)).unwrap();
    let deleting = async |scene: &Scene| {
        let desired = scene.runtime.desired().borrow().clone().unwrap();
        desired.pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some())
    };
    scene.eventually("the deletion is heard of", deleting).await;
    scene.server.forget_requests();
    stop(&scene, &uid, 30).await.unwrap();
    assert_eq!(scene.server.count("create", "pods/eviction"), 0);
}

#[tokio::test]
async fn without_the_api_and_without_a_kubelet_containers_still_get_their_end() {
    let mut scene = Scene::new(&[pod("web", &json!({}))], SOON).await;
    let uid = scene.uid("web");
    scene.kill_kubelet();
    scene.server.cut_off().await.unwrap();
    scene.set_going_down();
    stop(&scene, &uid, 6).await.unwrap();
    assert_eq!(scene.containers.count(), 0);
    assert!(!scene.runtime.pod_status(&uid).await.unwrap().any_running());
}

#[tokio::test]
async fn errors_and_lost_answers_delay_a_stop_and_do_not_end_it() {
    for fault in [
        Fault::on("create", "pods/eviction").times(2).status(500),
        Fault::on("create", "pods/eviction").times(1).lose_answer(),
        Fault::on("create", "pods/eviction").times(1).reset(),
        Fault::on("create", "pods/eviction").status(403),
    ] {
        let scene = Scene::new(&[pod("web", &json!({}))], SOON).await;
        let uid = scene.uid("web");
        scene.server.fault(fault.clone());
        stop(&scene, &uid, 30).await.unwrap();
        assert_eq!(scene.containers.count(), 0, "{fault:?}");
    }
}

#[tokio::test]
async fn an_agent_that_starts_in_an_outage_takes_no_pod_for_ended_and_ends_it_when_that_is_over() {
    let mut scene = Scene::new(&[pod("web", &json!({}))], SOON).await;
    let uid = scene.uid("web");
    scene.server.cut_off().await.unwrap();
    scene.restart_agent().await;
    let unknown = "the API server has not listed this node's pods yet";
    let said = [
        scene.runtime.trouble().unwrap(),
        stop(&scene, &uid, 30).await.unwrap_err().to_string(),
        scene.runtime.pod_status(&uid).await.unwrap_err().to_string(),
    ];
    // There is no container runtime to ask, which is said once it was tried.
    assert!(said.iter().all(|said| said.starts_with(unknown)), "{said:?}");
    assert_eq!(scene.containers.count(), 1);

    scene.server.come_back().await.unwrap();
    let told = async |scene: &Scene| scene.runtime.desired().borrow().is_some();
    scene.eventually("its pods are told", told).await;
    stop(&scene, &uid, 30).await.unwrap();
    assert_eq!(scene.containers.count(), 0);
    assert_eq!(scene.runtime.trouble(), None);
}
