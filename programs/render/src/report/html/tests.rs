use proptest::prelude::*;
use roxmltree::{Document, Node};
use winddown_shutdown::{
    GroupReport, NoticeReport, Outcome, PodEnd, PodReport, ShutdownReport, Trigger,
};

use super::super::tests::{group, ms, pod, report};

/// Parses the page as a tree: after its first line, it is well-formed XML.
fn tree(page: &str) -> Document<'_> {
    Document::parse(page.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap()
}

fn text(node: Node<'_, '_>) -> String {
    let parts = node.descendants().filter(Node::is_text).filter_map(|part| part.text());
    parts.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn section(page: &str, id: &str, item: &str) -> Vec<String> {
    let tree = tree(page);
    let section = tree.descendants().find(|node| node.attribute("id") == Some(id));
    let items = section.into_iter().flat_map(|section| section.descendants().collect::<Vec<_>>());
    items.filter(|node| node.has_tag_name(item)).map(text).collect()
}

fn exited(name: &str, asked: u64, exit: u64) -> PodReport {
    pod(name, PodEnd::Exited, Some(asked), Some(exit))
}

fn named(mut group: GroupReport, name: &str) -> GroupReport {
    group.name = Some(name.to_owned());
    group
}

#[test]
fn the_decisions_are_told_in_the_order_of_their_time() {
    let killed = PodReport {
        containers: vec!["main".into()],
        wanted_grace: Some(ms(60_000)),
        ..pod("slow", PodEnd::Killed, Some(1000), Some(21_004))
    };
    let left = pod("stuck", PodEnd::StillRunning, Some(21_010), None);
    let mut run = report(
        Outcome::Incomplete,
        31_000,
        vec![
            named(group(0, Some((1000, 21_005)), vec![exited("web", 1000, 2200), killed]), "plain"),
            named(group(5, Some((21_010, 30_000)), vec![left]), "critical"),
            named(group(9, None, vec![pod("kept", PodEnd::Spared, None, None)]), "last"),
        ],
    );
    run.trigger = Trigger::Notice;
    run.endpoint_drain = Some(ms(1000));
    run.resumed = vec![ms(4500)];
    let (source, text) = ("aws".into(), "gone at 12:00".into());
    run.notice = Some(NoticeReport { source, text, deadline: ms(40_000) });
    assert_eq!(
        section(&super::html(&run), "decisions", "li"),
        [
            "0.000 s 03:44:00.123 A notice began the run: 30 s for the pods, 2 s in reserve",
            "0.000 s 03:44:00.123 Notice from aws: gone at 12:00. The node goes down 40 s after the start.",
            "0.000 s 03:44:00.123 Pods were not ready for 1 s before the first SIGTERM.",
            "1.000 s 03:44:01.123 plain: 2 pods asked to terminate within 29 s; less than its own grace \
             for 1 pod",
            "4.500 s 03:44:04.623 The agent was restarted in the middle and continued",
            "21.000 s 03:44:21.123 default/slow: its grace of 20 s is over, killed: main",
            "21.005 s 03:44:21.128 plain: 2 pods terminated in 20 s, 9 s to spare",
            "21.010 s 03:44:21.133 critical: 1 pod asked to terminate within 9 s",
            "30.000 s 03:44:30.123 critical: time is over, 0 terminated, not seen to terminate: default/stuck",
            "31.000 s 03:44:31.123 last: spared, 1 pod",
            "31.000 s 03:44:31.123 Shutdown finished",
        ]
    );
}

#[test]
fn every_pod_has_a_bar_and_a_line_of_the_table() {
    let mut unmounted = exited("db", 0, 3012);
    unmounted.mounts = vec!["/data".into()];
    let web = PodReport { priority: Some(7), ..exited("web", 0, 1250) };
    let groups = vec![group(0, Some((0, 3012)), vec![web, unmounted])];
    let page = super::html(&report(Outcome::Clean, 3100, groups));
    let document = tree(&page);
    let bars: Vec<&str> =
        document.descendants().filter_map(|node| node.attribute("title")).collect();
    assert_eq!(
        bars,
        [
            "default/db, no priority asked 0.000 s, SIGTERM 0.003 s, exit 3.012 s grace 20 s 1 resource \
             not released still held: /data uid uid-db",
            "default/web, priority 7 asked 0.000 s, SIGTERM 0.003 s, exit 1.250 s grace 20 s uid \
             uid-web"
        ]
    );
    let lines = section(&page, "pods", "tr");
    assert_eq!(
        lines,
        [
            "Pod Priority Grace Asked SIGTERM Exit Outcome",
            "priority 0 and above 2 pods · took 3 s of 30 s · held by default/db for the last 1.8 s",
            "default/db - 20 s 0.000 0.003 3.012 by itself; 1 resource not released still held: /data",
            "default/web 7 20 s 0.000 0.003 1.250 by itself",
        ]
    );
}

#[test]
fn of_very_many_pods_the_failed_and_the_slowest_are_in_the_table_and_the_others_folded_below() {
    let mut pods: Vec<_> = (0..1000).map(|n| exited(&format!("p{n}"), 0, 500 + n)).collect();
    for pod in pods.iter_mut().step_by(25) {
        (pod.end, pod.exit) = (PodEnd::Killed, Some(ms(20_000)));
    }
    let run = report(Outcome::Forced, 20_100, vec![group(0, Some((0, 20_100)), pods)]);
    let page = super::html(&run);
    let (table, folded) = page.split_once("<details>").unwrap();
    let rows = |part: &str| part.matches("<th scope=\"row\"").count();
    assert_eq!((rows(table), rows(folded)), (40, 960));
    assert!(table.contains("… 960 more: exited by themselves by 1.5 s; listed below"), "{table}");
    assert!(folded.contains("<summary>priority 0 and above: the other 960 pods</summary>"));
}

#[test]
fn what_became_of_a_pod_is_counted_and_remarked_in_the_same_words() {
    for end in PodEnd::ALL {
        let pods = vec![pod("web", end, Some(0), Some(900))];
        let page =
            super::html(&report(Outcome::Incomplete, 2000, vec![group(0, Some((0, 2000)), pods)]));
        let counted = format!("<dt>{}</dt>", end.text().several);
        assert!(page.contains(&counted), "{counted}");
        let row = section(&page, "pods", "tr").pop().unwrap();
        assert!(row.contains(end.text().word), "{row}");
    }
}

#[test]
fn a_run_without_pods_has_no_timeline_and_every_link_has_its_section() {
    let mut run = report(Outcome::Clean, 0, vec![]);
    run.warnings = vec!["the disk is full".into()];
    let page = super::html(&run);
    let tree = tree(&page);
    let ids: Vec<&str> = tree.descendants().filter_map(|node| node.attribute("id")).collect();
    let links: Vec<&str> = tree.descendants().filter_map(|node| node.attribute("href")).collect();
    assert_eq!(links, ["data:,", "#decisions", "#warnings"]);
    assert!(!ids.contains(&"timeline"), "{ids:?}");
    for link in links.iter().filter_map(|link| link.strip_prefix('#')) {
        assert!(ids.contains(&link), "{link}");
    }
    assert_eq!(section(&page, "warnings", "li"), ["the disk is full"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn no_name_becomes_markup_and_the_same_report_gives_the_same_page(
        words in proptest::collection::vec(
            prop_oneof![
                "\\PC{0,60}", ".{0,300}",
                Just("<script>alert(1)</script>".to_owned()),
                Just("\"' onload=x </title></style>]]>--><!--&amp;&#0;\u{ffff}\u{0}".to_owned()),
            ],
            1..12,
        ),
        (asked, exit, took) in (any::<Option<u64>>(), any::<Option<u64>>(), any::<u64>()),
    ) {
        let pods = words.iter().zip(PodEnd::ALL.iter().cycle()).map(|(word, end)| PodReport {
            namespace: word.clone(),
            name: word.clone(),
            uid: word.clone(),
            containers: vec![word.clone()],
            mounts: vec![word.clone()],
            error: Some(word.clone()),
            ..pod("", *end, asked, exit)
        });
        let mut run: ShutdownReport =
            report(Outcome::Incomplete, took, vec![named(group(0, Some((0, took)), pods.collect()), &words[0])]);
        run.boot_id = words[0].clone();
        run.warnings = words.clone();
        let (source, text) = (words[0].clone(), words[0].clone());
        run.notice = Some(NoticeReport { source, text, deadline: ms(took) });
        let page = super::html(&run);
        prop_assert_eq!(&page, &super::html(&run));
        let tree = tree(&page);
        for node in tree.descendants().filter(Node::is_element) {
            let name = node.tag_name().name();
            prop_assert!(!["script", "img", "iframe", "object", "base", "form"].contains(&name));
            for attribute in node.attributes() {
                let (name, value) = (attribute.name(), attribute.value());
                prop_assert!(!name.starts_with("on") && name != "src", "{name}");
                prop_assert!(name != "href" || value.starts_with('#') || value == "data:,", "{value}");
                prop_assert!(!value.contains("NaN") && !value.contains("inf"), "{value}");
            }
        }
        let bars = tree.descendants().filter(|node| node.attribute("title").is_some());
        prop_assert_eq!(bars.count(), words.len());
    }
}
