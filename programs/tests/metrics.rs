//! The metrics of a whole node: the result of a scrape while pods come and go, and the ways to scrape.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

pub(crate) mod bed;
mod parser;
mod scrape;
mod table;

use bed::{Bed, pod, samples, secs, value};
use winddown_shared::{LockState, Runtime};

/// The kubelet's six families of pods.
const SIX: [&str; 6] = [
    "kubelet_desired_pods",
    "kubelet_active_pods",
    "kubelet_mirror_pods",
    "kubelet_working_pods",
    "kubelet_restarted_pods_total",
    "kubelet_orphaned_runtime_pods_total",
];

fn name_of(sample: &str) -> &str {
    sample.split(['{', ' ']).next().unwrap()
}

fn check_series(text: &str, when: &str) {
    let count = |family: &str| samples(text).filter(|s| name_of(s) == family).count();
    assert_eq!(SIX.map(count), [2, 2, 1, 15, 2, 1], "{when}:\n{text}");
}

#[tokio::test(start_paused = true)]
async fn the_six_families_have_23_series_whatever_the_node_does() {
    let bed = Bed::new();
    check_series(&bed.scrape(), "before the directory was read");
    bed.run(&[]).await;
    check_series(&bed.scrape(), "without pods");
    let (web, slow) = (pod("web", 0, 30), pod("slow", 0, 30));
    bed.runtime.stop_takes(slow.uid(), secs(5));
    bed.run(&[web.clone(), slow.clone()]).await;
    check_series(&bed.scrape(), "with pods");
    bed.run(&[web]).await;
    let text = bed.scrape();
    check_series(&text, "while a pod terminates");
    let orphan = r#"kubelet_working_pods{lifecycle="terminating",config="orphan",static="true"}"#;
    assert_eq!(value(&text, orphan), 1.0);
    bed.login.prepare();
    bed.released().await;
    check_series(&bed.scrape(), "after a shutdown");
}

#[tokio::test(start_paused = true)]
async fn the_document_of_a_node_after_a_shutdown_is_exactly_this() {
    let bed = Bed::new();
    let (web, stuck) = (pod("web", 0, 30), pod("stuck", 0, 30));
    let dns = pod("dns", 2_000_000_000, 30);
    bed.runtime.stop_takes(web.uid(), secs(2));
    bed.runtime.stop_takes(stuck.uid(), secs(100));
    bed.run(&[web.clone(), stuck.clone(), dns.clone()]).await;
    bed.login.prepare();
    bed.released().await;
    bed.run(&[web, stuck, dns, pod("late", 0, 30)]).await;
    let text = bed.scrape();
    // The resources of the test process differ from run to run.
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("process_")).collect();
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    insta::assert_snapshot!(lines.join("\n").replace(&version, "version=\"…\""));
}

#[tokio::test(start_paused = true)]
async fn gauges_follow_the_pods() {
    let bed = Bed::new();
    let web = pod("web", 0, 30);
    bed.run(&[web.clone(), pod("other", 0, 30)]).await;
    let text = bed.scrape();
    assert_eq!(value(&text, r#"kubelet_desired_pods{static="true"}"#), 2.0);
    assert_eq!(value(&text, r#"kubelet_desired_pods{static=""}"#), 0.0);
    assert_eq!(value(&text, r#"kubelet_active_pods{static="true"}"#), 2.0);
    let running = r#"kubelet_working_pods{lifecycle="sync",config="desired",static="true"}"#;
    assert_eq!(value(&text, running), 2.0);
    assert_eq!(value(&text, "winddown_protected"), 1.0);
    assert_eq!(value(&text, "winddown_inhibitor_held"), 1.0);
    assert_eq!(value(&text, "winddown_inhibit_delay_max_seconds"), 40.0);
    assert_eq!(value(&text, "winddown_ignored_shutdown_signals_total"), 3.0);
    let body = winddown_control::api::KillBody { grace_seconds: Some(1), ..Default::default() };
    {
        use winddown_control::ActApi;
        bed.node.kill("default", "web", body).await.unwrap();
    }
    tokio::time::sleep(secs(1)).await;
    let text = bed.scrape();
    assert_eq!(value(&text, r#"kubelet_desired_pods{static="true"}"#), 2.0);
    assert_eq!(value(&text, r#"kubelet_active_pods{static="true"}"#), 2.0, "it starts again");
    assert_eq!(value(&text, running), 2.0);
    assert_eq!(value(&text, "winddown_pod_stop_duration_seconds_count"), 1.0);
    assert_eq!(value(&text, r#"winddown_pods_cut_short_total{how="killed"}"#), 0.0, "no shutdown");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ran_before_the_agent_and_is_not_wanted_is_counted_as_an_orphan() {
    let bed = Bed::new();
    let left_over = pod("left-over", 0, 30);
    bed.runtime.sync_pod(&left_over).await.unwrap();
    bed.run(&[]).await;
    tokio::time::sleep(secs(5)).await;
    assert_eq!(value(&bed.scrape(), "kubelet_orphaned_runtime_pods_total"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_under_its_uid_is_counted_as_restarted_and_measured_again() {
    let bed = Bed::new();
    let web = pod("web", 0, 30);
    bed.runtime.stop_takes(web.uid(), secs(5));
    bed.run(std::slice::from_ref(&web)).await;
    bed.run(&[]).await;
    bed.run(&[web]).await;
    tokio::time::sleep(secs(10)).await;
    let text = bed.scrape();
    assert_eq!(value(&text, r#"kubelet_restarted_pods_total{static="true"}"#), 1.0);
    assert_eq!(value(&text, r#"kubelet_restarted_pods_total{static=""}"#), 0.0);
    assert_eq!(value(&text, "winddown_pod_start_duration_seconds_count"), 2.0);
    assert_eq!(value(&text, r#"kubelet_active_pods{static="true"}"#), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_measured_by_group_and_its_pods_do_not_count_as_cut() {
    use winddown_control::ActApi;
    let bed = Bed::new();
    let (web, dns) = (pod("web", 0, 3), pod("dns", 2_000_000_000, 3));
    bed.runtime.stop_takes(web.uid(), secs(100));
    bed.run(&[web, dns]).await;
    let mut events = bed.node.drain(winddown_control::api::DrainRequest::default()).await.unwrap();
    while events.recv().await.is_some() {}
    let text = bed.scrape();
    let group = r#"winddown_shutdown_group_duration_seconds_sum{priority="0"}"#;
    assert_eq!(value(&text, group).round(), 3.0);
    assert_eq!(value(&text, r#"winddown_admission_closed{reason="drain"}"#), 1.0);
    assert_eq!(value(&text, r#"winddown_admission_closed{reason="notice"}"#), 0.0);
    assert_eq!(value(&text, r#"winddown_pods_cut_short_total{how="killed"}"#), 0.0);
    assert_eq!(value(&text, "kubelet_graceful_shutdown_start_time_seconds"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_of_the_login_manager_is_absent() {
    let bed = Bed::new();
    bed.login.modify(|state| {
        state.lock = LockState::Waiting { why: "logind went away".into() };
        state.delay = None;
    });
    let text = bed.scrape();
    assert_eq!(value(&text, "winddown_protected"), 0.0);
    assert_eq!(value(&text, "winddown_inhibitor_held"), 0.0);
    assert!(!text.contains("winddown_inhibit_delay_max"), "{text}");
    assert_eq!(value(&text, "winddown_inhibit_delay_required_seconds"), 32.0);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_series_does_not_depend_on_the_number_of_pods() {
    let bed = Bed::new();
    bed.run(&[pod("one", 0, 30)]).await;
    let few = samples(&bed.scrape()).count();
    let many: Vec<_> = (0..300).map(|n| pod(&format!("pod-{n}"), n, 30)).collect();
    bed.run(&many).await;
    let text = bed.scrape();
    assert_eq!(samples(&text).count(), few);
    assert!(few < 300, "{few} series");
    assert!(!text.contains("pod-"), "no pod is named");
}

#[tokio::test(start_paused = true)]
async fn a_scrape_of_a_thousand_pods_takes_milliseconds_at_most() {
    let bed = Bed::new();
    let pods: Vec<_> = (0..1000).map(|n| pod(&format!("pod-{n}"), 0, 30)).collect();
    bed.run(&pods).await;
    // Wall time, because tokio's clock is paused. The minimum of many runs, so that a busy machine does not matter.
    #[allow(clippy::disallowed_types, reason = "the paused clock cannot measure work")]
    let took = |_| {
        let begun = std::time::Instant::now();
        let text = bed.scrape();
        assert!(text.ends_with("# EOF\n"));
        begun.elapsed()
    };
    let least = (0..50).map(took).min().unwrap();
    println!("a scrape at 1000 pods takes {least:?}");
    // This is an unoptimised build; an optimised one takes a small part of this time.
    assert!(least < std::time::Duration::from_millis(100), "{least:?}");
}
