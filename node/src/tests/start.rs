//! Tests of pods that start in the reverse of the order in which they end.

use winddown_control::ReportApi as _;
use winddown_control::api::StartStatus;

use super::*;
use crate::ordered_start::{StartOutcome, StartReport};

const SYSTEM: i32 = 2_000_000_000;

fn ordered(parts: &mut Parts) {
    let mut config = Config::clone(&parts.configuration.config);
    config.shutdown.start_group_timeout = secs(20);
    parts.configuration.config = Arc::new(config);
}

/// A node whose groups have 20 s, on a runtime that fails once it has reported what runs.
async fn ordered_bench(state: tempfile::TempDir, clock: BootClock, runtime: FakeRuntime) -> Bench {
    runtime.fail(false);
    let b = bench_with(state, clock, runtime, held(), ordered);
    tokio::time::sleep(secs(1)).await;
    b.runtime.fail(true);
    b
}

async fn first_bench() -> Bench {
    ordered_bench(tempfile::tempdir().unwrap(), boot_clock(), FakeRuntime::default()).await
}

async fn report(b: &Bench) -> StartReport {
    serde_json::from_value(b.node.report("start").await.unwrap()).unwrap()
}

fn start_of(b: &Bench) -> Option<StartStatus> {
    b.node.status().start
}

fn said(b: &Bench, name: &str) -> (String, String) {
    let status = b.node.status();
    let pod = status.pods.iter().find(|pod| pod.name == name).unwrap();
    (pod.reason.clone(), pod.message.clone())
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_never_ready_holds_the_next_group_for_its_time_and_all_of_that_is_shown() {
    let b = first_bench().await;
    let (dns, web) = (pod("dns", SYSTEM, 30), pod("web", 0, 30));
    b.want(&[&web, &dns]).await;
    let start = start_of(&b).unwrap();
    assert_eq!((&*start.group, start.waiting), ("priority 2000000000 and above", 1));
    assert_eq!(start.not_ready, ["default/dns"]);
    let waits = "starts after priority 2000000000 and above".to_owned();
    assert_eq!(said(&b, "web"), ("WaitingForTurn".to_owned(), waits));
    assert!(b.node.metrics().contains("\nwinddown_start_waiting_pods 1\n"));
    let plan = b.node.start_plan().unwrap();
    assert_eq!((plan.group_timeout_seconds, plan.groups.len()), (20.0, 2));
    assert!(plan.warnings.is_empty());
    // The report is on disk, for the next agent and for a command without an agent.
    let kept = StartReport::load(b.state.path()).unwrap().unwrap();
    assert_eq!(kept, report(&b).await);

    tokio::time::sleep(secs(19)).await;
    b.runtime.fail(false);
    tokio::time::sleep(secs(30)).await;
    assert!(start_of(&b).is_none() && b.runtime.runs(web.uid()));
    let report = report(&b).await;
    assert_eq!(report.outcome, StartOutcome::NotReady);
    let text = b.node.metrics();
    assert!(text.contains("\nwinddown_start_not_ready_pods 1\n"), "{text}");
    assert!(text.contains("\nwinddown_start_duration_seconds "), "{text}");
    let late = pod("late", 0, 30);
    b.want(&[&web, &dns, &late]).await;
    assert!(b.runtime.runs(late.uid()));
}

#[tokio::test(start_paused = true)]
async fn to_terminate_or_restart_a_pod_that_waits_for_its_turn_is_refused_with_what_it_waits_for() {
    let b = first_bench().await;
    let (dns, web) = (pod("dns", SYSTEM, 30), pod("web", 0, 30));
    b.want(&[&web, &dns]).await;
    for restart in [false, true] {
        let body = KillBody { restart, ..KillBody::default() };
        let refused = b.node.kill("default", "web", body).await.unwrap_err();
        let why = "the pod default/web does not run: starts after priority 2000000000 and above";
        assert_eq!((refused.code, &*refused.message), (ErrorCode::Conflict, why));
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_restarted_in_the_middle_holds_no_pod_that_runs_and_goes_on_with_the_rest()
{
    let b = first_bench().await;
    b.runtime.fail(false);
    let (net, dns, web) = (pod("net", SYSTEM, 30), pod("dns", SYSTEM, 30), pod("web", 0, 30));
    b.want(&[&net]).await;
    assert!(b.runtime.runs(net.uid()));
    let (state, clock, runtime, _) = b.stop();

    // The start of this boot was over.
    let b = ordered_bench(state, clock, runtime).await;
    b.want(&[&net, &dns, &web]).await;
    assert!(start_of(&b).is_none() && said(&b, "web").0 != "WaitingForTurn");
    let (_, clock, runtime, _) = b.stop();

    // A start that was not over: that of the next boot.
    let b = ordered_bench(tempfile::tempdir().unwrap(), clock, runtime).await;
    b.want(&[&net, &dns, &web]).await;
    // The pod runs, but the failing runtime does not report its status.
    assert_eq!(start_of(&b).unwrap().not_ready, ["default/net", "default/dns"]);
    assert!(said(&b, "net").0 != "WaitingForTurn" && said(&b, "web").0 == "WaitingForTurn");
    let (state, clock, runtime, _) = b.stop();
    tokio::time::sleep(secs(10)).await;
    let b = ordered_bench(state, clock, runtime).await;
    b.want(&[&net, &dns, &web]).await;
    assert_eq!(start_of(&b).unwrap().waiting, 1);
    tokio::time::sleep(secs(9)).await;
    assert!(start_of(&b).is_none(), "it had the rest of the time");
    assert!(b.runtime.stops().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_waiting_and_what_waited_never_starts() {
    let b = first_bench().await;
    let (dns, web) = (pod("dns", SYSTEM, 30), pod("web", 0, 30));
    b.want(&[&dns, &web]).await;
    b.runtime.fail(false);
    b.login.prepare();
    b.released().await;
    let status = b.node.status();
    assert!(status.start.is_none());
    assert_eq!(status.rejected[0].name, "web");
    assert!(!b.runtime.starts().contains(web.uid()));
    assert_eq!(report(&b).await.outcome, StartOutcome::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn without_the_option_all_start_at_once_and_the_plan_says_so() {
    let b = bench(FakeRuntime::default(), held());
    tokio::time::sleep(secs(1)).await;
    b.runtime.fail(true);
    let (dns, web) = (pod("dns", SYSTEM, 30), pod("web", 0, 30));
    b.want(&[&dns, &web]).await;
    assert!(start_of(&b).is_none() && said(&b, "web").0 != "WaitingForTurn");
    assert!(!b.node.metrics().contains("winddown_start_"));
    let plan = b.node.start_plan().unwrap();
    assert!(plan.warnings[0].contains("startGroupTimeout"), "{:?}", plan.warnings);
    let error = b.node.report("start").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
}

#[tokio::test(start_paused = true)]
async fn beside_a_kubelet_a_plan_of_what_the_kubelet_does_is_refused_with_the_reason() {
    let state = tempfile::tempdir().unwrap();
    let b = bench_with(state, boot_clock(), FakeRuntime::default(), held(), |parts| {
        let mut config = Config::clone(&parts.configuration.config);
        config.node.mode = Mode::Companion;
        parts.configuration.config = Arc::new(config);
    });
    let refused = [
        b.node.start_plan().unwrap_err(),
        b.node.eviction_plan(None).await.unwrap_err(),
        b.node.preemption_plan(None, None).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.code, ErrorCode::Conflict, "{error}");
        assert!(error.to_string().starts_with("with `mode: companion` the kubelet"), "{error}");
    }
}
