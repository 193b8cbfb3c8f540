//! Each invariant holds for a successful shutdown, and can fail.

use std::collections::BTreeMap;

use serde_json::json;

use super::{SECOND, judge};
use crate::chaos::record::{Harm, Record};
use crate::chaos::{Fate, Fault, Feature, Runtime, Service};
use crate::witness::{At, Life};
use crate::{PodBehavior, PodLog, TestPod};

/// When the shutdown is requested.
const ASKED: At = 100 * SECOND;

fn ms(after: At) -> At {
    ASKED + after * 1_000_000
}

/// A successful shutdown: two pods that stop by themselves, one after the other, and one in the second group that has
/// to be killed.
fn well() -> Record {
    let deaf =
        TestPod { behavior: PodBehavior::Deaf, grace_seconds: 2, ..TestPod::new("deaf", 1000, 0) };
    let pods = vec![TestPod::new("low", 0, 0), deaf, TestPod::new("high", 2_000_000_000, 0)];
    let log = |term, exits: &[At]| PodLog {
        starts: vec![(ASKED - 10 * SECOND, 7)],
        terms: vec![ms(term)],
        told: exits.to_vec(),
        exits: exits.to_vec(),
        ..PodLog::default()
    };
    let logs: BTreeMap<String, PodLog> = [
        ("low".to_owned(), log(10, &[ms(500)])),
        ("deaf".to_owned(), log(510, &[])),
        ("high".to_owned(), log(2520, &[ms(2900)])),
    ]
    .into();
    let life = |pod: &str, ended| Life { pod: pod.to_owned(), ended: Some(ms(ended)) };
    let pod =
        |name: &str, end: &str| json!({ "name": format!("{name}-winddown-node"), "outcome": end });
    let report = json!({
        "trigger": "loginManager",
        "outcome": "forced",
        "groups": [
            { "pods": [pod("low", "exited")] },
            { "pods": [pod("deaf", "killed")] },
            { "pods": [pod("high", "exited")] },
        ],
    });
    Record {
        runtime: Runtime::Process,
        features: vec![],
        untimely: vec![],
        at_rest: Some(pods.iter().map(|pod| (pod.name.clone(), 1)).collect()),
        pods,
        logs,
        lives: vec![life("low", 505), life("deaf", 2515), life("high", 2905)],
        lock: vec![(ASKED - 20 * SECOND, false), (ASKED - 15 * SECOND, true), (ms(2950), false)],
        asked: vec![ASKED],
        gave_up: vec![],
        harms: vec![],
        slow_api: vec![],
        victims: vec![],
        drained: None,
        complaints: vec![],
        lost_patience: false,
        excuses: vec![],
        reports: vec![report],
    }
}

#[test]
fn a_pod_that_a_drained_node_starts_is_seen() {
    let drained = |r: &mut Record| {
        r.drained = Some(ASKED - 5 * SECOND);
        r.victims = r.logs.keys().cloned().collect();
    };
    assert!(broken(drained).is_empty());
    let started = |r: &mut Record| {
        drained(r);
        r.logs.get_mut("low").unwrap().starts.push((ASKED - 4 * SECOND, 77));
    };
    assert!(broken(started).contains(&"drained"), "{:?}", broken(started));
}

/// The invariants that do not hold after this change of the record.
fn broken(change: impl FnOnce(&mut Record)) -> Vec<&'static str> {
    let mut record = well();
    change(&mut record);
    judge(&record).into_iter().map(|violation| violation.invariant).collect()
}

fn log<'a>(record: &'a mut Record, pod: &str) -> &'a mut PodLog {
    record.logs.get_mut(pod).unwrap()
}

#[test]
fn nothing_is_said_of_a_shutdown_that_went_well() {
    assert_eq!(judge(&well()), []);
}

#[test]
fn a_group_that_is_asked_while_the_one_before_it_still_ends_is_noticed() {
    assert_eq!(broken(|r| log(r, "deaf").terms = vec![ms(400)]), ["order"]);
    // Unless the earlier group had used up its time.
    let late = |r: &mut Record| {
        log(r, "low").exits = vec![ms(5400)];
        r.lives[0].ended = Some(ms(5405));
        log(r, "deaf").terms = vec![ms(5020)];
        r.lives[1].ended = Some(ms(7100));
        log(r, "high").terms = vec![ms(7200)];
        log(r, "high").exits = vec![ms(7500)];
        r.lives[2].ended = Some(ms(7505));
        r.lock[2].0 = ms(7600);
    };
    assert!(broken(late).is_empty());
}

#[test]
fn a_group_that_is_asked_first_though_it_is_not_the_first_is_noticed() {
    let first = |r: &mut Record| {
        log(r, "high").terms = vec![ms(5)];
        log(r, "high").exits = vec![ms(8)];
    };
    assert_eq!(broken(first), ["order"]);
}

#[test]
fn a_lock_that_outlives_the_budget_and_a_logind_out_of_patience_are_noticed() {
    assert_eq!(broken(|r| r.lock[2].0 = ms(14_000)), ["budget", "lock released"]);
    assert_eq!(broken(|r| r.lost_patience = true), ["budget"]);
}

#[test]
fn a_pod_killed_before_its_grace_is_noticed() {
    assert_eq!(broken(|r| r.lives[1].ended = Some(ms(1900))), ["grace"]);
    let stuck = |r: &mut Record| {
        r.pods[1].behavior = PodBehavior::Stuck;
        log(r, "deaf").terms.clear();
        r.lives[1].ended = Some(ms(1000));
    };
    assert_eq!(broken(stuck), ["grace"]);
}

#[test]
fn a_killed_agent_waits_for_no_start_of_containerd() {
    let harm = |fault, from, to| Harm { fault, from: ms(from), to: ms(to) };
    let cut = |r: &mut Record| {
        r.lives[1].ended = Some(ms(1000));
        r.harms = vec![
            harm(Fault::Of(Service::Containerd, Fate::Killed), 50, 900),
            harm(Fault::AgentKilled, 100, 150),
        ];
    };
    assert_eq!(broken(cut), ["grace"]);
}

#[test]
fn a_process_that_is_left_or_one_too_many_is_noticed() {
    assert_eq!(broken(|r| r.lives[1].ended = None), ["no orphan"]);
    assert_eq!(
        broken(|r| r.complaints.push((ms(9), "winddown.service: Killing process 5".into()))),
        ["no orphan"]
    );
    let own = |at| (at, "winddown-pod1-main-0.service: Killing process 5 (sleep)".to_owned());
    assert_eq!(broken(|r| r.complaints.push(own(ms(3000)))), ["no orphan"]);
    assert!(broken(|r| r.complaints.push(own(ms(2515)))).is_empty());
    let left = |at| (at, "winddown.service: Unit process 7 remains running".to_owned());
    assert_eq!(broken(|r| r.complaints.push(left(ms(3000)))), ["no orphan"]);
    assert!(broken(|r| r.complaints.push(left(ms(100)))).is_empty());
    let two = |r: &mut Record| *r.at_rest.as_mut().unwrap().get_mut("low").unwrap() = 2;
    assert_eq!(broken(two), ["no orphan"]);
    let later = |r: &mut Record| r.lives[2].ended = Some(ms(3600));
    assert_eq!(broken(later), ["no orphan", "lock released"]);
}

#[test]
fn a_pod_that_is_started_again_is_noticed() {
    let again = |r: &mut Record| {
        log(r, "low").starts.push((ASKED - SECOND, 9));
        log(r, "low").exits.push(ASKED - 2 * SECOND);
        log(r, "low").told.push(ASKED - 2 * SECOND);
    };
    assert_eq!(broken(again), ["once"]);
    // After a cancelled shutdown the pod must start again, but not next to itself.
    let back = |r: &mut Record| {
        again(r);
        r.asked.insert(0, ASKED - 5 * SECOND);
        r.reports.push(r.reports[0].clone());
    };
    assert!(broken(back).is_empty());
    let beside = |r: &mut Record| {
        back(r);
        log(r, "low").exits.pop();
    };
    assert_eq!(broken(beside), ["once", "own end"]);
}

#[test]
fn a_pod_that_is_started_when_its_group_was_asked_is_noticed() {
    let late = |r: &mut Record| log(r, "low").starts = vec![(ms(1500), 7)];
    assert_eq!(broken(late), ["once"]);
}

#[test]
fn a_willing_pod_that_is_killed_is_noticed() {
    assert_eq!(broken(|r| log(r, "low").exits.clear()), ["own end"]);
}

#[test]
fn a_lock_that_stays_away_is_noticed_and_what_kept_it_away_is_passed_over() {
    let away = |r: &mut Record| {
        r.lock.insert(2, (ASKED - 9 * SECOND, false));
        r.lock.insert(3, (ASKED - 7 * SECOND, true));
    };
    assert_eq!(broken(away), ["lock kept"]);
    let fault = Fault::Of(Service::Logind, Fate::Restarted);
    let harm = Harm { fault, from: ASKED - 9 * SECOND, to: ASKED - 7 * SECOND - SECOND / 2 };
    let excused = |r: &mut Record| {
        away(r);
        r.harms.push(harm.clone());
    };
    assert!(broken(excused).is_empty());
    let refused = |r: &mut Record| {
        away(r);
        r.gave_up.push(ASKED - 7 * SECOND - SECOND / 2);
    };
    assert!(broken(refused).is_empty());
    assert_eq!(broken(|r| r.lock.clear()), ["lock kept", "lock released"]);
}

#[test]
fn a_lock_that_goes_before_the_last_pod_or_long_after_it_is_noticed() {
    assert_eq!(broken(|r| r.lock[2].0 = ms(2300)), ["no orphan", "lock released"]);
    let late = |r: &mut Record| r.lock[2].0 = ms(5500);
    assert_eq!(broken(late), ["lock released"]);
    let slow = |r: &mut Record| r.slow_api = vec![(ms(3000), ms(4000))];
    assert!(broken(|r| (late(r), slow(r)).1).is_empty());
    assert_eq!(broken(|r| r.lock.truncate(2)), ["lock released"]);
}

#[test]
fn a_report_that_is_missing_or_not_true_is_noticed() {
    assert_eq!(broken(|r| r.reports.clear()), ["report"]);
    assert_eq!(broken(|r| r.reports[0]["trigger"] = "drill".into()), ["report"]);
    assert_eq!(broken(|r| r.reports[0]["outcome"] = "clean".into()), ["report"]);
    assert_eq!(broken(|r| r.reports[0]["groups"][0]["pods"] = json!([])), ["report"]);
    assert_eq!(
        broken(|r| r.reports[0]["groups"][0]["pods"][0]["outcome"] = "killed".into()),
        ["report"]
    );
    assert_eq!(broken(|r| r.reports.push(serde_json::Value::Null)), ["report"]);
}

/// Between the request of a shutdown and logind's announcement, of which the record says nothing.
#[test]
fn a_victim_may_end_for_another_pod_until_the_shutdown_asks_the_first() {
    let gone = |r: &mut Record| {
        let high = log(r, "high");
        (high.terms, high.exits, high.told) = (vec![ms(1)], vec![ms(4)], vec![ms(4)]);
        r.lives[2].ended = Some(ms(5));
        r.lock[2].0 = ms(2520);
        r.reports[0]["groups"][2]["pods"] = json!([]);
    };
    assert_eq!(broken(gone), ["order", "report"]);
    let victim = |r: &mut Record| {
        gone(r);
        r.victims.push("high".to_owned());
    };
    assert!(broken(victim).is_empty(), "{:?}", broken(victim));
    let asked = |r: &mut Record| {
        victim(r);
        log(r, "high").exits = vec![ms(14)];
        r.lives[2].ended = Some(ms(15));
    };
    assert_eq!(broken(asked), ["report"]);
}

#[test]
fn a_report_may_be_missing_from_a_full_disk_if_the_agent_says_so() {
    let full = |r: &mut Record| {
        r.reports.clear();
        r.harms.push(Harm { fault: Fault::StateFull, from: ms(1000), to: ms(3000) });
    };
    assert_eq!(broken(full), ["report"]);
    let said = |r: &mut Record| {
        full(r);
        r.excuses.push(ms(2940));
    };
    assert!(broken(said).is_empty());
}

#[test]
fn a_pod_that_is_not_told_or_that_keeps_its_notice_is_noticed() {
    assert_eq!(broken(|r| log(r, "low").told.clear()), ["told"]);
    assert_eq!(broken(|r| r.untimely.push("uid".into())), ["cancelled"]);
}

/// Like [`broken`], with this feature enabled.
fn broken_with(feature: Feature, change: impl FnOnce(&mut Record)) -> Vec<&'static str> {
    broken(|r| {
        r.features = vec![feature];
        change(r);
    })
}

#[test]
fn what_is_switched_on_and_does_nothing_is_noticed() {
    let guard = |r: &mut Record| r.pods[2].behavior = PodBehavior::Holding;
    assert_eq!(broken_with(Feature::Guard, guard), ["switched on"]);
    let named = |r: &mut Record| {
        guard(r);
        r.reports[0]["warnings"] = json!(["default/high-winddown-node blocked shutdowns"]);
    };
    assert!(broken_with(Feature::Guard, named).is_empty());

    let stays = |r: &mut Record| r.pods[2].behavior = PodBehavior::Staying;
    assert_eq!(broken_with(Feature::RebootInPlace, stays), ["switched on"]);
    let stayed = |r: &mut Record| {
        stays(r);
        r.reports[0]["groups"][2]["pods"][0]["staysOnReboot"] = true.into();
    };
    assert!(broken_with(Feature::RebootInPlace, stayed).is_empty());

    let wait = |outcome: &'static str| {
        move |r: &mut Record| {
            let what = "wait for the nodes that go down first";
            r.reports[0]["work"] = json!([{"what": what, "outcome": outcome}]);
        }
    };
    assert_eq!(broken_with(Feature::AfterNodes, |_| ()), ["switched on"]);
    assert_eq!(broken_with(Feature::AfterNodes, wait("done")), ["switched on"]);
    assert!(broken_with(Feature::AfterNodes, wait("timedOut")).is_empty());

    let ended = |r: &mut Record| r.reports.insert(0, json!({"trigger": "notice"}));
    assert_eq!(broken_with(Feature::FarNotice, ended), ["switched on"]);
}
