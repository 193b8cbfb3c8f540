#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_apiserver::ApiServer;

use super::*;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn seen(nodes: &[(&str, DownStage)]) -> SeenNodes {
    let nodes = nodes.iter().map(|(name, stage)| (Arc::from(*name), *stage)).collect();
    SeenNodes { nodes: Some(nodes), trouble: None }
}

fn away(seen: SeenNodes) -> SeenNodes {
    SeenNodes { trouble: Some("it is away".into()), ..seen }
}

#[test]
fn the_stage_of_a_node_is_what_its_conditions_say() {
    for (conditions, stage) in [
        (json!([]), DownStage::NotReporting),
        (json!([["Ready", "True"]]), DownStage::NotReporting),
        (json!([[CLEAN_SHUTDOWN, "False"]]), DownStage::Up),
        (json!([[CLEAN_SHUTDOWN, "Unknown"]]), DownStage::Up),
        (
            json!([[CLEAN_SHUTDOWN, "False"], [SHUTDOWN_IN_PROGRESS, "True"]]),
            DownStage::ShuttingDown,
        ),
        (json!([[CLEAN_SHUTDOWN, "False"], [SHUTDOWN_IN_PROGRESS, "False"]]), DownStage::Up),
        (json!([[SHUTDOWN_IN_PROGRESS, "True"]]), DownStage::ShuttingDown),
        (json!([[CLEAN_SHUTDOWN, "True"], [SHUTDOWN_IN_PROGRESS, "True"]]), DownStage::Down),
    ] {
        let one = |pair: &serde_json::Value| json!({"type": pair[0], "status": pair[1]});
        let all: Vec<_> = conditions.as_array().unwrap().iter().map(one).collect();
        let node = json!({"metadata": {"name": "a"}, "status": {"conditions": all}});
        assert_eq!(DownStage::of(&serde_json::from_value(node).unwrap()), stage, "{conditions}");
    }
}

#[test]
fn a_node_that_is_up_again_without_its_agent_is_not_taken_for_down() {
    let message = "All pods have terminated (boot 5f0c).";
    let conditions = json!([{"type": CLEAN_SHUTDOWN, "status": "True", "message": message}]);
    for (boot, stage) in [("5f0c", DownStage::Down), ("77aa", DownStage::Up)] {
        let status = json!({"conditions": conditions, "nodeInfo": {"bootID": boot}});
        let node = json!({"metadata": {"name": "a"}, "status": status});
        assert_eq!(DownStage::of(&serde_json::from_value(node).unwrap()), stage, "{boot}");
    }
}

/// After a soft-reboot, or a shutdown that was called off: the boot's id is the same.
#[test]
fn a_node_whose_kubelet_stays_ready_long_after_its_shutdown_is_not_taken_for_down() {
    let clean = json!({"type": CLEAN_SHUTDOWN, "status": "True", "message": "boot 5f0c",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    for (status, heartbeat, stage) in [
        ("True", "2025-12-31T23:59:00Z", DownStage::Down),
        ("True", "2026-01-01T00:01:00Z", DownStage::Down),
        ("True", "2026-01-01T00:03:00Z", DownStage::Up),
        // A kubelet that goes down, and the control plane about one that is gone.
        ("False", "2026-01-01T00:03:00Z", DownStage::Down),
        ("Unknown", "2026-01-01T00:03:00Z", DownStage::Down),
    ] {
        let ready = json!({"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat});
        let status = json!({"conditions": [clean, ready], "nodeInfo": {"bootID": "5f0c"}});
        let node = json!({"metadata": {"name": "a"}, "status": status});
        assert_eq!(DownStage::of(&serde_json::from_value(node).unwrap()), stage, "{heartbeat}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_is_never_read_as_empty_and_what_was_said_last_counts() {
    let (now, until) = (Instant::now(), Instant::now() + secs(5));
    let waits = |names: &[&str]| AfterNodesDecision::Wait {
        nodes: names.iter().map(|name| Arc::from(*name)).collect(),
        until,
    };
    let up_and_down =
        [("a", DownStage::Down), ("b", DownStage::Up), ("c", DownStage::ShuttingDown)];
    for (seen, decision) in [
        (SeenNodes::default(), waits(&[])),
        (away(SeenNodes::default()), waits(&[])),
        (seen(&[]), AfterNodesDecision::GoOn(Reason::NoneMatches)),
        (away(seen(&[])), waits(&[])),
        (seen(&up_and_down), waits(&["b", "c"])),
        (away(seen(&up_and_down)), waits(&["b", "c"])),
        (seen(&[("a", DownStage::NotReporting)]), waits(&["a"])),
        (seen(&[("a", DownStage::Down)]), AfterNodesDecision::GoOn(Reason::AllDown)),
        (away(seen(&[("a", DownStage::Down)])), AfterNodesDecision::GoOn(Reason::AllDown)),
    ] {
        assert_eq!(decide(&seen, until, now), decision, "{seen:?}");
        assert_eq!(
            decide(&seen, until, until),
            AfterNodesDecision::GoOn(Reason::TimeOver),
            "{seen:?}"
        );
    }
}

fn any_seen() -> impl Strategy<Value = SeenNodes> {
    let stage = prop::sample::select(DownStage::ALL.to_vec());
    let nodes = prop::collection::btree_map("[a-d]".prop_map(Arc::from), stage, 0..4);
    (prop::option::of(nodes), any::<bool>()).prop_map(|(nodes, works)| SeenNodes {
        nodes,
        trouble: (!works).then(|| "it is away".into()),
    })
}

proptest! {
    /// Waits for exactly the nodes that are not down, and no longer than allowed.
    #[test]
    fn no_decision_outlasts_its_time_or_leaves_a_node_behind(seen in any_seen(), left in 0_u64..9) {
        let now = Instant::now();
        let until = now + secs(left);
        let known = seen.nodes.iter().flatten();
        let up: Vec<_> =
            known.filter(|(_, stage)| **stage != DownStage::Down).map(|(name, _)| name.clone()).collect();
        match decide(&seen, until, now) {
            AfterNodesDecision::Wait { nodes, until: end } => {
                prop_assert!(left > 0 && end == until);
                prop_assert_eq!(&nodes, &up);
                prop_assert!(!up.is_empty() || seen.nodes.is_none() || seen.trouble.is_some());
            }
            AfterNodesDecision::GoOn(Reason::TimeOver) => prop_assert_eq!(left, 0),
            AfterNodesDecision::GoOn(reason) => {
                prop_assert!(up.is_empty() && seen.nodes.is_some());
                let none = seen.nodes.as_ref().is_some_and(BTreeMap::is_empty);
                prop_assert_eq!(reason == Reason::NoneMatches, none);
            }
        }
    }
}

/// A wait of ten seconds.
struct Waiting {
    seen: watch::Sender<SeenNodes>,
    said: Arc<Mutex<String>>,
    wait: JoinHandle<Option<(Reason, Duration)>>,
}

impl Waiting {
    fn for_these(first: SeenNodes) -> Self {
        let (seen, said) = (watch::Sender::new(first), Arc::<Mutex<String>>::default());
        let (known, told, begun) = (seen.subscribe(), Arc::clone(&said), Instant::now());
        let waits = wait(known, begun + secs(10), move |text| *told.lock().unwrap() = text);
        let wait = tokio::spawn(async move {
            let reason = timeout(secs(10), waits).await.ok();
            reason.map(|reason| (reason, begun.elapsed()))
        });
        Self { seen, said, wait }
    }

    async fn after(&self, time: Duration, seen: SeenNodes) {
        tokio::time::sleep(time).await;
        self.seen.send_replace(seen);
        tokio::task::yield_now().await;
    }

    /// The reason and time of its end, unless it timed out, and what it reported.
    async fn ended(self) -> (Option<(Reason, Duration)>, String) {
        let ended = self.wait.await.unwrap();
        (ended, self.said.lock().unwrap().clone())
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_are_waited_for_until_each_is_down_or_gone_and_the_report_says_when() {
    let wait = Waiting::for_these(seen(&[
        ("a", DownStage::Up),
        ("b", DownStage::Up),
        ("c", DownStage::Down),
    ]));
    wait.after(
        secs(2),
        seen(&[("a", DownStage::ShuttingDown), ("b", DownStage::Down), ("c", DownStage::Down)]),
    )
    .await;
    wait.after(secs(1), seen(&[("b", DownStage::Down), ("c", DownStage::Down)])).await;
    let (ended, said) = wait.ended().await;
    assert_eq!(ended, Some((Reason::AllDown, secs(3))));
    assert_eq!(said, "a was gone after 3 s, b was down after 2 s, c was down");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_ends_costs_the_wait_and_one_that_comes_up_again_is_awaited() {
    let wait = Waiting::for_these(seen(&[("a", DownStage::Up), ("b", DownStage::Down)]));
    wait.after(secs(1), seen(&[("a", DownStage::Down), ("b", DownStage::Up)])).await;
    let (ended, said) = wait.ended().await;
    assert_eq!(ended, None);
    assert_eq!(said, "b has not reported a clean shutdown, a was down after 1 s");
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_the_wait_takes_all_of_its_time_and_goes_on_with_the_first_answer() {
    let (ended, said) = Waiting::for_these(SeenNodes::default()).ended().await;
    assert_eq!(ended, None);
    assert_eq!(said, "the API server has not listed the nodes");
    let wait = Waiting::for_these(away(SeenNodes::default()));
    wait.after(secs(4), seen(&[])).await;
    let (ended, said) = wait.ended().await;
    assert_eq!(ended, Some((Reason::NoneMatches, secs(4))));
    assert_eq!(said, "no other node matches");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_goes_in_the_middle_costs_no_more_than_the_wait() {
    let wait = Waiting::for_these(seen(&[("a", DownStage::ShuttingDown)]));
    wait.after(secs(1), away(seen(&[("a", DownStage::ShuttingDown)]))).await;
    let (ended, said) = wait.ended().await;
    assert_eq!(ended, None);
    assert_eq!(
        said,
        "the API server does not report the progress of the nodes: it is away, \
         a has not reported a clean shutdown"
    );
}

#[tokio::test(start_paused = true)]
async fn of_a_large_rack_those_that_are_missing_are_named_first() {
    let names: Vec<String> = (10..40).map(|n| format!("w{n}")).collect();
    let mut all: Vec<_> = names.iter().map(|name| (name.as_str(), DownStage::Down)).collect();
    all[25].1 = DownStage::Up;
    let (ended, said) = Waiting::for_these(seen(&all)).ended().await;
    assert_eq!(ended, None);
    assert!(said.starts_with("w35 has not reported a clean shutdown, w10 was down, "), "{said}");
    assert!(said.ends_with("w18 was down, 20 more"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_hides_no_longer_than_an_hour_which_nodes_there_are() {
    let server = ApiServer::in_memory().unwrap();
    let (backup, client) = (server.version(), kube::Client::new(server.service(), "default"));
    let follower = NodesFollower::new(client, "role=worker", "cp");
    let mut known = follower.seen();
    tokio::spawn(follower.run(CancellationToken::new()));
    for name in ["a", "restored"] {
        // Versions go back, as after a restored backup: an open watch does not hear of the node.
        server.restore(backup);
        let metadata = json!({"name": name, "labels": {"role": "worker"}});
        server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})).unwrap();
        let wanted = seen(&[(name, DownStage::NotReporting)]);
        let is_seen = timeout(secs(3601), known.wait_for(|now| *now == wanted)).await;
        assert!(is_seen.is_ok_and(|seen| seen.is_ok()), "{name}");
    }
}
