//! Tests of the stop of the agent's unit.

use super::*;
use winddown_control::api;

/// A login manager that does not wait announces a shutdown, and the unit is stopped at once.
#[tokio::test(start_paused = true)]
async fn the_units_stop_path_does_not_take_the_end_of_an_earlier_run_for_that_of_this_one() {
    let b = bench(FakeRuntime::default(), held());
    let web = pod("web", 0, 30);
    b.want(&[&web]).await;
    b.login.prepare();
    b.released().await;
    b.login.cancel();
    tokio::time::sleep(secs(30)).await;
    assert_eq!(b.runtime.starts().len(), 2);
    b.runtime.stop_takes(web.uid(), secs(4));
    b.login.prepare();
    // Before the controller has learned of it.
    b.shutdown.end_pods_if_going_down(std::future::ready(None)).await;
    assert_eq!(b.runtime.stops().len(), 2);
    assert!(!b.runtime.runs(web.uid()));
}

/// systemd kills everything at the target's `JobTimeoutSec`, whether or not logind has announced the shutdown.
#[tokio::test(start_paused = true)]
async fn a_limit_shortens_the_run_of_a_login_manager_that_does_not_wait_and_the_report_names_it() {
    for (delay, limit, took) in [(0, Some(20), 11), (0, None, 30), (40, Some(20), 30)] {
        let b = bench(FakeRuntime::default(), FakeInhibitor::holding(secs(delay)));
        b.login.modify(|login| login.delay_set_by = Some("/a.conf".into()));
        let (web, dns) = (pod("web", 0, 60), pod("dns", 2_000_000_000, 60));
        for pod in [&web, &dns] {
            b.runtime.stop_takes(pod.uid(), secs(60));
        }
        b.want(&[&web, &dns]).await;
        let begun = Instant::now();
        b.login.prepare();
        tokio::time::sleep(secs(1)).await;
        b.stop_unit_within(limit.map(secs)).await.unwrap();
        assert!(begun.elapsed() <= secs(took), "{delay} {limit:?}: {:?}", begun.elapsed());
        let report = b.report();
        assert_eq!(report.trigger, Trigger::LoginManager);
        assert!(report.pods().all(|(_, pod)| pod.asked.is_some()), "{report:?}");
        let set_by = report.budget.delay_set_by.as_deref();
        assert_eq!(set_by, limit.map(|_| "JobTimeoutSec of poweroff.target"), "{delay}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_counts_from_the_stop_of_the_unit_however_long_systemd_takes_to_tell_it() {
    // Without a limit, the question costs the plan nothing.
    for (limit, took) in [(Some(20), 8..=10), (Some(10), 8..=10), (None, 38..=38)] {
        let b = bench(FakeRuntime::default(), held());
        let (web, dns) = (pod("web", 0, 60), pod("dns", 2_000_000_000, 60));
        for pod in [&web, &dns] {
            b.runtime.stop_takes(pod.uid(), secs(60));
        }
        b.want(&[&web, &dns]).await;
        let begun = Instant::now();
        let told = async {
            tokio::time::sleep(secs(8)).await;
            Some(WayDown { limit: limit.map(secs), ..POWER_OFF })
        };
        b.shutdown.end_pods_if_going_down(told).await;
        let report = b.report();
        let elapsed = begun.elapsed();
        assert!(took.contains(&elapsed.as_secs()), "{limit:?}: {elapsed:?}, {report:?}");
        assert!(report.pods().all(|(_, pod)| pod.asked.is_some()), "{limit:?}: {report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_announced_after_the_unit_was_asked_to_stop_is_the_same_run() {
    for called_off in [false, true] {
        let b = bench(FakeRuntime::default(), held());
        let (web, dns) = (pod("web", 0, 30), pod("dns", 2_000_000_000, 30));
        b.runtime.stop_takes(web.uid(), secs(4));
        b.want(&[&web, &dns]).await;
        if called_off {
            b.login.prepare();
            b.login.cancel();
            tokio::time::sleep(secs(1)).await;
        }
        let stopping = b.stop_unit();
        tokio::time::sleep(secs(2)).await;
        assert_eq!(b.node.status().admission_closed_by, [api::ClosedBy::UnitStop]);
        b.login.prepare();
        stopping.await.unwrap();
        assert_eq!(b.runtime.stops(), [web.uid().clone(), dns.uid().clone()]);
        assert_eq!(b.report().trigger, Trigger::UnitStop);
    }
}

#[tokio::test(start_paused = true)]
async fn the_units_stop_path_ends_no_pod_of_a_machine_that_stays_up() {
    let b = bench(FakeRuntime::default(), held());
    b.want(&[&pod("web", 0, 30)]).await;
    b.shutdown.end_pods_if_going_down(std::future::ready(None)).await;
    assert!(b.runtime.stops().is_empty());
}
