//! A node that is already short of a resource.

use super::super::*;
use super::Severity::{Info, Warning};
use super::{Well, check};
use winddown_control::api::{PressureStatus, SwapStatus, ThresholdStatus};

fn disk(hard: bool) -> ThresholdStatus {
    ThresholdStatus {
        signal: "nodefs.available".to_owned(),
        hard,
        available: Some("12Gi".to_owned()),
        threshold: Some("25Gi".to_owned()),
        capacity: Some(250 << 30),
        ..ThresholdStatus::default()
    }
}

fn threshold(signal: &str, available: &str, met_for_seconds: Option<f64>) -> ThresholdStatus {
    ThresholdStatus {
        signal: signal.to_owned(),
        hard: true,
        threshold: Some("100Mi".to_owned()),
        available: Some(available.to_owned()),
        capacity: Some(1 << 30),
        met_for_seconds,
        grace_seconds: 0.0,
    }
}

fn told(facts: &mut Facts, thresholds: Vec<ThresholdStatus>) {
    let pressure = PressureStatus { thresholds, ..PressureStatus::default() };
    known(&mut facts.agent).pressure = Some(pressure);
}

#[test]
fn a_node_below_its_thresholds_is_found() {
    check(&[
        (
            "short of disk",
            |f| f.shortages = Fact::Known(vec![disk(true)]),
            "room",
            Warning,
            "nodefs.available: 12.0 GiB of 250.0 GiB, the hard threshold is 25.0 GiB",
            "df -h /var/lib/winddown",
        ),
        (
            "for a while",
            |f| f.shortages = Fact::Known(vec![disk(false)]),
            "room",
            Warning,
            "the soft threshold is 25.0 GiB",
            "lower evictionSoft[nodefs.available] in /etc/winddown/config.yaml, then: `systemctl reload winddown`",
        ),
        (
            "short of tasks",
            |f| {
                let signal = "pid.available".to_owned();
                f.shortages = Fact::Known(vec![ThresholdStatus { signal, ..disk(true) }]);
            },
            "room",
            Warning,
            "pid.available: 12884901888 of",
            "winddown plan eviction",
        ),
        (
            "by the agent",
            |f| told(f, vec![threshold("memory.available", "50Mi", Some(3.0))]),
            "room",
            Warning,
            "memory.available: 50.0 MiB of 1.0 GiB, the hard threshold is 100.0 MiB",
            "lower evictionHard[memory.available]",
        ),
        (
            "one field for two signals",
            |f| {
                let short = |signal| threshold(signal, "50Mi", Some(3.0));
                let signals = ["memory.available", "pid.available", "allocatableMemory.available"];
                told(f, signals.map(short).into());
            },
            "room",
            Warning,
            "allocatableMemory.available: 50.0 MiB",
            "lower evictionHard[memory.available], evictionHard[pid.available] in",
        ),
        (
            "a field that has no effect",
            |f| {
                let short = |signal| threshold(signal, "50Mi", Some(3.0));
                told(f, ["nodefs.available", "containerfs.available"].map(short).into());
            },
            "room",
            Warning,
            "containerfs.available: 50.0 MiB",
            "lower evictionHard[nodefs.available] in",
        ),
        (
            "in shadow",
            |f| {
                f.shortages = Fact::Known(vec![disk(true)]);
                f.config.config.eviction.shadow = true;
            },
            "room",
            Info,
            "12.0 GiB",
            "",
        ),
        (
            "hung disk",
            |f| f.shortages = unseen(NotObserved::Silent),
            "room",
            Info,
            "as was said",
            "",
        ),
    ]);
}

#[test]
fn it_is_said_that_the_nodes_swap_does_not_count() {
    let mut facts = healthy();
    told(&mut facts, vec![threshold("memory.available", "500Mi", None)]);
    let swap = SwapStatus { total: 2 << 30, free: 1 << 30, ..SwapStatus::default() };
    known(&mut facts.agent).pressure.as_mut().unwrap().swap = Some(swap);
    let found = finding(&facts, "room").unwrap();
    let said = "swap: 1.0 GiB of 2.0 GiB free, which does not count as available memory";
    assert_eq!((found.severity, &*found.evidence[0]), (Well, said));
    assert_eq!(finding(&healthy(), "room").unwrap().evidence, [""; 0], "no swap");
}

#[test]
fn a_kubelets_pods_are_not_evicted_by_thresholds_of_the_agent() {
    let mut facts = healthy();
    facts.shortages = Fact::Known(vec![disk(true)]);
    beside_kubelet(&mut facts);
    assert_eq!(finding(&facts, "room"), None);
}

#[test]
fn pods_end_at_once_or_when_the_agent_starts() {
    let mut facts = healthy();
    facts.shortages = Fact::Known(vec![disk(true)]);
    let title = finding(&facts, "room").unwrap().title;
    assert_eq!(title, "an eviction threshold is met: pods will be evicted at once");
    facts.agent = unseen(NotObserved::Absent);
    let title = finding(&facts, "room").unwrap().title;
    assert!(title.ends_with("evicted at once when the agent starts"), "{title}");
}

#[test]
fn what_the_agent_has_measured_counts_more_than_what_the_command_did() {
    let mut facts = healthy();
    facts.shortages = Fact::Known(vec![disk(true)]);
    told(&mut facts, vec![threshold("memory.available", "500Mi", None)]);
    assert_eq!(finding(&facts, "room").unwrap().severity, Well);
    // An agent that has just started has measured nothing.
    let new = ThresholdStatus { signal: "memory.available".to_owned(), ..Default::default() };
    told(&mut facts, vec![new]);
    assert_eq!(finding(&facts, "room").unwrap().severity, Warning);
}
