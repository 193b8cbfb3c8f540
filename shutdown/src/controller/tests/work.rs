//! The work of plug-ins during a shutdown: within its time, once, and while there is time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use winddown_shared::ShutdownPoint::{After, AfterPods, Before, BeforePods, BeforeRelease};
use winddown_shared::{
    Event, PluginName, PodKiller, ShutdownPoint, ShutdownWork, WorkContext, WorkError,
};

use super::agents::Site;
use super::world::World;
use super::{Setup, asked, settle, two_fields};
use crate::tests::{pod, secs};
use crate::{CRITICAL_PRIORITY, Outcome, PodEnd, ProgressPhase, ShutdownReport, WorkOutcome};

const NAME: PluginName = PluginName::new("tester");

/// A log of the work that was begun: its name, when after the log's beginning, and whether it was begun again.
#[derive(Clone)]
struct Log(Arc<Mutex<Vec<Begun>>>, Instant);

type Begun = (&'static str, f64, bool);

impl Log {
    fn new() -> Self {
        Self(Arc::default(), Instant::now())
    }

    fn begun(&self) -> Vec<Begun> {
        self.0.lock().unwrap().clone()
    }

    /// Work that takes this long.
    fn work(
        &self,
        what: &'static str,
        point: ShutdownPoint,
        bound: Duration,
        takes: Duration,
    ) -> ShutdownWork {
        let log = self.clone();
        ShutdownWork::new(NAME, what, point, bound, move |context| {
            let log = log.clone();
            async move {
                let at = log.1.elapsed().as_secs_f64().round();
                log.0.lock().unwrap().push((what, at, context.again));
                sleep(takes).await;
                Ok(())
            }
        })
    }

    fn everywhere(&self, bound: Duration, takes: Duration) -> Vec<ShutdownWork> {
        [
            ("first", BeforePods),
            ("between", Before(CRITICAL_PRIORITY)),
            ("as well", After(0)),
            ("behind", After(CRITICAL_PRIORITY)),
            ("then", AfterPods),
            ("last", BeforeRelease),
        ]
        .map(|(what, point)| self.work(what, point, bound, takes))
        .into()
    }
}

fn outcomes(report: &ShutdownReport) -> Vec<(&str, WorkOutcome)> {
    report.work.iter().map(|work| (&*work.what, work.outcome)).collect()
}

fn two_pods() -> [winddown_shared::Pod; 2] {
    [pod("app", None, Some(20)), pod("dns", Some(CRITICAL_PRIORITY), Some(10))]
}

#[tokio::test(start_paused = true)]
async fn work_is_done_at_its_point_and_has_a_line_in_the_report() {
    let log = Log::new();
    let work = log.everywhere(secs(2), secs(1));
    let mut node = Setup { work, ..Setup::with(two_pods()) }.start();
    node.killer.takes(pod("app", None, None).uid(), secs(3));
    settle().await;
    node.prepare();
    node.released().await;
    let begun: Vec<_> = log.begun().into_iter().map(|(what, at, _)| (what, at)).collect();
    let wanted = [
        ("first", 0.0),
        // The pod takes from 1 s to 4 s.
        ("between", 4.0),
        ("as well", 4.0),
        ("behind", 5.0),
        ("then", 6.0),
        ("last", 7.0),
    ];
    assert_eq!(begun, wanted);
    assert_eq!(node.asked(), asked(&[("app", 1.0, 13), ("dns", 5.0, 10)]), "7.5 s are kept");
    let report = &node.reports()[0];
    assert_eq!(report.outcome, Outcome::Clean);
    assert!(
        outcomes(report).iter().all(|(_, outcome)| *outcome == WorkOutcome::Done),
        "{report:?}"
    );
    let first = &report.work[0];
    assert_eq!((&*first.plugin, &*first.point), ("tester", "before the pods"));
    assert_eq!((first.started, first.ended), (Some(secs(0)), Some(secs(1))));
    let worked = Event::PluginWorked { by: NAME, what: "then", took: secs(1), error: None };
    assert!(node.recorder.events().contains(&worked));
}

#[tokio::test(start_paused = true)]
async fn work_that_hangs_costs_its_bound_and_never_the_deadline() {
    for (delay, bound) in [(40, 1), (40, 600), (5, 600)] {
        let log = Log::new();
        let work = log.everywhere(secs(bound), secs(100_000));
        let setup = Setup { work, ..Setup::with(two_pods()) }.delay(secs(delay));
        let mut node = setup.start();
        for pod in two_pods() {
            node.killer.hangs(pod.uid(), secs(100_000));
        }
        settle().await;
        node.prepare();
        let took = node.released().await;
        assert!(took < secs(delay), "{took:?} of {delay} s");
        assert_eq!(node.asked().len(), 2);
        let report = &node.reports()[0];
        let timed_out = |(_, outcome): &(&str, WorkOutcome)| *outcome == WorkOutcome::TimedOut;
        assert_eq!(outcomes(report).iter().filter(|work| timed_out(work)).count(), 6);
        let kept: Duration = report.work.iter().map(|work| work.allowed).sum();
        assert!(kept <= report.budget.pods / 3, "a quarter, and two at one point: {kept:?}");
    }
}

/// A paused clock stands still while a thread is blocked.
#[allow(clippy::disallowed_methods, reason = "it blocks its thread")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_before_the_release_that_blocks_its_thread_costs_its_bound() {
    let blocks = |_| async {
        std::thread::sleep(secs(5));
        Ok(())
    };
    let work = vec![ShutdownWork::new(NAME, "last", BeforeRelease, secs(1), blocks)];
    let mut node = Setup { work, ..Setup::with([]) }.start();
    node.prepare();
    let took = node.released().await;
    assert!(took < secs(4), "{took:?}");
    assert_eq!(outcomes(&node.reports()[0]), [("last", WorkOutcome::TimedOut)]);
}

#[tokio::test(start_paused = true)]
async fn work_before_the_release_has_the_time_kept_for_it_where_nothing_says_how_long_the_node_waits()
 {
    let log = Log::new();
    let work = vec![log.work("last", BeforeRelease, secs(6), secs(5))];
    let mut node = Setup { work, ..Setup::with(two_pods()) }.start();
    node.login.fake.modify(|state| state.delay = None);
    settle().await;
    node.prepare();
    assert_eq!(node.released().await, secs(5));
    assert_eq!(outcomes(&node.reports()[0]), [("last", WorkOutcome::Done)]);
}

#[tokio::test(start_paused = true)]
async fn what_work_says_of_itself_is_in_the_report_however_it_ends() {
    let says = |what, point, takes| {
        ShutdownWork::new(NAME, what, point, secs(2), move |context| async move {
            context.remark.set("begun");
            sleep(secs(1)).await;
            context.remark.set(what);
            sleep(secs(takes)).await;
            Ok(())
        })
    };
    let silent = ShutdownWork::new(NAME, "silent", AfterPods, secs(2), |_| async { Ok(()) });
    let work = vec![says("done", BeforePods, 0), says("late", BeforeRelease, 100_000), silent];
    let mut node = Setup { work, ..Setup::with(two_pods()) }.start();
    settle().await;
    node.prepare();
    node.released().await;
    let report = &node.reports()[0];
    let said = |what: &str| {
        let work = report.work.iter().find(|work| work.what == what).unwrap();
        (work.outcome, work.remark.as_deref())
    };
    assert_eq!(said("done"), (WorkOutcome::Done, Some("done")));
    assert_eq!(said("late"), (WorkOutcome::TimedOut, Some("late")));
    assert_eq!(said("silent"), (WorkOutcome::Done, None));
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_or_panics_is_reported_and_holds_nothing_up() {
    let fails = |what, point| {
        ShutdownWork::new(NAME, what, point, secs(5), move |_| async move {
            assert!(!what.starts_with("panics"));
            Err("there is no such host".to_owned().into())
        })
    };
    let work = vec![
        fails("fails", BeforePods),
        fails("panics", BeforePods),
        fails("panics too", BeforeRelease),
    ];
    let mut node = Setup { work, ..Setup::with(two_pods()) }.start();
    settle().await;
    node.prepare();
    assert!(node.released().await < secs(1));
    let report = &node.reports()[0];
    assert_eq!(report.outcome, Outcome::Clean);
    let errors: Vec<_> = report.work.iter().map(|work| work.error.as_deref().unwrap()).collect();
    assert_eq!(errors[0], "there is no such host");
    assert!(errors[1].starts_with("it panicked") && errors[2].starts_with("it panicked"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_ends_the_work_and_begins_no_more() {
    let log = Log::new();
    let work = log.everywhere(secs(3), secs(100));
    let mut node = Setup { work, ..Setup::with(two_pods()) }.start();
    settle().await;
    node.prepare();
    node.until(secs(1)).await;
    node.login.fake.cancel();
    settle().await;
    assert!(node.gate.check().is_ok(), "at once");
    node.until(secs(60)).await;
    assert_eq!((log.begun().len(), node.asked().len()), (1, 0));
    let report = &node.reports()[0];
    assert_eq!(
        outcomes(report)[..2],
        [("first", WorkOutcome::Cancelled), ("between", WorkOutcome::Skipped)]
    );
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_goes_on_with_what_was_under_way_and_repeats_nothing_that_had_ended() {
    let log = Log::new();
    let pods = two_pods().map(|pod| (pod, secs(0)));
    let mut site = Site::new(World::with(pods), two_fields(60, 10));
    site.work = vec![
        log.work("first", BeforePods, secs(2), secs(1)),
        log.work("between", Before(CRITICAL_PRIORITY), secs(5), secs(100)),
        log.work("last", BeforeRelease, secs(2), secs(100)),
    ];
    let first = site.agent();
    site.prepare();
    site.until(secs(3)).await;
    site.kill(first).await;
    let second = site.agent();
    site.until(Duration::from_millis(7500)).await;
    site.kill(second).await;
    let third = site.agent();
    site.reach(&third, ProgressPhase::Released).await;
    let wanted = [
        ("first", 0.0, false),
        ("between", 1.0, false),
        ("between", 3.0, true),
        ("last", 6.0, false),
        ("last", 8.0, true),
    ];
    assert_eq!(log.begun(), wanted);
    let report = &site.reports.all()[0];
    assert_eq!(
        outcomes(report),
        [
            ("first", WorkOutcome::Done),
            ("between", WorkOutcome::TimedOut),
            ("last", WorkOutcome::TimedOut)
        ]
    );
    assert_eq!(report.work[1].started, Some(secs(1)));
    assert_eq!(report.work[1].ended, Some(secs(6)), "in the rest of its 5 s");
    assert_eq!(report.work[2].ended, Some(secs(8)));
}

/// Work that takes a while to send the final statuses of all pods except one.
#[derive(Default)]
struct Slow {
    takes: u64,
    hangs: bool,
    panics: bool,
    asked: Mutex<Vec<(bool, Instant)>>,
}

impl Slow {
    async fn tell(&self, WorkContext { until, clean, .. }: WorkContext) -> Result<(), WorkError> {
        self.asked.lock().unwrap().push((clean, until));
        assert!(!self.panics, "this work panics");
        sleep_until((Instant::now() + secs(self.takes)).min(until)).await;
        if self.hangs {
            sleep(secs(100_000)).await;
        }
        Err(WorkError::NotTold(vec![pod("left", None, None).pod_ref().clone()]))
    }
}

fn setup(words: &Arc<Slow>) -> Setup {
    let setup = Setup::with([pod("app", None, Some(20))]);
    let words = Arc::clone(words);
    let tell = ShutdownWork::new(NAME, "tell", ShutdownPoint::BeforeRelease, None, move |at| {
        let words = Arc::clone(&words);
        async move { words.tell(at).await }
    });
    Setup { work: vec![tell], ..setup }
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_held_until_the_last_statuses_are_told_and_the_report_names_the_rest() {
    let words = Arc::new(Slow { takes: 1, ..Slow::default() });
    let mut node = setup(&words).start();
    settle().await;
    node.prepare();
    let took = node.released().await;
    assert!(took >= secs(1), "{took:?}");
    assert_eq!(node.reports()[0].unsent_statuses, ["default/left"]);
    assert_eq!(node.reports()[0].outcome, Outcome::Clean);
    let asked = words.asked.lock().unwrap();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].0, "every pod terminated");
}

#[tokio::test(start_paused = true)]
async fn an_api_that_does_not_answer_costs_ten_seconds_at_most_and_never_the_report() {
    let words = Arc::new(Slow { hangs: true, ..Slow::default() });
    let mut node = setup(&words).start();
    settle().await;
    node.prepare();
    let took = node.released().await;
    let (_, until) = words.asked.lock().unwrap()[0];
    assert!(until > node.start + secs(9) && until <= node.start + secs(10), "of 40 s");
    assert!(took > secs(9) && took <= secs(10), "{took:?}");
    assert_eq!(node.reports().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_panics_holds_nothing_up() {
    let words = Arc::new(Slow { panics: true, ..Slow::default() });
    let mut node = setup(&words).start();
    settle().await;
    node.prepare();
    node.released().await;
    assert_eq!((node.reports().len(), node.releases()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_end_makes_the_shutdown_one_that_was_not_clean() {
    let words = Arc::new(Slow::default());
    let mut node = setup(&words).start();
    node.killer.hangs(pod("app", None, Some(20)).uid(), secs(1_000));
    settle().await;
    node.prepare();
    node.released().await;
    assert!(!words.asked.lock().unwrap()[0].0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_flushes_no_status() {
    let words = Arc::new(Slow::default());
    let mut node = setup(&words).start();
    node.killer.takes(pod("app", None, Some(20)).uid(), secs(10));
    settle().await;
    node.prepare();
    node.until(secs(1)).await;
    node.login.fake.cancel();
    node.until(secs(60)).await;
    assert_eq!(words.asked.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_logind_still_gives_goes_to_the_last_statuses_and_no_more() {
    // The pod takes 5 s of the delay; at most 10 s are for sending statuses. What the delay becomes meanwhile counts
    // for the next shutdown.
    for (delay, then, least, most) in
        [(7, 7, 6.0, 7.0), (12, 12, 11.0, 12.0), (12, 60, 11.0, 12.0), (40, 40, 14.0, 15.0)]
    {
        let words = Arc::new(Slow { takes: 1000, ..Slow::default() });
        let mut node = setup(&words).delay(secs(delay)).start();
        let app = node.killer.running().pods.remove(0);
        node.killer.takes(app.uid(), secs(5));
        settle().await;
        node.prepare();
        node.until(secs(1)).await;
        node.login.fake.modify(|state| state.delay = Some(secs(then)));
        let took = node.released().await.as_secs_f64();
        assert!(took > least && took <= most, "{delay}, then {then}: {took}");
        let delays: Vec<_> = node.reports().iter().map(|report| report.budget.delay).collect();
        assert_eq!(delays, [Some(secs(delay))]);
        node.stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_ends_the_wait_for_last_statuses() {
    let words = Arc::new(Slow { hangs: true, ..Slow::default() });
    let mut node = setup(&words).start();
    settle().await;
    node.prepare();
    node.until(secs(3)).await;
    node.login.fake.cancel();
    settle().await;
    assert!(node.gate.check().is_ok(), "at once");
    assert_eq!(node.reports()[0].work[0].outcome, WorkOutcome::Cancelled);
}

/// The time for work is a part of the pods' time: less if a runtime that answers late leaves less of it.
#[tokio::test(start_paused = true)]
async fn pods_that_are_known_late_have_their_grace_before_the_work_after_them() {
    let log = Log::new();
    let mut site =
        Site::new(World::with([(pod("app", None, Some(60)), secs(100))]), two_fields(120, 10));
    site.lock.fake.modify(|state| state.delay = Some(secs(120)));
    site.work = vec![log.work("then", AfterPods, secs(25), secs(1))];
    site.world.is_silent(true);
    let agent = site.agent();
    site.prepare();
    site.until(secs(100)).await;
    site.world.is_silent(false);
    site.reach(&agent, ProgressPhase::Released).await;
    let report = &site.reports.all()[0];
    let (_, app) = report.pods().next().unwrap();
    assert_eq!(app.end, PodEnd::Killed, "{report:?}");
    assert!(app.exit >= app.asked.map(|asked| asked + app.grace), "{report:?}");
    assert_eq!(outcomes(report), [("then", WorkOutcome::Done)]);
}
