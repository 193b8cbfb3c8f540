//! The exact output of `winddown status` on an 80-column screen.

use super::fixtures::{
    at, broken_manifests, five_pods, fresh, lock_waiting, shrunk_delay, shutting_down,
};
use crate::{View, plan, status};
use winddown_control::api::{
    AfterNode, AfterNodesStatus, BlockingPod, ClosedBy, ClusterStatus, DrainStatus, GuardStatus,
    LastBootStatus, LockState, NodeStage, NoticeStatus, Phase, PlanShrink, PlannedGroup,
    PlannedPodStatus, ShutdownPlan, Status,
};

const SCREEN: View = View { width: Some(80), color: false, wide: false };

fn check(name: &str, node: &Status) {
    insta::assert_snapshot!(name, status(node, &SCREEN));
}

#[test]
fn a_fresh_node_says_that_it_is_protected_and_where_to_put_pods() {
    check("fresh", &fresh());
}

#[test]
fn pods_that_hold_shutdowns_are_named_and_it_is_said_whether_that_helps() {
    let mut node = five_pods();
    let pod =
        BlockingPod { namespace: "shop".into(), name: "backup".into(), ..BlockingPod::default() };
    let pod = BlockingPod { until: Some(at("12:10:00")), ..pod };
    let mut said = |state, why: Option<&str>| {
        let why = why.map(str::to_owned);
        node.guard = Some(GuardStatus { state, why, pods: vec![pod.clone()] });
        let text = status(&node, &View { width: None, ..SCREEN });
        text.lines().find(|line| line.starts_with("guard")).unwrap().to_owned()
    };
    let held = said(LockState::Held, None);
    assert_eq!(held, "guard      shutdowns are refused for shop/backup, 10m more at most");
    let waiting = said(LockState::Waiting, Some("Inhibit: refused"));
    assert!(waiting.contains("shutdowns are NOT refused (Inhibit: refused) for shop/backup"));
}

#[test]
fn five_pods_that_run_well_need_no_explanation() {
    check("five_pods", &five_pods());
}

#[test]
fn what_an_agent_does_not_know_is_not_made_up() {
    let mut node = five_pods();
    let shown = |node: &Status| {
        let text = status(node, &SCREEN);
        let of_pod = text.lines().find(|line| line.contains(&node.pods[0].name)).unwrap();
        let words: Vec<&str> = of_pod.split_whitespace().collect();
        (words[2].to_owned(), text.lines().any(|line| line.starts_with("config")))
    };
    assert_eq!(shown(&node), (node.pods[0].priority.to_string(), true));
    let unset = node.pods[0].clone();
    (node.pods[0].priority, node.pods[0].has_no_priority) = (0, true);
    assert_eq!(shown(&node).0, "-");
    node.pods[0] = unset;
    // Only the runtime knows this pod, and the agent is by a third party, which reads no configuration.
    node.pods[0].source.clear();
    (node.config.file, node.config.loaded_at) = (String::new(), None);
    assert_eq!(shown(&node), ("-".to_owned(), false));
}

#[test]
fn a_lock_that_is_not_held_is_the_first_problem() {
    check("lock_waiting", &lock_waiting());
}

#[test]
fn a_delay_that_is_too_short_names_the_file_that_set_it() {
    check("shrunk_delay", &shrunk_delay());
}

#[test]
fn no_longer_period_is_advised_where_logind_does_not_wait_for_it() {
    let mut node = shrunk_delay();
    node.shutdown_plan.warnings = vec!["pod default/db asks for 45s and gets 3s".to_owned()];
    node.shutdown_plan.raise = "shutdownGracePeriod".to_owned();
    for (delay, period_helps) in [(3.0, false), (40.0, true), (0.0, true)] {
        node.lock.delay_seconds = Some(delay);
        let text = status(&node, &SCREEN);
        assert_eq!(text.contains("raise shutdownGracePeriod"), period_helps, "{delay}: {text}");
    }
}

#[test]
fn broken_manifests_are_named_with_file_line_and_field() {
    check("broken_manifests", &broken_manifests());
}

#[test]
fn a_pod_that_a_drain_keeps_out_has_no_manifest_to_correct() {
    let mut node = broken_manifests();
    assert!(status(&node, &SCREEN).contains("correct its manifest"));
    node.rejected[0].reason = "NodeShutdown".to_owned();
    node.admission_closed_by = vec![ClosedBy::Drain];
    let text = status(&node, &SCREEN);
    assert!(!text.contains("correct its manifest") && text.contains("undrain"), "{text}");
}

#[test]
fn what_to_do_about_a_rejected_pod_depends_on_why_it_was() {
    let mut node = broken_manifests();
    for (reason, next) in [
        ("Evicted", "it starts when the pressure is over: `winddown plan eviction`"),
        ("PodFeatureUnsupported", "correct its manifest"),
        ("OutOfcpu", "see who has what it lacks: `winddown plan preemption`"),
    ] {
        node.rejected[0].reason = reason.to_owned();
        let screen = status(&node, &View { width: None, ..SCREEN });
        assert!(screen.contains(next), "{screen}");
    }
}

#[test]
fn of_very_many_broken_manifests_some_are_shown_and_a_wide_screen_has_them_all() {
    let mut node = broken_manifests();
    node.manifests.problems = vec![node.manifests.problems[1].clone(); 1000];
    let shown = |view: &View| {
        let text = status(&node, view);
        let lines: Vec<&str> = text.lines().collect();
        let named = lines.iter().filter(|line| line.contains("empty.yaml")).count();
        (named, text)
    };
    let (named, text) = shown(&View { width: None, ..SCREEN });
    assert_eq!(named, 20);
    let rest = "! and 980 more problems are in the manifests\n    `winddown status -o wide` lists \
                them all; fix or remove the file; it is read again at once\n";
    assert!(text.contains(rest), "{text}");
    assert_eq!(shown(&View { width: None, wide: true, ..SCREEN }).0, 1000);
}

#[test]
fn a_missing_manifests_directory_is_not_to_be_removed() {
    let mut node = broken_manifests();
    let mut problem = node.manifests.problems[0].clone();
    problem.file = node.manifests.directory.clone();
    problem.message = "does not exist: create it".to_owned();
    node.manifests.problems = vec![problem];
    let text = status(&node, &SCREEN);
    assert!(text.contains("create it") && !text.contains("remove the file"), "{text}");
}

#[test]
fn a_shutdown_under_way_shows_its_groups_and_the_time_left() {
    check("shutting_down", &shutting_down());
}

#[test]
fn how_the_node_went_down_last_is_one_line() {
    let mut node = fresh();
    let text = "clean shutdown: 5 pods exited by themselves in 8.2 s (budget 30 s)".to_owned();
    node.last_boot =
        Some(LastBootStatus { text, graceful: Some(true), ..LastBootStatus::default() });
    let shown = status(&node, &View { width: None, ..SCREEN });
    let line = "last boot  clean shutdown: 5 pods exited by themselves in 8.2 s (budget 30 s)\n";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn notices_say_when_the_node_goes_away_and_who_says_so() {
    let notice = |source: &str, seconds: i64, in_effect| NoticeStatus {
        source: source.to_owned(),
        deadline: Some(at("12:00:00") + jiff::SignedDuration::from_secs(seconds)),
        text: "battery\u{1b}[31m low".to_owned(),
        in_effect,
        problem: None,
    };
    let mut node = fresh();
    node.notices = vec![
        notice("file", 90, true),
        notice("aws", 7200, false),
        notice("operator", -30, true),
        NoticeStatus {
            source: "gcp".to_owned(),
            problem: Some("no answer to /x within 5 s".to_owned()),
            ..NoticeStatus::default()
        },
    ];
    node.admission_closed = true;
    let shown = status(&node, &View { width: None, ..SCREEN });
    for line in [
        "notice     the node goes away in 90s (file: battery\\x1b[31m low)\n",
        "notice     the node goes away in 120m; not yet acted on (aws: battery\\x1b[31m low)\n",
        "notice     the node should have gone away 30s ago (operator: battery\\x1b[31m low)\n",
        "! cannot receive notices from gcp: no answer to /x within 5 s\n",
    ] {
        assert!(shown.contains(line), "{line:?} is not in:\n{shown}");
    }
    assert!(!shown.contains("was drained"), "{shown}");
    let stays = "previous notice stays in effect";
    assert!(!shown.contains(stays), "gcp has none: {shown}");
    node.notices[0].problem = Some("it is empty".to_owned());
    let shown = status(&node, &View { width: None, ..SCREEN });
    assert_eq!(shown.matches(stays).count(), 1, "{shown}");
}

#[test]
fn a_drain_in_progress_is_not_told_as_one_that_is_over() {
    let mut node = fresh();
    node.admission_closed = true;
    node.admission_closed_by = vec![ClosedBy::Drain];
    let shown = |node: &Status| status(node, &View { width: None, ..SCREEN });
    assert!(
        shown(&node).contains("! the node was drained: its pods are terminated"),
        "{}",
        shown(&node)
    );
    for (pods_unknown, count) in [(false, "3 pods"), (true, "at least 3 pods")] {
        node.drain =
            Some(DrainStatus { pods_remaining: 3, pods_unknown, ..DrainStatus::default() });
        let (shown, said) = (shown(&node), format!("the node is being drained: {count} remaining"));
        assert!(shown.contains(&format!("! {said}")) && !shown.contains("drained: its"), "{shown}");
        assert!(shown.contains(&format!("{said} (`winddown undrain` cancels it)")), "{shown}");
    }
    // Its time was over before all pods had terminated.
    let mut drain = DrainStatus { pods_remaining: 1, ..DrainStatus::default() };
    drain.progress.phase = Phase::Done;
    node.drain = Some(drain);
    let shown = shown(&node);
    let said = "the time of the drain is over: 1 pod still terminating";
    assert!(shown.contains(&format!("! {said}")) && !shown.contains("drained: its"), "{shown}");
    assert!(shown.contains("(`winddown undrain` admits pods again)"), "{shown}");
    assert!(shown.contains(&format!("drain      {said}")), "{shown}");
}

#[test]
fn the_wide_form_is_not_cut_when_it_goes_into_a_file() {
    let view = View { width: None, color: false, wide: true };
    insta::assert_snapshot!("wide", status(&five_pods(), &view));
}

#[test]
fn a_plan_says_of_a_pod_that_gets_no_grace_or_has_none_that_there_is_none() {
    let pod = PlannedPodStatus {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        own_grace_seconds: Some(0.0),
        ..PlannedPodStatus::default()
    };
    let plan = ShutdownPlan { not_protected: vec![pod], ..ShutdownPlan::default() };
    let shown = crate::plan(&plan, &View::default());
    assert!(shown.contains("0   none       none\n"), "{shown}");
}

#[test]
fn a_plan_says_which_pods_are_terminating_already_and_which_have_no_priority() {
    let pod = |name: &str, left, has_no_priority| PlannedPodStatus {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        has_no_priority,
        grace_seconds: 30.0,
        grace_left_seconds: left,
        ..PlannedPodStatus::default()
    };
    let group = |pods| PlannedGroup { pods, ..PlannedGroup::default() };
    let groups = vec![
        group(vec![pod("web", Some(11.2), false), pod("db", Some(0.0), true)]),
        group(vec![pod("dns", None, true)]),
    ];
    let plan = ShutdownPlan { requested_seconds: 60.0, groups, ..ShutdownPlan::default() };
    let shown = crate::plan(&plan, &View::default());
    let rows: Vec<String> = shown
        .lines()
        .filter(|line| line.contains("default  "))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let wanted = [
        "default web 0 30s - terminating, 12s left",
        "default db - 30s - terminating, 0s left",
        "default dns - 30s -",
    ];
    assert_eq!(rows, wanted, "{shown}");
}

#[test]
fn a_plan_shows_each_pods_grace_beside_its_own_and_why_it_was_shrunk() {
    let pod = |name: &str, priority, grace, own| PlannedPodStatus {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: String::new(),
        priority,
        grace_seconds: grace,
        own_grace_seconds: own,
        stays_on_reboot: name == "worker-edge-1",
        ..PlannedPodStatus::default()
    };
    let mut shown = ShutdownPlan { requested_seconds: 40.0, ..Default::default() };
    shown.endpoint_drain_seconds = Some(2.0);
    shown.shortened = Some(PlanShrink {
        available_seconds: 14.0,
        set_by: Some("/etc/systemd/logind.conf.d/zzz-site.conf".to_owned()),
    });
    shown.groups = vec![
        PlannedGroup {
            priority: 0,
            name: Some("ordinary pods".to_owned()),
            shutdown_grace_period_seconds: 9.0,
            deadline_seconds: Some(11.0),
            pods: vec![pod("web-edge-1", 0, 9.0, Some(30.0)), pod("worker-edge-1", 100, 5.0, None)],
        },
        PlannedGroup {
            priority: 2_000_000_000,
            name: None,
            shutdown_grace_period_seconds: 3.0,
            deadline_seconds: Some(14.0),
            pods: vec![pod("log-shipper-edge-1", 2_000_001_000, 3.0, Some(10.0))],
        },
    ];
    shown.warnings = vec!["default/web-edge-1 asks for 30s and gets 9s".to_owned()];
    insta::assert_snapshot!("plan", plan(&shown, &SCREEN));
}

#[test]
fn nodes_that_go_down_first_are_named_with_how_far_they_are() {
    let mut node = five_pods();
    let mut said = |nodes: Option<&[(&str, NodeStage)]>, problem: Option<&str>, waiting| {
        let node_of = |(name, stage): &(&str, _)| AfterNode { name: (*name).into(), stage: *stage };
        let after = AfterNodesStatus {
            selector: "role=worker".into(),
            wait_seconds: 30.0,
            nodes: nodes.map(|nodes| nodes.iter().map(node_of).collect()),
            problem: problem.map(str::to_owned),
            waiting,
        };
        let cluster = ClusterStatus { after_nodes: Some(after), ..ClusterStatus::default() };
        node.cluster = Some(cluster);
        let text = status(&node, &View { width: None, ..SCREEN });
        text.lines().find(|line| line.starts_with("after")).unwrap().to_owned()
    };
    let workers = [("w1", NodeStage::Up), ("w2", NodeStage::Down)];
    let title = "after      a shutdown waits up to 30s for nodes role=worker; ";
    assert_eq!(said(Some(&workers), None, false), format!("{title}w1 up, w2 down"));
    assert_eq!(said(Some(&[]), None, false), format!("{title}no other node matches"));
    assert_eq!(said(None, None, false), format!("{title}not known yet which"));
    let refused = said(Some(&workers), Some("forbidden"), false);
    assert_eq!(refused, format!("{title}their progress is UNKNOWN: forbidden"));
    let many: Vec<_> =
        ["a", "b", "c", "d", "e", "f"].map(|name| (name, NodeStage::ShuttingDown)).into();
    let waiting = said(Some(&many), None, true);
    assert!(
        waiting.starts_with("after      waiting up to 30s for nodes role=worker; a going down")
    );
    assert!(waiting.ends_with("e going down, 1 more"), "{waiting}");
}

/// What began before the clock was set is as old as before; of what began afterwards, the clock is right.
#[test]
fn ages_are_of_the_time_that_passed_if_the_clock_was_set() {
    for (now, by) in [("2026-11-23T12:00:00Z", 3 * 86_400), ("2026-11-20T09:30:00Z", -9000)] {
        let mut node = five_pods();
        node.node.uptime_seconds = 3600;
        node.time = now.parse().unwrap();
        let pod_age = |node: &Status| {
            let text = status(node, &SCREEN);
            let of_pod = text.lines().find(|line| line.contains(&node.pods[0].name)).unwrap();
            of_pod.split_whitespace().last().unwrap().to_owned()
        };
        let start = node.time.checked_sub(std::time::Duration::from_secs(3600)).unwrap();
        let set = std::time::Duration::from_secs(u64::try_from(i64::abs(by)).unwrap());
        let start = if by > 0 { start.checked_sub(set) } else { start.checked_add(set) };
        let start = start.unwrap();
        (node.node.started_at, node.lock.held_since) = (Some(start), Some(start));
        let before = std::time::Duration::from_secs(120);
        let ages = [
            (start.checked_sub(before).unwrap(), "62m"),
            (start.checked_add(before).unwrap(), "58m"),
            (node.time.checked_sub(std::time::Duration::from_secs(60)).unwrap(), "60s"),
        ];
        for (then, age) in ages {
            node.pods[0].started_at = Some(then);
            assert_eq!(pod_age(&node), age, "set by {by} s, began {then}");
        }
        assert!(status(&node, &SCREEN).contains("held for 60m"), "{}", status(&node, &SCREEN));
    }
}
