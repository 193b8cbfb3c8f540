//! Tests with an incomplete view of the node: a silent runtime, unreachable manifests.

use winddown_notices::{Announcement, When};
use winddown_shutdown::LastBoot;
use winddown_static_pods::ManifestProblem;

use super::*;

/// A runtime that already runs `pods`.
async fn running(pods: &[&Pod]) -> FakeRuntime {
    let runtime = FakeRuntime::default();
    for pod in pods {
        runtime.sync_pod(pod).await.unwrap();
    }
    runtime
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_never_answers_is_not_a_node_without_pods() {
    let web = pod("web", 0, 30);
    let runtime = running(&[&web]).await;
    runtime.hang_lists(true);
    let b = bench(runtime, held());
    b.want(&[&web]).await;
    let status = b.node.status();
    assert!(status.pods_unknown && b.node.shutdown_plan(None).await.pods_unknown);
    assert_eq!(status.no_pod("default", "dns").code, ErrorCode::Unavailable);
    tokio::time::sleep(secs(60)).await;
    let begun = Instant::now();
    b.login.prepare();
    tokio::time::sleep(secs(1)).await;
    assert!(b.node.status().shutdown.pods_unknown);
    b.released().await;
    assert_eq!(begun.elapsed().as_secs(), 30, "it may still answer");
    let report = b.report();
    assert_eq!((report.outcome, report.pods_unknown), (Outcome::Incomplete, true));
    assert_eq!(LastBoot::Reported(Box::new(report)).graceful(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_no_pods_says_on_whose_word_there_were_none() {
    let state = tempfile::tempdir().unwrap();
    let b = bench_with(state, boot_clock(), FakeRuntime::default(), held(), |parts| {
        parts.health = |_| Err("known from the container runtime alone".to_owned());
    });
    b.want(&[]).await;
    let mut events = b.node.drain(DrainRequest::default()).await.unwrap();
    let mut said = Vec::new();
    while let Some(event) = events.recv().await {
        said.extend(match event {
            DrainEvent::Warning { message } => Some(message),
            _ => None,
        });
    }
    assert_eq!(said, ["known from the container runtime alone"]);
    assert_eq!(b.report().warnings, said);
}

#[tokio::test(start_paused = true)]
async fn pods_that_nobody_knew_are_not_said_to_have_ended() {
    let web = pod("web", 0, 30);
    let runtime = running(&[&web]).await;
    runtime.hang_lists(true);
    let b = bench(runtime, held());
    b.want(&[]).await;
    b.login.prepare();
    b.released().await;
    tokio::time::sleep(secs(1)).await;
    let decisions = b.node.status().decisions;
    let last = decisions.iter().find(|one| one.kind == "shutdownFinished").unwrap();
    assert!(
        last.text.starts_with("shutdown finished after 30s: whether pods still run is not known"),
        "{}",
        last.text
    );
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_answers_in_the_middle_of_a_shutdown_has_its_pods_ended_in_order() {
    let (web, dns) = (pod("web", 0, 5), pod("dns", 2_000_000_000, 5));
    let runtime = running(&[&web, &dns]).await;
    runtime.hang_lists(true);
    let b = bench(runtime, held());
    b.want(&[&web, &dns]).await;
    b.login.prepare();
    tokio::time::sleep(secs(2)).await;
    b.runtime.hang_lists(false);
    b.released().await;
    assert_eq!(b.runtime.stops(), [web.uid().clone(), dns.uid().clone()]);
    let report = b.report();
    assert_eq!((report.outcome, report.pods_unknown), (Outcome::Clean, false));
}

#[tokio::test(start_paused = true)]
async fn pods_whose_manifests_are_out_of_reach_are_ended_too_and_named_so() {
    let (web, lost) = (pod("web", 0, 30), pod("lost", 0, 30));
    let b = bench(running(&[&web, &lost]).await, held());
    b.manifests.send_modify(|now| {
        let pods = vec![web.clone()];
        *now = Arc::new(DesiredManifests { generation: 1, pods, ..DesiredManifests::default() });
    });
    tokio::time::sleep(secs(1)).await;
    let status = b.node.status();
    let said = status.pods.iter().find(|pod| pod.name == "lost").unwrap();
    assert_eq!((said.reason.as_str(), said.source.as_str()), ("NoManifest", ""));
    let refused = b.node.kill("default", "lost", KillBody::default()).await.unwrap_err();
    assert_eq!(refused.message, "no manifest of the pod default/lost can be read");
    let name = Some("pods without a manifest".to_owned());
    let plan = b.node.shutdown_plan(None).await;
    let group = plan.groups.iter().find(|group| group.name == name).unwrap();
    assert_eq!(group.pods.len(), 1, "{plan:?}");
    b.login.prepare();
    b.released().await;
    assert_eq!(b.runtime.stops(), [web.uid().clone(), lost.uid().clone()]);
    let report = b.report();
    assert_eq!(report.outcome, Outcome::Clean);
    let group = report.groups.iter().find(|group| group.name == name).unwrap();
    assert_eq!((group.pods.len(), group.pods[0].name.as_str()), (1, "lost"));
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_cannot_be_used_is_told_together_with_the_pods_that_it_keeps() {
    let pods: Vec<Pod> = ["a", "b", "c", "d", "e"].map(|name| pod(name, 0, 30)).into();
    let problem = |file: &str, may_run| ManifestProblem {
        file: file.into(),
        line: None,
        column: None,
        field: String::new(),
        message: "the file is empty".to_owned(),
        kept: false,
        may_run,
        since: WallTime::UNIX_EPOCH,
    };
    let empty = "the file is empty";
    for (count, kept) in [
        (0, ""),
        (1, "; default/a keeps running, because this may be its manifest"),
        (2, "; default/a, default/b keep running, because this may be the manifest of one"),
        (
            5,
            "; default/a, default/b, default/c and 2 more keep running, because this may be the manifest of one",
        ),
    ] {
        let lost: Vec<&Pod> = pods.iter().take(count).collect();
        let b = bench(running(&lost).await, held());
        b.manifests.send_modify(|now| {
            let errors = vec![problem("/pods/old", true), problem("/pods/more", false)];
            *now =
                Arc::new(DesiredManifests { generation: 1, errors, ..DesiredManifests::default() });
        });
        tokio::time::sleep(secs(1)).await;
        let said: Vec<String> =
            b.node.status().manifests.problems.iter().map(|one| one.message.clone()).collect();
        assert_eq!(said, [format!("{empty}{kept}"), empty.to_owned()]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_pods_whose_manifests_are_out_of_reach() {
    let lost = pod("lost", 0, 30);
    let b = bench(running(&[&lost]).await, held());
    b.manifests.send_modify(|now| {
        *now = Arc::new(DesiredManifests { generation: 1, ..DesiredManifests::default() });
    });
    tokio::time::sleep(secs(1)).await;
    b.runtime.stop_takes(lost.uid(), secs(10));
    let said = || b.node.status().pods[0].message.clone();
    assert_eq!(said(), "It runs, and no manifest of it can be read.");
    let mut events = b.node.drain(DrainRequest::default()).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(said(), "It is being terminated, and no manifest of it can be read.");
    let mut told = Vec::new();
    while let Some(event) = events.recv().await {
        told.push(event);
    }
    assert!(matches!(told[0], DrainEvent::Started { groups: 1, pods: 1, .. }), "{told:?}");
    assert!(matches!(
        told.last(),
        Some(DrainEvent::Finished { terminated: 1, still_running: 0, .. })
    ));
    assert!(!b.runtime.runs(lost.uid()));
}

#[tokio::test(start_paused = true)]
async fn the_units_stop_path_takes_no_silent_runtime_for_an_empty_node() {
    let lost = pod("lost", 0, 3);
    let runtime = running(&[&lost]).await;
    runtime.hang_lists(true);
    let b = bench(runtime, held());
    b.want(&[]).await;
    b.node.pods_are_known().await;
    let stopping = b.stop_unit();
    tokio::time::sleep(secs(1)).await;
    b.runtime.hang_lists(false);
    tokio::time::sleep(secs(20)).await;
    assert_eq!(b.runtime.stops(), [lost.uid().clone()]);
    assert_eq!((b.report().trigger, b.report().outcome), (Trigger::UnitStop, Outcome::Clean));
    assert!(stopping.is_finished());
}

/// The agent of a run that a notice began is killed after it requested the pod to stop.
#[tokio::test(start_paused = true)]
async fn a_run_that_a_notice_began_starts_nothing_that_it_had_asked_to_end() {
    let web = pod("web", 0, 20);
    let runtime = FakeRuntime::default();
    runtime.stop_takes(web.uid(), secs(10));
    let b = bench(runtime, held());
    b.want(&[&web]).await;
    let publisher = b.notice_aggregator.publisher("aws", None);
    publisher.publish(&Announcement::new(When::In(secs(120)), "spot"), WallTime::UNIX_EPOCH);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(b.runtime.stops().len(), 1);
    let (state, clock, runtime, login) = b.stop();
    // The login manager answers at once, and knows of no shutdown; the notice source was not polled yet.
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web]).await;
    b.runtime.exit(web.uid(), 0);
    tokio::time::sleep(secs(10)).await;
    assert_eq!(b.runtime.starts(), [web.uid().clone()], "once, before the notice");
    assert_eq!(b.runtime.stops().len(), 2, "the next agent asks again");
}
