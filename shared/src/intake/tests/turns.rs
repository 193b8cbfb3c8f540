//! Pods that start after others.

use super::*;
use crate::{StartTurn, WAITING_FOR_TURN};

fn turn(waits: impl Fn(&Pod) -> bool + Send + Sync + 'static) -> StartTurn {
    StartTurn::new(move |pod| waits(pod).then(|| "starts after dns".into()))
}

fn node_with_turns(runtime: FakeRuntime, events: FakeRecorder) -> (Node, watch::Sender<StartTurn>) {
    let turns = watch::Sender::new(turn(|_| true));
    let seen = turns.subscribe();
    let with = |intake: Intake<FakeRuntime>| intake.with_turns(seen);
    (node_as(runtime, events, |admission| admission, with), turns)
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_turn_and_says_for_what() {
    let events = FakeRecorder::default();
    let (node, turns) = node_with_turns(FakeRuntime::default(), events);
    let (dns, web) = (pod("dns", "Always"), pod("web", "Always"));
    node.want(&[&web, &dns]).await;
    let waits = ("Pending".to_owned(), WAITING_FOR_TURN.to_owned());
    assert_eq!((node.said(&web), node.said(&dns)), (waits.clone(), waits.clone()));
    turns.send_replace(turn(|pod| &**pod.name() == "web"));
    settle().await;
    assert_eq!((node.said(&web), &*node.said(&dns).0), (waits, "Running"));
    let message = node.statuses.get(web.uid()).unwrap().message.clone();
    assert_eq!(message.as_deref(), Some("starts after dns"));
    turns.send_replace(StartTurn::default());
    settle().await;
    assert_eq!(node.said(&web), ("Running".to_owned(), String::new()));
    assert_eq!(node.runtime.starts(), [dns.uid().clone(), web.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ran_before_the_agent_started_does_not_wait() {
    let runtime = FakeRuntime::default();
    let kept = pod("kept", "Always");
    runtime.sync_pod(&kept).await.unwrap();
    let (node, _turns) = node_with_turns(runtime, FakeRecorder::default());
    node.want(&[&kept, &pod("new", "Always")]).await;
    assert_eq!(node.said(&kept).0, "Running");
    assert!(node.runtime.stops().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_or_meets_a_shutdown_while_it_waits_never_starts() {
    let (node, turns) = node_with_turns(FakeRuntime::default(), FakeRecorder::default());
    let (gone, late) = (pod("gone", "Always"), pod("late", "Always"));
    node.want(&[&gone, &late]).await;
    node.want(&[&late]).await;
    assert!(node.statuses.get(gone.uid()).is_none());
    node.gate.send_replace(GateState::Shut);
    turns.send_replace(StartTurn::default());
    settle().await;
    assert_eq!(node.said(&late), ("Failed".to_owned(), "NodeShutdown".to_owned()));
    node.gate.send_replace(GateState::Open);
    settle().await;
    assert_eq!(node.said(&late).0, "Running");
    assert_eq!(node.runtime.starts(), [late.uid().clone()]);
}
