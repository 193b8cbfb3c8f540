use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_shared::testing::{FakeKiller, FakeRecorder};
use winddown_shared::{
    Event, KillError, KillReason, KillRequest, NodeEndListener, PluginName, Pod, PodKiller,
    PodStateProvider, PodStopped, PodUid, RunningPods, RuntimePod, StatusOverride,
};

use super::{RunOrder, RunReport, RunStop, run_plan};
use crate::tests::{group_finished, group_started, period, pod, secs, with_role};
use crate::{
    Budget, CRITICAL_PRIORITY, EndingPods, Outcome, PodEnd, PodReport, Policy, ProgressSender, plan,
};

const CRITICAL: Option<i32> = Some(CRITICAL_PRIORITY);

struct Scene<K> {
    killer: Arc<K>,
    policy: Policy,
    recorder: FakeRecorder,
    progress: ProgressSender,
    cancel: CancellationToken,
}

impl<K: EndingPods> Scene<K> {
    fn new(killer: K, policy: Policy) -> Self {
        Self {
            killer: Arc::new(killer),
            policy,
            recorder: FakeRecorder::default(),
            progress: ProgressSender::new(),
            cancel: CancellationToken::new(),
        }
    }

    async fn run(&self) -> RunReport {
        self.run_with(Arc::new(self.recorder.clone())).await
    }

    async fn run_with(&self, recorder: Arc<dyn winddown_shared::Recorder>) -> RunReport {
        let budget = Budget::new(&self.policy, None);
        let order = RunOrder {
            reason: KillReason::Shutdown,
            status: Some(StatusOverride::failed("Terminated", "gone", None)),
            started: Instant::now(),
            budget,
            recorder,
            progress: self.progress.clone(),
        };
        let plan = plan(&self.killer.running().into_pods(), &self.policy, Some(budget.pods));
        run_plan(&self.killer, plan, &order, &self.cancel).await
    }
}

fn two_fields(total: u64, critical: u64) -> Policy {
    Policy::from_periods(secs(total), secs(critical)).unwrap()
}

fn ms(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis))
}

fn of<'a>(report: &'a RunReport, name: &str) -> &'a PodReport {
    report.groups.iter().flat_map(|group| &group.pods).find(|pod| pod.name == name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_group_end_together_and_the_next_group_starts_when_the_last_is_gone() {
    let pods = [pod("a", None, Some(30)), pod("b", None, Some(30)), pod("c", CRITICAL, Some(30))];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), secs(1));
    killer.takes(pods[1].uid(), secs(3));
    killer.takes(pods[2].uid(), secs(2));
    let scene = Scene::new(killer.clone(), two_fields(30, 10));

    let report = scene.run().await;

    assert_eq!((report.outcome(), report.left()), (Outcome::Clean, 0));
    assert_eq!((of(&report, "a").asked, of(&report, "a").exit), (ms(0), ms(1000)));
    assert_eq!((of(&report, "b").asked, of(&report, "b").exit), (ms(0), ms(3000)));
    assert_eq!((of(&report, "c").asked, of(&report, "c").exit), (ms(3000), ms(5000)));
    assert_eq!((report.groups[1].started, report.groups[1].ended), (ms(3000), ms(5000)));
    let progress = scene.progress.subscribe().borrow().clone();
    assert_eq!((progress.groups[0].pods, progress.groups[0].ended), (2, 2));
    assert_eq!((progress.groups[1].pods, progress.groups[1].ended), (1, 1));
    assert!(killer.calls().iter().all(|call| !call.request.evict));
    assert_eq!(
        scene.recorder.events(),
        [
            group_started(0, 2, secs(20)),
            group_finished(0, secs(3), 0),
            group_started(CRITICAL_PRIORITY, 1, secs(27)),
            group_finished(CRITICAL_PRIORITY, secs(2), 0),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn spare_time_rolls_on_to_pods_that_ask_for_more_than_their_group_has() {
    let pods = [
        pod("quick", None, Some(30)),
        pod("patient", CRITICAL, Some(25)),
        pod("endless", CRITICAL, Some(1000)),
        pod("unset", CRITICAL, None),
    ];
    let killer = FakeKiller::with(pods.clone());
    for stubborn in &pods[1..] {
        killer.takes(stubborn.uid(), secs(1000));
    }
    killer.takes(pods[0].uid(), secs(3));

    let report = Scene::new(killer, two_fields(30, 10)).run().await;

    let ends: Vec<_> = ["patient", "endless", "unset"]
        .map(|name| {
            (of(&report, name).grace.as_secs(), of(&report, name).exit, of(&report, name).end)
        })
        .into();
    assert_eq!(
        ends,
        [
            (25, ms(28_000), PodEnd::Killed),
            (27, ms(30_000), PodEnd::Killed),
            (10, ms(13_000), PodEnd::Killed),
        ]
    );
    assert_eq!(of(&report, "endless").wanted_grace, Some(secs(1000)));
    assert_eq!(of(&report, "patient").wanted_grace, None);
    assert_eq!(report.outcome(), Outcome::Forced);
}

#[tokio::test(start_paused = true)]
async fn a_pod_killed_at_its_groups_last_moment_does_not_cost_the_next_group_a_second() {
    let pods = [pod("app", None, Some(60)), pod("last", CRITICAL, Some(60))];
    let killer = FakeKiller::with(pods.clone());
    killer.hangs(pods[0].uid(), Duration::from_millis(20_080));
    killer.takes(pods[1].uid(), secs(60));

    let report = Scene::new(killer, two_fields(30, 10)).run().await;

    assert_eq!(of(&report, "last").asked, ms(20_080));
    assert_eq!(of(&report, "last").grace, secs(10));
    assert_eq!(of(&report, "last").exit, ms(30_080));
}

#[tokio::test(start_paused = true)]
async fn a_group_without_time_is_asked_and_the_next_one_starts_at_once() {
    let policy = two_fields(5, 5);
    let pods = [pod("app", None, None), pod("last", CRITICAL, None)];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), secs(9));
    killer.takes(pods[1].uid(), secs(4));

    let report = Scene::new(killer.clone(), policy).run().await;

    let asked: Vec<_> = killer.calls().iter().map(|c| c.request.grace.unwrap().as_secs()).collect();
    assert_eq!(asked, [0, 5]);
    assert_eq!(of(&report, "last").asked, ms(0));
    // The pod workers give at least one second, and the run sees it through.
    assert_eq!((of(&report, "app").exit, of(&report, "last").exit), (ms(1000), ms(4000)));
}

#[tokio::test(start_paused = true)]
async fn a_critical_group_without_time_of_its_own_may_use_spare_time() {
    let pods = [pod("app", None, None), pod("last", CRITICAL, Some(7))];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), secs(2));
    killer.takes(pods[1].uid(), secs(5));

    let report = Scene::new(killer, two_fields(30, 0)).run().await;

    assert_eq!(of(&report, "last").grace, secs(7));
    assert_eq!((of(&report, "last").exit, report.outcome()), (ms(7000), Outcome::Clean));
}

// Test_managerImpl_processShutdownEvent/kill pod func take too long.
#[tokio::test(start_paused = true)]
async fn kills_that_take_too_long_do_not_stop_the_next_group() {
    let policy = Policy::by_priority([period(1, 10), period(2, 20)]).unwrap();
    let pods = [pod("one", Some(1), None), pod("two", Some(2), None)];
    let killer = FakeKiller::with(pods.clone());
    for pod in &pods {
        killer.hangs(pod.uid(), secs(60));
    }
    let scene = Scene::new(killer, policy);

    let report = scene.run().await;

    assert_eq!(of(&report, "two").asked, ms(10_100));
    assert_eq!((report.outcome(), report.left()), (Outcome::Incomplete, 2));
    let left = of(&report, "one");
    assert_eq!(
        (left.end, left.containers.as_slice()),
        (PodEnd::StillRunning, &["main".to_string()][..])
    );
    assert_eq!(left.error.as_deref(), Some("not gone after 31s: main"));
    assert!(scene.recorder.events().contains(&Event::GroupFinished {
        reason: KillReason::Shutdown,
        priority: 1,
        name: None,
        took: Duration::from_millis(10_100),
        left: 1
    }));
}

#[tokio::test(start_paused = true)]
async fn a_group_is_waited_for_until_the_last_of_its_graces_which_are_whole_seconds_is_over() {
    let periods = (1..=5).map(|priority| period(priority, 2));
    let pods = (1..=5).map(|priority| pod(&format!("p{priority}"), Some(priority), Some(9)));
    let pods: Vec<Pod> = pods.collect();
    let killer = FakeKiller::with(pods.clone());
    // Each is reaped a little after SIGKILL.
    pods.iter().for_each(|pod| killer.hangs(pod.uid(), Duration::from_millis(2060)));
    let scene = Scene::new(killer, Policy::by_priority(periods).unwrap());
    let report = scene.run().await;
    let left = |event: &Event| match event {
        Event::GroupFinished { left, .. } => Some(*left),
        _ => None,
    };
    let left: Vec<usize> = scene.recorder.events().iter().filter_map(left).collect();
    assert_eq!(left, [0; 5]);
    for (before, after) in pods.iter().zip(&pods[1..]) {
        let (before, after) = (before.pod_ref().name.clone(), after.pod_ref().name.clone());
        assert!(of(&report, &after).asked >= of(&report, &before).exit, "{before}, {after}");
    }
}

// Test_processShutdownEvent_VolumeUnmountTimeout: the cleanup after the containers is not awaited between
// groups; the kill resolves when the containers are gone.
#[tokio::test(start_paused = true)]
async fn a_group_is_done_when_its_containers_are_gone() {
    let pods = [pod("app", None, None), pod("last", CRITICAL, None)];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), Duration::from_millis(10));
    let report = Scene::new(killer, two_fields(4, 2)).run().await;
    assert_eq!(of(&report, "last").asked, ms(10));
}

#[tokio::test(start_paused = true)]
async fn a_late_pod_is_waited_for_after_the_last_group() {
    let pods = [pod("app", None, None), pod("last", CRITICAL, None)];
    let killer = FakeKiller::with(pods.clone());
    killer.hangs(pods[0].uid(), secs(25));
    killer.takes(pods[1].uid(), secs(2));
    let scene = Scene::new(killer, two_fields(30, 10));

    let report = scene.run().await;

    assert_eq!(of(&report, "last").exit, ms(22_100));
    assert_eq!((of(&report, "app").exit, of(&report, "app").end), (ms(25_000), PodEnd::Killed));
    assert_eq!(report.outcome(), Outcome::Forced);
}

#[tokio::test(start_paused = true)]
async fn who_had_asked_a_pod_to_end_before_the_run_is_in_its_report() {
    let pods = [pod("old", None, None), pod("app", None, None)];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), secs(3));
    let max_age = KillReason::Plugin(PluginName::new("max-age"));
    killer.begin_kill(pods[0].clone(), KillRequest::new(max_age).with_grace(secs(5)));
    sleep(secs(1)).await;
    let report = Scene::new(killer, two_fields(30, 10)).run().await;
    assert_eq!(of(&report, "old").prior_reason.as_deref(), Some("max-age"));
    assert_eq!(of(&report, "old").grace, secs(4), "what it had left");
    assert_eq!(of(&report, "app").prior_reason, None);
    assert_eq!(report.outcome(), Outcome::Clean);
}

#[tokio::test(start_paused = true)]
async fn cancelling_spares_the_groups_not_started() {
    let pods = [pod("app", None, None), pod("last", CRITICAL, None)];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), secs(10));
    let scene = Scene::new(killer.clone(), two_fields(30, 10));
    let (report, ()) = tokio::join!(scene.run(), async {
        sleep(secs(2)).await;
        scene.cancel.cancel();
    });

    assert_eq!((report.stop, report.outcome()), (RunStop::Cancelled, Outcome::Cancelled));
    assert_eq!(
        (of(&report, "app").end, of(&report, "last").end),
        (PodEnd::Terminating, PodEnd::Spared)
    );
    assert_eq!((report.spared_groups(), report.left()), (1, 1));
    let finished = |event: &Event| matches!(event, Event::GroupFinished { .. });
    assert!(!scene.recorder.events().iter().any(finished), "no group is late");
    // The kill continues without the run.
    assert_eq!(killer.running().pods.len(), 2);
    sleep(secs(9)).await;
    assert_eq!(killer.running().pods.len(), 1);
}

/// Cancels the run when its first group starts: its pods are in the record by then.
struct CancelsAtStart(CancellationToken);

impl winddown_shared::Recorder for CancelsAtStart {
    fn record(&self, event: &Event) {
        if matches!(event, Event::GroupStarted { .. }) {
            self.0.cancel();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_cancelled_run_reports_as_terminating_was_requested() {
    let killer = FakeKiller::with([pod("app", None, None)]);
    killer.takes(pod("app", None, None).uid(), secs(5));
    let scene = Scene::new(killer.clone(), two_fields(30, 10));
    let report = scene.run_with(Arc::new(CancelsAtStart(scene.cancel.clone()))).await;
    assert_eq!(of(&report, "app").end, PodEnd::Terminating);
    assert_eq!(killer.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_cancelled_before_it_began_asks_no_pod() {
    let killer = FakeKiller::with([pod("app", None, None)]);
    let scene = Scene::new(killer.clone(), two_fields(30, 10));
    scene.cancel.cancel();
    let report = scene.run().await;
    assert!(killer.calls().is_empty());
    assert_eq!(of(&report, "app").end, PodEnd::Spared);
}

#[tokio::test(start_paused = true)]
async fn no_pods_take_no_time() {
    let begun = Instant::now();
    let report = Scene::new(FakeKiller::default(), two_fields(30, 10)).run().await;
    assert_eq!((begun.elapsed(), report.outcome()), (Duration::ZERO, Outcome::Clean));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_pods_end_in_one_second() {
    let pods: Vec<Pod> = (0..1000).map(|i| pod(&format!("p{i}"), None, Some(30))).collect();
    let killer = FakeKiller::with(pods.clone());
    pods.iter().for_each(|pod| killer.takes(pod.uid(), secs(1)));
    let begun = Instant::now();
    let report = Scene::new(killer, two_fields(30, 10)).run().await;
    assert_eq!((begun.elapsed(), report.outcome()), (secs(1), Outcome::Clean));
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_a_pod_after_its_end_is_said_of_it_in_the_report() {
    let pods = [crate::tests::pod("first", None, None), crate::tests::pod("last", None, None)];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[1].uid(), secs(5));
    let afterwards = killer.afterwards();
    tokio::spawn(async move {
        tokio::time::sleep(secs(3)).await;
        afterwards.set("it was restarted");
        afterwards.set_killed();
    });
    let report = Scene::new(killer, two_fields(30, 10)).run().await;
    assert_eq!(of(&report, "first").remark.as_deref(), Some("it was restarted"));
    assert_eq!((of(&report, "first").end, report.outcome()), (PodEnd::Killed, Outcome::Forced));
}

/// What a [`Scripted`] killer does with a pod, by its name.
#[derive(Default)]
struct Scripted {
    active: Mutex<Vec<Pod>>,
    asked: Mutex<Vec<String>>,
}

impl PodKiller for Scripted {
    async fn kill_pod(&self, pod: Pod, request: KillRequest) -> Result<Arc<PodStopped>, KillError> {
        self.asked.lock().unwrap().push(pod.name().to_string());
        match &**pod.name() {
            "panics" => panic!("as told"),
            "fails" => Err(KillError::Refused {
                pod: pod.pod_ref().to_string().into(),
                why: "as told".into(),
            }),
            "deaf" => {
                sleep_until(request.deadline.unwrap() + secs(600)).await;
                Ok(Arc::default())
            }
            name => {
                if let Some(priority) = name.strip_prefix("brings-") {
                    let priority = priority.parse().unwrap();
                    let late = crate::tests::pod(&format!("late-{name}"), Some(priority), None);
                    self.active.lock().unwrap().push(late);
                }
                sleep(secs(1)).await;
                Ok(Arc::default())
            }
        }
    }

    fn running(&self) -> RunningPods {
        RunningPods::known(self.active.lock().unwrap().clone())
    }

    fn non_terminating_pods(&self) -> Vec<Pod> {
        unreachable!("a run chooses among all pods")
    }
}

impl PodStateProvider for Scripted {}

impl NodeEndListener for Scripted {}

fn scripted(pods: impl IntoIterator<Item = Pod>) -> Scripted {
    Scripted { active: Mutex::new(pods.into_iter().collect()), ..Scripted::default() }
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_which_nothing_ran_is_not_said_to_have_exited() {
    let pods = ["web", "never"].map(|name| pod(name, None, None));
    let scene = Scene::new(FakeKiller::with(pods.clone()), two_fields(30, 10));
    scene.killer.runs_nothing(pods[1].uid());
    let report = scene.run().await;
    assert_eq!(of(&report, "web").end, PodEnd::Exited);
    assert_eq!(
        (of(&report, "never").end, of(&report, "never").sigterm),
        (PodEnd::NotRunning, None)
    );
    assert_eq!(report.outcome(), Outcome::Clean);
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_of_a_kill_are_reported_and_stop_nothing() {
    let pods = ["panics", "fails", "fine"].map(|name| pod(name, None, None));
    let last = pod("last", CRITICAL, None);
    let scene = Scene::new(scripted(pods.into_iter().chain([last])), two_fields(30, 10));
    let report = scene.run().await;

    let left = |event: &Event| match event {
        Event::GroupFinished { left, .. } => Some(*left),
        _ => None,
    };
    let left: Vec<usize> = scene.recorder.events().iter().filter_map(left).collect();
    assert_eq!(left, [2, 0], "of each group");
    let end = |name| (of(&report, name).end, of(&report, name).error.as_deref());
    assert_eq!(end("fine"), (PodEnd::Exited, None));
    assert_eq!(end("fails"), (PodEnd::StillRunning, Some("as told")));
    assert_eq!(
        end("panics"),
        (
            PodEnd::StillRunning,
            Some("the attempt to terminate it panicked, which is a bug: see the agent's log")
        )
    );
    assert_eq!((end("last"), of(&report, "last").asked), ((PodEnd::Exited, None), ms(1000)));
    assert_eq!(report.outcome(), Outcome::Incomplete);
}

#[tokio::test(start_paused = true)]
async fn a_killer_that_forgets_its_deadline_is_given_up() {
    let begun = Instant::now();
    let killer = scripted([pod("deaf", CRITICAL, None)]);
    let report = Scene::new(killer, two_fields(30, 10)).run().await;
    // 30 s, half of the 2 s reserve for SIGKILL to take effect, and an eighth for an answer.
    assert_eq!(begun.elapsed(), Duration::from_millis(31_250));
    assert_eq!(
        (of(&report, "deaf").end, of(&report, "deaf").error.as_deref()),
        (PodEnd::StillRunning, Some("no answer from the pod workers at the deadline"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_slipped_in_ends_with_its_group_or_with_the_current_one() {
    let killer = scripted([
        pod("brings-0", None, None),
        pod("brings-7", Some(7), None),
        pod("brings-9", Some(9), None),
    ]);
    let policy = Policy::by_priority([period(0, 10), period(7, 10), period(9, 10)]).unwrap();
    let scene = Scene::new(killer, policy);

    let report = scene.run().await;

    assert_eq!(
        *scene.killer.asked.lock().unwrap(),
        // Seen after group 0 and stopped with group 7; after group 7, with group 9; after the last.
        ["brings-0", "late-brings-0", "brings-7", "late-brings-7", "brings-9", "late-brings-9"]
    );
    assert_eq!(of(&report, "late-brings-0").asked, ms(1000));
    assert_eq!(of(&report, "late-brings-9").asked, ms(3000));
    assert_eq!((report.groups[0].pods.len(), report.outcome()), (2, Outcome::Clean));
    assert_eq!(scene.progress.subscribe().borrow().groups[2].pods, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_for_which_there_is_no_time_left_makes_no_run_clean() {
    let app = with_role(&pod("app", CRITICAL, None), "app");
    let killer = FakeKiller::with([app.clone()]);
    killer.stays_mounted(app.uid(), ["/v"], None);
    let scene = Scene::new(killer.clone(), two_fields(8, 4));
    let (report, ()) = tokio::join!(scene.run(), async {
        sleep(secs(5)).await;
        killer.add(pod("late", CRITICAL, None));
    });
    assert_eq!((of(&report, "app").end, of(&report, "late").asked), (PodEnd::Exited, None));
    assert_eq!((of(&report, "late").end, report.left()), (PodEnd::StillRunning, 1));
    assert_eq!(report.outcome(), Outcome::Incomplete);
}

fn runtime_only(name: &str, grace: Option<u64>) -> RuntimePod {
    let mut found = RuntimePod::new(PodUid::new(name), name, "default", true);
    found.grace = grace.map(secs);
    found
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_never_says_what_runs_is_waited_for_until_the_deadline_and_reported() {
    let killer = FakeKiller::with([pod("app", None, None)]);
    killer.knows(false);
    let scene = Scene::new(killer.clone(), two_fields(30, 10));
    let begun = Instant::now();
    let (report, ()) = tokio::join!(scene.run(), async {
        sleep(secs(1)).await;
        let progress = scene.progress.subscribe().borrow().clone();
        assert!(progress.pods_unknown, "{progress:?}");
    });
    assert_eq!(begun.elapsed(), secs(30));
    assert_eq!((report.outcome(), report.pods_unknown), (Outcome::Incomplete, true));
    assert!(killer.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_that_become_known_late_are_planned_into_what_is_left_and_asked_in_order() {
    let pods = [pod("app", None, Some(60)), pod("last", CRITICAL, Some(5))];
    let killer = FakeKiller::with(pods.clone());
    pods.iter().for_each(|pod| killer.takes(pod.uid(), secs(100)));
    killer.knows(false);
    let scene = Scene::new(killer.clone(), two_fields(30, 10).with_endpoint_drain(secs(2)));
    let (report, ()) = tokio::join!(scene.run(), async {
        sleep(secs(4)).await;
        killer.knows(true);
    });
    // Of 28 s that are left, 2 s are for the endpoints.
    assert_eq!((of(&report, "app").asked, of(&report, "app").grace), (ms(6000), secs(20)));
    assert_eq!((of(&report, "last").asked, of(&report, "last").grace), (ms(26_000), secs(5)));
    assert_eq!((report.outcome(), report.pods_unknown), (Outcome::Forced, false));
    assert!(!scene.progress.subscribe().borrow().pods_unknown);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_called_off_waits_for_no_runtime() {
    let killer = FakeKiller::default();
    killer.knows(false);
    let scene = Scene::new(killer, two_fields(30, 10));
    let begun = Instant::now();
    let (report, ()) = tokio::join!(scene.run(), async {
        sleep(secs(3)).await;
        scene.cancel.cancel();
    });
    assert_eq!((begun.elapsed(), report.outcome()), (secs(3), Outcome::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn pods_in_no_source_end_last_in_a_group_of_their_own_with_the_grace_they_had() {
    let killer = FakeKiller::with([pod("app", None, None), pod("last", CRITICAL, Some(3))]);
    killer.add_runtime_only(runtime_only("orphan", Some(4)));
    killer.takes(&PodUid::new("orphan"), secs(100));
    let scene = Scene::new(killer, two_fields(30, 10));

    let report = scene.run().await;

    let group = &report.groups[2];
    assert_eq!(group.name.as_deref(), Some("pods without a manifest"));
    assert_eq!(group.pods.len(), 1, "{group:?}");
    let orphan = of(&report, "orphan");
    assert_eq!((orphan.grace, orphan.end), (secs(4), PodEnd::Killed));
    let progress = scene.progress.subscribe().borrow().clone();
    assert_eq!(progress.groups[2].name.as_deref(), Some("pods without a manifest"));
    assert_eq!((progress.groups[2].pods, progress.groups[2].ended), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_in_no_source_that_becomes_known_in_the_middle_is_ended_too() {
    let killer = FakeKiller::with([pod("app", None, None)]);
    killer.takes(&PodUid::new("app"), secs(3));
    let scene = Scene::new(killer.clone(), two_fields(30, 10));
    let (report, ()) = tokio::join!(scene.run(), async {
        sleep(secs(1)).await;
        killer.add_runtime_only(runtime_only("orphan", None));
    });
    assert_eq!((of(&report, "orphan").asked, report.outcome()), (ms(3000), Outcome::Clean));
    assert_eq!(scene.progress.subscribe().borrow().groups[2].ended, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_known_is_ended_while_the_rest_is_not() {
    let killer = FakeKiller::default();
    killer.knows(false);
    killer.add_runtime_only(runtime_only("orphan", Some(2)));
    let scene = Scene::new(killer, two_fields(30, 10));
    let report = scene.run().await;
    assert_eq!((of(&report, "orphan").asked, of(&report, "orphan").exit), (ms(0), ms(0)));
    assert_eq!(
        (report.outcome(), report.left(), report.pods_unknown),
        (Outcome::Incomplete, 0, true)
    );
}

/// In an order by priority, a driver of the lowest priority would stop together with the pods that use it.
#[tokio::test(start_paused = true)]
async fn drivers_end_after_all_others_and_after_what_these_have_mounted() {
    let pods = [
        with_role(&pod("driver", None, Some(4)), "driver"),
        with_role(&pod("app", None, Some(30)), "app"),
        with_role(&pod("critical", CRITICAL, Some(30)), "app"),
        pod("quick", CRITICAL, Some(30)),
    ];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), secs(1));
    killer.takes(pods[1].uid(), secs(2));
    killer.takes(pods[2].uid(), secs(3));
    killer.stays_mounted(pods[2].uid(), ["/v"], Some(secs(7)));
    let scene = Scene::new(killer, two_fields(60, 30));

    let report = scene.run().await;

    assert_eq!((of(&report, "app").asked, of(&report, "app").exit), (ms(0), ms(2000)));
    for name in ["critical", "quick"] {
        assert_eq!(of(&report, name).asked, ms(2000), "{name}");
    }
    assert_eq!(of(&report, "critical").exit, ms(5000));
    assert_eq!((of(&report, "driver").asked, of(&report, "driver").exit), (ms(7000), ms(8000)));
    let last = &report.groups[1];
    assert_eq!((last.pods.len(), last.started, last.ended), (3, ms(2000), ms(8000)));
    assert_eq!(report.outcome(), Outcome::Clean);
}

#[tokio::test(start_paused = true)]
async fn the_next_group_does_not_wait_for_volumes_of_the_one_before_and_the_end_of_the_run_does() {
    let pods = [pod("app", None, Some(30)), pod("critical", CRITICAL, Some(30))];
    let pods = pods.map(|pod| with_role(&pod, "app"));
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), secs(2));
    killer.takes(pods[1].uid(), secs(3));
    killer.stays_mounted(pods[0].uid(), ["/v"], Some(secs(7)));
    let (scene, begun) = (Scene::new(killer, two_fields(60, 30)), Instant::now());
    let report = scene.run().await;
    assert_eq!(of(&report, "critical").asked, ms(2000));
    assert_eq!(begun.elapsed(), secs(7));
    assert_eq!(of(&report, "app").mounts, [""; 0]);
    assert_eq!(report.outcome(), Outcome::Clean);
}

/// The next group does not wait for networks, but may contain the driver of one.
#[tokio::test(start_paused = true)]
async fn drivers_of_a_group_of_their_own_end_after_what_the_groups_before_hold() {
    for (frees_at, asked) in [(7, 7), (1000, 13)] {
        let pods =
            [with_role(&pod("driver", CRITICAL, Some(4)), "driver"), pod("app", None, Some(30))];
        let killer = FakeKiller::with(pods.clone());
        killer.takes(pods[1].uid(), secs(3));
        killer.stays_mounted(pods[1].uid(), ["its network"], Some(secs(frees_at)));
        let report = Scene::new(killer, two_fields(90, 60)).run().await;
        assert_eq!(of(&report, "app").exit, ms(3000));
        assert_eq!(of(&report, "driver").asked, ms(1000 * asked), "{frees_at}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_end_leave_the_drivers_of_their_group_their_time() {
    let pods = [
        with_role(&pod("driver", CRITICAL, Some(30)), "driver"),
        pod("stuck", CRITICAL, Some(300)),
    ];
    let killer = FakeKiller::with(pods.clone());
    pods.iter().for_each(|pod| killer.takes(pod.uid(), secs(1000)));
    let report = Scene::new(killer, two_fields(40, 30)).run().await;

    let [driver, stuck] = ["driver", "stuck"].map(|name| of(&report, name));
    assert_eq!((stuck.asked, stuck.exit, stuck.grace), (ms(0), ms(30_000), secs(30)));
    assert_eq!((driver.asked, driver.exit, driver.grace), (ms(30_000), ms(40_000), secs(10)));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_called_off_before_its_drivers_are_asked_spares_them() {
    let pods =
        [with_role(&pod("driver", CRITICAL, Some(30)), "driver"), pod("app", CRITICAL, Some(30))];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[1].uid(), secs(3));
    let scene = Scene::new(killer, two_fields(40, 30));
    let cancel = scene.cancel.clone();
    tokio::spawn(async move {
        sleep(secs(1)).await;
        cancel.cancel();
    });
    let report = scene.run().await;
    assert_eq!((report.stop, of(&report, "driver").end), (RunStop::Cancelled, PodEnd::Spared));
    assert_eq!(of(&report, "app").end, PodEnd::Terminating);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_its_controller_makes_anew_is_ended_and_the_report_says_so() {
    let of_set = |name: &str| {
        let mut object = pod(name, CRITICAL, Some(10)).object().clone();
        let owner = serde_json::json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "s", "uid": "s", "controller": true,
        });
        object.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        Pod::new(object).unwrap()
    };
    let pods = [pod("app", None, Some(10)), of_set("first"), of_set("second")];
    let killer = FakeKiller::with(pods.clone());
    pods.iter().for_each(|pod| killer.takes(pod.uid(), secs(2)));
    let scene = Scene::new(killer.clone(), two_fields(30, 10));
    tokio::spawn(async move {
        sleep(secs(3)).await;
        killer.add(of_set("again"));
    });
    let report = scene.run().await;
    for name in ["app", "first", "second"] {
        assert_eq!(of(&report, name).remark, None, "{name}");
    }
    let again = of(&report, "again");
    assert_eq!(again.remark.as_deref(), Some(super::MADE_ANEW));
    assert_eq!((again.end, report.outcome()), (PodEnd::Exited, Outcome::Clean));
}

/// A controller makes the next pod as soon as the old one's object is gone: that is while the end of the run waits.
#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_the_end_of_the_run_waits_is_ended_or_at_least_reported() {
    for (comes, wanted) in [(23, PodEnd::Exited), (30, PodEnd::StillRunning)] {
        let pods = [pod("stuck", None, Some(10)), pod("last", CRITICAL, Some(10))];
        let killer = FakeKiller::with(pods.clone());
        killer.hangs(pods[0].uid(), secs(40));
        let scene = Scene::new(killer.clone(), two_fields(30, 10));
        let (report, ()) = tokio::join!(scene.run(), async {
            sleep(secs(comes)).await;
            killer.add(pod("next", CRITICAL, Some(3)));
        });
        assert!(of(&report, "last").exit < Some(secs(23)));
        let next = of(&report, "next");
        assert_eq!(next.end, wanted, "{next:?}");
        assert_eq!(next.asked.is_some(), wanted == PodEnd::Exited, "{next:?}");
        // The pod of another group that is stuck is none of its own.
        let finished = scene.recorder.events().into_iter().rev().find_map(|event| match event {
            Event::GroupFinished { took, left, .. } => Some((took, left)),
            _ => None,
        });
        assert!(finished.is_some_and(|(took, left)| took < secs(3) && left == 0), "{finished:?}");
    }
}

/// Beside a kubelet, a controller may create a pod again on the node that goes down. It ends with the next group that has
/// pods: one without any may have no time.
#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_its_group_ends_gets_the_time_of_the_next_group_with_pods() {
    let pods = [pod("app", None, Some(60)), pod("node", Some(2_000_001_000), Some(30))];
    let killer = FakeKiller::with(pods.clone());
    killer.takes(pods[0].uid(), secs(100));
    let scene = Scene::new(killer.clone(), Policy::by_role(secs(60), secs(30)).unwrap());
    let (report, ()) = tokio::join!(scene.run(), async {
        sleep(secs(10)).await;
        let late = pod("late", None, Some(20));
        killer.takes(late.uid(), secs(15));
        killer.add(late);
    });
    assert_eq!((of(&report, "app").exit, of(&report, "app").end), (ms(30_000), PodEnd::Killed));
    let (late, node) = (of(&report, "late"), of(&report, "node"));
    assert_eq!((late.asked, late.grace, late.end), (node.asked, secs(20), PodEnd::Exited));
    assert_eq!(late.exit, ms(45_000));
}
