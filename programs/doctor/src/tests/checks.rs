//! Tests each check both ways: the healthy node passes, and each possible fault is found.

mod containers;
mod kubelet;
mod node;
mod room;
mod shutdown;
mod unit;

use super::Severity::{Info, Ok as Well, Problem, Warning};
use super::*;
use winddown_control::api::{ProtectionReason as Why, ProtectionState};
use winddown_render::View;

#[test]
fn a_healthy_node_has_no_finding_but_well() {
    let found = findings(&healthy());
    for finding in &found {
        assert_eq!(finding.severity, Well, "{finding:?}");
        assert_eq!((&*finding.fix, &*finding.advice), (&[][..], &[][..]), "{finding:?}");
    }
    assert_eq!(found.len(), 22);
    let mut ids: Vec<_> = found.iter().map(|finding| finding.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), found.len(), "an id names one check");
}

const PAGE: &str = include_str!("../../../../docs/reference/doctor.md");

/// The worst severity of a check, as the page has it.
fn worst_on_page(id: &str) -> Severity {
    let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{id}`")));
    let worst = row.and_then(|row| row.trim_end_matches(" |").rsplit("| ").next());
    match worst {
        Some("info") => Info,
        Some("warning") => Warning,
        _ => Problem,
    }
}

#[test]
fn the_page_marks_the_checks_of_which_a_healthy_node_shows_nothing() {
    // Of other kinds of nodes.
    const OTHERS: [&str; 5] = ["guard", "after-nodes", "slice", "limits", "api"];
    let (_, checks) = PAGE.split_once("## The checks").unwrap();
    let found = findings(&healthy());
    let mut wrong = Vec::new();
    for row in checks.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (id, rest) = row.split_once('`').unwrap();
        let marked = rest.split('|').next().unwrap().contains('†');
        let shown = OTHERS.contains(&id) || found.iter().any(|finding| finding.id == id);
        if marked == shown {
            wrong.push(id);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Whether a command or an advice of the finding contains `part`. What may be typed has an id and no placeholder.
fn says(found: &Finding, part: &str) -> bool {
    assert_eq!(found.fix.is_empty(), found.fix_id.is_none(), "{found:?}");
    assert!(!found.fix.iter().any(|command| command.contains(['#', '`'])), "{found:?}");
    part.is_empty() || found.fix.iter().chain(&found.advice).any(|text| text.contains(part))
}

/// Name of the fault, how it is introduced into the healthy node, the check that finds it, the severity,
/// a part of the evidence, and a part of a command or an advice.
type Case = (&'static str, fn(&mut Facts), &'static str, Severity, &'static str, &'static str);

fn check(cases: &[Case]) {
    for (what, break_it, id, severity, evidence, fix) in cases {
        let mut facts = healthy();
        break_it(&mut facts);
        let found = finding(&facts, id).unwrap_or_else(|| panic!("{what}: no finding {id}"));
        assert_eq!(found.severity, *severity, "{what}: {found:?}");
        assert!(*severity <= worst_on_page(id), "{what}: the page has a less severe one");
        let seen = found.evidence.join("\n");
        assert!(seen.contains(evidence), "{what}: {found:?}");
        assert!(says(&found, fix), "{what}: {found:?}");
        assert!(!found.why.is_empty() && !found.title.is_empty(), "{what}");
        let elsewhere = findings(&facts).into_iter().filter(|f| f.severity >= Warning);
        let others: Vec<_> = elsewhere.filter(|f| f.id != *id).map(|f| f.id).collect();
        assert_eq!(others, Vec::<&str>::new(), "{what}: one fault, one finding");
    }
}

#[test]
fn what_may_not_be_seen_is_said_and_is_no_fault() {
    let mut facts = healthy();
    facts.agent = unseen(NotObserved::Denied);
    facts.files.state = unseen(NotObserved::Denied);
    facts.files.reports = unseen(NotObserved::Denied);
    facts.files.unreported = unseen(NotObserved::Denied);
    facts.runtime.endpoint = unseen(NotObserved::Denied);
    let found = findings(&facts);
    for id in ["agent", "state", "last-shutdown", "runtime"] {
        let finding = found.iter().find(|finding| finding.id == id).unwrap();
        assert_eq!(finding.severity, Info, "{finding:?}");
        assert_eq!(finding.fix, ["sudo winddown doctor"], "{finding:?}");
    }
    assert_eq!(found.iter().map(|finding| finding.severity).max(), Some(Info));
    let lock = found.iter().find(|finding| finding.id == "lock").unwrap();
    assert_eq!(lock.severity, Well, "logind's list is for everybody: {lock:?}");
}

#[test]
fn of_a_wrong_configuration_nothing_is_said_that_is_true_of_the_defaults_only() {
    let mut facts = healthy();
    facts.config.config = Config::default();
    let advice = |facts: &Facts| {
        let found = findings(facts).into_iter().filter(|finding| finding.severity == Problem);
        found.map(|finding| finding.id).collect::<Vec<_>>()
    };
    assert_eq!(advice(&facts), ["crash"], "the unit is not for the process runtime");
    known(&mut facts.files.socket).mode = 0o660;
    for (read, wrong) in [
        (ConfigRead::Invalid(vec!["maxPod: unknown field".to_owned()]), vec!["config"]),
        (ConfigRead::Unread(NotObserved::Silent, "hm".to_owned()), vec!["config"]),
        (ConfigRead::Unread(NotObserved::Denied, "no".to_owned()), vec![]),
    ] {
        facts.config.read = read;
        assert_eq!(advice(&facts), wrong);
        let socket = finding(&facts, "socket").unwrap();
        assert_eq!(socket.severity, Well, "it may be the configured group's: {socket:?}");
    }
    let denied = finding(&facts, "config").unwrap();
    assert_eq!((denied.severity, denied.fix), (Info, vec!["sudo winddown doctor".to_owned()]));
}

/// Checks whose finding is a part of the verdict.
const OF_THE_VERDICT: [&str; 6] =
    ["agent", "periods", "lock", "delay", "kubelet", "kubelet-shutdown"];

#[test]
fn the_verdict_and_the_findings_agree_on_each_combination_of_facts() {
    type Change = fn(&mut Facts);
    let modes: [Change; 3] = [
        |_| {},
        beside_kubelet,
        |f| {
            f.config.read = ConfigRead::Defaults;
            f.files.installed = Fact::Known(Installed::default());
            f.agent = unseen(NotObserved::Absent);
        },
    ];
    let agents: [Change; 5] = [
        |_| {},
        |f| f.agent = unseen(NotObserved::Absent),
        |f| f.agent = unseen(NotObserved::Silent),
        |f| f.agent = unseen(NotObserved::Denied),
        |f| {
            f.wanted = Duration::ZERO;
            if let Fact::Known(status) = &mut f.agent {
                status.shutdown_plan.enabled = false;
                status.lock.required_seconds = 0.0;
            }
        },
    ];
    let logind: [Change; 6] = [
        |_| {},
        |f| known(&mut f.bus.login).locks.retain(|lock| lock.who != "winddown"),
        |f| known(&mut f.bus.login).locks.push(lock("kubelet")),
        |f| known(&mut f.bus.login).delay = secs(5),
        |f| known(&mut f.bus.login).delay = Duration::ZERO,
        |f| f.bus.login = unseen(NotObserved::Silent),
    ];
    let kubelets: [Change; 4] = [
        |_| {},
        |f| f.kubelet.processes = process("kubelet"),
        |f| f.kubelet.unit = Fact::Known(Some("kubelet.service".to_owned())),
        |f| f.kubelet.processes = unseen(NotObserved::Failed),
    ];
    let configurations: [Change; 5] = [
        |f| {
            f.kubelet.config = kubelet("");
            f.kubelet.differences = vec![difference("nodeName", "node1", "node2")];
        },
        |f| f.kubelet.config = kubelet(""),
        |f| f.kubelet.config = kubelet("shutdownGracePeriod: 30s"),
        |_| {},
        |f| f.kubelet.config = unseen(NotObserved::Silent),
    ];
    let mut seen = Vec::new();
    let lists: [&[Change]; 5] = [&modes, &agents, &logind, &kubelets, &configurations];
    let mut all = vec![healthy()];
    for changes in lists {
        let changed = |facts: &Facts| {
            let facts = facts.clone();
            changes.iter().map(move |change| {
                let mut facts = facts.clone();
                change(&mut facts);
                facts
            })
        };
        all = all.iter().flat_map(changed).collect();
    }
    assert_eq!(all.len(), 3 * 5 * 6 * 4 * 5);
    for facts in &all {
        agrees(facts);
        seen.push(facts.protection().reason);
    }
    for reason in [
        Why::LockHeld,
        Why::DelayTooShort,
        Why::NoAgent,
        Why::Disabled,
        Why::LockNotHeld,
        Why::NoDelay,
        Why::NotACompanion,
        Why::KubeletTerminatesToo,
        Why::NoKubelet,
        Why::AnotherKubelet,
        Why::KubeletDisabled,
        Why::KubeletDelayTooShort,
        Why::KubeletLockNotHeld,
        Why::KubeletConfigurationUnknown,
        Why::AgentUnknown,
        Why::LockUnknown,
        Why::KubeletUnknown,
    ] {
        assert!(seen.contains(&reason), "no combination leads to {reason:?}");
    }
}

fn agrees(facts: &Facts) {
    let diagnosis = diagnose(facts);
    let verdict = facts.protection();
    let worst = diagnosis
        .findings
        .iter()
        .filter(|finding| OF_THE_VERDICT.contains(&finding.id))
        .map(|finding| finding.severity)
        .max();
    let text = render(&diagnosis, &View::default());
    let why = format!("{verdict:?}\n{text}");
    match verdict.state {
        ProtectionState::Protected => assert!(worst <= Some(Info), "{why}"),
        ProtectionState::Limited => assert_eq!(worst, Some(Warning), "{why}"),
        ProtectionState::Unprotected => assert_eq!(worst, Some(Problem), "{why}"),
        ProtectionState::Unknown => assert!(diagnosis.severity >= Info, "{why}"),
    }
    let is_well = verdict.state == ProtectionState::Protected;
    assert!(is_well || !text.contains("all well"), "{why}");
    let is_bad = verdict.state == ProtectionState::Unprotected;
    assert_eq!(text.contains("NOT PROTECTED: "), is_bad, "{why}");
}

#[test]
fn of_an_image_only_the_files_are_judged() {
    let mut facts = image();
    let ids: Vec<_> = findings(&facts).iter().map(|finding| finding.id).collect();
    assert_eq!(
        ids,
        ["periods", "delay", "unit", "boot", "scopes", "kubelet", "config", "last-shutdown"]
    );
    assert!(findings(&facts).iter().all(|finding| finding.severity == Well));
    facts.files.setting = Fact::Known(None);
    let delay = finding(&facts, "delay").unwrap();
    assert_eq!(delay.severity, Info, "the agent raises it at boot: {delay:?}");
    assert_eq!(delay.fix, Vec::<String>::new(), "{delay:?}");
    known(&mut facts.files.installed).enabled = false;
    assert_eq!(finding(&facts, "boot").unwrap().severity, Warning);
    known(&mut facts.files.installed).unit = false;
    assert_eq!(finding(&facts, "unit").unwrap().severity, Problem);
    facts.files.setting = set("/usr/lib/systemd/logind.conf.d/zzz.conf", 10);
    let delay = finding(&facts, "delay").unwrap();
    assert_eq!(delay.severity, Warning);
    assert_eq!(
        delay.evidence[0],
        "/image/usr/lib/systemd/logind.conf.d/zzz.conf: InhibitDelayMaxSec=10s"
    );
    assert_eq!(
        delay.fix,
        [
            "mkdir -p /image/etc/systemd/logind.conf.d && cp /image/usr/lib/systemd/logind.conf.d/zzz.conf \
             /image/etc/systemd/logind.conf.d && sed -i \
             's/^[[:space:]]*InhibitDelayMaxSec[[:space:]]*=.*/InhibitDelayMaxSec=32/' \
             /image/etc/systemd/logind.conf.d/zzz.conf"
        ]
    );
    assert_eq!(finding(&facts, "unit").unwrap().fix, ["winddown install --root /image"]);
}

fn image() -> Facts {
    let mut facts = healthy();
    facts.live = false;
    facts.root = "/image".into();
    facts.agent = Fact::not_live();
    facts.bus = BusFacts {
        login: Fact::not_live(),
        system: Fact::not_live(),
        service: Fact::not_live(),
        limit: Fact::not_live(),
        scopes: Fact::not_live(),
        synchronised: Fact::not_live(),
        ..facts.bus
    };
    facts.runtime.endpoint = Fact::not_live();
    facts.runtime.killers = Fact::not_live();
    facts.kubelet.processes = Fact::not_live();
    facts.files.state = Fact::not_live();
    facts.files.socket = Fact::not_live();
    facts.shortages = Fact::not_live();
    facts
}
