//! Statuses of nodes to display.

use winddown_control::api::{
    ContainerStatus, Decision, DrainStatus, ExitedRun, GroupProgress, GroupSummary, LastState,
    LockState, NodeStatus, Phase, PlanSummary, PodState, PodStatus, PressureStatus, RuntimeStatus,
    Status, ThresholdStatus,
};

/// Returns a healthy node.
pub(crate) fn idle() -> Status {
    let node = NodeStatus {
        name: "edge-7".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 412,
        started_at: Some("2026-11-17T09:12:00Z".parse().unwrap()),
        ..NodeStatus::default()
    };
    let time = "2026-11-20T12:00:00Z".parse().unwrap();
    let mut status = Status { time, node, ..Status::default() };
    status.lock.state = LockState::Held;
    status.lock.held_since = Some("2026-11-17T09:12:01Z".parse().unwrap());
    status.lock.delay_seconds = Some(62.0);
    status.lock.required_seconds = 60.0;
    status.runtime =
        RuntimeStatus { name: "cri".to_owned(), healthy: true, message: String::new() };
    status.config.file = "/etc/winddown/config.yaml".to_owned();
    status.pods = PODS.iter().map(|(name, priority)| pod(name, *priority)).collect();
    let group = |name: &str, priority, deadline_seconds, pods| GroupSummary {
        priority,
        name: Some(name.to_owned()),
        deadline_seconds,
        pods,
    };
    status.shutdown_plan = PlanSummary {
        enabled: true,
        requested_seconds: 60.0,
        available_seconds: 60.0,
        groups: vec![group("ordinary pods", 0, 45.0, 7), group(CRITICAL, 2_000_000_000, 60.0, 2)],
        ..PlanSummary::default()
    };
    status.pressure = Some(PressureStatus {
        thresholds: vec![
            threshold("memory.available", "412Mi", "100Mi", None),
            threshold("nodefs.available", "31Gi", "4Gi", None),
            threshold("pid.available", "31000", "1000", None),
        ],
        ..PressureStatus::default()
    });
    status.decisions = vec![
        decision("08:48:00", "shop/cart-5b8f6d7c9-qv2lm admitted"),
        decision("11:20:00", "shop/queue-worker-0 started again after exit code 1"),
    ];
    status
}

/// Returns a node that goes down: one group is stopping, the other waits.
pub(crate) fn going_down() -> Status {
    let mut status = idle();
    status.shutdown.phase = Phase::Running;
    status.shutdown.since = Some("2026-11-20T11:59:50Z".parse().unwrap());
    status.shutdown.deadline = Some("2026-11-20T12:00:50Z".parse().unwrap());
    let group = |name: &str, priority, pods, terminated, started| GroupProgress {
        priority,
        name: Some(name.to_owned()),
        pods,
        terminated,
        started,
        finished: false,
    };
    status.shutdown.groups =
        vec![group("ordinary pods", 0, 7, 4, true), group(CRITICAL, 2_000_000_000, 2, 0, false)];
    status.admission_closed = true;
    for (number, pod) in status.pods.iter_mut().take(7).enumerate() {
        if number < 3 {
            pod.state = PodState::Terminating;
            pod.grace_left_seconds = Some(35 + u64::try_from(number).unwrap() * 4);
        } else {
            pod.state = PodState::Terminated;
            pod.phase = "Failed".to_owned();
            pod.reason = "Terminated".to_owned();
        }
        (pod.ready, pod.ready_containers) = (false, 0);
    }
    status.decisions.extend([
        decision("11:59:50", "shutdown started: 9 pods to terminate within 60s"),
        decision("11:59:50", "ordinary pods: 7 pods asked to terminate within 45s"),
        decision("11:59:51", "shop/cart-5b8f6d7c9-qv2lm terminated in 1.2s"),
        decision("11:59:53", "shop/queue-worker-0 terminated in 3.0s"),
    ]);
    status
}

/// Returns a node with a drain under way: one group is stopping, the other waits.
pub(crate) fn draining() -> Status {
    let mut status = going_down();
    let progress = std::mem::take(&mut status.shutdown);
    status.drain = Some(DrainStatus { pods_remaining: 5, progress, ..DrainStatus::default() });
    status.decisions[2].text = "drain started: 9 pods to terminate within 60s".to_owned();
    status
}

/// Returns a node that runs out of memory.
pub(crate) fn short() -> Status {
    let mut status = idle();
    status.pressure = Some(PressureStatus {
        conditions: vec!["MemoryPressure".to_owned()],
        thresholds: vec![
            threshold("memory.available", "81Mi", "100Mi", Some(3.0)),
            threshold("nodefs.available", "31Gi", "4Gi", None),
        ],
        ..PressureStatus::default()
    });
    if let Some(pod) = status.pods.first_mut() {
        let terminated =
            ExitedRun { exit_code: 3, reason: "Error".to_owned(), ..ExitedRun::default() };
        pod.containers = vec![ContainerStatus {
            name: "builder".to_owned(),
            state: "waiting".to_owned(),
            reason: "CrashLoopBackOff".to_owned(),
            last_state: Some(LastState { terminated }),
            ..ContainerStatus::default()
        }];
        pod.ready_containers = 0;
    }
    status.decisions.push(decision(
        "11:59:58",
        "batch/report-builder-8d116ece-6cad4 asked to terminate within 1s (it is evicted)",
    ));
    status
}

const CRITICAL: &str = "host-network and node-critical pods";

const PODS: [(&str, i32); 9] = [
    ("batch/report-builder-8d116ece-6cad4", 0),
    ("default/web-7d9f8b6c5d-x2k4q", 0),
    ("default/recommendation-engine-experimental-blue-3d9c1724-1738f", 0),
    ("shop/cart-5b8f6d7c9-qv2lm", 100),
    ("shop/database-0", 1000),
    ("shop/queue-worker-0", 100),
    ("shop/session-cache-0f21ddb6-d3ac9", 0),
    ("kube-system/node-local-dns-8xk2p", 2_000_001_000),
    ("kube-system/log-shipper-b4tqz", 2_000_000_000),
];

fn pod(name: &str, priority: i32) -> PodStatus {
    let (namespace, name) = name.split_once('/').unwrap();
    PodStatus {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        source: "api".to_owned(),
        priority,
        critical: priority >= 2_000_000_000,
        qos: "Burstable".to_owned(),
        phase: "Running".to_owned(),
        state: PodState::Syncing,
        ready: true,
        ready_containers: 1,
        desired_containers: 1,
        started_at: Some("2026-11-20T08:48:00Z".parse().unwrap()),
        ..PodStatus::default()
    }
}

fn threshold(signal: &str, available: &str, least: &str, met: Option<f64>) -> ThresholdStatus {
    ThresholdStatus {
        signal: signal.to_owned(),
        hard: true,
        threshold: Some(least.to_owned()),
        available: Some(available.to_owned()),
        capacity: None,
        met_for_seconds: met,
        grace_seconds: 0.0,
    }
}

fn decision(time: &str, text: &str) -> Decision {
    Decision {
        time: Some(format!("2026-11-20T{time}Z").parse().unwrap()),
        kind: "example".to_owned(),
        text: text.to_owned(),
        ..Decision::default()
    }
}
