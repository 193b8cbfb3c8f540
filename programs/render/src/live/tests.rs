use std::time::Duration;

use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

use super::{PodOrder, Scene, counts_down, live};
use crate::rows::rows;
use crate::tests::fixtures::{at, broken_manifests, five_pods, fresh, pod, shutting_down};
use crate::times::Times;
use crate::{PODS_UNKNOWN, View, painted};
use winddown_control::api::{
    BlockingPod, ClosedBy, DrainStatus, GroupProgress, GuardStatus, LastBootStatus, LockState,
    NoticeStatus, Phase, PluginStatus, PodState, PressureStatus, ScheduledStatus, StartStatus,
    Status, ThresholdStatus,
};

fn shown(status: &Status, columns: usize, rows: usize) -> Vec<String> {
    lines(&Scene { status: Some(status), ..Scene::default() }, columns, rows)
}

fn lines(scene: &Scene<'_>, columns: usize, rows: usize) -> Vec<String> {
    let screen = live(scene, columns, rows);
    screen.lines.iter().map(|line| painted(line, false).trim_end().to_owned()).collect()
}

#[test]
fn what_lies_in_the_past_is_told_by_the_clock_and_stays_true_while_nothing_happens() {
    let node = five_pods();
    let at = |seconds| {
        let older = Duration::from_secs(seconds);
        lines(&Scene { status: Some(&node), older, ..Scene::default() }, 80, 24)
    };
    assert_eq!(at(0), at(3600));
    assert!(at(0).iter().any(|line| line.contains("held since 08:47:01")), "{:#?}", at(0));
}

#[test]
fn only_what_comes_to_an_end_is_counted_down() {
    let at = Duration::from_secs;
    assert!(!counts_down(&five_pods(), at(0)));
    let mut ending = five_pods();
    if let Some(pod) = ending.pods.first_mut() {
        (pod.state, pod.grace_left_seconds) = (PodState::Terminating, Some(3));
    }
    assert!(counts_down(&ending, at(2)));
    assert!(!counts_down(&ending, at(3)), "its grace is over");
    let mut noticed = five_pods();
    let deadline = Some("2026-11-20T12:00:30Z".parse().unwrap());
    noticed.notices = vec![NoticeStatus { deadline, ..NoticeStatus::default() }];
    assert!(counts_down(&noticed, at(29)) && !counts_down(&noticed, at(30)));
    let mut down = fresh();
    (down.shutdown.phase, down.shutdown.deadline) = (Phase::Running, deadline);
    assert!(counts_down(&down, at(0)));
    down.shutdown.phase = Phase::Done;
    assert!(!counts_down(&down, at(0)));
}

#[test]
fn a_drain_is_shown_as_a_shutdown_is() {
    let down = shutting_down();
    let mut node = five_pods();
    let progress = down.shutdown.clone();
    node.drain = Some(DrainStatus { pods_remaining: 2, progress, ..DrainStatus::default() });
    node.time = down.time;
    let drain = shown(&node, 80, 40);
    let shutdown = shown(&down, 80, 40);
    let groups = shutdown.iter().skip_while(|line| !line.starts_with("GROUP"));
    let groups: Vec<_> = groups.take_while(|line| !line.is_empty()).collect();
    assert!(groups.len() > 1, "{shutdown:#?}");
    assert!(groups.iter().all(|line| drain.contains(line)), "{groups:#?} {drain:#?}");
    let row = shutdown.iter().find_map(|line| line.strip_prefix("shutdown  ")).unwrap();
    assert!(drain.contains(&format!("drain     {row}")), "{drain:#?}");
    assert!(drain.contains(&"shutdown  none under way".to_owned()), "{drain:#?}");
    assert_eq!(counts_down(&node, Duration::ZERO), counts_down(&down, Duration::ZERO));
}

/// The rows of the head in both views.
fn heads(node: &Status) -> [Vec<String>; 2] {
    let plain = crate::status(node, &View::default());
    [shown(node, 120, 50), plain.lines().map(|line| line.replacen(' ', "", 1)).collect()]
}

#[test]
fn a_shutdown_that_was_cancelled_hides_neither_the_plan_nor_what_begins_after_it() {
    let mut node = shutting_down();
    node.shutdown.phase = Phase::Cancelled;
    node.shutdown.pods_unknown = true;
    for head in heads(&node) {
        let has = |start: &str| head.iter().any(|line| line.starts_with(start));
        assert!(has("shutdown  none under way, the last one was cancelled"), "{head:#?}");
        assert!(has("plan      at most"), "{head:#?}");
        assert!(!head.iter().any(|line| line.contains("ordinary pods: ")), "{head:#?}");
        assert!(!has("GROUP") && !head.iter().any(|line| line.contains(PODS_UNKNOWN)), "{head:#?}");
    }
    node.shutdown.scheduled =
        Some(ScheduledStatus { at: at("12:30:00"), kind: "reboot".to_owned(), message: None });
    for head in heads(&node) {
        let scheduled = |line: &String| line.starts_with("shutdown  reboot scheduled for");
        assert!(head.iter().any(scheduled), "{head:#?}");
    }
    node.shutdown.scheduled = None;
    let progress = shutting_down().shutdown;
    node.drain = Some(DrainStatus { pods_remaining: 2, progress, ..DrainStatus::default() });
    for head in heads(&node) {
        assert!(head.iter().any(|line| line.starts_with("drain     UNDER WAY")), "{head:#?}");
        let stale = |line: &String| line.contains("spared") || line.ends_with("cancelled");
        assert_eq!(head.iter().filter(|line| stale(line)).count(), 1, "{head:#?}");
    }
    assert!(counts_down(&node, Duration::ZERO), "the drain has a deadline");
}

/// A node with two pods of which one holds shutdowns and the other waits for it.
fn guarded() -> Status {
    let mut node = five_pods();
    let until = Some(at("12:10:00"));
    let pods = vec![BlockingPod { name: "backup".into(), until, ..BlockingPod::default() }];
    node.guard = Some(GuardStatus { state: LockState::Held, why: None, pods });
    let group = "system pods".to_owned();
    node.start = Some(StartStatus { group, not_ready: Vec::new(), until, waiting: 1 });
    node
}

#[test]
fn what_the_status_warns_of_is_on_every_screen_and_all_its_rows_are_on_a_large_one() {
    let mut node = guarded();
    node.admission_closed_by = vec![ClosedBy::Drain];
    for label in ["guard ", "start ", "admission "] {
        let text = shown(&node, 40, 10);
        assert!(text.iter().any(|line| line.starts_with(label)), "{label}: {text:#?}");
    }
    node.pods[0].stays_on_reboot = true;
    node.plugins = vec![PluginStatus { name: "ups".into(), text: "on battery".into() }];
    node.last_boot = Some(LastBootStatus { graceful: Some(false), ..LastBootStatus::default() });
    let text = shown(&node, 80, 24);
    for row in rows(&node, Times { status: &node, now: node.time, clock: true, brief: false }) {
        let is_shown = text.iter().any(|line| line.starts_with(row.label));
        assert!(is_shown || ["node", "config"].contains(&row.label), "{}: {text:#?}", row.label);
    }
}

#[test]
fn the_time_that_a_pod_may_still_hold_shutdowns_is_counted_down() {
    let node = guarded();
    let held = Status { start: None, ..node.clone() };
    let waiting = Status { guard: None, ..node };
    for node in [held, waiting] {
        assert!(counts_down(&node, Duration::from_secs(599)));
        assert!(!counts_down(&node, Duration::from_secs(600)));
    }
}

#[test]
fn a_group_without_pods_has_no_line() {
    let mut node = shutting_down();
    let (started, finished) = (false, false);
    let name = Some("etcd".to_owned());
    let none = GroupProgress { priority: 1, name, pods: 0, terminated: 0, started, finished };
    node.shutdown.groups.push(none.clone());
    assert!(!shown(&node, 80, 24).iter().any(|line| line.contains("etcd")));
    node.shutdown.groups = vec![none];
    assert!(!shown(&node, 80, 24).iter().any(|line| line.contains("ENDED")));
}

#[test]
fn bytes_are_told_as_people_write_them_and_counts_as_they_are() {
    let mut node = five_pods();
    let short = |signal: &str, threshold: &str, available: &str| ThresholdStatus {
        signal: signal.to_owned(),
        threshold: Some(threshold.to_owned()),
        available: Some(available.to_owned()),
        met_for_seconds: Some(1.0),
        ..ThresholdStatus::default()
    };
    let memory = short("memory.available", "25023315512", "20098092Ki");
    let thresholds = vec![memory, short("pid.available", "12000", "900")];
    node.pressure = Some(PressureStatus { thresholds, ..PressureStatus::default() });
    let shown = shown(&node, 120, 24).join("\n");
    assert!(
        shown.contains(
            "memory.available 19.1Gi, threshold 23.3Gi; pid.available 900, threshold 12000"
        ),
        "{shown}"
    );
    let row = |text: &str| shown.lines().any(|line| line.split_whitespace().eq(text.split(' ')));
    assert!(
        row("memory.available 19.1Gi 23.3Gi soft, 0s") && row("pid.available 900 12000 soft, 0s"),
        "{shown}"
    );
}

#[test]
fn who_is_ending_comes_first_and_the_least_time_before_the_others() {
    let mut node = five_pods();
    for (name, left) in [("web-edge-1", 9), ("metrics-edge-1", 4)] {
        let pod = node.pods.iter_mut().find(|pod| pod.name == name).unwrap();
        (pod.state, pod.grace_left_seconds) = (PodState::Terminating, Some(left));
    }
    let shown = shown(&node, 80, 24);
    let first = shown.iter().position(|line| line.starts_with("POD ")).unwrap() + 1;
    assert!(shown[first].starts_with("default/metrics-edge-1"), "{shown:#?}");
    assert!(shown[first + 1].starts_with("default/web-edge-1"), "{shown:#?}");
}

/// The names in the table of pods, from the top.
fn names(scene: Scene<'_>) -> Vec<String> {
    let lines = lines(&scene, 80, 24);
    let rows = lines.iter().skip_while(|line| !line.starts_with("POD ")).skip(1);
    rows.map_while(|line| line.split(' ').next().filter(|name| name.contains('/')))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_filter_shows_the_pods_with_that_text_in_namespace_and_name_and_says_how_many_it_hides() {
    let mut node = fresh();
    node.pods = [("shop", "web"), ("shop", "db"), ("web", "cache")]
        .map(|(namespace, name)| pod(namespace, name, 0))
        .to_vec();
    for (filter, shown) in [
        ("", &["shop/db", "shop/web", "web/cache"][..]),
        ("web", &["shop/web", "web/cache"]),
        ("p/w", &["shop/web"]),
        ("db/", &[]),
    ] {
        let scene = Scene { status: Some(&node), filter, ..Scene::default() };
        assert_eq!(names(scene), shown, "{filter:?}");
        let screen = lines(&scene, 80, 24).join("\n");
        assert_eq!(
            screen.contains(&format!("/{filter} ({} of 3)", shown.len())),
            !filter.is_empty()
        );
        assert_eq!(screen.contains("no pod with this text"), shown.is_empty(), "{screen}");
        let low = lines(&scene, 30, 4).join("\n");
        assert_eq!(low.contains(&format!("/{filter} (")), !filter.is_empty(), "{low}");
    }
    let typing = Scene { status: Some(&node), filter: "we", typing: true, ..Scene::default() };
    assert!(lines(&typing, 80, 24)[23].starts_with("/we_ "), "{:#?}", lines(&typing, 80, 24));
}

#[test]
fn the_pods_are_in_the_chosen_order_which_is_named() {
    let mut node = fresh();
    node.pods = ["a", "b", "c"].map(|name| pod("default", name, 0)).to_vec();
    (node.pods[1].restarts, node.pods[2].restarts) = (7, 2);
    for (n, time) in ["10:00:00", "09:00:00", "11:00:00"].into_iter().enumerate() {
        node.pods[n].started_at = Some(at(time));
    }
    (node.pods[2].state, node.pods[2].grace_left_seconds) = (PodState::Terminating, Some(3));
    for (order, wanted, words) in [
        (PodOrder::Urgency, ["c", "a", "b"], ""),
        (PodOrder::Name, ["a", "b", "c"], "by name"),
        (PodOrder::Restarts, ["b", "c", "a"], "most restarts first"),
        (PodOrder::Newest, ["c", "a", "b"], "newest first"),
    ] {
        let scene = Scene { status: Some(&node), order, ..Scene::default() };
        assert_eq!(names(scene), wanted.map(|name| format!("default/{name}")), "{order:?}");
        assert!(lines(&scene, 80, 24)[23].starts_with(words), "{order:?}");
    }
}

#[test]
fn help_explains_every_key_and_order_on_every_usual_screen() {
    let node = five_pods();
    for status in [None, Some(&node)] {
        let scene = Scene { status, help: true, ..Scene::default() };
        let text = lines(&scene, 80, 24).join("\n");
        for shown in ["q, Ctrl-C ", "/ ", "s ", "? ", "Esc ", "SYMBOLS", "! ", "###---", "over "] {
            assert!(text.lines().any(|line| line.starts_with(shown)), "{shown:?}: {text}");
        }
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(PodOrder::ALL.iter().all(|order| words.contains(order.as_str())), "{text}");
        assert!(lines(&scene, 40, 10)[9].starts_with("Esc back"));
    }
}

#[test]
fn scrolling_stops_at_the_last_pod_and_the_page_is_what_fits() {
    let mut node = fresh();
    node.pods = (0..100).map(|n| pod("default", &format!("web-{n:03}"), 0)).collect();
    let at = |skipped| live(&Scene { status: Some(&node), skipped, ..Scene::default() }, 80, 24);
    let top = at(0);
    assert!(top.page > 8 && top.page < 24, "{}", top.page);
    assert_eq!(at(usize::MAX).skipped, 100 - top.page);
    assert_eq!(at(10).skipped, 10);
}

#[test]
fn what_is_wrong_is_on_the_screen_even_where_pods_are_many() {
    let mut node = broken_manifests();
    node.pods = (0..100).map(|n| pod("default", &format!("web-{n:03}"), 0)).collect();
    let text = shown(&node, 80, 24).join("\n");
    assert!(text.contains("3 PROBLEMS") && text.contains("database.yaml:12"), "{text}");
    let mut node = shutting_down();
    node.pods.extend((0..100).map(|n| pod("default", &format!("web-{n:03}"), 0)));
    let text = shown(&node, 80, 24).join("\n");
    assert!(text.contains("GROUP ") && text.contains("more below"), "{text}");
}

#[test]
fn a_hostile_pod_writes_nowhere_on_the_live_screen_but_in_its_own_line() {
    let evil = "\x1b]0;owned\x07\x1b[2J\u{202e}web\r\nroot@node:~#\u{2028}\u{9b}31m";
    for mut node in [five_pods(), broken_manifests(), shutting_down()] {
        let mut hostile = pod("default", evil, 0);
        hostile.reason = evil.to_owned();
        node.pods.push(hostile);
        node.node.name = evil.to_owned();
        node.manifests.directory = evil.to_owned();
        node.decisions.iter_mut().for_each(|decision| decision.text = evil.to_owned());
        let gone = Some((evil, evil));
        for scene in [
            Scene { status: Some(&node), ..Scene::default() },
            Scene { status: Some(&node), gone, ..Scene::default() },
        ] {
            let shown = lines(&scene, 200, 60);
            let obeyed = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{2028}');
            assert!(!shown.iter().any(|line| line.chars().any(obeyed)), "{shown:#?}");
            assert!(!shown.iter().any(|line| line.trim().starts_with("root@")), "{shown:#?}");
            assert!(shown.iter().any(|line| line.contains("web")), "{shown:#?}");
        }
    }
}

#[test]
fn a_bar_is_full_only_when_all_is_done() {
    let scene = Scene::default();
    let page = super::Page { scene: &scene, columns: 80, lines: Vec::new() };
    for (done, all, bar) in [
        (0, 9, "----"),
        (1, 2, "##--"),
        (99, 100, "###-"),
        (9, 9, "####"),
        (1, 0, "----"),
        (9, 2, "####"),
    ] {
        assert_eq!(page.bar(done, all, 4), bar, "{done} of {all}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_screen_is_filled_and_never_overflows(
        (columns, rows) in (0usize..220, 0usize..70),
        (which, skipped, older) in (0usize..6, any::<usize>(), 0u64..200),
        (filter, typing, help) in ("[a-z/]{0,3}|.{0,300}", any::<bool>(), any::<bool>()),
        order in proptest::sample::select(PodOrder::ALL.to_vec()),
        (name, gone) in (".{0,80}", proptest::option::of(".{0,120}")),
        blocks in any::<bool>(),
    ) {
        let mut nodes = [fresh(), five_pods(), broken_manifests(), shutting_down(), five_pods()];
        for node in &mut nodes {
            node.pods.push(pod(&name, &name, 5));
            node.node.name = name.clone();
            for decision in &mut node.decisions {
                decision.text = name.clone();
            }
        }
        let scene = Scene {
            program: None,
            status: nodes.get(which),
            older: Duration::from_secs(older),
            gone: gone.as_deref().map(|why| (why, &*name)),
            blocks,
            filter: &filter,
            typing,
            order,
            help,
            skipped,
        };
        let screen = live(&scene, columns, rows);
        prop_assert!(screen.lines.len() <= rows);
        prop_assert!(rows < 8 || screen.lines.len() == rows, "{} of {rows}", screen.lines.len());
        for line in lines(&scene, columns, rows) {
            prop_assert!(line.width() <= columns, "{} of {columns}: {line:?}", line.width());
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}

#[test]
fn where_a_shell_does_not_find_the_program_the_screen_names_it_by_its_path() {
    let gone = Some(("no agent answers", "`winddown doctor` says why"));
    let program = Some("/opt/x/winddown");
    let shown = lines(&Scene { gone, program, ..Scene::default() }, 80, 24).join("\n");
    assert!(shown.contains("`/opt/x/winddown doctor` says why"), "{shown}");
}
