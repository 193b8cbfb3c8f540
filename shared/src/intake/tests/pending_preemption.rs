//! Critical pods that wait for room.

mod others_end;
mod random;
mod rejected_static;

use std::sync::Mutex;

use super::*;
use crate::testing::FakeRecorder;
use crate::{
    AdmissionFailureHandler, Event, FitFailures, NodeFit, NodeView, PreemptionOutcome, Victim,
    VictimLock, VictimPlan,
};

/// A node with 10 cpus; a critical pod that lacks some preempts the first others that it may preempt.
struct Crowded {
    node: Node,
    events: FakeRecorder,
    lock: VictimLock,
    /// The pods for which room was searched, and the candidates.
    asked: Asked,
}

type Asked = Arc<Mutex<Vec<(String, Vec<String>)>>>;

/// Chooses pods in the order of their names until there is enough room.
struct ByName(Asked);

impl AdmissionFailureHandler for ByName {
    fn handle_admission_failure(
        &self,
        pod: &Pod,
        failures: FitFailures,
        _node: &NodeView,
        others: &[Pod],
    ) -> PreemptionOutcome {
        let mut among: Vec<&Pod> = others.iter().filter(|o| pod.may_preempt(o)).collect();
        among.sort_by_key(|other| other.name().clone());
        let names = among.iter().map(|other| other.name().to_string()).collect();
        self.0.lock().unwrap().push((pod.name().to_string(), names));
        let lacking = match failures.into_requirements(pod) {
            Ok(lacking) => lacking,
            Err(failures) => return PreemptionOutcome::Rejected(failures),
        };
        let signal = lacking.first().map(|(name, _)| name.clone());
        let mut needed = lacking[0].1;
        let mut victims = Vec::new();
        for other in among {
            if needed <= 0 {
                break;
            }
            needed -= other.fit_requests().cpu_milli();
            victims.push(Victim { pod: other.clone(), request: preempting() });
        }
        if needed > 0 {
            return PreemptionOutcome::Failed("preemption: no set of running pods found".into());
        }
        PreemptionOutcome::Preempt(VictimPlan { victims, message: "making room".into(), signal })
    }
}

fn preempting() -> KillRequest {
    KillRequest {
        evict: true,
        status: Some(StatusOverride::failed(
            "Preempting",
            "Preempted in order to admit critical pod",
            None,
        )),
        ..KillRequest::new(KillReason::Preemption)
    }
}

fn ten_cpus() -> NodeView {
    NodeView {
        os: "linux".into(),
        allocatable: [("cpu", "10"), ("pods", "100")].into_iter().collect(),
        ..NodeView::default()
    }
}

fn crowded() -> Crowded {
    let asked = Asked::default();
    let fit = NodeFit::new(Arc::new(ten_cpus())).with_preemption(Arc::new(ByName(asked.clone())));
    let (lock, events) = (VictimLock::new(), FakeRecorder::default());
    let node =
        node_with(FakeRuntime::default(), events.clone(), |admission| admission.then(fit), &lock);
    Crowded { node, events, lock, asked }
}

impl Crowded {
    fn takes(&self, pod: &Pod, seconds: u64) {
        self.node.runtime.stop_takes(pod.uid(), secs(seconds));
    }

    fn runs(&self, pod: &Pod) -> bool {
        self.node.runtime.runs(pod.uid())
    }

    fn reason(&self, pod: &Pod) -> String {
        self.node.said(pod).1
    }

    /// The CPUs of all pods with running containers.
    fn used(&self) -> i64 {
        let pods = self.node.workers.running().pods;
        let here = pods.iter().filter(|pod| self.runs(pod));
        here.map(|pod| pod.fit_requests().cpu_milli()).sum::<i64>() / 1000
    }
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A pod with that many cpus, from the API or (without a priority) from a manifest.
fn asks(name: &str, priority: Option<i32>, cpus: u8) -> Pod {
    let source = if priority.is_some() { "api" } else { "file" };
    let object = serde_json::json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": {"kubernetes.io/config.source": source},
        },
        "spec": {
            "priority": priority,
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {"name": "main", "resources": {"requests": {"cpu": cpus.to_string()}}},
            ],
        },
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn ordinary(name: &str, cpus: u8) -> Pod {
    asks(name, Some(0), cpus)
}

fn critical(name: &str, cpus: u8) -> Pod {
    asks(name, Some(2_000_000_000), cpus)
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_starts_when_its_victims_have_ended_and_not_before() {
    let c = crowded();
    let (a, b, stays) = (ordinary("a", 3), ordinary("b", 3), ordinary("stays", 4));
    let dns = critical("dns", 5);
    c.takes(&a, 2);
    c.takes(&b, 6);
    c.node.want(&[&a, &b, &stays]).await;
    c.node.want(&[&a, &b, &stays, &dns]).await;
    assert_eq!(c.node.said(&dns), ("Pending".into(), WAITING_FOR_PREEMPTION.into()));
    assert_eq!(c.node.runtime.stops().len(), 2, "both are terminated side by side");
    tokio::time::sleep(secs(5)).await;
    assert!(!c.runs(&dns), "one has ended; it needs both");
    tokio::time::sleep(secs(2)).await;
    assert!(c.runs(&dns) && c.runs(&stays));
    assert_eq!(c.node.said(&dns), ("Running".into(), String::new()));
    assert_eq!(c.node.said(&a), ("Failed".into(), "Preempting".into()));
    assert_eq!(c.used(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_would_not_stop_is_no_victim_and_keeps_its_room() {
    let c = crowded();
    let (a, b, dns) = (ordinary("a", 5), ordinary("b", 5), critical("dns", 5));
    c.node.runtime.stops_at_shutdown_only(a.uid());
    c.node.want(&[&a, &b]).await;
    c.node.want(&[&a, &b, &dns]).await;
    settle().await;
    assert!(c.runs(&a) && !c.runs(&b) && c.runs(&dns));
    let big = critical("big", 10);
    c.node.want(&[&a, &dns, &big]).await;
    assert!(c.runs(&a) && !c.runs(&big));
    assert_eq!(c.used(), 10);
}

#[tokio::test(start_paused = true)]
async fn it_is_told_who_ended_for_whom() {
    let c = crowded();
    let (a, b, dns) = (ordinary("a", 5), ordinary("b", 5), critical("dns", 5));
    c.node.want(&[&a, &b]).await;
    c.node.want(&[&a, &b, &dns]).await;
    settle().await;
    let events = c.events.events();
    let signal = Some("cpu".into());
    let of = |pod: &Pod| pod.pod_ref().clone();
    let message: Arc<str> = "making room".into();
    let started = Event::PreemptionStarted {
        pod: of(&dns),
        victims: vec![of(&a)],
        signal: signal.clone(),
        message: Arc::clone(&message),
    };
    let ended =
        Event::PodPreempted { pod: of(&a), by: of(&dns), signal, message: Arc::clone(&message) };
    let held = Event::PodWaiting { pod: of(&dns), message };
    let admitted = Event::PodAdmitted { pod: of(&dns) };
    let at = |event: &Event| events.iter().position(|e| e == event).expect("it is told");
    assert!(at(&started) < at(&held) && at(&held) < at(&ended) && at(&ended) < at(&admitted));
    assert_eq!(events.iter().filter(|e| matches!(e, Event::PodWaiting { .. })).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_later_does_not_get_the_room_that_was_made() {
    let c = crowded();
    let (a, dns, late) = (ordinary("a", 10), critical("dns", 8), ordinary("late", 2));
    let (greedy, small) = (ordinary("greedy", 3), ordinary("small", 2));
    c.takes(&a, 5);
    c.node.want(&[&a]).await;
    c.node.want(&[&a, &dns]).await;
    c.node.want(&[&a, &dns, &greedy]).await;
    assert_eq!(c.reason(&greedy), "OutOfcpu");
    tokio::time::sleep(secs(6)).await;
    assert!(c.runs(&dns));
    c.node.want(&[&dns, &late]).await;
    assert!(c.runs(&late), "what is left over is for everybody");
    c.node.want(&[&dns, &late, &small]).await;
    assert_eq!(c.reason(&small), "OutOfcpu");
}

#[tokio::test(start_paused = true)]
async fn no_other_pod_waits_while_one_is_held() {
    let c = crowded();
    let (a, b, dns) = (ordinary("a", 6), ordinary("b", 2), critical("dns", 7));
    c.takes(&a, 20);
    c.node.want(&[&a, &b]).await;
    c.node.want(&[&a, &b, &dns]).await;
    let fits = ordinary("fits", 1);
    c.node.want(&[&a, &b, &dns, &fits]).await;
    assert!(c.runs(&fits) && !c.runs(&dns));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_beside_what_terminates_and_beside_the_held_pod_starts_at_once() {
    let c = crowded();
    let (a, dns) = (ordinary("a", 5), critical("dns", 6));
    c.takes(&a, 20);
    c.node.want(&[&a]).await;
    c.node.want(&[&a, &dns]).await;
    let (api, file, late) = (ordinary("api", 2), asks("file", None, 2), ordinary("late", 1));
    c.node.want(&[&a, &dns, &api, &file]).await;
    assert!(c.runs(&api) && c.runs(&file) && !c.runs(&dns));
    c.node.want(&[&a, &dns, &api, &file, &late]).await;
    assert_eq!(c.reason(&late), "OutOfcpu", "it fits only until the held pod starts");
    tokio::time::sleep(secs(21)).await;
    assert!(c.runs(&dns));
    assert_eq!(c.used(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_one_that_does_not_terminate_keeps_none_from_what_is_free() {
    let c = crowded();
    let (a, dns, fits) = (ordinary("a", 8), critical("dns", 8), ordinary("fits", 2));
    c.node.runtime.stop_fails(a.uid(), u32::MAX);
    c.node.want(&[&a]).await;
    c.node.want(&[&a, &dns]).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(c.reason(&dns), WAITING_FOR_PREEMPTION);
    c.node.want(&[&a, &dns, &fits]).await;
    assert!(c.runs(&fits));
}

#[tokio::test(start_paused = true)]
async fn room_that_comes_in_time_is_reserved_though_another_pod_does_not_terminate() {
    let c = crowded();
    let (a, b, dns, late) =
        (ordinary("a", 3), ordinary("b", 4), critical("dns", 6), ordinary("late", 2));
    c.node.runtime.stop_fails(a.uid(), u32::MAX);
    c.takes(&b, 20);
    c.node.want(&[&a, &b]).await;
    c.node.want(&[&b]).await;
    tokio::time::sleep(secs(60)).await;
    c.node.want(&[&b, &dns]).await;
    c.node.want(&[&b, &dns, &late]).await;
    assert_eq!(c.reason(&late), "OutOfcpu");
    tokio::time::sleep(secs(21)).await;
    assert!(c.runs(&a) && c.runs(&dns));
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_does_not_end_in_time_is_not_counted_on() {
    let c = crowded();
    let (a, b, dns) = (ordinary("a", 5), ordinary("b", 5), critical("dns", 4));
    c.node.runtime.stop_fails(a.uid(), u32::MAX);
    c.node.want(&[&a, &b]).await;
    c.node.want(&[&a, &b, &dns]).await;
    tokio::time::sleep(secs(44)).await;
    assert!(c.runs(&b) && !c.runs(&dns), "its grace of 30 s and half as much again are not over");
    tokio::time::sleep(secs(3)).await;
    assert!(c.runs(&dns) && !c.runs(&b), "another one was terminated");
    assert!(c.runs(&a), "it still runs, and its room still counts as taken");
    assert_eq!(c.used(), 9);
}

#[tokio::test(start_paused = true)]
async fn when_no_pod_is_left_to_end_it_starts_as_soon_as_the_late_one_has_gone() {
    let c = crowded();
    let (a, dns) = (ordinary("a", 8), critical("dns", 4));
    c.node.runtime.stop_fails(a.uid(), 12);
    c.node.want(&[&a]).await;
    c.node.want(&[&a, &dns]).await;
    tokio::time::sleep(secs(60)).await;
    let status = c.node.statuses.get(dns.uid()).unwrap();
    assert_eq!(status.reason.as_deref(), Some(WAITING_FOR_PREEMPTION));
    let message = "waiting for terminating pods: default/a";
    assert_eq!(status.message.as_deref(), Some(message));
    while c.runs(&a) {
        tokio::time::sleep(secs(1)).await;
        assert!(c.used() <= 10);
    }
    settle().await;
    assert!(c.runs(&dns));
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_ending_anyway_are_awaited_and_no_other_ends() {
    let c = crowded();
    let (a, b, dns) = (ordinary("a", 6), ordinary("b", 4), critical("dns", 5));
    c.takes(&a, 9);
    c.node.want(&[&a, &b]).await;
    c.node.want(&[&b]).await;
    c.node.want(&[&b, &dns]).await;
    assert_eq!(c.reason(&dns), WAITING_FOR_PREEMPTION);
    tokio::time::sleep(secs(10)).await;
    assert!(c.runs(&dns) && c.runs(&b));
    assert_eq!(c.node.runtime.stops(), [a.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_static_pod_waits_for_its_older_self_instead_of_being_refused() {
    let c = crowded();
    let old = asks("web", None, 8);
    let new = {
        let mut object = old.object().clone();
        object.metadata.uid = Some("web-2".into());
        Pod::new(object).unwrap()
    };
    c.takes(&old, 3);
    c.node.want(&[&old]).await;
    c.node.want(&[&new]).await;
    assert_eq!(c.reason(&new), WAITING_FOR_PREEMPTION);
    tokio::time::sleep(secs(4)).await;
    assert!(c.runs(&new) && !c.runs(&old));
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_whose_manifest_changes_under_the_same_uid_starts_again() {
    let c = crowded();
    let old = asks("web", None, 8);
    let changed = |change: fn(&mut k8s_openapi::api::core::v1::Pod)| {
        let mut object = old.object().clone();
        change(&mut object);
        Pod::new(object).unwrap()
    };
    let labelled = changed(|pod| pod.metadata.labels = Some([("a".into(), "b".into())].into()));
    let new =
        changed(|pod| pod.spec.as_mut().unwrap().containers[0].command = Some(vec!["ls".into()]));
    c.takes(&old, 3);
    c.node.want(&[&old]).await;
    c.node.want(&[&labelled]).await;
    assert!(c.node.runtime.stops().is_empty(), "its containers are as before");
    c.node.want(&[&new]).await;
    assert_eq!(c.node.runtime.stops(), [old.uid().clone()]);
    tokio::time::sleep(secs(4)).await;
    assert!(c.runs(&new));
    c.node.want(&[&new]).await;
    assert_eq!(c.node.runtime.stops().len(), 1, "once for each change");
}

#[tokio::test(start_paused = true)]
async fn several_critical_pods_are_served_at_once_and_no_victim_is_chosen_twice() {
    let c = crowded();
    let all = ["a", "b", "c", "d", "e"].map(|name| ordinary(name, 2));
    let (one, two) = (critical("one", 3), critical("two", 3));
    all.iter().for_each(|pod| c.takes(pod, 5));
    let mut want: Vec<&Pod> = all.iter().collect();
    c.node.want(&want).await;
    want.extend([&one, &two]);
    c.node.want(&want).await;
    // Both need 6 cpus together; what the victims of the first leave over counts for the second.
    assert_eq!(c.node.runtime.stops().len(), 3);
    assert_eq!(c.asked.lock().unwrap()[1].1, ["c", "d", "e"], "those of the first are not asked");
    tokio::time::sleep(secs(6)).await;
    assert!(c.runs(&one) && c.runs(&two) && c.runs(&all[3]) && c.runs(&all[4]));
    assert_eq!(c.node.runtime.stops().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_more_important_of_two_held_pods_starts_first() {
    let c = crowded();
    let a = ordinary("a", 10);
    let (cluster, node) = (critical("cluster", 6), asks("node", Some(2_000_001_000), 6));
    c.takes(&a, 5);
    c.node.want(&[&a]).await;
    c.node.want(&[&a, &cluster]).await;
    c.node.want(&[&a, &cluster, &node]).await;
    tokio::time::sleep(secs(6)).await;
    assert!(c.runs(&node) && !c.runs(&cluster));
    assert_eq!(c.used(), 6);
}

#[tokio::test(start_paused = true)]
async fn new_pods_of_one_pass_are_asked_by_importance() {
    let c = crowded();
    let (a, b, dns) = (ordinary("a", 6), ordinary("b", 6), critical("dns", 6));
    c.node.want(&[&a, &b, &dns]).await;
    assert!(c.runs(&dns), "it comes last in the source");
    assert_eq!((c.reason(&a), c.reason(&b)), ("OutOfcpu".into(), "OutOfcpu".into()));
    assert!(c.node.runtime.stops().is_empty(), "nobody was started to be terminated at once");
}

#[tokio::test(start_paused = true)]
async fn of_two_new_pods_of_the_same_priority_the_older_is_asked_first() {
    let c = crowded();
    let created = |name: &str, second: i64| {
        let mut object = ordinary(name, 6).object().clone();
        let at = WallTime::from_second(second).unwrap();
        object.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
        Pod::new(object).unwrap()
    };
    let (younger, older) = (created("a", 2), created("b", 1));
    c.node.want(&[&younger, &older]).await;
    assert!(c.runs(&older) && !c.runs(&younger));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_makes_no_room_and_a_held_pod_is_refused_until_it_is_called_off() {
    let c = crowded();
    let (a, b) = (ordinary("a", 5), ordinary("b", 5));
    let (before, during) = (asks("before", None, 5), asks("during", None, 5));
    let of_the_api = critical("api", 0);
    c.takes(&a, 5);
    c.node.want(&[&a, &b]).await;
    c.node.want(&[&a, &b, &before]).await;
    c.node.gate.send_replace(GateState::Shut);
    c.node.want(&[&a, &b, &before, &during, &of_the_api]).await;
    assert_eq!(c.reason(&during), "NodeShutdown");
    tokio::time::sleep(secs(6)).await;
    assert_eq!(c.reason(&before), "NodeShutdown");
    assert_eq!(c.node.runtime.stops(), [a.uid().clone()], "only what was begun before");
    c.node.gate.send_replace(GateState::Open);
    tokio::time::sleep(secs(60)).await;
    assert!(c.runs(&before) && c.runs(&during));
    assert_eq!(c.reason(&of_the_api), "NodeShutdown", "its controller was told that it has failed");
}

#[tokio::test(start_paused = true)]
async fn a_held_pod_that_is_deleted_or_not_wanted_any_more_never_starts() {
    let c = crowded();
    let (a, dns) = (ordinary("a", 10), critical("dns", 5));
    c.takes(&a, 5);
    c.node.want(&[&a]).await;
    c.node.want(&[&a, &dns]).await;
    c.node.want(&[&a]).await;
    assert!(c.node.statuses.get(dns.uid()).is_none());
    tokio::time::sleep(secs(60)).await;
    assert_eq!(c.node.runtime.starts(), [a.uid().clone()]);

    let c = crowded();
    c.takes(&a, 5);
    c.node.want(&[&a]).await;
    c.node.want(&[&a, &dns]).await;
    let mut object = dns.object().clone();
    let at = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(WallTime::UNIX_EPOCH);
    object.metadata.deletion_timestamp = Some(at);
    c.node.want(&[&a, &Pod::new(object).unwrap()]).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(c.node.runtime.starts(), [a.uid().clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_too_small_ends_no_pod() {
    let c = crowded();
    let (a, huge) = (ordinary("a", 5), critical("huge", 11));
    c.node.want(&[&a, &huge]).await;
    assert_eq!(c.reason(&huge), "UnexpectedAdmissionError");
    assert!(c.node.runtime.stops().is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_controllers_never_choose_the_same_pod() {
    let c = crowded();
    let (a, b, dns) = (ordinary("a", 5), ordinary("b", 5), critical("dns", 5));
    c.node.want(&[&a, &b]).await;
    c.takes(&a, 3);
    // An eviction chooses now: the intake, which runs meanwhile, sees that its victim is terminating.
    let evicted = c.lock.choose(|| {
        let mut pods = c.node.workers.non_terminating_pods();
        pods.sort_by_key(|pod| pod.name().clone());
        c.node.workers.begin_kill(pods[0].clone(), KillRequest::new(KillReason::Eviction));
        pods[0].clone()
    });
    assert_eq!(evicted.name(), a.name());
    c.node.want(&[&a, &b, &dns]).await;
    tokio::time::sleep(secs(5)).await;
    assert!(c.runs(&dns) && c.runs(&b), "the room that the eviction left is enough");
    let names: Vec<_> =
        c.node.workers.non_terminating_pods().iter().map(|p| p.name().clone()).collect();
    assert_eq!(names.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn remains_are_removed_although_pods_complete_all_the_time_while_another_waits_for_room() {
    let c = crowded();
    type Change = fn(&mut k8s_openapi::api::core::v1::PodSpec);
    let with = |pod: Pod, change: Change| {
        let mut object = pod.object().clone();
        change(object.spec.as_mut().unwrap());
        Pod::new(object).unwrap()
    };
    let job = |i: u32| {
        let pod = ordinary(&format!("job{i}"), 0);
        with(pod, |spec| spec.restart_policy = Some("Never".to_owned()))
    };
    let jobs: Vec<Pod> = (0..20).map(job).collect();
    let slow = with(ordinary("a", 8), |spec| spec.termination_grace_period_seconds = Some(600));
    let (gone, dns) = (ordinary("gone", 0), critical("dns", 5));
    c.takes(&slow, 500);
    c.node.runtime.forget_fails(1);
    let mut wanted: Vec<&Pod> = jobs.iter().chain([&slow, &gone]).collect();
    c.node.want(&wanted).await;
    wanted.pop();
    wanted.push(&dns);
    c.node.want(&wanted).await;
    for job in &jobs {
        tokio::time::sleep(secs(1)).await;
        c.node.runtime.exit(job.uid(), 0);
    }
    assert!(!c.runs(&dns), "it still waits");
    assert_eq!(c.node.runtime.forgotten(), [gone.uid().clone()]);
}
