//! Tests of what each event counts, and of the bounds on labels.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as kube;
use winddown_shared::{Counter, Gauge, KillReason, PluginName, PodRef, PodUid};

use super::*;

use crate::registered_plugin::RegisteredPlugin;

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn label() -> PodRef {
    PodRef { namespace: "default".into(), name: "web".into(), uid: PodUid::new("uid-1") }
}

fn metrics() -> Metrics {
    let wall = WallClock::fixed(WallTime::from_second(1_800_000_000).unwrap());
    Metrics::new(wall, &[], &Product::default())
}

/// The value of one sample, given by its name with labels.
fn value(metrics: &Metrics, sample: &str) -> Option<f64> {
    let text = metrics.text(ScrapedNode::default());
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

fn rejected(reason: &str) -> Event {
    Event::PodRejected { pod: label(), reason: reason.into(), message: "no".into() }
}

fn stopped(forced: &[&str]) -> Event {
    let forced = forced.iter().map(|&name| Arc::from(name)).collect();
    let by = Some(KillReason::Operator);
    Event::PodStopped { pod: label(), by, took: secs(2), forced, remark: None }
}

#[test]
fn restarts_orphans_and_refusals_are_counted_from_their_events() {
    let metrics = metrics();
    metrics.record(&Event::PodRestarted { pod: label(), is_static: true });
    metrics.record(&Event::PodRestarted { pod: label(), is_static: true });
    metrics.record(&Event::PodRestarted { pod: label(), is_static: false });
    metrics.record(&Event::OrphanFound { pod: label() });
    metrics.record(&rejected("NodeShutdown"));
    metrics.record(&Event::PodAdmitted { pod: label() });
    assert_eq!(value(&metrics, r#"kubelet_restarted_pods_total{static="true"}"#), Some(2.0));
    assert_eq!(value(&metrics, r#"kubelet_restarted_pods_total{static=""}"#), Some(1.0));
    assert_eq!(value(&metrics, "kubelet_orphaned_runtime_pods_total"), Some(1.0));
    let refused = r#"kubelet_admission_rejections_total{reason="NodeShutdown"}"#;
    assert_eq!(value(&metrics, refused), Some(1.0));
}

#[test]
fn a_shutdown_leaves_its_times_and_what_it_cut() {
    let metrics = metrics();
    metrics.record(&stopped(&["main"]));
    metrics.record(&Event::ShutdownStarted { pods: 3, budget: secs(30) });
    assert_eq!(value(&metrics, "kubelet_graceful_shutdown_start_time_seconds"), Some(1.8e9));
    assert_eq!(value(&metrics, "kubelet_graceful_shutdown_end_time_seconds"), Some(0.0));
    metrics.record(&stopped(&[]));
    metrics.record(&stopped(&["main", "log"]));
    metrics.record(&Event::GroupFinished {
        reason: KillReason::Shutdown,
        priority: -10,
        name: None,
        took: secs(7),
        left: 1,
    });
    metrics.record(&Event::ShutdownFinished {
        took: secs(30),
        left: 1,
        unknown: false,
        released: true,
    });
    metrics.record(&stopped(&["main"]));
    let (pod, took, forced) = (label(), Duration::ZERO, Vec::new());
    metrics.record(&Event::PodStopped { pod, by: None, took, forced, remark: None });
    assert_eq!(value(&metrics, "kubelet_graceful_shutdown_end_time_seconds"), Some(1.8e9));
    assert_eq!(value(&metrics, r#"winddown_pods_cut_short_total{how="killed"}"#), Some(1.0));
    assert_eq!(value(&metrics, r#"winddown_pods_cut_short_total{how="stillRunning"}"#), Some(1.0));
    assert_eq!(value(&metrics, "winddown_pod_stop_duration_seconds_count"), Some(4.0));
    let group = r#"winddown_shutdown_group_duration_seconds_sum{priority="-10"}"#;
    assert_eq!(value(&metrics, group), Some(7.0));
}

#[test]
fn a_shutdown_that_was_called_off_has_an_end_and_cuts_nothing_after_it() {
    let metrics = metrics();
    metrics.record(&Event::ShutdownStarted { pods: 3, budget: secs(30) });
    metrics.record(&Event::ShutdownCancelled { spared_groups: 1 });
    metrics.record(&stopped(&["main"]));
    assert_eq!(value(&metrics, "kubelet_graceful_shutdown_end_time_seconds"), Some(1.8e9));
    assert_eq!(value(&metrics, r#"winddown_pods_cut_short_total{how="killed"}"#), Some(0.0));
}

#[test]
fn the_times_of_the_shutdown_before_this_boot_are_there_from_the_start() {
    let start = WallTime::from_second(1_700_000_000).unwrap();
    let metrics = Metrics::new(WallClock::fixed(WallTime::UNIX_EPOCH), &[], &Product::default());
    metrics.last_shutdown(Some(start), None);
    assert_eq!(value(&metrics, "kubelet_graceful_shutdown_start_time_seconds"), Some(1.7e9));
    // A start without an end: the previous shutdown did not complete.
    assert_eq!(value(&metrics, "kubelet_graceful_shutdown_end_time_seconds"), Some(0.0));
}

#[test]
fn a_shutdown_of_the_agent_before_that_was_called_off_has_an_end() {
    let end = |metrics: &Metrics| value(metrics, "kubelet_graceful_shutdown_end_time_seconds");
    let metrics = metrics();
    let start = WallTime::from_second(1_700_000_000).unwrap();
    metrics.last_shutdown(Some(start), None);
    metrics.record(&Event::ShutdownCancelled { spared_groups: 0 });
    assert_eq!(end(&metrics), Some(1.8e9));
    // One that had ended its pods before that keeps the time at which it had.
    metrics.last_shutdown(Some(start), Some(WallTime::from_second(1_700_000_009).unwrap()));
    metrics.record(&Event::ShutdownCancelled { spared_groups: 0 });
    assert_eq!(end(&metrics), Some(1_700_000_009.0));
}

#[test]
fn what_a_plug_in_counts_is_shown_as_a_family_of_its_own_from_zero_on() {
    let looks = Counter::new("max_age_looks", "How often it looked");
    let oldest = Gauge::new("max_age_oldest_seconds", "The oldest pod");
    let name = PluginName::new("max-age");
    let plugin = RegisteredPlugin { name, metrics: vec![(&looks).into(), (&oldest).into()] };
    let metrics =
        Metrics::new(WallClock::fixed(WallTime::UNIX_EPOCH), &[plugin], &Product::default());
    looks.add(3);
    oldest.set(1.5);
    let text = metrics.text(ScrapedNode::default());
    let (ours, theirs) = text.split_once("# HELP max_age_looks").unwrap();
    assert_eq!(
        theirs,
        " How often it looked.\n# TYPE max_age_looks counter\nmax_age_looks_total 3\n\
         # HELP max_age_oldest_seconds The oldest pod.\n\
         # TYPE max_age_oldest_seconds gauge\nmax_age_oldest_seconds 1.5\n# EOF\n"
    );
    assert!(ours.contains("winddown_plugin_terminations_total{plugin=\"max-age\"} 0"));
    // This is why the metrics of a plug-in may not begin with one of these prefixes.
    let of_node = |line: &str| {
        ["kubelet_", "winddown_", "process_"].iter().any(|prefix| line.starts_with(prefix))
    };
    assert!(ours.lines().filter(|line| !line.starts_with('#')).all(of_node), "{ours}");
}

#[test]
fn durations_of_workers_are_told_apart_by_what_asked_for_the_step() {
    let metrics = metrics();
    for operation in ["sync", "update", "create", "kill", "terminated"] {
        metrics.step_ended(operation, Duration::from_millis(30));
        let name = "kubelet_pod_worker_duration_seconds";
        let sample = format!(r#"{name}_bucket{{le="0.05",operation_type="{operation}"}}"#);
        assert_eq!(value(&metrics, &sample), Some(1.0));
        let sample = format!(r#"{name}_bucket{{le="0.025",operation_type="{operation}"}}"#);
        assert_eq!(value(&metrics, &sample), Some(0.0));
    }
}

#[test]
fn the_start_of_a_worker_and_the_containers_of_its_pod_are_measured() {
    let metrics = metrics();
    let pod: kube::Pod = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "uid-1" },
        "spec": {
            "initContainers": [{ "name": "init" }],
            "containers": [{ "name": "a" }, { "name": "b" }, { "name": "c" }],
        },
    }))
    .unwrap();
    metrics.pod_started(&Pod::new(pod).unwrap(), Duration::from_millis(1));
    assert_eq!(value(&metrics, "kubelet_pod_worker_start_duration_seconds_sum"), Some(0.001));
    assert_eq!(value(&metrics, "kubelet_containers_per_pod_count_sum"), Some(3.0));
}

#[test]
fn pods_that_end_for_another_are_counted_under_the_kubelets_very_name() {
    let metrics = metrics();
    metrics.of_preemption();
    let ended = |signal: Option<&str>| Event::PodPreempted {
        pod: label(),
        by: label(),
        signal: signal.map(ResourceName::from),
        message: "".into(),
    };
    let of = |signal: &str| {
        value(&metrics, &format!("kubelet_preemptions{{preemption_signal=\"{signal}\"}}"))
    };
    assert_eq!((of("cpu"), of("memory"), of("")), (Some(0.0), Some(0.0), None));
    for signal in [Some("cpu"), Some("cpu"), Some("example.com/dongle"), None] {
        metrics.record(&ended(signal));
    }
    assert_eq!((of("cpu"), of("example.com/dongle"), of("")), (Some(2.0), Some(1.0), Some(1.0)));
}

#[test]
fn no_number_of_priorities_and_reasons_makes_more_series_than_a_bound() {
    let metrics = metrics();
    for n in 0..10_000 {
        metrics.record(&Event::GroupFinished {
            reason: KillReason::Shutdown,
            priority: n,
            name: None,
            took: secs(1),
            left: 0,
        });
        metrics.record(&rejected(&format!("Reason{n}")));
        metrics.record(&Event::PodPreempted {
            pod: label(),
            by: label(),
            signal: Some(ResourceName::from(&*format!("example.com/{n}"))),
            message: "".into(),
        });
        metrics.record(&rejected(&format!("OutOfexample.com/{n}")));
    }
    let text = metrics.text(ScrapedNode::default());
    let groups = text.matches("winddown_shutdown_group_duration_seconds_count").count();
    assert_eq!(groups, 17, "16 priorities and the rest");
    let other = r#"winddown_shutdown_group_duration_seconds_count{priority="other"} 9984"#;
    assert!(text.contains(other), "{text}");
    assert_eq!(text.matches("kubelet_admission_rejections_total").count(), 3);
    assert!(series(&text) < 700, "{}", series(&text));
}
