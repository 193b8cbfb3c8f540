//! Tests of notices: given and withdrawn by an operator, and from other sources.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::sync::atomic::{AtomicU64, Ordering};

use winddown_notices::{Announcement, When};

use super::*;
use winddown_control::api::{ClosedBy, NoticeBody, Phase};

fn within(seconds: u64) -> NoticeBody {
    NoticeBody { in_seconds: Some(seconds), text: "rack 7 moves".into(), ..NoticeBody::default() }
}

async fn all(mut events: tokio::sync::mpsc::UnboundedReceiver<DrainEvent>) -> Vec<DrainEvent> {
    let mut told = Vec::new();
    while let Some(event) = events.recv().await {
        told.push(event);
    }
    told
}

async fn two_pods() -> (Bench, Pod, Pod) {
    let b = bench(FakeRuntime::default(), held());
    let (web, dns) = (pod("web", 0, 30), pod("dns", 2_000_000_000, 30));
    b.runtime.stop_takes(web.uid(), secs(4));
    b.runtime.stop_takes(dns.uid(), secs(2));
    b.want(&[&web, &dns]).await;
    (b, web, dns)
}

fn both_are_back(b: &Bench) -> bool {
    let pods = b.node.status().pods;
    pods.len() == 2 && pods.iter().all(|pod| pod.state == PodState::Syncing)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_pods_in_order_and_is_followed_to_the_end() {
    let (b, web, dns) = two_pods().await;
    let told = all(b.node.give_notice(within(120)).await.unwrap()).await;
    let started = DrainEvent::Started { groups: 2, pods: 2, seconds: 120.0, pods_unknown: false };
    assert_eq!(told.first(), Some(&started));
    let groups = told.iter().filter(|e| matches!(e, DrainEvent::GroupStarted { .. })).count();
    let pods = told.iter().filter(|e| matches!(e, DrainEvent::PodTerminated { .. })).count();
    assert_eq!((groups, pods), (2, 2), "{told:?}");
    let last = told.last();
    assert!(matches!(
        last,
        Some(DrainEvent::Finished { terminated: 2, forced: 0, still_running: 0, .. })
    ));
    assert_eq!(b.runtime.stops(), [web.uid().clone(), dns.uid().clone()]);
    assert_eq!(b.report().trigger, Trigger::Notice);
    assert!(b.login.is_held(), "the login manager has announced nothing");

    b.want(&[&web, &dns, &pod("late", 0, 30)]).await;
    let status = b.node.status();
    assert!(status.admission_closed);
    assert_eq!(status.rejected[0].name, "late");
    let notice = &status.notices[0];
    assert_eq!((notice.source.as_str(), notice.text.as_str()), ("operator", "rack 7 moves"));
    // Two minutes after it was given, which was after one second.
    let at = WallTime::UNIX_EPOCH.checked_add(secs(1 + 120)).unwrap();
    assert!(notice.in_effect);
    assert_eq!(notice.deadline, Some(at), "however many seconds have passed");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_given_during_a_drain_shows_its_own_groups_and_the_drain_shows_its_own() {
    let (b, ..) = two_pods().await;
    let drain = b.node.drain(DrainRequest::default()).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    let deadline = all(b.node.give_notice(within(15)).await.unwrap()).await;
    let groups = |told: &[DrainEvent]| -> Vec<(i32, Option<bool>)> {
        let group = |event: &DrainEvent| match event {
            DrainEvent::GroupStarted { priority, seconds, .. } => {
                Some((*priority, Some(*seconds <= 15.0)))
            }
            DrainEvent::GroupFinished { priority, .. } => Some((*priority, None)),
            _ => None,
        };
        told.iter().filter_map(group).collect()
    };
    let in_order = |fits| {
        let critical = 2_000_000_000;
        [(0, Some(fits)), (0, None), (critical, Some(fits)), (critical, None)]
    };
    assert_eq!(groups(&deadline), in_order(true), "{deadline:?}");
    let drain = all(drain).await;
    assert_eq!(groups(&drain), in_order(false), "{drain:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_deadline_finds_nothing_left_to_do() {
    let (b, ..) = two_pods().await;
    all(b.node.give_notice(within(120)).await.unwrap()).await;
    let told = all(b.node.give_notice(within(60)).await.unwrap()).await;
    assert!(
        matches!(told.last(), Some(DrainEvent::Finished { terminated: 0, still_running: 0, .. })),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_deadline_lets_pods_in_and_brings_static_ones_back() {
    let (b, ..) = two_pods().await;
    all(b.node.give_notice(within(120)).await.unwrap()).await;
    let answer = b.node.withdraw_notice().await;
    assert!(answer.withdrawn && !answer.admission_closed, "{answer:?}");
    tokio::time::sleep(secs(60)).await;
    assert!(both_are_back(&b));
    let status = b.node.status();
    assert!(status.notices.is_empty() && !status.admission_closed);
    let again = b.node.withdraw_notice().await;
    assert!(!again.withdrawn && !again.opened && !again.admission_closed);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_beyond_the_limit_is_refused_with_the_limit_and_one_within_is_taken() {
    let (b, ..) = two_pods().await;
    let year = winddown_shared::LONGEST_NOTICE.as_secs();
    let at = |seconds| NoticeBody {
        deadline: Some(WallTime::UNIX_EPOCH.checked_add(secs(seconds)).unwrap()),
        ..NoticeBody::default()
    };
    for body in [within(year + 1), within(u64::MAX), at(year + 60), at(10 * year)] {
        let refused = b.node.give_notice(body).await.unwrap_err().to_string();
        assert!(refused.contains("at most 365 days ahead"), "{refused}");
        assert!(b.node.status().notices.is_empty());
    }
    all(b.node.give_notice(within(year)).await.unwrap()).await;
    assert_eq!(b.node.status().notices.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_started_again_still_knows_of_the_deadline() {
    let clock = boot_clock();
    let (b, web, dns) = two_pods().await;
    all(b.node.give_notice(within(600)).await.unwrap()).await;
    b.node.shut_down().await;
    let again = bench_in(b.state, clock, FakeRuntime::default(), held());
    again.want(&[&web, &dns]).await;
    tokio::time::sleep(secs(10)).await;
    assert!(again.runtime.starts().is_empty(), "{:?}", again.node.status().pods);
    let status = again.node.status();
    assert!(status.admission_closed && status.notices[0].in_effect);
    assert!(again.node.withdraw_notice().await.withdrawn);
    tokio::time::sleep(secs(10)).await;
    assert_eq!(again.runtime.starts().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_stays_drained_when_the_agent_is_started_again_until_the_drain_is_ended() {
    let clock = boot_clock();
    let (b, web, dns) = two_pods().await;
    all(b.node.drain(DrainRequest::default()).await.unwrap()).await;
    b.node.shut_down().await;
    let again = bench_in(b.state, clock.clone(), FakeRuntime::default(), held());
    assert_eq!(again.node.status().admission_closed_by, [ClosedBy::Drain]);
    again.want(&[&web, &dns]).await;
    tokio::time::sleep(secs(60)).await;
    assert!(again.runtime.starts().is_empty(), "{:?}", again.node.status().pods);
    assert_eq!(again.node.status().admission_closed_by, [ClosedBy::Drain]);
    assert_eq!(
        again.shutdown.reports().list().unwrap().reports.len(),
        1,
        "nothing is drained again"
    );

    assert!(again.node.withdraw_notice().await.opened);
    tokio::time::sleep(secs(10)).await;
    assert_eq!(again.runtime.starts().len(), 2);
    again.node.shut_down().await;
    let third = bench_in(again.state, clock, FakeRuntime::default(), held());
    third.want(&[&web, &dns]).await;
    tokio::time::sleep(secs(10)).await;
    assert_eq!(third.runtime.starts().len(), 2, "the drain is over for the next one too");
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_drain_stands_while_no_agent_runs() {
    // The drain without a timeout has the configured 30 s. In the third row its time passes without an agent, and in the
    // last the agent stops in the second group.
    for (timeout, runs, away, grace) in
        [(Some(100), 5, 20, 90), (None, 5, 5, 20), (Some(100), 5, 2000, 90), (Some(60), 12, 2, 49)]
    {
        let runtime = FakeRuntime::default();
        let (web, dns) = (pod("web", 0, 300), pod("dns", 2_000_000_000, 300));
        runtime.stop_takes(web.uid(), secs(10));
        runtime.stop_takes(dns.uid(), secs(600));
        let b = bench(runtime, held());
        b.want(&[&web, &dns]).await;
        let request = DrainRequest { timeout_seconds: timeout, ..DrainRequest::default() };
        let _events = b.node.drain(request).await.unwrap();
        tokio::time::sleep(secs(runs)).await;
        let (state, clock, runtime, login) = b.stop();
        tokio::time::sleep(secs(away)).await;
        let b = bench_in(state, clock, runtime, login);
        b.want(&[&web, &dns]).await;
        tokio::time::sleep(secs(120)).await;
        let graces = b.runtime.graces(dns.uid());
        assert!(graces[0] + secs(1) >= secs(grace), "{timeout:?}, {away}: {graces:?}");
        assert!(!b.runtime.runs(dns.uid()));
        assert_eq!(b.shutdown.reports().list().unwrap().reports.len(), 1);
        assert_eq!(b.node.status().admission_closed_by, [ClosedBy::Drain]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_report_of_a_drain_has_the_pods_that_had_terminated_before_a_restart_of_the_agent() {
    let runtime = FakeRuntime::default();
    let (web, dns) = (pod("web", 0, 5), pod("dns", 2_000_000_000, 300));
    runtime.stop_takes(web.uid(), secs(600));
    runtime.stop_takes(dns.uid(), secs(20));
    let b = bench(runtime, held());
    b.want(&[&web, &dns]).await;
    let request = DrainRequest { timeout_seconds: Some(100), ..DrainRequest::default() };
    let _events = b.node.drain(request).await.unwrap();
    tokio::time::sleep(secs(10)).await;
    let (state, clock, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web, &dns]).await;
    tokio::time::sleep(secs(120)).await;
    let report = b.report();
    let ends: Vec<_> = report.pods().map(|(_, pod)| (&*pod.name, pod.end)).collect();
    assert_eq!(ends, [("web", PodEnd::Killed), ("dns", PodEnd::Exited)]);
    assert_eq!((report.outcome, report.resumed.len()), (Outcome::Forced, 1));
    assert!(report.pods().all(|(_, pod)| pod.prior_reason.is_none()), "by this drain itself");
}

#[tokio::test(start_paused = true)]
async fn the_report_of_a_drain_counts_the_time_for_which_no_agent_ran() {
    let runtime = FakeRuntime::default();
    let (web, dns) = (pod("web", 0, 300), pod("dns", 2_000_000_000, 300));
    runtime.stop_takes(web.uid(), secs(600));
    runtime.stop_takes(dns.uid(), secs(4));
    let mut b = bench(runtime, held());
    b.want(&[&web, &dns]).await;
    let begun = Instant::now();
    let request = DrainRequest { timeout_seconds: Some(60), ..DrainRequest::default() };
    let _events = b.node.drain(request).await.unwrap();
    for _ in 0..2 {
        tokio::time::sleep(secs(5)).await;
        let (state, clock, runtime, login) = b.stop();
        tokio::time::sleep(secs(5)).await;
        b = bench_in(state, clock, runtime, login);
        b.want(&[&web, &dns]).await;
    }
    while b.runtime.runs(dns.uid()) {
        tokio::time::sleep(secs(1)).await;
    }
    let took = begun.elapsed();
    tokio::time::sleep(secs(30)).await;
    let report = b.report();
    let about = |is: Duration, wanted: Duration| is.abs_diff(wanted) <= secs(2);
    let exit = report.pods().last().unwrap().1.exit.unwrap();
    assert!(about(report.took, took) && about(exit, took), "{took:?}: {report:?}");
    assert!(about(report.resumed[0], secs(10)) && about(report.resumed[1], secs(20)), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_ended_before_the_next_agent_continues_it_is_reported() {
    let (b, web, dns) = two_pods().await;
    let _events = b.node.drain(DrainRequest::default()).await.unwrap();
    tokio::time::sleep(secs(2)).await;
    let (state, clock, runtime, login) = b.stop();
    tokio::time::sleep(secs(1)).await;
    let b = bench_in(state, clock, runtime, login);
    assert!(b.node.withdraw_notice().await.opened);
    let report = b.report();
    assert_eq!((report.trigger, report.outcome), (Trigger::Drain, Outcome::Cancelled));
    assert_eq!((report.count(PodEnd::Terminating), report.count(PodEnd::Spared)), (1, 1));
    assert!(report.took >= secs(3), "{report:?}");
    b.want(&[&web, &dns]).await;
    tokio::time::sleep(secs(60)).await;
    assert!(both_are_back(&b));
    assert_eq!(b.shutdown.reports().list().unwrap().reports.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_the_end_of_the_agent_interrupts_is_not_over() {
    let clock = boot_clock();
    let (b, web, dns) = two_pods().await;
    let events = b.node.drain(DrainRequest::default()).await.unwrap();
    tokio::time::sleep(secs(2)).await;
    b.node.shut_down().await;
    assert_eq!(b.runtime.stops(), [web.uid().clone()]);
    let told = all(events).await;
    assert!(!matches!(told.last(), Some(DrainEvent::Finished { .. })), "{told:?}");
    assert!(!b.state.path().join("reports").exists(), "that is for the successor");
    let again = bench_in(b.state, clock, b.runtime.clone(), held());
    again.want(&[&web, &dns]).await;
    tokio::time::sleep(secs(60)).await;
    assert!(again.runtime.stops().contains(dns.uid()), "{:?}", again.runtime.stops());
    assert_eq!(again.runtime.starts().len(), 2, "none has come back");
    assert_eq!(again.node.status().admission_closed_by, [ClosedBy::Drain]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_drain_has_asked_to_end_has_the_rest_of_its_grace_under_the_next_agent() {
    let runtime = FakeRuntime::default();
    let web = pod("web", 0, 20);
    runtime.stop_takes(web.uid(), secs(60));
    let b = bench(runtime, held());
    b.want(&[&web]).await;
    let _events = b.node.drain(DrainRequest::default()).await.unwrap();
    tokio::time::sleep(secs(5)).await;
    let (state, clock, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web]).await;
    assert_eq!(b.runtime.graces(web.uid()), [secs(20), secs(15)]);
    tokio::time::sleep(secs(16)).await;
    assert!(!b.runtime.runs(web.uid()));
    assert_eq!(b.node.status().admission_closed_by, [ClosedBy::Drain]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_given_as_a_duration_stays_where_it_is_when_the_clock_is_set() {
    let off = Arc::new(AtomicU64::new(0));
    let (set, clock) = (Arc::clone(&off), boot_clock());
    let state = tempfile::tempdir().unwrap();
    let b = bench_with(state, clock.clone(), FakeRuntime::default(), held(), |parts| {
        parts.wall = WallClock::new(move || {
            WallTime::UNIX_EPOCH + clock.now() + secs(set.load(Ordering::SeqCst))
        });
    });
    b.want(&[&pod("web", 0, 30)]).await;
    let _events = b.node.give_notice(within(600)).await.unwrap();
    let deadline = || b.notice_aggregator.notices().borrow().in_effect.first().unwrap().deadline;
    let before = deadline();
    off.store(3600, Ordering::SeqCst);
    tokio::time::sleep(secs(30)).await;
    assert_eq!(deadline(), before);
}

#[tokio::test(start_paused = true)]
async fn another_notice_in_force_keeps_the_node_closed_and_is_named() {
    let (b, ..) = two_pods().await;
    let battery = b.notice_aggregator.publisher("file", None);
    let low = Announcement::new(When::In(secs(300)), "battery low");
    battery.publish(&low, WallTime::UNIX_EPOCH);
    tokio::time::sleep(secs(30)).await;
    assert_eq!(b.runtime.stops().len(), 2);
    let answer = b.node.withdraw_notice().await;
    assert!(!answer.withdrawn && answer.admission_closed);
    assert!(answer.message.contains("battery low"), "{answer:?}");
    battery.withdraw();
    tokio::time::sleep(secs(30)).await;
    assert!(both_are_back(&b));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_given_while_another_run_is_called_off_is_followed_to_its_own_end() {
    let (b, ..) = two_pods().await;
    let battery = b.notice_aggregator.publisher("file", None);
    battery.publish(&Announcement::new(When::In(secs(300)), "battery low"), WallTime::UNIX_EPOCH);
    tokio::time::sleep(secs(2)).await;
    battery.withdraw();
    // Yields instead of sleeping, because the run must not complete.
    let mut turns = 0;
    while b.node.status().admission_closed {
        assert!(turns < 100_000, "the notice is still in force");
        turns += 1;
        tokio::task::yield_now().await;
    }
    // The run is not over yet.
    let told = all(b.node.give_notice(within(120)).await.unwrap()).await;
    assert!(matches!(told.last(), Some(DrainEvent::Finished { still_running: 0, .. })), "{told:?}");
    assert_eq!(b.runtime.stops().len(), 2, "the critical pod as well");
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_time_is_over_has_pods_left_until_the_last_one_has_terminated() {
    let (b, web, _) = two_pods().await;
    b.runtime.stop_fails(web.uid(), 1000);
    all(b.node.drain(DrainRequest::default()).await.unwrap()).await;
    let drain = b.node.status().drain.unwrap();
    assert_eq!((drain.pods_remaining, drain.progress.phase), (1, Phase::Done));
    b.runtime.stop_fails(web.uid(), 0);
    tokio::time::sleep(secs(300)).await;
    let status = b.node.status();
    assert_eq!((status.drain, status.admission_closed_by), (None, vec![ClosedBy::Drain]));
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_back_when_a_notice_is_withdrawn_are_not_counted_as_left() {
    let (b, ..) = two_pods().await;
    let events = b.node.give_notice(within(120)).await.unwrap();
    tokio::time::sleep(secs(5)).await;
    assert!(b.node.withdraw_notice().await.withdrawn);
    let told = all(events).await;
    let Some(DrainEvent::Finished { terminated, still_running, cancelled: true, .. }) = told.last()
    else {
        panic!("{told:?}")
    };
    assert_eq!((*terminated, *still_running), (1, 1), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_in_progress_is_called_off_like_a_shutdown() {
    let (b, web, dns) = two_pods().await;
    let events = b.node.drain(DrainRequest::default()).await.unwrap();
    tokio::time::sleep(secs(2)).await;
    let drain = b.node.status().drain.unwrap();
    assert_eq!((drain.pods_remaining, drain.pods_unknown), (2, false));
    let pods = drain.progress.groups.iter().map(|group| group.pods).sum::<usize>();
    assert_eq!((drain.progress.phase, pods), (Phase::Running, 2), "{drain:?}");
    tokio::time::sleep(secs(1)).await;
    let answer = b.node.withdraw_notice().await;
    assert!(!answer.withdrawn && answer.opened && !answer.admission_closed, "{answer:?}");
    assert_eq!(b.node.status().drain, None);
    let told = all(events).await;
    let last = told.last();
    assert!(
        matches!(last, Some(DrainEvent::Finished { still_running: 2, cancelled: true, .. })),
        "{told:?}"
    );
    tokio::time::sleep(secs(30)).await;
    assert_eq!(b.runtime.stops(), [web.uid().clone()], "the critical pod was spared");
    assert!(both_are_back(&b) && !b.node.status().admission_closed);
    let report = b.report();
    assert_eq!((report.outcome, report.count(PodEnd::Spared)), (Outcome::Cancelled, 1));

    let (state, clock, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    b.want(&[&web, &dns]).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(b.runtime.stops().len(), 1, "it is over for the next agent too");
    assert!(both_are_back(&b) && !b.node.status().admission_closed);
}

/// An agent that is stopped at any step of a drain that is called off.
#[tokio::test(start_paused = true)]
async fn wherever_an_agent_stops_while_a_drain_is_called_off_the_drain_goes_on_or_is_over() {
    for turns in 0..40 {
        let (b, web, dns) = two_pods().await;
        let _events = b.node.drain(DrainRequest::default()).await.unwrap();
        tokio::time::sleep(secs(2)).await;
        let node = b.node.clone();
        let undrain = tokio::spawn(async move { node.withdraw_notice().await });
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        let answered = undrain.is_finished();
        undrain.abort();
        let (state, clock, runtime, login) = b.stop();
        let b = bench_in(state, clock, runtime, login);
        b.want(&[&web, &dns]).await;
        tokio::time::sleep(secs(60)).await;
        let status = b.node.status();
        let is_over = both_are_back(&b) && !status.admission_closed;
        let goes_on = status.admission_closed_by == [ClosedBy::Drain] && status.drain.is_none();
        assert!(is_over || (goes_on && !answered), "{turns}: {:?}", status.pods);
        if goes_on {
            assert!(b.node.withdraw_notice().await.opened);
            tokio::time::sleep(secs(60)).await;
            assert!(both_are_back(&b), "{turns}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_only_the_record_of_its_run_has_kept_is_withdrawn_before_a_drain() {
    let clock = boot_clock();
    let (b, ..) = two_pods().await;
    all(b.node.drain(DrainRequest::default()).await.unwrap()).await;
    all(b.node.give_notice(within(600)).await.unwrap()).await;
    let (state, ..) = b.stop();
    std::fs::remove_file(state.path().join("operator-notice.json")).unwrap();
    let b = bench_in(state, clock, FakeRuntime::default(), held());
    b.want(&[]).await;
    let closed_by = || b.node.status().admission_closed_by;
    assert_eq!(closed_by(), [ClosedBy::Notice, ClosedBy::Drain]);
    assert!(b.node.withdraw_notice().await.withdrawn);
    assert_eq!(closed_by(), [ClosedBy::Drain]);
    assert!(b.node.withdraw_notice().await.opened);
}

/// The machine goes down past the login manager while a notice leaves ten minutes.
#[tokio::test(start_paused = true)]
async fn the_units_stop_path_shortens_the_run_of_a_notice_and_asks_its_later_groups() {
    let b = bench(FakeRuntime::default(), held());
    let (web, dns) = (pod("web", 0, 300), pod("dns", 2_000_000_000, 30));
    b.runtime.stop_takes(web.uid(), secs(600));
    b.runtime.stop_takes(dns.uid(), secs(3));
    b.want(&[&web, &dns]).await;
    let _events = b.node.give_notice(within(600)).await.unwrap();
    tokio::time::sleep(secs(5)).await;
    let begun = Instant::now();
    b.stop_unit().await.unwrap();
    let took = begun.elapsed();
    assert_eq!(b.runtime.stops().last(), Some(dns.uid()), "after {took:?}");
    assert!(took > secs(15) && took <= secs(31), "{took:?}");
    assert!(!b.runtime.runs(web.uid()) && !b.runtime.runs(dns.uid()));
    let report = b.report();
    assert_eq!((report.trigger, report.outcome), (Trigger::Notice, Outcome::Forced));
    assert_eq!(report.node_action.as_deref(), Some("powerOff"));
    let closed_by = b.node.status().admission_closed_by;
    assert_eq!(closed_by, [ClosedBy::UnitStop, ClosedBy::Notice]);
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_stays_drained_through_a_notice_and_a_shutdown_that_is_called_off() {
    let (b, ..) = two_pods().await;
    all(b.node.drain(DrainRequest::default()).await.unwrap()).await;
    let closed_by = || b.node.status().admission_closed_by;
    assert_eq!(closed_by(), [ClosedBy::Drain]);

    let battery = b.notice_aggregator.publisher("file", None);
    battery.publish(&Announcement::new(When::In(secs(300)), "battery low"), WallTime::UNIX_EPOCH);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(closed_by(), [ClosedBy::Notice, ClosedBy::Drain]);
    battery.withdraw();
    tokio::time::sleep(secs(30)).await;
    assert_eq!(closed_by(), [ClosedBy::Drain]);

    b.login.prepare();
    tokio::time::sleep(secs(2)).await;
    assert_eq!(closed_by(), [ClosedBy::Shutdown, ClosedBy::Drain]);
    b.login.cancel();
    tokio::time::sleep(secs(30)).await;
    assert_eq!(closed_by(), [ClosedBy::Drain]);
    assert_eq!(b.runtime.starts().len(), 2, "nothing has come back");

    // The operator's deadline is independent of the drain.
    all(b.node.give_notice(within(120)).await.unwrap()).await;
    let answer = b.node.withdraw_notice().await;
    assert!(answer.withdrawn && !answer.opened && answer.admission_closed, "{answer:?}");
    assert!(answer.message.contains("the node is drained"), "{answer:?}");
    tokio::time::sleep(secs(30)).await;
    assert_eq!((closed_by(), b.runtime.starts().len()), (vec![ClosedBy::Drain], 2));

    assert!(b.node.withdraw_notice().await.opened);
    tokio::time::sleep(secs(30)).await;
    assert!(both_are_back(&b) && closed_by().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_notice_without_a_time_or_with_one_that_is_over_is_refused() {
    let (b, ..) = two_pods().await;
    let at =
        |text: &str| NoticeBody { deadline: Some(text.parse().unwrap()), ..NoticeBody::default() };
    let both = NoticeBody { in_seconds: Some(5), ..at("2026-11-20T12:00:00Z") };
    for body in
        [NoticeBody::default(), within(0), within(u64::MAX), at("1969-12-31T23:59:59Z"), both]
    {
        let error = b.node.give_notice(body.clone()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::BadRequest, "{body:?}");
        assert!(!error.hint.is_empty());
    }
    assert!(b.node.status().notices.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_refused_where_it_would_end_no_pod() {
    let (b, ..) = two_pods().await;
    let shutdown = ShutdownPeriods::Total { total: secs(0), critical: secs(0) }.into();
    let mut off = Config { shutdown, ..Config::default() };
    off.access.state_directory = b.state.path().to_owned();
    b.configured.replace(Configuration {
        config: Arc::new(off),
        file: None,
        warnings: Vec::new(),
        at_restart: Vec::new(),
        loaded_at: WallTime::UNIX_EPOCH,
    });
    let error = b.node.give_notice(within(60)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Conflict);
    assert!(error.hint.contains("shutdownGracePeriod"), "{error:?}");
    assert!(b.node.status().notices.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_was_withdrawn_stays_so_for_the_next_agent_of_a_run_that_goes_on() {
    let clock = boot_clock();
    let (web, dns) = (pod("web", 0, 300), pod("dns", 2_000_000_000, 30));
    let ups = |b: &Bench| {
        let publisher = b.notice_aggregator.publisher("ups", None);
        publisher.publish(&Announcement::new(When::In(secs(600)), "battery"), WallTime::UNIX_EPOCH);
        publisher
    };
    let b = bench(FakeRuntime::default(), held());
    b.runtime.stop_takes(web.uid(), secs(200));
    b.want(&[&web, &dns]).await;
    let _ups = ups(&b);
    let _events = b.node.give_notice(within(300)).await.unwrap();
    tokio::time::sleep(secs(5)).await;
    assert!(b.node.withdraw_notice().await.withdrawn);
    let (state, _, runtime, login) = b.stop();
    let b = bench_in(state, clock, runtime, login);
    let _ups = ups(&b);
    b.want(&[&web, &dns]).await;
    let sources: Vec<_> = b.node.status().notices.into_iter().map(|n| n.source).collect();
    assert_eq!(sources, ["ups"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_and_its_end_that_no_disk_takes_say_so() {
    let (b, ..) = two_pods().await;
    let file = b.state.path().join("operator-drain.json");
    std::fs::create_dir_all(file.join("full")).unwrap();
    let told = all(b.node.drain(DrainRequest::default()).await.unwrap()).await;
    let warns = |event: &DrainEvent| matches!(event, DrainEvent::Warning { message } if message.contains("does not know that the node is drained"));
    assert!(warns(&told[1]), "{told:?}");
    assert!(b.node.status().notices.iter().any(|notice| notice.problem.is_some()));
    assert!(b.node.withdraw_notice().await.warning.unwrap().contains("undrain` again"));
    std::fs::remove_dir_all(&file).unwrap();
    assert_eq!(b.node.withdraw_notice().await.warning, None);
    assert!(std::fs::read_to_string(&file).unwrap().contains("withdrawn"));
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_end_no_disk_takes_says_so_before_its_end() {
    let (b, ..) = two_pods().await;
    let mut events = b.node.drain(DrainRequest::default()).await.unwrap();
    let mut told = vec![events.recv().await.unwrap()];
    let file = b.state.path().join("operator-drain.json");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir_all(file.join("full")).unwrap();
    told.extend(all(events).await);
    let warns = |event: &DrainEvent| matches!(event, DrainEvent::Warning { message } if message.contains("cannot be stored"));
    assert_eq!(told.iter().filter(|event| warns(event)).count(), 1, "{told:?}");
    assert!(matches!(told.last(), Some(DrainEvent::Finished { .. })), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_no_pods_that_no_disk_takes_says_so_once() {
    let b = bench(FakeRuntime::default(), held());
    b.want(&[]).await;
    std::fs::create_dir_all(b.state.path().join("operator-drain.json/full")).unwrap();
    let told = all(b.node.drain(DrainRequest::default()).await.unwrap()).await;
    let warnings = told.iter().filter(|event| matches!(event, DrainEvent::Warning { .. }));
    assert_eq!(warnings.count(), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_repeat_what_no_disk_took_of_a_deadline() {
    let (b, ..) = two_pods().await;
    std::fs::create_dir_all(b.state.path().join("operator-notice.json/full")).unwrap();
    let said = b.node.withdraw_notice().await.warning.unwrap();
    assert!(said.contains("it also ends a drain"), "{said}");
    let told = all(b.node.drain(DrainRequest::default()).await.unwrap()).await;
    assert!(!told.iter().any(|event| matches!(event, DrainEvent::Warning { .. })), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_report_of_a_drain_that_the_disk_refused_is_stored_when_the_disk_has_room_again() {
    let (b, ..) = two_pods().await;
    let reports = b.state.path().join("reports");
    std::fs::write(&reports, "no directory").unwrap();
    all(b.node.drain(DrainRequest::default()).await.unwrap()).await;
    assert!(b.node.status().lost_report.unwrap().contains("reports"));
    std::fs::remove_file(&reports).unwrap();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(b.node.status().lost_report, None);
    assert_eq!(b.report().trigger, Trigger::Drain);
}

#[tokio::test(start_paused = true)]
async fn a_report_of_a_drain_that_the_disk_refused_is_stored_by_the_next_agent() {
    for (is_called_off, outcome, spared) in
        [(false, Outcome::Clean, 0), (true, Outcome::Cancelled, 1)]
    {
        let (b, ..) = two_pods().await;
        let reports = b.state.path().join("reports");
        std::fs::write(&reports, "no directory").unwrap();
        let events = b.node.drain(DrainRequest::default()).await.unwrap();
        if is_called_off {
            tokio::time::sleep(secs(2)).await;
            b.node.withdraw_notice().await;
        }
        all(events).await;
        let (state, clock, runtime, login) = b.stop();
        std::fs::remove_file(&reports).unwrap();
        // What the first agent retries is lost with it.
        let moved = tempfile::tempdir().unwrap();
        std::fs::rename(state.path(), moved.path()).unwrap();
        let b = bench_in(moved, clock, runtime, login);
        b.want(&[]).await;
        tokio::time::sleep(secs(10)).await;
        let report = b.report();
        assert_eq!((report.trigger, report.outcome), (Trigger::Drain, outcome));
        assert_eq!(report.count(PodEnd::Spared), spared);
        assert!(report.resumed.is_empty(), "it is that of the first agent: {report:?}");
    }
}
