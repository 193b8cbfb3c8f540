use std::time::Duration;

use proptest::prelude::*;
use roxmltree::{Document, Node};
use winddown_shutdown::{NoticeReport, Outcome, PodEnd, PodReport, ShutdownReport};

use super::super::tests::{group, ms, pod, report};
use super::sizes::{MARGIN, WIDTH};

mod parts;
mod theme;

fn picture(report: &ShutdownReport) -> String {
    super::timeline(report).into_string().trim_start().to_owned()
}

/// The visible words, in document order.
fn words(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    let parts = |text: Node<'_, '_>| {
        let parts = text.descendants().filter(Node::is_text).filter_map(|part| part.text());
        parts.collect::<Vec<_>>().join(" ")
    };
    texts.map(parts).collect()
}

/// The number of shapes of a class.
fn count(svg: &str, class: &str) -> usize {
    let document = Document::parse(svg).unwrap();
    let legend_is_above = |node: &Node<'_, '_>| node.ancestors().any(|above| has_title(&above));
    let of_class = |node: &Node<'_, '_>| node.attribute("class") == Some(class);
    document.descendants().filter(|node| of_class(node) && legend_is_above(node)).count()
}

fn has_title(node: &Node<'_, '_>) -> bool {
    node.has_tag_name("g") && node.children().any(|child| child.has_tag_name("title"))
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
    let svg = picture(&two_groups());
    let document = Document::parse(&svg).unwrap();
    let rows: Vec<&str> = document
        .descendants()
        .filter(has_title)
        .filter_map(|row| row.children().find(|child| child.has_tag_name("title"))?.text())
        .collect();
    assert_eq!(
        rows,
        [
            "default/web, priority 0\nasked 0.000 s, SIGTERM 0.003 s, exit 1.250 s\ngrace 20 s\n\
             uid uid-web",
            "default/database, priority 0\nasked 0.000 s, SIGTERM 0.003 s, exit 3.012 s\n\
             grace 20 s\nuid uid-database",
            "default/dns, priority 0\nasked 3.013 s, SIGTERM 3.016 s, exit 8.176 s\ngrace 20 s\n\
             uid uid-dns",
        ]
    );
    let words = words(&svg);
    for wanted in [
        "priority 0 and above 2 pods · took 3 s of 30 s · held by default/database for the last 1.8 s",
        "priority 2000000000 and above 1 pod · took 5.2 s of 27 s",
        "default/dns",
        "lock released 8.2 s",
        "pods' time ends 30 s",
        "logind's limit 32 s",
    ] {
        assert!(words.iter().any(|text| text == wanted), "{wanted}: {words:#?}");
    }
    assert!(!words.iter().any(|text| text.starts_with("priority 1000 ")), "a group without pods");
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
        ..pod("left", PodEnd::Left, Some(0), None)
    };
    let ending = pod("ending", PodEnd::Ending, Some(0), None);
    let spared = pod("spared", PodEnd::Spared, None, None);
    let unseen = pod("unseen", PodEnd::Exited, Some(0), None);
    let pods = vec![left, killed, ending, spared, unseen, exited("exited", 0, 900)];
    let svg = picture(&report(Outcome::Left, 31_000, vec![group(0, Some((0, 30_100)), pods)]));
    assert_eq!((count(&svg, "kill"), count(&svg, "open"), count(&svg, "soft")), (1, 1, 1));
    assert_eq!((count(&svg, "exit"), count(&svg, "arrow")), (1, 1));
    let words = words(&svg);
    for wanted in [
        "0.9 s",
        "killed after 20 s · main",
        "STILL RUNS · main · still held",
        "spared",
        "ended, not known when",
    ] {
        assert!(words.iter().any(|text| text == wanted), "{wanted}: {words:#?}");
    }
}

#[test]
fn what_went_wrong_is_first_and_the_other_rows_go_by_time() {
    let pods = vec![
        exited("slow", 0, 900),
        exited("late", 500, 700),
        pod("killed", PodEnd::Killed, Some(0), Some(950)),
        pod("left", PodEnd::Left, Some(0), None),
        exited("quick", 0, 100),
    ];
    let svg = picture(&report(Outcome::Left, 1000, vec![group(0, Some((0, 1000)), pods)]));
    let names: Vec<String> =
        words(&svg).into_iter().filter(|text| text.starts_with("default/")).collect();
    assert_eq!(
        names,
        ["default/left", "default/killed", "default/quick", "default/late", "default/slow"]
    );
}

#[test]
fn of_very_many_pods_the_failed_and_the_slowest_have_rows_and_the_others_one_together() {
    let mut pods: Vec<_> = (0..1000).map(|n| exited(&format!("p{n}"), 0, 500 + n)).collect();
    for (n, pod) in pods.iter_mut().step_by(25).enumerate() {
        (pod.end, pod.exit) = (PodEnd::Killed, Some(ms(20_000 + n as u64)));
    }
    let svg = picture(&report(Outcome::Forced, 20_100, vec![group(0, Some((0, 20_100)), pods)]));
    assert_eq!(count(&svg, "mono end"), 40, "the killed");
    let words = words(&svg);
    for wanted in ["… 960 more", "ended by themselves by 1.5 s"] {
        assert!(words.iter().any(|text| text == wanted), "{wanted}: {words:#?}");
    }
    assert_eq!(svg.matches("class=\"folded\"").count(), 1);
    assert!(svg.len() < 60_000, "{} bytes", svg.len());
}

#[test]
fn a_cut_grace_a_hook_and_what_a_group_waited_for_are_seen() {
    let hooked = PodReport { sigterm: Some(ms(900)), ..exited("hooked", 0, 2000) };
    let cut = PodReport {
        wanted_grace: Some(ms(25_000)),
        ..pod("cut", PodEnd::Killed, Some(0), Some(20_000))
    };
    let groups = vec![group(0, Some((0, 20_000)), vec![hooked, cut])];
    let svg = picture(&report(Outcome::Forced, 20_000, groups));
    let document = Document::parse(&svg).unwrap();
    let bar = |class: &str, from: &str, to: &str| {
        let of_class = |node: &Node<'_, '_>| node.attribute("class") == Some(class);
        let is_of_pod = |node: &Node<'_, '_>| node.ancestors().any(|above| has_title(&above));
        let bars = document.descendants().filter(|node| of_class(node) && is_of_pod(node));
        let number = |node: Node<'_, '_>, name| node.attribute(name).unwrap().parse().unwrap();
        let spans = bars.map(|node| (number(node, from), number(node, to)));
        // The three milliseconds before SIGTERM are less than a pixel.
        spans.filter(|(_, to): &(f64, f64)| *to > 1.0).collect::<Vec<_>>()
    };
    let [(at, wide)] = bar("hook", "x", "width")[..] else { panic!("{svg}") };
    let second = wide / 0.9;
    let near = |a: f64, b: f64| (a - b).abs() < 2.0;
    let [(grace_end, own_end)] = bar("own", "x1", "x2")[..] else { panic!("{svg}") };
    assert!(near(grace_end, at + 20.0 * second) && near(own_end, at + 25.0 * second), "{svg}");
    let [(from, to)] = bar("held", "x1", "x2")[..] else { panic!("{svg}") };
    assert!(near(from, at + 2.0 * second) && near(to, at + 20.0 * second), "{svg}");
    let words = words(&svg);
    for wanted in [
        "killed after 20 s of 25 s",
        "its own grace, cut",
        "before SIGTERM (preStop hook)",
        "the group waits for this pod alone",
    ] {
        assert!(words.iter().any(|text| text == wanted), "{wanted}: {words:#?}");
    }
}

#[test]
fn a_spared_group_is_one_line() {
    let spared = (0..40).map(|n| pod(&format!("s{n}"), PodEnd::Spared, None, None)).collect();
    let run = report(Outcome::Cancelled, 1500, vec![group(7, None, spared)]);
    let svg = picture(&run);
    assert_eq!(count(&svg, "mono end"), 0);
    assert!(words(&svg).contains(&"priority 7 and above 40 pods · spared".to_owned()));
}

#[test]
fn a_run_that_used_little_of_its_time_is_enlarged_and_says_so() {
    let enlarged = |took: u64| {
        let pods = vec![exited("a", 0, took)];
        let svg = picture(&report(Outcome::Clean, took, vec![group(0, Some((0, took)), pods)]));
        words(&svg).iter().any(|text| text.ends_with(" s of 32 s, enlarged"))
    };
    assert!(enlarged(1200));
    assert!(!enlarged(12_000));
}

#[test]
fn notice_lame_duck_and_restarts_are_in_the_picture() {
    let mut run = two_groups();
    run.endpoint_drain = Some(ms(1000));
    run.resumed = vec![ms(2000), ms(4500)];
    let (source, text) = ("aws".into(), "spot instance ends at 12:00".into());
    run.notice = Some(NoticeReport { source, text, deadline: ms(31_000) });
    let words = words(&picture(&run));
    for wanted in [
        "endpoint drain ends 1 s",
        "agent restarted 2 s",
        "agent restarted 4.5 s",
        "notice: node ends 31 s",
        "not ready, before SIGTERM",
    ] {
        assert!(words.iter().any(|text| text == wanted), "{wanted}: {words:#?}");
    }
}

#[test]
fn rows_get_lower_but_stay_legible_when_there_are_many() {
    let of_many = |pods: u64| {
        let killed = |n| pod(&format!("web-{n}"), PodEnd::Killed, Some(0), Some(500 + n * 40));
        let groups = vec![group(0, Some((0, 9000)), (0..pods).map(killed).collect())];
        picture(&report(Outcome::Forced, 9000, groups))
    };
    let font = |svg: &str| {
        let document = Document::parse(svg).unwrap();
        let name = document.descendants().find(|node| node.attribute("class") == Some("mono end"));
        name.unwrap().attribute("font-size").unwrap().parse::<f64>().unwrap()
    };
    let fonts = [5, 60, 200].map(|pods| font(&of_many(pods)));
    assert!(fonts[0] > fonts[1] && fonts[1] > fonts[2] && fonts[2] >= 9.0, "{fonts:?}");
    let size = of_many(200).len();
    assert!(size < 200_000, "{size} bytes");
}

#[test]
fn a_time_that_a_line_goes_through_is_left_out_and_the_line_says_its_own() {
    let mut run = two_groups();
    let times =
        |run: &ShutdownReport| words(&picture(run)).iter().filter(|text| *text == "20 s").count();
    assert_eq!(times(&run), 2, "above and below the rows");
    run.resumed = vec![ms(20_100)];
    assert_eq!(times(&run), 0);
    assert!(words(&picture(&run)).contains(&"agent restarted 20.1 s".to_owned()));
}

#[test]
fn no_text_is_set_so_small_that_it_is_lost_at_400_pixels() {
    let svg = picture(&two_groups());
    let document = Document::parse(&svg).unwrap();
    let fonts = document.descendants().filter_map(|node| node.attribute("font-size"));
    let smallest = fonts.map(|font| font.parse::<f64>().unwrap()).fold(f64::MAX, f64::min);
    assert!(smallest * 400.0 / WIDTH >= 5.7, "{smallest}");
}

fn any_time() -> impl Strategy<Value = Option<Duration>> {
    let far = Just(Duration::MAX);
    let near = (0u64..60_000).prop_map(Duration::from_millis);
    proptest::option::of(prop_oneof![20 => near, 1 => far])
}

fn any_pod() -> impl Strategy<Value = PodReport> {
    let ends = [PodEnd::Spared, PodEnd::Exited, PodEnd::Killed, PodEnd::Ending, PodEnd::Left];
    let text = || prop_oneof!["\\PC{0,60}", ".{0,300}", Just("<&\">'\u{ffff}\u{0}".to_owned())];
    let times = (any_time(), any_time(), any_time(), any_time());
    (text(), text(), times, 0..ends.len(), text()).prop_map(
        move |(namespace, name, (asked, sigterm, exit, grace), end, word)| PodReport {
            namespace,
            name,
            asked,
            sigterm,
            exit,
            grace: grace.unwrap_or_default(),
            end: ends[end],
            containers: vec![word.clone()],
            mounts: vec![word.clone()],
            error: Some(word),
            ..pod("", PodEnd::Exited, None, None)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_picture_is_sound_whatever_is_in_the_report(
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
        let mut run = report(Outcome::Left, 0, vec![told]);
        run.took = took.unwrap_or_default();
        run.budget.pods = limit.unwrap_or_default();
        run.endpoint_drain = drain;
        run.boot_id = word.clone();
        run.warnings = vec![word];
        let svg = picture(&run);
        prop_assert_eq!(&svg, &picture(&run));
        let document = match Document::parse(&svg) {
            Ok(document) => document,
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        for node in document.descendants() {
            let name = node.tag_name().name();
            prop_assert!(!["script", "image", "a", "use", "foreignObject"].contains(&name));
            for attribute in node.attributes() {
                prop_assert!(!attribute.name().starts_with("on"), "{}", attribute.name());
                prop_assert!(!attribute.value().contains("NaN"), "{}", attribute.value());
            }
            let number = |name| node.attribute(name).and_then(|text| text.parse::<f64>().ok());
            if let Some(x) = number("x").filter(|_| name != "pattern") {
                let end = x + number("width").unwrap_or(0.0);
                prop_assert!(x >= 0.0 && end <= WIDTH + MARGIN, "{node:?}");
            }
        }
    }
}
