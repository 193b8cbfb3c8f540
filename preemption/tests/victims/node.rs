//! A whole node, except for its runtime: a critical pod arrives when the node is full.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use winddown_preemption::{PreemptionHandler, Strategy};
use winddown_shared::status::StatusStore;
use winddown_shared::testing::{FakeRecorder, FakeRuntime};
use winddown_shared::{
    Admission, DesiredPods, Event, Intake, NodeFit, NodeView, Pod, PodWorkers, ResourceName,
    RuntimeSyncer, WallClock, WallTime,
};

/// A node of four cpus.
struct Node {
    runtime: FakeRuntime,
    statuses: StatusStore,
    events: FakeRecorder,
    desired: watch::Sender<Option<Arc<DesiredPods>>>,
}

impl Node {
    fn start(strategy: Strategy) -> Self {
        let (runtime, events) = (FakeRuntime::default(), FakeRecorder::default());
        let statuses = StatusStore::default();
        let recorder = Arc::new(events.clone());
        let shared = Arc::new(runtime.clone());
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let syncer = RuntimeSyncer::new(shared.clone(), statuses.clone(), recorder.clone(), wall);
        let workers = PodWorkers::new(syncer, recorder.clone());
        let view = NodeView {
            os: "linux".into(),
            allocatable: [("cpu", "4"), ("pods", "100")].into_iter().collect(),
            ..NodeView::default()
        };
        let fit = NodeFit::new(Arc::new(view))
            .with_preemption(Arc::new(PreemptionHandler::new(strategy)));
        let admission = Admission::default().then(fit);
        let desired = watch::Sender::new(None);
        let intake = Intake::new(shared, workers.clone(), statuses.clone(), admission, recorder);
        tokio::spawn(intake.run(desired.subscribe()));
        tokio::spawn(RuntimeSyncer::forward_runtime_changes(workers));
        Self { runtime, statuses, events, desired }
    }

    async fn want(&self, pods: &[&Pod]) {
        let pods = pods.iter().copied().cloned().collect();
        self.desired.send_replace(Some(Arc::new(DesiredPods::all(pods))));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn running(&self, pods: &[&Pod]) -> Vec<String> {
        let running = pods.iter().filter(|pod| self.runtime.runs(pod.uid()));
        running.map(|pod| pod.name().to_string()).collect()
    }

    fn says(&self, pod: &Pod) -> (String, String, String) {
        let status = self.statuses.get(pod.uid()).unwrap();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (text(&status.phase), text(&status.reason), text(&status.message))
    }
}

fn asks(name: &str, priority: i32, cpu: &str) -> Pod {
    let object = serde_json::json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": {"kubernetes.io/config.source": "api"},
        },
        "spec": {
            "priority": priority,
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        },
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn critical(cpu: &str) -> Pod {
    asks("dns", 2_000_000_000, cpu)
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_runs_after_the_right_victim_has_ended_and_both_say_so() {
    let node = Node::start(Strategy::Distance);
    let (small, right, big) =
        (asks("small", 0, "500m"), asks("right", 0, "1"), asks("big", 0, "2"));
    let dns = critical("1500m");
    let all = [&small, &right, &big, &dns];
    node.want(&all[..3]).await;
    node.runtime.stop_takes(right.uid(), Duration::from_secs(5));
    node.want(&all).await;
    assert_eq!(node.running(&all), ["small", "right", "big"]);
    let (phase, reason, message) = node.says(&dns);
    assert_eq!((phase.as_str(), reason.as_str()), ("Pending", "WaitingForPreemption"));
    assert!(message.contains("default/right to free cpu 1"), "{message}");
    assert!(message.contains("passed over: default/"), "{message}");

    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(node.running(&all), ["small", "big", "dns"]);
    let (phase, reason, message) = node.says(&right);
    assert_eq!((phase.as_str(), reason.as_str()), ("Failed", "Preempting"));
    assert_eq!(message, "Preempted in order to admit critical pod");
    let told = node.events.events();
    let ended = told.iter().find_map(|event| match event {
        Event::PodPreempted { pod, by, signal, message } => Some((pod, by, signal, message)),
        _ => None,
    });
    let (pod, by, signal, message) = ended.expect("the end is told");
    assert_eq!((pod, by, signal), (right.pod_ref(), dns.pod_ref(), &Some(ResourceName::Cpu)));
    // The amounts, and the pods that could have been chosen instead.
    assert!(message.contains("to free cpu "), "{message}");
    assert!(message.contains("passed over: "), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_strategy_decides_who_ends() {
    for (strategy, left) in
        [(Strategy::Distance, ["low", "dns"]), (Strategy::Minimal, ["high", "dns"])]
    {
        let node = Node::start(strategy);
        // The one with the high priority is closer to what is lacking.
        let (low, high, dns) = (asks("low", 0, "2500m"), asks("high", 10, "1500m"), critical("1"));
        let all = [&low, &high, &dns];
        node.want(&all[..2]).await;
        node.want(&all).await;
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(node.running(&all), left, "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_that_preemption_cannot_help_is_refused_and_no_pod_ends() {
    let node = Node::start(Strategy::Minimal);
    let (peer, dns) = (asks("peer", 2_000_000_000, "4"), critical("1"));
    node.want(&[&peer]).await;
    node.want(&[&peer, &dns]).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(node.running(&[&peer, &dns]), ["peer"]);
    let (phase, reason, message) = node.says(&dns);
    assert_eq!((phase.as_str(), reason.as_str()), ("Failed", "UnexpectedAdmissionError"));
    assert_eq!(
        message,
        "Pod was rejected: Unexpected error while attempting to recover from admission failure: \
         preemption: error finding a set of pods to preempt: no set of running pods found to \
         reclaim resources: [(res: cpu, q: 1000), ]"
    );
}
