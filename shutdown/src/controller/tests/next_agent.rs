//! What the next agent knows of the pods after one was killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use winddown_shared::testing::pod_with;
use winddown_shared::{Event, Pod, PodUid, RuntimePod};

use super::agents::Site;
use super::killed::{site, site_with_memory};
use super::two_fields;
use super::world::World;
use crate::tests::{pod, secs};
use crate::{
    BootClock, CRITICAL_PRIORITY, Evidence, Outcome, PodEnd, Policy, ProgressPhase, RunPhase,
    last_boot,
};

const NEVER: Duration = Duration::from_secs(100_000);

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_killed_is_reported_so_by_the_agent_after_the_one_that_saw_it() {
    for (mut site, lingers) in [(site(), false), (site_with_memory(), false), (site(), true)] {
        if lingers {
            site.world.lingers("stubborn");
        }
        let first = site.agent();
        site.prepare();
        // Asked at 2 s with 5 s.
        site.until(Duration::from_millis(7001)).await;
        site.kill(first).await;
        let second = site.agent();
        site.reach(&second, ProgressPhase::Released).await;
        let report = &site.reports.all()[0];
        let stubborn = report.pods().find(|(_, pod)| pod.name == "stubborn").unwrap().1;
        assert_eq!((stubborn.end, stubborn.exit), (PodEnd::Killed, Some(secs(7))));
        assert_eq!((&stubborn.containers[..], &stubborn.error), (&["main".to_owned()][..], &None));
        let quick = report.pods().find(|(_, pod)| pod.name == "quick").unwrap().1;
        assert_eq!((quick.end, quick.exit), (PodEnd::Exited, Some(secs(3))));
        assert_eq!(report.outcome, Outcome::Forced);
    }
}

#[tokio::test(start_paused = true)]
async fn many_pods_that_are_killed_are_put_down_a_tenth_of_a_second_at_a_time() {
    let pods = (0..100).map(|i| (pod(&format!("p{i}"), None, Some(5)), NEVER));
    let mut site = Site::with_memory(World::with(pods), two_fields(30, 10));
    let agent = site.agent();
    site.prepare();
    site.reach(&agent, ProgressPhase::Released).await;
    let ending = |phase: &&RunPhase| **phase == RunPhase::Ending;
    assert!(site.disk.phases.lock().unwrap().iter().filter(ending).count() <= 2);
}

/// A power cut in the middle of a group leaves what was on disk: the operator's question is which pod hung.
#[tokio::test(start_paused = true)]
async fn after_a_power_cut_the_disk_says_which_pods_of_the_group_had_ended() {
    let takes = [("quick", 500), ("slow", 1100), ("hung", 100_000_000)];
    let pods = takes.map(|(name, ms)| (pod(name, None, Some(20)), Duration::from_millis(ms)));
    let mut site = Site::with_memory(World::with(pods), two_fields(30, 10));
    let agent = site.agent();
    site.prepare();
    site.until(Duration::from_millis(2900)).await;
    site.kill(agent).await;
    let record = site.places[0].read().unwrap();
    let last = last_boot(Evidence { boot_id: "next".into(), record, ..Evidence::default() });
    let report = last.report().unwrap();
    let ends: Vec<_> = report.pods().map(|(_, pod)| (pod.name.as_str(), pod.end)).collect();
    let wanted =
        [("hung", PodEnd::Terminating), ("quick", PodEnd::Exited), ("slow", PodEnd::Exited)];
    assert_eq!((report.outcome, &ends[..]), (Outcome::CutOff, &wanted[..]));
    let told = last.describe().unwrap();
    assert!(told.contains("2 pods had terminated, 1 still terminating, 0 not asked yet"), "{told}");
}

/// Beside a kubelet, an agent that starts without an API server knows its pods from the container runtime.
#[tokio::test(start_paused = true)]
async fn an_agent_that_knows_less_of_the_pods_ends_them_in_the_groups_of_the_one_before() {
    for mut site in [site(), site_with_memory()] {
        let first = site.agent();
        site.prepare();
        // The ordinary pods were asked at 2 s. `quick` exits at 3 s, `slow` at 8 s.
        site.until(secs(4)).await;
        site.kill(first).await;
        site.world.names_none();
        site.world.lists_as("deaf", pod("deaf", None, Some(3)));
        let of_runtime = pod_with("uid-in-the-runtime", "critical", |pod| {
            pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(30);
        });
        site.world.lists_as("critical", of_runtime);
        let second = site.agent();
        site.reach(&second, ProgressPhase::Released).await;
        let asked = site.asked();
        let at = |name: &str| asked.iter().find(|(pod, ..)| pod == name).unwrap().1;
        assert!(at("deaf") >= 8.0, "the group before had not terminated: {asked:?}");
        let report = &site.reports.all()[0];
        let critical = &report.groups[1].pods;
        let deaf = critical.iter().find(|pod| pod.name == "deaf").unwrap();
        assert_eq!(deaf.priority, Some(CRITICAL_PRIORITY));
        let ends: Vec<_> =
            report.pods().map(|(_, pod)| (pod.name.as_str(), pod.end, &pod.error)).collect();
        assert!(ends.iter().all(|(_, end, error)| end.is_over() && error.is_none()), "{ends:?}");
        assert_eq!(ends.len(), 5, "{ends:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_first_sigterm_came_is_not_told_by_the_agent_that_sent_another() {
    let mut site = site_with_memory();
    let first = site.agent();
    site.prepare();
    site.until(secs(4)).await;
    site.kill(first).await;
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    let report = &site.reports.all()[0];
    let sigterm = |name: &str| {
        let (_, pod) = report.pods().find(|(_, pod)| pod.name == name).unwrap();
        (pod.asked, pod.sigterm)
    };
    assert_eq!(sigterm("slow"), (Some(secs(2)), None));
    assert_eq!(sigterm("critical"), (Some(secs(8)), Some(secs(8))));
}

/// For every time at which the agent dies.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_asked_again_is_killed_when_that_was_promised() {
    for died in (1..48).map(|tenths| Duration::from_millis(100 * tenths)) {
        let world = World::with([(pod("app", None, Some(4)), NEVER)]);
        let mut site = Site::new(world, two_fields(30, 10));
        let first = site.agent();
        site.prepare();
        site.until(died).await;
        site.kill(first).await;
        let second = site.agent();
        site.reach(&second, ProgressPhase::Released).await;
        let signals = site.world.lives()[0].signals.clone();
        let (_, promised) = signals[0];
        if let Some((at, kill_at)) = signals.get(1) {
            assert_eq!(*kill_at, promised.max(*at), "{died:?}");
        }
        assert_eq!(signals.len(), 1 + usize::from(died < secs(4)), "{died:?}");
        let resumed = |event: &&Event| matches!(event, Event::ShutdownResumed { .. });
        assert!(site.recorder.events().iter().filter(resumed).count() <= 1);
    }
}

/// A runtime lists what is left of a pod until the pod workers have freed it.
#[tokio::test(start_paused = true)]
async fn the_next_agent_counts_the_pods_that_run_and_reports_when_the_others_had_exited() {
    for mut site in [site(), site_with_memory()] {
        site.world.tells_ends();
        site.world.lingers("quick");
        site.world.lingers("slow");
        let first = site.agent();
        site.prepare();
        // Both were asked at 2 s. `quick` exits at 3 s, `slow` at 8 s, and `stubborn` is not killed.
        site.until(secs(4)).await;
        site.kill(first).await;
        site.until(secs(9)).await;
        let second = site.agent();
        site.reach(&second, ProgressPhase::Released).await;
        let counted = site.recorder.events().iter().find_map(|event| match event {
            Event::ShutdownResumed { pods, .. } => Some(*pods),
            _ => None,
        });
        assert_eq!(counted, Some(4), "only the end of quick is on record");
        let report = &site.reports.all()[0];
        let exit = |name: &str| {
            let (_, pod) = report.pods().find(|(_, pod)| pod.name == name).unwrap();
            (pod.end, pod.exit, pod.error.clone())
        };
        assert_eq!(exit("quick"), (PodEnd::Exited, Some(secs(3)), None));
        assert_eq!(exit("slow"), (PodEnd::Exited, Some(secs(8)), None));
    }
}

/// Kills the agent in the middle of a shutdown, with a runtime that does not answer the next agent.
async fn killed_beside_a_silent_runtime(mut site: Site) -> (Site, super::agents::Agent) {
    let first = site.agent();
    site.prepare();
    site.until(secs(4)).await;
    site.kill(first).await;
    site.world.is_silent(true);
    let second = site.agent();
    (site, second)
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_does_not_tell_the_next_agent_is_left_and_never_said_to_have_ended() {
    for site in [site(), site_with_memory()] {
        let (site, second) = killed_beside_a_silent_runtime(site).await;
        site.until(secs(10)).await;
        assert!(second.progress.subscribe().borrow().pods_unknown);
        // The end of the groups' time, not sooner: the runtime may come back.
        assert_eq!(site.reach(&second, ProgressPhase::Released).await, secs(32));
        let report = &site.reports.all()[0];
        assert_eq!((report.outcome, report.pods_unknown), (Outcome::Incomplete, true));
        for (_, pod) in report.pods() {
            let why = "the container runtime did not report whether it runs";
            let wanted = match pod.name.as_str() {
                "quick" => (PodEnd::Exited, None),
                _ => (PodEnd::StillRunning, Some(why)),
            };
            assert_eq!((pod.end, pod.error.as_deref()), wanted, "{pod:?}");
        }
        assert_eq!(report.pods().count(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_answers_the_next_agent_late_has_its_pods_ended_in_order() {
    let (site, second) = killed_beside_a_silent_runtime(site()).await;
    site.until(secs(12)).await;
    site.world.is_silent(false);
    site.reach(&second, ProgressPhase::Released).await;
    let report = &site.reports.all()[0];
    assert!(!report.pods_unknown);
    let end = |name: &str| {
        let (_, pod) = report.pods().find(|(_, pod)| pod.name == name).unwrap();
        (pod.end, pod.error.as_deref(), pod.asked.map(|at| at.as_secs()))
    };
    let unseen = Some(
        "it was gone when the agent came back, and the runtime does not say when it terminated",
    );
    assert_eq!(end("quick"), (PodEnd::Exited, None, Some(2)), "the first agent saw it");
    assert_eq!(end("slow"), (PodEnd::Exited, unseen, Some(2)));
    assert_eq!(end("stubborn"), (PodEnd::Killed, None, Some(2)), "its time was over at 7 s");
    assert_eq!(end("critical"), (PodEnd::Exited, None, Some(12)));
    assert_eq!(end("deaf"), (PodEnd::Killed, None, Some(12)));
    assert_eq!(report.outcome, Outcome::Forced);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_knew_nothing_is_replaced_by_one_that_ends_the_pods_in_what_is_left() {
    let mut site = site();
    site.world.is_silent(true);
    let first = site.agent();
    site.prepare();
    site.until(secs(5)).await;
    site.kill(first).await;
    assert!(site.places[0].read().unwrap().unwrap().report.pods_unknown);
    site.world.is_silent(false);
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    let report = &site.reports.all()[0];
    assert_eq!((report.outcome, report.pods_unknown), (Outcome::Forced, false));
    assert_eq!(report.resumed.len(), 1);
    let asked = site.asked();
    assert_eq!(asked.len(), 5, "{asked:?}");
    assert!(asked.iter().all(|(_, at, _)| *at >= 5.0), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_manifest_that_only_the_next_agent_finds_changes_nothing_for_the_others() {
    let mut site = site();
    let first = site.agent();
    site.prepare();
    site.until(secs(4)).await;
    site.kill(first).await;
    let found = RuntimePod::new(PodUid::new("lost"), "lost", "default", true);
    site.world.add(Pod::of_runtime(&found), secs(1));
    let second = site.agent();
    site.reach(&second, ProgressPhase::Released).await;
    let report = &site.reports.all()[0];
    let started: Vec<_> = report.groups.iter().map(|group| group.started).collect();
    assert_eq!((started.len(), started[0]), (3, Some(secs(2))), "the first group was under way");
    assert!(started.iter().all(Option::is_some) && started.is_sorted(), "{started:?}");
    let lost = report.pods().find(|(_, pod)| pod.name == "lost").unwrap().1;
    assert_eq!(lost.end, PodEnd::Exited);
    assert!(report.groups.iter().all(|group| group.latest_end <= secs(32)), "{report:?}");
}

/// Beside a kubelet the gate keeps no pod away.
#[tokio::test(start_paused = true)]
async fn pods_that_came_back_while_a_shutdown_was_cancelled_without_an_agent_are_terminated_in_the_next()
 {
    for is_cancelled in [false, true] {
        let mut site = site();
        site.world.lingers("slow");
        let first = site.agent();
        site.prepare();
        site.reach(&first, ProgressPhase::Released).await;
        site.kill(first).await;
        if is_cancelled {
            site.lock.fake.cancel();
            site.world.add(pod("back", None, Some(20)), secs(1));
            site.prepare();
        }
        let second = site.agent();
        site.reach(&second, ProgressPhase::Released).await;
        assert_eq!(site.asked().iter().any(|(name, ..)| name == "back"), is_cancelled);
        let report = &site.reports.all()[0];
        assert_eq!(report.pods().any(|(_, pod)| pod.name == "back"), is_cancelled, "{report:?}");
    }
}

/// Shutdowns were configured to stop no pods while the run was under way, which holds for the next.
#[tokio::test(start_paused = true)]
async fn a_resumed_run_that_breaks_terminates_its_pods_although_shutdowns_stop_none_any_more() {
    let takes = [("web", None, secs(5)), ("dns", Some(CRITICAL_PRIORITY), secs(1))];
    let pods = takes.map(|(name, priority, takes)| (pod(name, priority, Some(20)), takes));
    let mut site = Site::new(World::with(pods), two_fields(30, 10));
    let first = site.agent();
    site.prepare();
    site.until(secs(2)).await;
    site.kill(first).await;
    site.policy.send_replace(Arc::new(Policy::disabled()));
    let (start, calls) = (site.start, AtomicUsize::new(0));
    // Read twice when the agent takes over, when the run is found, and then when it goes on, outside of what a run survives.
    let next = site.agent_by(BootClock::new(move || {
        assert!(calls.fetch_add(1, Ordering::SeqCst) < 3, "as told");
        secs(77) + start.elapsed()
    }));
    assert!(next.task.await.unwrap_err().is_panic());
    let asked: Vec<String> = site.asked().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(
        (asked, site.lock.fake.is_held()),
        (vec!["web".to_owned(), "dns".to_owned()], false)
    );
}
