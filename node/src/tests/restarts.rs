//! Tests of an agent that stops in the middle of a shutdown, and its successor on the same state directory.

use winddown_shutdown::{RecordFile, RecordStore, RunPhase, RunRecord};

use super::*;
use crate::metrics::PodStartup;
use winddown_control::api;
use winddown_shared::MachineState;

fn record(state: &tempfile::TempDir) -> RunRecord {
    RecordFile::in_directory(state.path()).read().unwrap().unwrap()
}

/// A node that has gone down for 1 s, and its only pod, which takes 4 s to end.
async fn a_second_into_a_shutdown() -> (Bench, Pod) {
    let b = bench(FakeRuntime::default(), held());
    let web = pod("web", 0, 30);
    b.runtime.stop_takes(web.uid(), secs(4));
    b.want(&[&web]).await;
    b.login.prepare();
    tokio::time::sleep(secs(1)).await;
    (b, web)
}

#[tokio::test(start_paused = true)]
async fn the_record_is_in_the_state_directory_and_ends_as_released() {
    let (b, _) = a_second_into_a_shutdown().await;
    let found = record(&b.state);
    assert_eq!((found.phase, found.report.pods().count()), (RunPhase::Ending, 1));
    b.released().await;
    assert_eq!(record(&b.state).phase, RunPhase::Released);
}

#[tokio::test(start_paused = true)]
async fn a_successor_admits_nothing_before_the_login_manager_speaks_and_has_the_rest_of_the_time() {
    let runtime = FakeRuntime::default();
    let (web, new) = (pod("web", 0, 20), pod("new", 0, 30));
    runtime.stop_takes(web.uid(), secs(60));
    let b = bench(runtime, held());
    b.want(&[&web]).await;
    let begun = Instant::now();
    b.login.prepare();
    tokio::time::sleep(secs(5)).await;
    let (state, clock, runtime, login) = b.stop();
    tokio::time::sleep(secs(1)).await;
    assert!(!state.path().join("reports").exists(), "that is for the successor");

    // The successor cannot reach the login manager at first.
    login.modify(|s| {
        (s.preparing, s.delay) = (false, None);
        s.lock = LockState::Waiting { why: "not connected yet".into() };
    });
    // Of a shutdown that waits for locks, the service manager knows nothing.
    login.set_machine(MachineState::StaysUp);
    let b = bench_in(state, clock, runtime, login);
    assert!(b.node.0.core.gate.is_shut(), "from the first moment");
    b.want(&[&web, &new]).await;
    tokio::time::sleep(secs(3)).await;
    assert!(b.node.status().rejected.is_empty(), "nobody knows yet");
    assert!(!b.runtime.starts().contains(new.uid()));
    b.login.modify(|s| {
        s.preparing = true;
        s.since = Some(Instant::now());
        s.lock = LockState::Held;
    });
    b.released().await;
    let took = begun.elapsed();
    assert!(took <= secs(32), "{took:?}");
    assert!(!b.runtime.starts().contains(new.uid()));
    let report = b.report();
    assert_eq!(report.resumed.len(), 1);
    assert_eq!(report.count(PodEnd::StillRunning), 0);
    assert_eq!(b.shutdown.reports().list().unwrap().reports.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_manifest_went_in_a_shutdown_has_its_turn_under_a_successor() {
    let runtime = FakeRuntime::default();
    let (web, dns) = (pod("web", 0, 20), pod("dns", 2_000_000_000, 20));
    runtime.stop_takes(web.uid(), secs(10));
    let b = bench(runtime, held());
    b.want(&[&web, &dns]).await;
    b.login.prepare();
    tokio::time::sleep(secs(2)).await;
    let (state, clock, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web]).await;
    b.released().await;
    let report = b.report();
    let of = |name| report.pods().find(|(_, pod)| pod.name == name).unwrap().1.clone();
    assert!(of("dns").asked >= of("web").exit, "{report:?}");
    assert_eq!((report.outcome, of("dns").end), (Outcome::Clean, PodEnd::Exited));
}

/// The request of the drain is kept, because the pod must not start again.
#[tokio::test(start_paused = true)]
async fn a_pod_that_a_drain_had_ended_for_good_is_not_in_the_report_of_a_resumed_shutdown() {
    let runtime = FakeRuntime::default();
    let (web, mut once) = (pod("web", 0, 20), (*pod("once", 0, 20)).clone());
    once.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    let once = Pod::new(once).unwrap();
    runtime.stop_takes(web.uid(), secs(10));
    let b = bench(runtime, held());
    b.want(&[&once, &web]).await;
    let mut events = b.node.drain(DrainRequest::default()).await.unwrap();
    while events.recv().await.is_some() {}
    assert!(b.node.withdraw_notice().await.opened);
    tokio::time::sleep(secs(60)).await;
    assert!(b.runtime.runs(web.uid()) && !b.runtime.runs(once.uid()));
    b.login.prepare();
    tokio::time::sleep(secs(2)).await;
    let (state, clock, runtime, login) = b.stop();
    // It is a moment before the agent sees that nothing of it is left.
    runtime.stop_fails(once.uid(), 1);
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&once, &web]).await;
    b.released().await;
    let report = b.shutdown.reports().list().unwrap().reports.remove(0);
    let names: Vec<_> = report.pods().map(|(_, pod)| &*pod.name).collect();
    assert_eq!((report.trigger, &names[..]), (Trigger::LoginManager, &["web"][..]));
}

/// A pod of its own for each way in which the node goes on without it: a shutdown, and a drain.
#[tokio::test(start_paused = true)]
async fn a_pod_that_had_ended_before_the_agent_died_is_shown_as_ended_and_not_as_rejected() {
    for drains in [false, true] {
        let runtime = FakeRuntime::default();
        let (batch, web, new) = (pod("batch", 0, 20), pod("web", 0, 20), pod("new", 0, 20));
        runtime.stop_takes(web.uid(), secs(10));
        let b = bench(runtime, held());
        b.want(&[&batch, &web]).await;
        let end = async |b: &Bench| match drains {
            false => b.login.prepare(),
            true => drop(b.node.drain(DrainRequest::default()).await.unwrap()),
        };
        end(&b).await;
        tokio::time::sleep(secs(2)).await;
        let (state, clock, runtime, login) = b.stop();
        let b = bench_in(state, clock, runtime, login);
        b.want(&[&batch, &web, &new]).await;
        let status = b.node.status();
        let rejected: Vec<_> = status.rejected.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(rejected, ["new"], "drains: {drains}");
        let ended = status.pods.iter().find(|pod| pod.name == "batch").unwrap();
        assert_eq!((&*ended.phase, &*ended.reason), ("Failed", "Terminated"), "drains: {drains}");
        assert!(b.runtime.starts().len() == 2, "drains: {drains}");
        if drains {
            tokio::time::sleep(secs(10)).await;
            b.node.withdraw_notice().await;
        } else {
            b.released().await;
            let report = b.report();
            let batch = report.pods().find(|(_, pod)| pod.name == "batch").unwrap().1;
            assert_eq!((batch.end, batch.error.as_deref()), (PodEnd::Exited, None));
            assert_eq!((report.resumed.len(), report.count(PodEnd::StillRunning)), (1, 0));
            b.login.cancel();
        }
        tokio::time::sleep(secs(5)).await;
        let status = b.node.status();
        assert!(status.pods.iter().all(|pod| pod.state == PodState::Syncing), "{:?}", status.pods);
        let starts = b.runtime.starts();
        assert_eq!(starts.iter().filter(|uid| *uid == batch.uid()).count(), 2, "drains: {drains}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_units_stop_path_writes_the_record_too_and_ends_in_a_report_of_its_own_kind() {
    let b = bench(FakeRuntime::default(), held());
    let web = pod("web", 0, 30);
    b.runtime.stop_takes(web.uid(), secs(4));
    b.want(&[&web]).await;
    let stopping = b.stop_unit();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(record(&b.state).phase, RunPhase::Ending);
    tokio::time::sleep(secs(5)).await;
    assert!(stopping.is_finished());
    assert_eq!(record(&b.state).phase, RunPhase::Released);
    assert_eq!((b.report().trigger, b.report().outcome), (Trigger::UnitStop, Outcome::Clean));
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_the_units_stop_path_shortens_the_plan_so_that_every_group_is_asked_in_time() {
    let b = bench(FakeRuntime::default(), held());
    let (web, dns) = (pod("web", 0, 30), pod("dns", 2_000_000_000, 30));
    for pod in [&web, &dns] {
        b.runtime.stop_takes(pod.uid(), secs(30));
    }
    b.want(&[&web, &dns]).await;
    let begun = Instant::now();
    b.stop_unit_within(Some(secs(20))).await.unwrap();
    assert!(begun.elapsed() <= secs(10), "{:?}", begun.elapsed());
    let report = b.report();
    assert_eq!(report.budget.delay, Some(secs(10)));
    assert!(report.pods().all(|(_, pod)| pod.asked.is_some()), "{report:?}");
}

/// The next agent starts as its unit is stopped. logind still says that the machine goes down, or no longer knows it.
#[tokio::test(start_paused = true)]
async fn a_limit_counts_from_the_units_stop_also_for_a_run_that_an_earlier_agent_began() {
    for announced in [true, false] {
        let b = bench(FakeRuntime::default(), held());
        let (web, dns) = (pod("web", 0, 60), pod("dns", 2_000_000_000, 60));
        for pod in [&web, &dns] {
            b.runtime.stop_takes(pod.uid(), secs(60));
        }
        b.want(&[&web, &dns]).await;
        b.login.prepare();
        tokio::time::sleep(secs(5)).await;
        let (state, clock, runtime, login) = b.stop();
        login.set_machine(MachineState::GoingDown(POWER_OFF));
        match announced {
            true => login.modify(|s| s.since = Some(Instant::now())),
            false => login.cancel(),
        }
        let b = bench_in(state, clock, runtime, login);
        b.want(&[&web, &dns]).await;
        let begun = Instant::now();
        b.stop_unit_within(Some(secs(20))).await.unwrap();
        let (took, report) = (begun.elapsed(), b.report());
        assert!(took <= secs(10), "{announced}: {took:?}: {report:?}");
        // Of these, six were over.
        assert_eq!(report.budget.delay, Some(secs(16)), "{announced}");
        assert!(report.pods().all(|(_, pod)| pod.asked.is_some()), "{report:?}");
    }
}

/// As with a supervisor that starts an agent while the machine goes down. logind says that nothing is under way.
#[tokio::test(start_paused = true)]
async fn the_agent_after_one_that_was_killed_on_the_units_stop_path_goes_on_and_starts_nothing() {
    for after in [2, 9] {
        let b = bench(FakeRuntime::default(), held());
        let (web, batch) = (pod("web", 0, 30), pod("batch", 0, 30));
        b.runtime.stop_takes(web.uid(), secs(4));
        b.want(&[&web, &batch]).await;
        b.stop_unit();
        tokio::time::sleep(secs(after)).await;
        let (state, clock, runtime, login) = b.stop();
        login.set_machine(MachineState::GoingDown(POWER_OFF));
        let b = bench_in(state, clock, runtime, login);
        b.want(&[&web, &batch]).await;
        let begun = Instant::now();
        b.stop_unit().await.unwrap();
        assert!(begun.elapsed() < secs(5), "{:?}", begun.elapsed());
        assert_eq!(b.runtime.starts().len(), 2, "killed after {after} s");
        assert_eq!((b.report().trigger, b.report().outcome), (Trigger::UnitStop, Outcome::Clean));
        assert_eq!(b.node.status().admission_closed_by, [api::ClosedBy::UnitStop]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_units_stop_path_only_waits_for_a_shutdown_that_was_announced() {
    let (b, web) = a_second_into_a_shutdown().await;
    let stopping = b.stop_unit();
    tokio::time::sleep(secs(2)).await;
    assert!(!stopping.is_finished());
    tokio::time::sleep(secs(2)).await;
    assert!(stopping.is_finished());
    assert_eq!(b.runtime.stops(), [web.uid().clone()]);
    assert_eq!(b.report().trigger, Trigger::LoginManager);
}

/// The node stays up, and nothing is left to wait for.
#[tokio::test(start_paused = true)]
async fn the_units_stop_path_does_not_wait_for_a_shutdown_that_is_cancelled() {
    let (b, web) = a_second_into_a_shutdown().await;
    let stopping = b.stop_unit();
    tokio::time::sleep(secs(1)).await;
    assert!(!stopping.is_finished());
    let begun = Instant::now();
    b.login.cancel();
    stopping.await.unwrap();
    assert!(begun.elapsed() < secs(5), "{:?}", begun.elapsed());
    assert_eq!(b.runtime.stops(), [web.uid().clone()]);
}

/// What an agent leaves that is stopped 5 s into a shutdown, just when the bus is lost; its only pod, which ignores SIGTERM
/// and has 20 s; and when the shutdown began.
async fn stopped_in_a_shutdown_without_a_bus()
-> ((tempfile::TempDir, BootClock, FakeRuntime, FakeInhibitor), Pod, Instant) {
    let runtime = FakeRuntime::default();
    let web = pod("web", 0, 20);
    runtime.stop_takes(web.uid(), secs(60));
    let b = bench(runtime, held());
    b.want(&[&web]).await;
    let begun = Instant::now();
    b.login.prepare();
    tokio::time::sleep(secs(5)).await;
    let left = b.stop();
    left.3.modify(|s| {
        (s.preparing, s.delay) = (false, None);
        s.lock = LockState::Waiting { why: "the bus is gone".into() };
    });
    (left, web, begun)
}

#[tokio::test(start_paused = true)]
async fn the_units_stop_path_resumes_an_unfinished_run() {
    let (left, web, begun) = stopped_in_a_shutdown_without_a_bus().await;
    let (state, clock, runtime, login) = left;
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web]).await;
    let stopping = b.stop_unit();
    stopping.await.unwrap();
    let took = begun.elapsed();
    assert!(took <= secs(22), "no grace anew: {took:?}");
    let report = b.report();
    assert_eq!((report.trigger, report.resumed.len()), (Trigger::LoginManager, 1));
}

#[tokio::test(start_paused = true)]
async fn the_units_stop_leaves_a_resumed_run_its_time_where_shutdowns_stop_no_pods_any_more() {
    let (left, web, begun) = stopped_in_a_shutdown_without_a_bus().await;
    let (state, clock, runtime, login) = left;
    let b = bench_with(state, clock, runtime, login, |parts| {
        let mut config = Config::clone(&parts.configuration.config);
        config.shutdown = ShutdownPeriods::Total { total: secs(0), critical: secs(0) }.into();
        parts.configuration.config = Arc::new(config);
    });
    b.want(&[&web]).await;
    b.stop_unit().await.unwrap();
    let (took, report) = (begun.elapsed(), b.report());
    assert!(took >= secs(20) && took <= secs(22), "{took:?}: {report:?}");
    // 32 s, which systemd waits from the stop on: six were over.
    assert_eq!(report.budget.delay, Some(secs(38)));
    assert_eq!(report.resumed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_successor_goes_on_with_the_end_of_a_single_pod_in_the_rest_of_its_grace() {
    let runtime = FakeRuntime::default();
    let (web, other) = (pod("web", 0, 20), pod("other", 0, 20));
    runtime.stop_takes(web.uid(), secs(60));
    let b = bench(runtime, held());
    b.want(&[&web, &other]).await;
    let begun = Instant::now();
    let killed = tokio::spawn({
        let node = b.node.clone();
        async move { node.kill("default", "web", KillBody::default()).await }
    });
    tokio::time::sleep(secs(5)).await;
    killed.abort();
    let (state, clock, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web, &other]).await;
    let states =
        |b: &Bench| -> Vec<PodState> { b.node.status().pods.iter().map(|pod| pod.state).collect() };
    assert_eq!(states(&b), [PodState::Syncing, PodState::Terminating]);
    let status = b.node.status();
    let ending = status.pods.iter().find(|pod| pod.name == "web").unwrap();
    assert_eq!((ending.ready_containers, ending.desired_containers), (1, 1), "it still runs");
    assert!(ending.started_at.is_some());
    while b.runtime.starts().len() < 3 {
        tokio::time::sleep(secs(1)).await;
    }
    let took = begun.elapsed();
    assert!(took <= secs(22), "no grace anew: {took:?}");

    // A pod that has ended is not requested to stop again.
    let (state, clock, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web, &other]).await;
    assert_eq!(states(&b), [PodState::Syncing, PodState::Syncing]);
}

#[tokio::test(start_paused = true)]
async fn a_grace_passes_while_the_runtime_is_silent_after_a_restart() {
    let runtime = FakeRuntime::default();
    let web = pod("web", 0, 60);
    runtime.stop_takes(web.uid(), secs(90));
    let b = bench(runtime, held());
    b.want(&[&web]).await;
    let begun = Instant::now();
    b.want(&[]).await;
    b.node.workers().shut_down().await;
    let (state, clock, runtime, login) = b.stop();
    runtime.hang_lists(true);
    let b = bench_in(state, clock, runtime, login);
    b.want(&[]).await;
    tokio::time::sleep(secs(12)).await;
    b.runtime.hang_lists(false);
    while b.runtime.runs(web.uid()) {
        tokio::time::sleep(secs(1)).await;
    }
    let took = begun.elapsed();
    assert!(took >= secs(59) && took <= secs(62), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_grace_is_the_same_however_often_the_agent_restarts_in_it() {
    let runtime = FakeRuntime::default();
    let web = pod("web", 0, 40);
    runtime.stop_takes(web.uid(), secs(90));
    let mut b = bench(runtime, held());
    b.want(&[&web]).await;
    let begun = Instant::now();
    b.want(&[]).await;
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(1400)).await;
        b.node.workers().shut_down().await;
        let (state, clock, runtime, login) = b.stop();
        b = bench_in(state, clock, runtime, login);
        b.want(&[]).await;
    }
    while b.runtime.runs(web.uid()) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = begun.elapsed();
    assert!(took >= secs(39) && took <= secs(41), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_an_operator_ended_is_back_with_and_without_a_restart() {
    for restarts in [false, true] {
        let runtime = FakeRuntime::default();
        let web = pod("web", 0, 20);
        let mut b = bench(runtime, held());
        b.want(&[&web]).await;
        b.node.kill("default", "web", KillBody::default()).await.unwrap();
        if restarts {
            let (state, clock, runtime, login) = b.stop();
            b = bench_in(state, clock, runtime, login);
            b.want(&[&web]).await;
        }
        tokio::time::sleep(secs(1)).await;
        assert_eq!(b.node.status().pods[0].state, PodState::Syncing, "{restarts}");
        assert_eq!(b.runtime.starts().len(), 2, "{restarts}");
    }
}

/// Its manifest has changed, under this agent or while none ran.
#[tokio::test(start_paused = true)]
async fn a_kill_or_restart_reaches_the_pod_that_another_of_its_name_waits_for() {
    for (restart, is_known) in [(false, false), (true, false), (false, true), (true, true)] {
        let runtime = FakeRuntime::default();
        let old = pod("web", 0, 60);
        runtime.sync_pod(&old).await.unwrap();
        runtime.stop_takes(old.uid(), secs(90));
        let mut object = old.object().clone();
        object.metadata.uid = Some("uid-new".to_owned());
        let new = Pod::new(object).unwrap();
        let b = bench(runtime, held());
        if is_known {
            b.want(&[&old]).await;
        }
        b.want(&[&new]).await;
        assert!(b.runtime.runs(old.uid()) && !b.runtime.runs(new.uid()));
        let body = KillBody { grace_seconds: Some(2), restart, ..KillBody::default() };
        let answer = b.node.kill("default", "web", body).await.unwrap();
        let took = answer.took_seconds.round();
        assert_eq!((&*answer.uid, took), (old.uid().as_str(), 2.0), "{restart} {is_known}");
        tokio::time::sleep(secs(1)).await;
        assert!(b.runtime.runs(new.uid()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_keeps_to_a_shorter_grace_that_was_asked_for_later() {
    let runtime = FakeRuntime::default();
    let web = pod("web", 0, 60);
    runtime.stop_takes(web.uid(), secs(90));
    let b = bench(runtime, held());
    b.want(&[&web]).await;
    let mut kills = Vec::new();
    for grace_seconds in [None, Some(10)] {
        let (node, body) = (b.node.clone(), KillBody { grace_seconds, ..KillBody::default() });
        kills.push(tokio::spawn(async move { node.kill("default", "web", body).await }));
        tokio::time::sleep(secs(2)).await;
    }
    kills.iter().for_each(tokio::task::JoinHandle::abort);
    let (state, clock, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web]).await;
    assert_eq!(b.runtime.graces(web.uid()), [secs(60), secs(8)]);
    tokio::time::sleep(secs(8)).await;
    assert_eq!(b.runtime.starts().len(), 2, "it has ended, and is back");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_without_an_agent_still_ends_what_it_asked_to_end_and_brings_it_back()
 {
    let runtime = FakeRuntime::default();
    let (web, dns) = (pod("web", 0, 20), pod("dns", 2_000_000_000, 30));
    runtime.stop_takes(web.uid(), secs(60));
    let b = bench(runtime, held());
    b.want(&[&web, &dns]).await;
    let begun = Instant::now();
    b.login.prepare();
    tokio::time::sleep(secs(5)).await;
    let (state, clock, runtime, login) = b.stop();
    tokio::time::sleep(secs(3)).await;
    login.cancel();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web, &dns]).await;
    let states =
        |b: &Bench| -> Vec<PodState> { b.node.status().pods.iter().map(|pod| pod.state).collect() };
    assert_eq!(
        states(&b),
        [PodState::Terminating, PodState::Syncing],
        "as an agent that saw it does"
    );
    let report = b.report();
    assert_eq!((report.outcome, report.took), (Outcome::Cancelled, secs(8)));
    tokio::time::sleep(secs(14)).await;
    assert!(begun.elapsed() <= secs(23));
    assert_eq!(states(&b), [PodState::Syncing, PodState::Syncing]);
    assert_eq!(b.runtime.starts().iter().filter(|uid| *uid == web.uid()).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_successor_gives_a_pod_whose_manifest_went_the_rest_of_its_grace() {
    let runtime = FakeRuntime::default();
    let (web, other) = (pod("web", 0, 20), pod("other", 0, 20));
    runtime.stop_takes(web.uid(), secs(60));
    let b = bench(runtime, held());
    b.want(&[&web, &other]).await;
    b.want(&[&other]).await;
    tokio::time::sleep(secs(4)).await;
    let (state, clock, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&other]).await;
    assert_eq!(b.runtime.graces(web.uid()), [secs(20), secs(15)]);
    tokio::time::sleep(secs(16)).await;
    assert!(!b.runtime.runs(web.uid()));
}

#[tokio::test(start_paused = true)]
async fn a_successor_ends_a_pod_whose_manifest_is_there_again_and_starts_it_anew() {
    let runtime = FakeRuntime::default();
    let web = pod("web", 0, 20);
    runtime.stop_takes(web.uid(), secs(60));
    let b = bench(runtime, held());
    b.want(&[&web]).await;
    b.want(&[]).await;
    let (state, clock, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web]).await;
    assert_eq!(b.node.status().pods[0].state, PodState::Terminating);
    tokio::time::sleep(secs(30)).await;
    assert_eq!(b.node.status().pods[0].state, PodState::Syncing);
    assert_eq!(b.runtime.starts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_said_of_a_pods_end_before_a_shutdown_stays_with_and_without_a_restart() {
    for restarts in [false, true] {
        let runtime = FakeRuntime::default();
        let web = pod("web", 0, 20);
        runtime.stop_takes(web.uid(), secs(10));
        let mut b = bench(runtime, held());
        b.want(&[&web]).await;
        let killed = tokio::spawn({
            let node = b.node.clone();
            async move { node.kill("default", "web", KillBody::default()).await }
        });
        tokio::time::sleep(secs(1)).await;
        b.login.prepare();
        tokio::time::sleep(secs(1)).await;
        if restarts {
            killed.abort();
            let (state, clock, runtime, login) = b.stop();
            b = bench_in(state, clock, runtime, login);
            b.want(&[&web]).await;
        }
        b.released().await;
        let status = b.node.status();
        assert_eq!(status.pods[0].message, "Pod was terminated because an operator requested it.");
    }
}

#[test]
fn a_record_that_needs_no_disk_is_not_forced_to_one() {
    let volatile = |directory: &str| -> Vec<bool> {
        let (state, directory) = (std::path::Path::new("/var"), std::path::Path::new(directory));
        let file = std::convert::identity;
        let places = crate::shutdown::running::places(state, Some(directory), file);
        places.iter().map(|place| place.is_volatile()).collect()
    };
    // A tmpfs on every Linux, in which the directory need not exist; and a directory that is on none.
    assert_eq!(volatile("/dev/shm/winddown-not-there/run"), [false, true]);
    assert_eq!(volatile("/proc/self"), [false, false]);
}

/// An editor that saves twice, say, while the pod of the first version takes its grace period.
#[tokio::test(start_paused = true)]
async fn a_pod_that_was_replaced_before_it_started_is_not_waited_for() {
    let b = bench(FakeRuntime::default(), held());
    let version = |uid: &str| {
        let mut object = pod("web", 0, 30).object().clone();
        object.metadata.uid = Some(uid.to_owned());
        Pod::new(object).unwrap()
    };
    let (first, second, third) = (version("first"), version("second"), version("third"));
    b.runtime.stop_takes(first.uid(), secs(20));
    for version in [&first, &second, &third] {
        b.want(&[version]).await;
    }
    tokio::time::sleep(secs(60)).await;
    assert_eq!(b.runtime.starts(), [first.uid().clone(), third.uid().clone()]);
    let metrics = &b.node.0.core.recorders.metrics;
    assert!(!metrics.look_at_starts(|_| PodStartup::NotYet), "one counts as starting");
}
