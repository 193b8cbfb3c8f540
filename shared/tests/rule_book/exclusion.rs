//! At most one started static pod per full name.

use winddown_shared::testing::{Script, SyncStep};
use winddown_shared::{Lifecycle, Pod, UpdateKind};

use super::{Bench, bench, pod_with, secs, settle, static_pod, sync, uids};

fn lifecycle(b: &Bench, pod: &Pod) -> Option<Lifecycle> {
    b.workers.lifecycle(pod.uid())
}

/// The long one. Where the kubelet's test sends an update so that a pod checks its turn again,
/// nothing is sent here: the turn is handed over.
#[tokio::test(start_paused = true)]
async fn static_pods_of_one_name_take_turns() {
    let b = bench();
    let normal = pod_with("1", "normal", |_| {});
    let turns: Vec<Pod> = (2..=9).map(|i| static_pod(&i.to_string(), "static")).collect();
    let [two, three, four, five, six, seven, eight, nine] = &turns[..] else { panic!() };
    for pod in [&normal, two] {
        b.create(pod);
    }
    settle().await;
    for pod in [three, four] {
        b.create(pod);
        settle().await;
        assert_eq!(lifecycle(&b, pod), Some(Lifecycle::Waiting));
    }
    assert_eq!(lifecycle(&b, &normal), Some(Lifecycle::Syncing));
    assert_eq!(lifecycle(&b, two), Some(Lifecycle::Syncing));

    // An update changes nothing for a pod that waits.
    b.update(three);
    settle().await;
    assert_eq!(lifecycle(&b, three), Some(Lifecycle::Waiting));
    // A kill terminates it without a step.
    b.kill(three);
    settle().await;
    assert!(b.workers.is_known_terminated(three.uid()));
    assert!(b.steps(three).is_empty());

    // The name is handed over when its holder is finished; a terminated pod is skipped.
    b.kill(two);
    settle().await;
    assert_eq!(lifecycle(&b, two), Some(Lifecycle::Finished));
    assert_eq!(lifecycle(&b, four), Some(Lifecycle::Syncing));

    let known = b.workers.sync_known_pods(&uids(&[&normal, two, three, four]));
    assert_eq!(known.len(), 4);
    assert_eq!(known[normal.uid()], Lifecycle::Syncing);
    assert_eq!(known[two.uid()], Lifecycle::Finished);
    assert_eq!(known[three.uid()], Lifecycle::Finished);
    assert_eq!(known[four.uid()], Lifecycle::Syncing);
    b.workers.sync_known_pods(&uids(&[&normal, two, four]));
    assert_eq!(lifecycle(&b, three), None);

    b.create(five);
    b.create(six);
    settle().await;
    b.kill(five);
    b.kill(four);
    settle().await;
    assert_eq!(lifecycle(&b, six), Some(Lifecycle::Syncing), "five had given up");
    assert!(b.steps(five).is_empty());

    for pod in [seven, eight, nine] {
        b.create(pod);
    }
    settle().await;
    b.script(six, Script { stop_takes: secs(5), ..Script::default() });
    b.kill(six);
    b.create(six);
    assert!(b.workers.has_restart_requests());
    b.update(eight);
    settle().await;
    assert_eq!(lifecycle(&b, eight), Some(Lifecycle::Waiting), "seven is before it");
    b.kill(seven);
    tokio::time::sleep(secs(6)).await;
    assert_eq!(lifecycle(&b, eight), Some(Lifecycle::Syncing));

    let known = b.workers.sync_known_pods(&uids(&[eight]));
    assert_eq!(known.len(), 2, "{known:?}");
    assert_eq!(known[normal.uid()], Lifecycle::Terminating);
    assert_eq!(known[eight.uid()], Lifecycle::Syncing);
    settle().await;
    assert_eq!(lifecycle(&b, nine), None);
}

#[tokio::test(start_paused = true)]
async fn only_static_pods_are_held_back_and_only_by_static_pods_of_their_name() {
    let b = bench();
    let rows = [
        (pod_with("api-1", "a", |_| {}), true),
        (static_pod("static-1", "a"), true),
        (pod_with("api-2", "a", |_| {}), true),
        (static_pod("other-name", "b"), true),
        (static_pod("static-2", "a"), false),
        (static_pod("static-1", "a"), true),
    ];
    for (pod, starts) in rows {
        b.update(&pod);
        settle().await;
        let started = lifecycle(&b, &pod) == Some(Lifecycle::Syncing);
        assert_eq!(started, starts, "{pod:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_in_line_that_still_wants_to_run_is_next() {
    let b = bench();
    let pods: Vec<Pod> = (0..6).map(|i| static_pod(&i.to_string(), "web")).collect();
    for pod in &pods {
        b.create(pod);
    }
    settle().await;
    // One pod ahead is unknown by now, one has terminated, one came back at the end of the line.
    b.workers.sync_known_pods(&uids(&[&pods[0], &pods[2], &pods[3], &pods[4], &pods[5]]));
    b.kill(&pods[2]);
    b.workers.sync_known_pods(&uids(&[&pods[0], &pods[2], &pods[4], &pods[5]]));
    b.create(&pods[3]);
    settle().await;
    for expected in [4, 5, 3] {
        let running: Vec<_> =
            pods.iter().filter(|p| lifecycle(&b, p) == Some(Lifecycle::Syncing)).cloned().collect();
        assert_eq!(running.len(), 1);
        b.kill(&running[0]);
        settle().await;
        assert_eq!(b.steps(&pods[expected]), [sync(UpdateKind::Create)], "{expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_name_is_free_only_when_its_holder_is_finished_and_not_when_it_is_terminated() {
    let b = bench();
    let (old, new) = (static_pod("old", "web"), static_pod("new", "web"));
    b.script(&old, Script { finish_fails: 3, ..Script::default() });
    b.create(&old);
    settle().await;
    b.create(&new);
    b.kill(&old);
    settle().await;
    assert_eq!(lifecycle(&b, &old), Some(Lifecycle::Terminated));
    assert_eq!(lifecycle(&b, &new), Some(Lifecycle::Waiting));
    tokio::time::sleep(secs(30)).await;
    assert_eq!(lifecycle(&b, &old), Some(Lifecycle::Finished));
    assert_eq!(lifecycle(&b, &new), Some(Lifecycle::Syncing));
    assert!(b.steps(&old).ends_with(&[SyncStep::Finish]));
}
