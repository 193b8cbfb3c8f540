//! The ordered start on a paused clock, with statuses that are set by hand.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use tokio::task::JoinHandle;
use winddown_shared::testing::pod_with;
use winddown_shared::{AdmissionGate, WallTime};

use super::*;
use crate::ordered_start::StartOutcome;

struct Bench {
    wanted: watch::Sender<Option<Arc<DesiredPods>>>,
    statuses: StatusStore,
    gate: AdmissionGate,
    turn: watch::Receiver<StartTurn>,
    report: watch::Receiver<Option<StartReport>>,
    task: JoinHandle<()>,
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn pod(name: &str, priority: i32) -> Pod {
    pod_with(name, name, |pod| pod.spec.get_or_insert_default().priority = Some(priority))
}

/// A node whose groups have 30 s, 100 s after its kernel's boot.
fn parts() -> (StartParts, watch::Sender<Option<Arc<DesiredPods>>>, AdmissionGate) {
    let (wanted, gate) = (watch::Sender::new(None), AdmissionGate::new());
    let policy = Policy::by_role(secs(30), secs(10)).unwrap();
    let origin = Instant::now();
    let parts = StartParts {
        wanted: wanted.subscribe(),
        statuses: StatusStore::default(),
        gate: gate.changes(),
        policy: watch::Sender::new(Arc::new(policy)).subscribe(),
        group_timeout: secs(30),
        wall: WallClock::fixed(WallTime::UNIX_EPOCH),
        boot: BootClock::new(move || secs(100) + origin.elapsed()),
        boot_id: "boot".into(),
    };
    (parts, wanted, gate)
}

fn bench() -> Bench {
    let (parts, wanted, gate) = parts();
    let statuses = parts.statuses.clone();
    let start = StartRun::new(parts, None).unwrap();
    let (turn, report) = (start.turn(), start.report());
    Bench { wanted, statuses, gate, turn, report, task: tokio::spawn(start.run()) }
}

fn cloned(pods: &[&Pod]) -> Vec<Pod> {
    pods.iter().copied().cloned().collect()
}

impl Bench {
    async fn want(&self, pods: &[&Pod], complete: bool) {
        let awaited = !complete;
        self.want_of(DesiredPods { complete, awaited, ..DesiredPods::all(cloned(pods)) }).await;
    }

    async fn want_of(&self, wanted: DesiredPods) {
        self.wanted.send_replace(Some(Arc::new(wanted)));
        after(0).await;
    }

    async fn becomes(&self, pod: &Pod, phase: &str, ready: bool) {
        let ready = PodCondition {
            type_: "Ready".into(),
            status: if ready { "True" } else { "False" }.into(),
            ..PodCondition::default()
        };
        let status = PodStatus {
            phase: Some(phase.into()),
            conditions: Some(vec![ready]),
            ..PodStatus::default()
        };
        self.statuses.set(pod.clone(), status);
        after(0).await;
    }

    fn waits(&self, pod: &Pod) -> bool {
        self.turn.borrow().waits_for(pod).is_some()
    }

    fn report(&self) -> StartReport {
        self.report.borrow().clone().unwrap()
    }
}

/// Waits this many seconds, until all tasks have run.
async fn after(seconds: u64) {
    tokio::time::sleep(secs(seconds) + Duration::from_millis(1)).await;
}

fn states(report: &StartReport) -> Vec<PodStart> {
    report.pods().map(|pod| pod.state).collect()
}

#[tokio::test(start_paused = true)]
async fn each_group_starts_when_the_one_before_it_is_ready() {
    let b = bench();
    let (net, dns, web) = (pod("net", 2_000_001_000), pod("dns", 2_000_000_000), pod("web", 0));
    assert!(b.waits(&net), "no pod starts before all are known");
    b.want(&[&web, &dns, &net], true).await;
    assert!(!b.waits(&net) && b.waits(&dns) && b.waits(&web));
    let waits_for = b.turn.borrow().waits_for(&web).unwrap();
    assert_eq!(&*waits_for, "starts after pods of the node itself");
    assert_eq!(b.report().waiting, ["default/dns", "default/web"]);
    after(4).await;
    b.becomes(&net, "Running", false).await;
    assert!(b.waits(&dns));
    b.becomes(&net, "Running", true).await;
    assert!(!b.waits(&dns) && b.waits(&web));
    b.becomes(&dns, "Running", true).await;
    assert!(!b.waits(&web) && !b.task.is_finished());
    b.becomes(&web, "Running", true).await;
    assert!(b.task.is_finished());
    let report = b.report();
    assert_eq!((report.outcome, report.boot), (StartOutcome::Ready, secs(100)));
    let waited: Vec<u64> = report.pods().map(|pod| pod.waited.as_secs()).collect();
    assert_eq!(waited, [0, 4, 4]);
    assert_eq!(report.groups[0].took.unwrap().as_secs(), 4);
    assert!(!b.waits(&pod("late", 0)), "from now on each pod starts at once");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_never_ready_costs_its_groups_time_and_no_more() {
    let b = bench();
    let (liar, dns, web) = (pod("liar", 2_000_000_000), pod("dns", 2_000_000_000), pod("web", 0));
    b.want(&[&liar, &dns, &web], true).await;
    b.becomes(&dns, "Running", true).await;
    after(28).await;
    // Another pod that joins the current group gets what is left of its time.
    let twin = pod("twin", 2_000_000_000);
    b.want(&[&liar, &dns, &web, &twin], true).await;
    assert!(b.waits(&web) && !b.waits(&twin));
    after(2).await;
    assert!(!b.waits(&web));
    b.becomes(&web, "Succeeded", false).await;
    let report = b.report();
    assert_eq!(report.outcome, StartOutcome::NotReady);
    use PodStart::{NotReady, Ready, Succeeded};
    assert_eq!(states(&report), [NotReady, Ready, NotReady, Succeeded]);
    assert_eq!(report.groups[0].not_ready().collect::<Vec<_>>(), ["default/liar", "default/twin"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fails_or_is_not_wanted_any_more_is_not_waited_for() {
    let b = bench();
    let (gone, refused, web) =
        (pod("gone", 2_000_000_000), pod("refused", 2_000_000_000), pod("web", 0));
    b.want(&[&gone, &refused, &web], true).await;
    b.becomes(&refused, "Failed", false).await;
    assert!(b.waits(&web));
    b.want(&[&refused, &web], true).await;
    assert!(!b.waits(&web));
    assert_eq!(states(&b.report()), [PodStart::Removed, PodStart::Failed, PodStart::Starting]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_source_that_answers_late_start_in_order_too_and_hold_up_none_that_started() {
    let b = bench();
    let (own, net, web) = (pod("own", 0), pod("net", 2_000_001_000), pod("web", 0));
    b.want(&[&own], false).await;
    assert!(!b.waits(&own));
    b.becomes(&own, "Running", true).await;
    after(600).await;
    assert!(!b.task.is_finished(), "a source has not said which pods it wants");
    b.want(&[&own, &net, &web], true).await;
    assert!(!b.waits(&own) && !b.waits(&net) && b.waits(&web));
    // A pod that arrives after its turn.
    after(1).await;
    b.becomes(&net, "Running", true).await;
    let etcd = pod("late", 2_000_001_000);
    b.want(&[&own, &net, &web, &etcd], true).await;
    assert!(!b.waits(&etcd) && !b.waits(&web));
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_stays_invalid_does_not_keep_the_start_in_progress() {
    let b = bench();
    let own = pod("own", 0);
    b.want_of(DesiredPods { complete: false, ..DesiredPods::all(cloned(&[&own])) }).await;
    b.becomes(&own, "Running", true).await;
    assert!(b.task.is_finished());
    assert_eq!(b.report().outcome, StartOutcome::Ready);
}

#[tokio::test(start_paused = true)]
async fn it_is_no_pods_turn_before_the_node_admits_pods() {
    let b = bench();
    let (dns, web) = (pod("dns", 2_000_000_000), pod("web", 0));
    b.gate.shut(GateReason::Startup);
    b.want(&[&dns, &web], true).await;
    after(60).await;
    assert!(b.waits(&dns), "it would be refused, which is not waited for");
    b.gate.lift(GateReason::Startup);
    after(29).await;
    assert!(!b.waits(&dns) && b.waits(&web), "its time begins now");
}

#[tokio::test(start_paused = true)]
async fn a_groups_time_that_ends_while_no_pods_are_admitted_is_looked_at_when_they_are() {
    let b = bench();
    let (dns, web) = (pod("dns", 2_000_000_000), pod("web", 0));
    b.want(&[&dns, &web], true).await;
    b.gate.shut(GateReason::Startup);
    // Never comes if the start looks at the time over and over.
    after(60).await;
    assert!(b.waits(&web));
    b.gate.lift(GateReason::Startup);
    after(0).await;
    assert!(!b.waits(&web));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_waiting() {
    let b = bench();
    let (dns, web) = (pod("dns", 2_000_000_000), pod("web", 0));
    b.want(&[&dns, &web], true).await;
    assert!(b.waits(&web));
    b.gate.shut(GateReason::Shutdown);
    after(0).await;
    assert!(!b.waits(&web) && b.task.is_finished());
    let report = b.report();
    assert_eq!(report.outcome, StartOutcome::Cancelled);
    assert_eq!(report.waiting, ["default/web"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_soft_reboot_it_waits_until_the_shutdown_that_ended_the_pods_is_over() {
    let b = bench();
    let (dns, web) = (pod("dns", 2_000_000_000), pod("web", 0));
    b.gate.shut(GateReason::Shutdown);
    b.want(&[&dns, &web], true).await;
    after(60).await;
    assert!(b.waits(&dns) && b.waits(&web));
    b.gate.lift(GateReason::Shutdown);
    after(29).await;
    assert!(!b.waits(&dns) && b.waits(&web), "its time begins now");
    after(1).await;
    assert!(!b.waits(&web));
}

#[tokio::test(start_paused = true)]
async fn on_a_drained_node_no_pod_waits_for_its_turn() {
    let b = bench();
    b.gate.shut(GateReason::Drain);
    let dns = pod("dns", 2_000_000_000);
    b.want(&[&dns], true).await;
    after(0).await;
    assert!(!b.waits(&dns) && b.task.is_finished());
    assert_eq!(b.report().outcome, StartOutcome::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_of_this_boot_goes_on_and_one_of_the_next_boot_begins_anew() {
    let (first, wanted, _gate) = parts();
    let (dns, web) = (pod("dns", 2_000_000_000), pod("web", 0));
    let pods = vec![dns.clone(), web.clone()];
    wanted.send_replace(Some(Arc::new(DesiredPods::all(pods))));
    let boot = first.boot.clone();
    let again = |boot_id: &str, system_start: u64| StartParts {
        wanted: wanted.subscribe(),
        statuses: StatusStore::default(),
        gate: AdmissionGate::new().changes(),
        policy: first.policy.clone(),
        group_timeout: first.group_timeout,
        wall: first.wall.clone(),
        boot: boot.clone().with_system_start(secs(system_start)),
        boot_id: boot_id.into(),
    };
    let later = [again("boot", 0), again("boot", 0), again("boot", 101), again("other", 0)];
    let start = StartRun::new(first, None).unwrap();
    let report = start.report();
    let task = tokio::spawn(start.run());
    after(20).await;
    task.abort();
    let left = report.borrow().clone().unwrap();
    let text = serde_json::to_string(&left).unwrap();
    assert_eq!(serde_json::from_str::<StartReport>(&text).unwrap(), left);

    let [same, over, soft_reboot, reboot] = later;
    let start = StartRun::new(same, Some(left.clone())).unwrap();
    let turn = start.turn();
    tokio::spawn(start.run());
    after(8).await;
    assert!(turn.borrow().waits_for(&dns).is_none() && turn.borrow().waits_for(&web).is_some());
    after(2).await;
    assert!(turn.borrow().waits_for(&web).is_none(), "it has what was left of the time");

    for other in [soft_reboot, reboot] {
        let start = StartRun::new(other, Some(left.clone())).unwrap();
        assert!(start.report().borrow().is_none());
    }
    let mut ended = left;
    ended.end(secs(30), false);
    assert!(StartRun::new(over, Some(ended)).is_none());
}
