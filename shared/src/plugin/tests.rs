use super::*;
use crate::GateReason;
use crate::testing::{FakeKiller, pod};

const NAME: PluginName = PluginName::new("max-age");

struct Bench {
    node: NodeHandle,
    killer: Arc<FakeKiller>,
    gate: watch::Sender<GateReasons>,
    notes: PluginStatusLines,
}

fn bench() -> Bench {
    let killer = Arc::new(FakeKiller::with([pod("a"), pod("b")]));
    let gate = watch::Sender::new(GateReasons::default());
    let notes = PluginStatusLines::default();
    let node = NodeHandle::new(
        NAME,
        NodeHandleParts {
            killer: Arc::clone(&killer),
            victims: VictimLock::new(),
            gate: gate.subscribe(),
            statuses: StatusStore::default(),
            recorder: Arc::new(()),
            wall: WallClock::fixed(WallTime::UNIX_EPOCH),
            notes: notes.clone(),
        },
    );
    Bench { node, killer, gate, notes }
}

fn ending() -> TerminationSpec {
    TerminationSpec { reason: "TooOld".into(), message: "10 s old".into(), grace: None }
}

#[tokio::test(start_paused = true)]
async fn a_choice_is_asked_for_at_once_under_the_plug_ins_name_and_with_its_words() {
    let Bench { node, killer, .. } = bench();
    killer.takes(pod("a").uid(), Duration::from_secs(1));
    let ending = node.terminate(|pods| {
        assert_eq!(pods.len(), 2);
        Some((pods[0].pod.clone(), ending()))
    });
    let request = killer.calls().pop().unwrap().request;
    assert_eq!(request.reason, KillReason::Plugin(NAME));
    assert_eq!(&*request.status.unwrap().reason, "TooOld");
    assert_eq!(node.pods().len(), 1, "one that is terminating is no choice any more");
    ending.unwrap().wait().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_would_not_stop_for_a_plug_in_is_no_choice() {
    let Bench { node, killer, .. } = bench();
    killer.refuses(pod("a").uid());
    let ending = node.terminate(|pods| {
        let names: Vec<&str> = pods.iter().map(|one| &**one.pod.name()).collect();
        assert_eq!(names, ["b"]);
        Some((pods[0].pod.clone(), ending()))
    });
    ending.unwrap().wait().await.unwrap();
    assert!(node.terminate(|pods| pods.first().map(|_| panic!("none is left"))).is_none());
}

#[tokio::test(start_paused = true)]
async fn while_the_node_goes_down_or_is_drained_a_plug_in_ends_nothing() {
    let Bench { node, killer, gate, .. } = bench();
    gate.send_modify(|reasons| {
        reasons.set(GateReason::Shutdown, true);
    });
    let asked = node.terminate(|_| panic!("it is not even asked"));
    assert!(asked.is_none() && killer.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_is_shut_while_a_plug_in_chooses_is_shut_after_the_pod_was_asked() {
    let Bench { node, killer, gate, .. } = bench();
    let shutting = Arc::new(gate);
    let mut shut = None;
    let ending = node.terminate(|pods| {
        let gate = Arc::clone(&shutting);
        let (done, is_done) = std::sync::mpsc::channel();
        shut = Some(std::thread::spawn(move || {
            gate.send_modify(|reasons| {
                reasons.set(GateReason::Shutdown, true);
            });
            let _ = done.send(());
        }));
        assert!(is_done.recv_timeout(Duration::from_millis(50)).is_err());
        Some((pods[0].pod.clone(), ending()))
    });
    assert!(ending.is_some() && killer.calls().len() == 1);
    shut.unwrap().join().unwrap();
    assert!(node.terminate(|_| panic!("it is not even asked")).is_none());
}

#[tokio::test]
async fn what_a_plug_in_says_replaces_what_it_said_and_nothing_takes_it_away() {
    let Bench { node, notes, .. } = bench();
    node.set_status_line("two are old");
    let changes = notes.changes();
    node.set_status_line("two are old");
    assert!(!changes.has_changed().unwrap(), "the same words are no change");
    node.set_status_line("one is old");
    assert_eq!(notes.all(), [PluginStatusLine { name: NAME, line: "one is old".into() }]);
    node.set_status_line("");
    assert!(notes.all().is_empty());
}

#[test]
fn a_name_is_one_that_a_metric_and_a_reason_can_have() {
    for name in ["a", "max-age", "x2"] {
        assert_eq!(PluginName::new(name).to_string(), name);
    }
    for wrong in ["", "Max", "2x", "-a", "max age", "grünt"] {
        assert!(std::panic::catch_unwind(|| PluginName::new(wrong)).is_err(), "{wrong:?}");
    }
}
