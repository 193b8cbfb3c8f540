use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use roxmltree::{Document, Node};
use winddown_shutdown::{NoticeReport, Outcome, PodEnd, PodReport, ShutdownReport};

use super::super::super::tests::{group, ms, pod, report};
use super::super::STYLE;
use super::super::scale::{Reach, Scale};
use super::{Markup, Timeline};

fn timeline(report: &ShutdownReport) -> String {
    let mut out = Markup::default();
    out.line(format_args!("<section>"));
    super::write(report, &mut out);
    out.line(format_args!("</section>"));
    out.into_string()
}

fn has_class(node: &Node<'_, '_>, class: &str) -> bool {
    node.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class))
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|part| part.text()).collect()
}

/// The texts of the elements of a class; of a row, its name and its remark.
fn texts(page: &str, class: &str) -> Vec<String> {
    let document = Document::parse(page).unwrap();
    document.descendants().filter(|node| has_class(node, class)).map(text).collect()
}

/// The left edges and widths, in percent, of what is drawn in rows of pods.
fn spans(page: &str, class: &str) -> Vec<(f64, f64)> {
    let document = Document::parse(page).unwrap();
    let in_row = |node: &Node<'_, '_>| node.ancestors().any(|above| has_class(&above, "pod"));
    let marks = document.descendants().filter(|node| has_class(node, class) && in_row(node));
    marks
        .map(|node| (percent(&node, "left").unwrap(), percent(&node, "width").unwrap_or(0.0)))
        .collect()
}

fn percent(node: &Node<'_, '_>, what: &str) -> Option<f64> {
    let style = node.attribute("style")?;
    let value = style.split(';').find_map(|part| part.strip_prefix(what)?.strip_prefix(':'))?;
    value.strip_suffix('%')?.parse().ok()
}

fn exited(name: &str, asked: u64, exit: u64) -> PodReport {
    pod(name, PodEnd::Exited, Some(asked), Some(exit))
}

fn two_groups() -> ShutdownReport {
    let ordinary = vec![exited("web", 0, 1250), exited("database", 0, 3012)];
    let critical = vec![exited("dns", 3013, 8176)];
    let groups = vec![
        group(0, Some((0, 3012)), ordinary),
        group(1000, None, vec![]),
        group(2_000_000_000, Some((3013, 8176)), critical),
    ];
    report(Outcome::Clean, 8177, groups)
}

#[test]
fn every_pod_has_a_row_that_tells_all_about_it() {
    let page = timeline(&two_groups());
    let document = Document::parse(&page).unwrap();
    let rows = document.descendants().filter(|node| has_class(node, "pod"));
    assert_eq!(
        rows.map(|row| (row.attribute("title").unwrap(), text(row))).collect::<Vec<_>>(),
        [
            (
                "default/web, no priority asked 0.000 s, SIGTERM 0.003 s, exit 1.250 s grace 20 s uid uid-web",
                "default/web1.2 s".to_owned()
            ),
            (
                "default/database, no priority asked 0.000 s, SIGTERM 0.003 s, exit 3.012 s grace 20 s uid uid-database",
                "default/database3 s".to_owned()
            ),
            (
                "default/dns, no priority asked 3.013 s, SIGTERM 3.016 s, exit 8.176 s grace 20 s uid uid-dns",
                "default/dns5.2 s".to_owned()
            ),
        ]
    );
    assert_eq!(
        texts(&page, "head"),
        [
            "priority 0 and above 2 pods · took 3 s of 30 s · held by default/database for the last 1.8 s",
            "priority 2000000000 and above 1 pod · took 5.2 s of 27 s",
        ],
        "a group without pods is not shown"
    );
    assert_eq!(texts(&page, "over"), ["lock released 8.2 s"]);
    assert_eq!(texts(&page, "limit"), ["pods' time is over 30 s", "logind's limit 32 s"]);
}

#[test]
fn how_a_pod_ended_is_told_by_shape_and_word() {
    let killed = PodReport {
        containers: vec!["main".into()],
        ..pod("killed", PodEnd::Killed, Some(0), Some(20_004))
    };
    let left = PodReport {
        containers: vec!["main".into()],
        mounts: vec!["/data".into()],
        ..pod("left", PodEnd::StillRunning, Some(0), None)
    };
    let ending = pod("ending", PodEnd::Terminating, Some(0), None);
    let spared = pod("spared", PodEnd::Spared, None, None);
    let unseen = pod("unseen", PodEnd::Exited, Some(0), None);
    let pods = vec![left, killed, ending, spared, unseen, exited("exited", 0, 900)];
    let page =
        timeline(&report(Outcome::Incomplete, 31_000, vec![group(0, Some((0, 30_100)), pods)]));
    let count = |class| spans(&page, class).len();
    assert_eq!((count("kill"), count("open"), count("soft")), (1, 1, 1));
    assert_eq!((count("exit"), count("arrow")), (2, 1));
    let rows = texts(&page, "pod");
    for wanted in [
        "0.9 s",
        "killed after 20 s · main",
        "STILL RUNS · main · still held",
        "spared",
        "terminated at an unknown time",
    ] {
        assert!(rows.iter().any(|text| text.ends_with(wanted)), "{wanted}: {rows:#?}");
    }
}

#[test]
fn what_went_wrong_is_first_and_the_other_rows_go_by_time() {
    let pods = vec![
        exited("slow", 0, 900),
        exited("late", 500, 700),
        pod("killed", PodEnd::Killed, Some(0), Some(950)),
        pod("left", PodEnd::StillRunning, Some(0), None),
        exited("quick", 0, 100),
    ];
    let page = timeline(&report(Outcome::Incomplete, 1000, vec![group(0, Some((0, 1000)), pods)]));
    let document = Document::parse(&page).unwrap();
    let names: Vec<String> =
        document.descendants().filter(|node| node.has_tag_name("bdi")).map(text).collect();
    let pods = ["default/left", "default/killed", "default/quick", "default/late", "default/slow"];
    assert_eq!(names.iter().filter(|name| name.contains('/')).collect::<Vec<_>>(), pods);
}

#[test]
fn of_very_many_pods_the_failed_and_the_slowest_have_rows_and_the_others_one_together() {
    let mut pods: Vec<_> = (0..1000).map(|n| exited(&format!("p{n}"), 0, 500 + n)).collect();
    for (n, pod) in pods.iter_mut().step_by(25).enumerate() {
        (pod.end, pod.exit) = (PodEnd::Killed, Some(ms(20_000 + n as u64)));
    }
    let page = timeline(&report(Outcome::Forced, 20_100, vec![group(0, Some((0, 20_100)), pods)]));
    assert_eq!(texts(&page, "pod").len(), 40, "the killed");
    assert_eq!(texts(&page, "rest"), ["… 960 moreexited by themselves by 1.5 s"]);
    assert_eq!(page.matches("class=\"folded\"").count(), 1);
    assert!(page.len() < 60_000, "{} bytes", page.len());
}

#[test]
fn a_cut_grace_a_hook_and_what_a_group_waited_for_are_seen() {
    let hooked = PodReport { sigterm: Some(ms(900)), ..exited("hooked", 0, 2000) };
    let cut = PodReport {
        wanted_grace: Some(ms(25_000)),
        ..pod("cut", PodEnd::Killed, Some(0), Some(20_000))
    };
    let groups = vec![group(0, Some((0, 20_000)), vec![hooked, cut])];
    let page = timeline(&report(Outcome::Forced, 20_000, groups));
    let longest = |class| {
        let longest = spans(&page, class).into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        (longest.0, longest.0 + longest.1)
    };
    let second = longest("hook").1 / 0.9;
    for (class, from, to) in [("own", 20.0, 25.0), ("held", 2.0, 20.0)] {
        let (left, right) = longest(class);
        let near = |a: f64, b: f64| (a - b).abs() < 0.2;
        assert!(near(left, from * second) && near(right, to * second), "{class}: {left} {right}");
    }
    let rows = texts(&page, "pod");
    assert!(rows.iter().any(|row| row.ends_with("killed after 20 s of 25 s")), "{rows:?}");
    let legend = texts(&page, "legend").concat();
    for wanted in [
        "its own grace, cut",
        "before SIGTERM (preStop hook)",
        "the group waits for this pod alone",
    ] {
        assert!(legend.contains(wanted), "{wanted}: {legend}");
    }
}

#[test]
fn a_spared_group_is_one_line() {
    let spared = (0..40).map(|n| pod(&format!("s{n}"), PodEnd::Spared, None, None)).collect();
    let page = timeline(&report(Outcome::Cancelled, 1500, vec![group(7, None, spared)]));
    assert_eq!(texts(&page, "head"), ["priority 7 and above 40 pods · spared"]);
    assert_eq!(texts(&page, "pod").len(), 0);
}

#[test]
fn a_run_that_used_little_of_its_time_is_enlarged_and_says_so() {
    let used = |took: u64| {
        let pods = vec![exited("a", 0, took)];
        let run = report(Outcome::Clean, took, vec![group(0, Some((0, took)), pods)]);
        texts(&timeline(&run), "used")
    };
    assert_eq!(used(1200), ["time used1.2 s of 32 s, enlarged"]);
    assert_eq!(used(12_000).len(), 0);
}

#[test]
fn notice_lame_duck_and_restarts_are_in_the_picture_by_their_time() {
    let mut run = two_groups();
    run.endpoint_drain = Some(ms(1000));
    run.resumed = vec![ms(2000), ms(4500)];
    let (source, text) = ("aws".into(), "spot instance ends at 12:00".into());
    run.notice = Some(NoticeReport { source, text, deadline: ms(31_000) });
    let drawn = Timeline { report: &run, scale: Scale(Reach::of(&run).end()) };
    let labels: Vec<_> = drawn.milestones().into_iter().map(|(.., label)| label).collect();
    assert_eq!(
        labels,
        [
            "endpoint drain is over 1 s",
            "agent restarted 2 s",
            "agent restarted 4.5 s",
            "lock released 8.2 s",
            "pods' time is over 30 s",
            "notice: node goes down 31 s",
            "logind's limit 32 s",
        ]
    );
    let page = self::timeline(&run);
    assert!(texts(&page, "legend").concat().contains("not ready, before SIGTERM"));
    assert_eq!(texts(&page, "duck").len(), 2, "in the legend and in the picture");
}

#[test]
fn ticks_are_round_for_people() {
    let labels = |end: u64| {
        let ticks = Scale(ms(end)).ticks().into_iter();
        ticks.map(|(_, label)| label).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(labels(10), "0, 2 ms, 4 ms, 6 ms, 8 ms, 10 ms");
    assert_eq!(labels(950), "0, 0.2 s, 0.4 s, 0.6 s, 0.8 s");
    assert_eq!(labels(8_200), "0, 2 s, 4 s, 6 s, 8 s");
    assert_eq!(labels(33_000), "0, 5 s, 10 s, 15 s, 20 s, 25 s, 30 s");
    assert_eq!(labels(75_000), "0, 15 s, 30 s, 45 s, 1:00 min, 1:15 min");
    assert_eq!(labels(240_000), "0, 1 min, 2 min, 3 min, 4 min");
    assert_eq!(labels(3_700_000), "0, 10 min, 20 min, 30 min, 40 min, 50 min, 1 h 00");
}

#[test]
fn what_is_shown_ends_at_the_limits_or_soon_after_the_run() {
    let reach = Reach::of(&two_groups());
    assert!(!reach.is_magnified());
    assert_eq!((reach.used, reach.limit), (ms(8177), ms(32_000)));
    assert!(reach.end() > ms(32_000));
    let quick =
        report(Outcome::Clean, 500, vec![group(0, Some((0, 500)), vec![exited("a", 0, 499)])]);
    let reach = Reach::of(&quick);
    assert!(reach.is_magnified());
    assert_eq!(reach.end().as_millis(), 560);
}

/// The colours of the light and of the dark scheme, by their names.
fn schemes() -> [HashMap<&'static str, [f64; 3]>; 2] {
    let (light, dark) = STYLE.split_once("@media (prefers-color-scheme:dark){").unwrap();
    [light, dark].map(|scheme| {
        let (_, root) = scheme.split_once(":root{").unwrap();
        let colours = root.split_once('}').unwrap().0.split(';');
        let colours = colours.filter_map(|one| one.strip_prefix("--")?.split_once(":#"));
        colours.map(|(name, hex)| (name, rgb(hex))).collect()
    })
}

fn rgb(hex: &str) -> [f64; 3] {
    let wide: String = match hex.len() {
        3 => hex.chars().flat_map(|c| [c, c]).collect(),
        _ => hex.to_owned(),
    };
    [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&wide[at..at + 2], 16).unwrap()) / 255.0)
}

/// The contrast of two colours as WCAG 2 measures it.
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let light = |rgb: [f64; 3]| {
        let [r, g, b] = rgb.map(|c| match c {
            c if c <= 0.03928 => c / 12.92,
            c => ((c + 0.055) / 1.055).powf(2.4),
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (a, b) = (light(a), light(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn words_and_bars_stand_out_in_both_schemes() {
    for colours in schemes() {
        for paper in ["paper", "strip"] {
            for (ink, least) in [
                ("ink", 4.5),
                ("dim", 4.5),
                ("warn", 4.5),
                ("bad", 4.5),
                ("good", 4.5),
                ("bar", 3.0),
                ("stop", 3.0),
            ] {
                let found = contrast(colours[ink], colours[paper]);
                assert!(found >= least, "{ink} on {paper}: {found:.2}");
            }
        }
    }
}

#[test]
fn every_colour_of_the_light_scheme_has_one_for_the_dark_and_stands_in_no_rule_itself() {
    let [light, dark] = schemes();
    let names = |scheme: &HashMap<&'static str, _>| {
        let mut names: Vec<_> = scheme.keys().copied().collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&light), names(&dark));
    let rules = STYLE.lines().filter(|line| !line.starts_with(":root{"));
    for rule in rules {
        assert!(!rule.contains(":#") && !rule.contains(" #"), "{rule}");
    }
}

fn any_time() -> impl Strategy<Value = Option<Duration>> {
    let far = Just(Duration::MAX);
    let near = (0u64..60_000).prop_map(Duration::from_millis);
    proptest::option::of(prop_oneof![20 => near, 1 => far])
}

fn any_pod() -> impl Strategy<Value = PodReport> {
    let text = || prop_oneof!["\\PC{0,60}", ".{0,300}", Just("<&\">'\u{ffff}\u{0}".to_owned())];
    let times = (any_time(), any_time(), any_time(), any_time());
    (text(), text(), times, proptest::sample::select(&PodEnd::ALL), text()).prop_map(
        |(namespace, name, (asked, sigterm, exit, grace), end, word)| PodReport {
            namespace,
            name,
            asked,
            sigterm,
            exit,
            grace: grace.unwrap_or_default(),
            end,
            containers: vec![word.clone()],
            mounts: vec![word.clone()],
            error: Some(word),
            ..pod("", PodEnd::Exited, None, None)
        },
    )
}

proptest! {
    #[test]
    fn ticks_begin_at_zero_go_up_and_are_few(end in prop_oneof![1u64..100_000, 1u64..u64::MAX]) {
        let scale = Scale(ms(end));
        let ticks = scale.ticks();
        prop_assert!((1..=11).contains(&ticks.len()), "{}", ticks.len());
        prop_assert_eq!(ticks[0].0, Duration::ZERO);
        prop_assert!(ticks.windows(2).all(|pair| pair[0].0 < pair[1].0));
        prop_assert!(ticks.iter().all(|(at, _)| (0.0..=100.0).contains(&scale.percent(*at))));
    }

    #[test]
    fn the_timeline_is_sound_whatever_is_in_the_report(
        pods in proptest::collection::vec(any_pod(), 0..60),
        (took, started, ended, limit) in (any_time(), any_time(), any_time(), any_time()),
        drain in any_time(),
        word in ".{0,400}",
    ) {
        let mut told = group(0, None, pods);
        told.name = Some(word.clone());
        told.started = started;
        told.ended = ended;
        told.latest_end = limit.unwrap_or_default();
        let mut run = report(Outcome::Incomplete, 0, vec![told]);
        run.took = took.unwrap_or_default();
        run.budget.pods = limit.unwrap_or_default();
        run.endpoint_drain = drain;
        run.boot_id = word.clone();
        run.warnings = vec![word];
        let page = timeline(&run);
        prop_assert_eq!(&page, &timeline(&run));
        let document = match Document::parse(&page) {
            Ok(document) => document,
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        for node in document.descendants().filter(Node::is_element) {
            let name = node.tag_name().name();
            prop_assert!(!["script", "img", "a", "object", "iframe"].contains(&name));
            for attribute in node.attributes() {
                prop_assert!(!attribute.name().starts_with("on"), "{}", attribute.name());
            }
            let Some(style) = node.attribute("style") else { continue };
            prop_assert!(!style.contains("NaN") && !style.contains("inf"), "{style}");
            if let Some(left) = percent(&node, "left") {
                let right = left + percent(&node, "width").unwrap_or(0.0);
                prop_assert!(left >= 0.0 && right <= 100.01, "{style}");
            }
        }
    }
}
