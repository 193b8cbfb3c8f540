use serde_json::{Value, json};

use super::*;

/// A node's directory, and the agents that read it one after the other.
struct Kept(tempfile::TempDir);

impl Kept {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn agent(&self) -> ApiPods {
        ApiPods::open(KeptPods::of_boot(self.0.path(), "b1"))
    }
}

fn pod(more: &Value) -> Pod {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"terminationGracePeriodSeconds": 30, "containers": []},
    });
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.extend(more.as_object().unwrap().clone());
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn uid() -> PodUid {
    PodUid::new("u1")
}

fn failed() -> Arc<api::PodStatus> {
    let phase = Some("Failed".to_owned());
    Arc::new(api::PodStatus { phase, ..api::PodStatus::default() })
}

/// What is said of the pod's end: within how many seconds it ends, and its last phase.
fn end_of(pods: &ApiPods) -> (Option<i64>, Option<String>) {
    let given = pods.get(&uid()).unwrap();
    let grace = given.pod.metadata.deletion_grace_period_seconds.filter(|_| is_ending(&given.pod));
    (grace, given.last.and_then(|last| last.phase.clone()))
}

const NOW: WallTime = WallTime::UNIX_EPOCH;

#[tokio::test]
async fn a_pod_is_wanted_until_it_is_forgotten_by_this_agent_and_the_next() {
    let kept = Kept::new();
    let pods = kept.agent();
    let mut changes = pods.changes();
    pods.take(pod(&json!({}))).await;
    assert!(changes.has_changed().unwrap());
    for agent in [&pods, &kept.agent()] {
        let (wanted, complete) = agent.wanted();
        assert_eq!((wanted.len(), complete), (1, true));
    }
    changes.mark_unchanged();
    pods.forget(&uid()).await;
    assert!(changes.has_changed().unwrap());
    assert_eq!((pods.all().len(), kept.agent().all().len()), (0, 0));
}

#[tokio::test]
async fn an_end_only_comes_nearer_and_is_known_to_the_next_agent() {
    let kept = Kept::new();
    let pods = kept.agent();
    assert!(!pods.end(&uid(), Duration::from_secs(9), NOW).await, "nobody knows it");
    pods.take(pod(&json!({}))).await;
    for (millis, seconds) in [(8_500, 9), (20_000, 9), (2_000, 2), (2_001, 2)] {
        assert!(pods.end(&uid(), Duration::from_millis(millis), NOW).await);
        assert_eq!(end_of(&pods).0, Some(seconds), "{millis} ms");
    }
    assert_eq!(end_of(&kept.agent()).0, Some(2));
    // A change that was seen before the end was asked for does not take it back.
    pods.take(pod(&json!({"labels": {"late": "yes"}}))).await;
    assert_eq!(end_of(&pods).0, Some(2));
    assert_eq!(end_of(&kept.agent()).0, Some(2));
}

#[tokio::test]
async fn what_has_ended_is_not_started_again_whatever_comes_after() {
    let kept = Kept::new();
    let pods = kept.agent();
    pods.take(pod(&json!({}))).await;
    pods.ended(&uid(), failed()).await;
    pods.take(pod(&json!({"labels": {"late": "yes"}}))).await;
    pods.end(&uid(), Duration::ZERO, NOW).await;
    pods.ended(&uid(), Arc::default()).await;
    for agent in [&pods, &kept.agent()] {
        assert_eq!(end_of(agent), (None, Some("Failed".to_owned())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_changes_at_the_same_time_the_end_is_what_the_next_agent_finds() {
    let kept = Kept::new();
    let pods = kept.agent();
    for _ in 0..50 {
        pods.take(pod(&json!({}))).await;
        let uid = uid();
        let change = pods.take(pod(&json!({"labels": {"late": "yes"}})));
        let end = pods.end(&uid, Duration::from_secs(5), NOW);
        let ended = pods.ended(&uid, failed());
        tokio::join!(change, end, ended);
        assert_eq!(end_of(&kept.agent()).1.as_deref(), Some("Failed"));
        pods.forget(&uid).await;
    }
}

#[tokio::test]
async fn while_a_record_is_missing_what_is_wanted_is_not_all_until_the_api_was_listed() {
    let kept = Kept::new();
    kept.agent().take(pod(&json!({}))).await;
    std::fs::write(kept.0.path().join("b1/u2.json"), "torn").unwrap();
    let pods = kept.agent();
    assert_eq!((pods.wanted().0.len(), pods.wanted().1), (1, false));
    assert!(!kept.agent().wanted().1, "the next agent misses it too");
    pods.all_known().await;
    assert!(pods.wanted().1 && kept.agent().wanted().1);
}

#[test]
fn what_only_the_api_server_needs_is_not_kept_in_memory() {
    let source = winddown_shared::CONFIG_SOURCE_ANNOTATION;
    let lean = lean(&pod(&json!({
        "annotations": {source: "file", "own": "stays"},
        "managedFields": [{"manager": "kubectl"}],
    })));
    assert_eq!(lean.metadata.managed_fields, None);
    assert!(!lean.is_static(), "nobody makes a static pod of it by writing so");
    assert_eq!(lean.metadata.annotations.as_ref().unwrap()["own"], "stays");
}
