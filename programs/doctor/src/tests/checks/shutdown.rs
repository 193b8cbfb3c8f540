//! The agent, its inhibitor lock, and the ways in which the node can go down.

use super::super::*;
use super::Severity::{Info, Ok as Well, Problem, Warning};
use super::{check, says};
use winddown_control::api::{
    AfterNode, AfterNodesStatus, BlockingPod, ClusterStatus, GuardStatus, LockState, NodeStage,
    Phase, ReportEntry, ReportList,
};

/// Every user can take a delay lock under any name.
#[test]
fn a_lock_that_another_user_took_in_the_agents_name_protects_nothing() {
    let mut facts = healthy();
    let locks = &mut known(&mut facts.bus.login).locks;
    let decoy = locks.iter_mut().find(|lock| lock.who == "winddown").unwrap();
    decoy.uid = 1000;
    assert_eq!(finding(&facts, "lock").unwrap().severity, Problem);
    let mut facts = healthy();
    let decoy = LockView { uid: 1000, ..lock("kubelet") };
    known(&mut facts.bus.login).locks.push(decoy);
    assert_eq!(finding(&facts, "kubelet").unwrap().severity, Well);
}

#[test]
fn an_agent_whose_socket_only_an_unread_configuration_names_is_not_taken_for_gone() {
    let mut facts = healthy();
    facts.config.read = ConfigRead::Unread(NotObserved::Denied, "no".to_owned());
    facts.agent = unseen(NotObserved::Absent);
    let found = |facts: &Facts| ["agent", "lock"].map(|id| finding(facts, id).unwrap().severity);
    assert_eq!(found(&facts), [Info, Well]);
    known(&mut facts.bus.service).active_state = "failed".into();
    assert_eq!(found(&facts), [Problem, Warning]);
}

/// Its version is its own, and its unit is not winddown's.
#[test]
fn an_agent_of_another_product_is_neither_compared_with_winddown_nor_restarted_as_winddown() {
    let mut facts = healthy();
    let node = &mut known(&mut facts.agent).node;
    (node.product, node.version) = (Some("my-agent".to_owned()), "7.1".to_owned());
    let agent = finding(&facts, "agent").unwrap();
    assert_eq!((agent.severity, &*agent.title), (Well, "the agent of my-agent runs and answers"));
    known(&mut facts.agent).shutdown_plan.enabled = false;
    let periods = finding(&facts, "periods").unwrap();
    assert!(periods.fix.is_empty() && periods.fix_id.is_none(), "{periods:?}");
    assert!(periods.advice.iter().any(|advice| advice.contains("my-agent")), "{periods:?}");
}

#[test]
fn a_default_grace_that_a_shutdown_cuts_is_worth_knowing_and_a_chosen_one_a_warning() {
    let mut facts = healthy();
    known(&mut facts.agent).shutdown_plan.default_grace_cut = vec!["2 pods".to_owned()];
    known(&mut facts.agent).shutdown_plan.raise = "the group's seconds".to_owned();
    let found = finding(&facts, "periods").unwrap();
    assert_eq!((found.severity, &*found.evidence), (Info, &["2 pods".to_owned()][..]));
    assert!(found.advice[0].starts_with("raise the group's seconds in /"), "{found:?}");
    known(&mut facts.agent).shutdown_plan.warnings = vec!["pod default/db".to_owned()];
    let found = finding(&facts, "periods").unwrap();
    assert_eq!((found.severity, found.evidence.len()), (Warning, 2));
}

#[test]
fn no_longer_period_is_asked_for_where_logind_waits_too_short_a_time() {
    let mut facts = healthy();
    known(&mut facts.agent).shutdown_plan.warnings = vec!["pod default/db".to_owned()];
    known(&mut facts.bus.login).delay = Duration::from_secs(4);
    let found = finding(&facts, "periods").unwrap();
    assert_eq!((found.severity, &*found.advice), (Info, &[][..]), "{found:?}");
    assert_eq!(finding(&facts, "delay").unwrap().severity, Warning);
}

#[test]
fn the_last_run_is_called_what_it_was() {
    let mut facts = healthy();
    facts.files.reports = last("incomplete");
    known(&mut facts.files.reports).reports[0].trigger = "drain".to_owned();
    let title = finding(&facts, "last-shutdown").unwrap().title;
    assert_eq!(title, "the last drain was not graceful for all pods");
}

fn guard(state: LockState) -> GuardStatus {
    let pod =
        BlockingPod { namespace: "batch".into(), name: "backup".into(), ..BlockingPod::default() };
    let why = (state != LockState::Held).then(|| "no logind".to_owned());
    GuardStatus { state, why, pods: vec![pod] }
}

/// A status with these nodes; `None` if they are not known yet.
fn after(nodes: Option<&[(&str, NodeStage)]>, problem: Option<&str>) -> ClusterStatus {
    let node = |(name, stage): &(&str, _)| AfterNode { name: (*name).into(), stage: *stage };
    let after_nodes = AfterNodesStatus {
        selector: "role=worker".into(),
        nodes: nodes.map(|nodes| nodes.iter().map(node).collect()),
        problem: problem.map(str::to_owned),
        ..AfterNodesStatus::default()
    };
    ClusterStatus { after_nodes: Some(after_nodes), ..ClusterStatus::default() }
}

#[test]
fn what_is_wrong_with_the_nodes_that_go_first_is_found() {
    let mut facts = healthy();
    assert!(finding(&facts, "after-nodes").is_none(), "it is not configured");
    let workers = [("w1", NodeStage::Up), ("w2", NodeStage::Down)];
    known(&mut facts.agent).cluster = Some(after(Some(&workers), None));
    assert_eq!(finding(&facts, "after-nodes").unwrap().severity, Well);
    check(&[
        (
            "no right",
            |f| known(&mut f.agent).cluster = Some(after(None, Some("nodes is forbidden"))),
            "after-nodes",
            Warning,
            "forbidden",
            "after-nodes.yaml",
        ),
        (
            "a selector that matches nothing, or this node alone",
            |f| known(&mut f.agent).cluster = Some(after(Some(&[]), None)),
            "after-nodes",
            Warning,
            "role=worker",
            "kubectl get nodes -l 'role=worker'",
        ),
        (
            "a node without winddown",
            |f| {
                let nodes = [("w1", NodeStage::Up), ("w2", NodeStage::NotReporting)];
                known(&mut f.agent).cluster = Some(after(Some(&nodes), None));
            },
            "after-nodes",
            Warning,
            "w2",
            "install winddown",
        ),
        (
            "no answer yet",
            |f| known(&mut f.agent).cluster = Some(after(None, None)),
            "after-nodes",
            Info,
            "",
            "",
        ),
    ]);
}

#[test]
fn the_journal_of_a_unit_that_does_not_exist_says_nothing_of_its_agent() {
    let mut facts = healthy();
    facts.agent = unseen(NotObserved::Absent);
    known(&mut facts.bus.service).active_state = "failed".into();
    assert!(says(&finding(&facts, "agent").unwrap(), "journalctl"));
    known(&mut facts.bus.service).load_state = "not-found".into();
    assert!(!says(&finding(&facts, "agent").unwrap(), "journalctl"));
    facts.bus.service = unseen(NotObserved::Absent);
    assert!(!says(&finding(&facts, "agent").unwrap(), "journalctl"));
}

#[test]
fn what_is_wrong_with_the_agent_and_its_lock_is_found() {
    check(&[
        (
            "held, not listed",
            |f| known(&mut f.bus.login).locks.clear(),
            "lock",
            Problem,
            "lists 0 locks",
            "journalctl -u winddown -e",
        ),
        (
            "a lock of sleep only",
            |f| known(&mut f.bus.login).locks[1].what = "sleep".into(),
            "lock",
            Problem,
            "winddown's is not among them",
            "journalctl -u winddown -e",
        ),
        (
            "a block lock",
            |f| known(&mut f.bus.login).locks[1].mode = "block".into(),
            "lock",
            Problem,
            "",
            "journalctl -u winddown -e",
        ),
        (
            "a pod that blocks shutdowns",
            |f| known(&mut f.agent).guard = Some(guard(LockState::Held)),
            "guard",
            Info,
            "batch/backup",
            "",
        ),
        (
            "one that is not obeyed",
            |f| known(&mut f.agent).guard = Some(guard(LockState::Waiting)),
            "guard",
            Warning,
            "no logind",
            "journalctl -u winddown -e",
        ),
        (
            "a shutdown under way",
            |f| known(&mut f.agent).shutdown.phase = Phase::Running,
            "lock",
            Info,
            "phase running",
            "",
        ),
        (
            "hung agent",
            |f| f.agent = unseen(NotObserved::Failed),
            "agent",
            Warning,
            "as was said",
            "journalctl -u winddown -e",
        ),
        (
            "other version",
            |f| known(&mut f.agent).node.version = "0.0.1".into(),
            "agent",
            Info,
            "0.0.1",
            "systemctl restart winddown",
        ),
        (
            "switched off",
            |f| known(&mut f.agent).shutdown_plan.enabled = false,
            "periods",
            Problem,
            "shutdownGracePeriod",
            "systemctl reload winddown",
        ),
        (
            "one lock of another program",
            |f| known(&mut f.bus.login).locks.truncate(1),
            "lock",
            Problem,
            "logind lists 1 lock;",
            "journalctl -u winddown -e",
        ),
        (
            "logind answers with an error",
            |f| f.bus.login = unseen(NotObserved::Failed),
            "logind",
            Warning,
            "as was said",
            "journalctl -u systemd-logind -e",
        ),
        (
            "logind hangs",
            |f| f.bus.login = unseen(NotObserved::Silent),
            "logind",
            Problem,
            "as was said",
            "systemctl restart systemd-logind",
        ),
        (
            "no logind",
            |f| f.bus.login = unseen(NotObserved::Absent),
            "logind",
            Problem,
            "as was said",
            "systemctl unmask",
        ),
        (
            "not all were terminated",
            |f| f.files.reports = last("incomplete"),
            "last-shutdown",
            Info,
            "incomplete, 3 pods",
            "winddown report --id x",
        ),
        (
            "a report that cannot be read, which may be a later one",
            |f| {
                f.files.reports = last("clean");
                known(&mut f.files.reports).problems.push("/r/x.json: truncated".into());
            },
            "last-shutdown",
            Info,
            "/r/x.json: truncated",
            "move away",
        ),
        (
            "a run that was cut, and no agent to say so",
            |f| {
                f.agent = unseen(NotObserved::Denied);
                f.files.reports = last("clean");
                f.files.unreported = Fact::Known(Some("the machine went down".into()));
            },
            "last-shutdown",
            Info,
            "the machine went down",
            "winddown report",
        ),
    ]);
}

#[test]
fn an_agent_that_is_gone_leaves_its_lock_with_systemd() {
    let mut facts = healthy();
    facts.agent = unseen(NotObserved::Absent);
    known(&mut facts.bus.service).active_state = "activating".to_owned();
    assert_eq!(finding(&facts, "agent").unwrap().severity, Problem);
    let lock = finding(&facts, "lock").unwrap();
    assert_eq!(lock.severity, Warning, "{lock:?}");
    facts.agent = unseen(NotObserved::Silent);
    assert_eq!(finding(&facts, "agent").unwrap().severity, Problem);
}

#[test]
fn an_agent_without_a_socket_is_restarted_and_still_protects_the_pods() {
    let mut facts = healthy();
    facts.agent = unseen(NotObserved::Absent);
    let agent = finding(&facts, "agent").unwrap();
    assert_eq!((agent.severity, agent.fix_id), (Problem, Some(Fix::SocketGone)), "{agent:?}");
    assert_eq!(agent.fix, ["systemctl restart winddown"], "a start of an active unit does nothing");
    assert_eq!(finding(&facts, "lock").unwrap().severity, Well);
}

#[test]
fn a_scheduled_shutdown_is_named_with_its_time() {
    let mut facts = healthy();
    assert_eq!(finding(&facts, "scheduled"), None);
    known(&mut facts.bus.login).scheduled = Some(winddown_shared::ScheduledShutdown {
        at: "2026-11-20T08:00:00Z".parse().unwrap(),
        kind: winddown_shared::ShutdownKind::Reboot,
        message: Some("kernel".into()),
    });
    let found = finding(&facts, "scheduled").unwrap();
    assert_eq!(
        (found.severity, &*found.title),
        (Info, "a shutdown is scheduled for 2026-11-20T08:00:00Z")
    );
    assert_eq!(found.evidence, ["logind: reboot in 60m", "message: kernel"]);
}

/// Between the installation and the first start there were four problems, one with a file to write.
#[test]
fn what_the_start_of_an_agent_cures_is_no_finding_before_it() {
    let mut facts = healthy();
    facts.agent = unseen(NotObserved::Absent);
    known(&mut facts.bus.login).locks.clear();
    known(&mut facts.bus.login).delay = secs(5);
    facts.files.setting = Fact::Known(None);
    known(&mut facts.bus.service).active_state = "inactive".to_owned();
    let worst = |facts: &Facts| {
        let found = findings(facts).into_iter().filter(|found| found.severity >= Warning);
        found.map(|found| found.id).collect::<Vec<_>>()
    };
    assert_eq!(worst(&facts), ["agent"]);
    let found = finding(&facts, "agent").unwrap();
    assert_eq!(found.fix, ["systemctl start winddown"]);
    assert!(found.evidence.contains(&"winddown.service: inactive (running)".to_owned()));
    known(&mut facts.bus.service).after.clear();
    assert_eq!(worst(&facts), ["agent", "order"], "the start writes no order");
    facts.files.setting = set("/etc/systemd/logind.conf.d/zzz-late.conf", 5);
    assert_eq!(worst(&facts), ["agent", "delay", "order"], "nor does its file beat that one");
    known(&mut facts.bus.service).active_state = "failed".to_owned();
    assert_eq!(worst(&facts), ["agent", "lock", "delay", "unit", "order"]);
}

#[test]
fn what_cannot_start_is_not_told_to_start() {
    let mut facts = healthy();
    facts.agent = unseen(NotObserved::Absent);
    facts.bus.login =
        Fact::Known(LoginView { locks: Vec::new(), ..known(&mut facts.bus.login).clone() });
    known(&mut facts.bus.service).active_state = "inactive".to_owned();
    let fixes = |facts: &Facts| {
        let found = ["agent", "lock", "unit"].map(|id| finding(facts, id)?.fix_id);
        found.into_iter().flatten().collect::<Vec<_>>()
    };
    assert_eq!(fixes(&facts), [Fix::AgentStopped]);
    facts.config.read = ConfigRead::Invalid(vec!["no".to_owned()]);
    assert_eq!(fixes(&facts), [], "the configuration comes first");
    known(&mut facts.bus.service).active_state = "failed".to_owned();
    assert_eq!(fixes(&facts), []);
    facts.config.read = ConfigRead::Valid(Vec::new());
    assert_eq!(fixes(&facts), [Fix::UnitFailed]);
    for (active, sub) in [("activating", "auto-restart"), ("deactivating", "stop-post")] {
        known(&mut facts.bus.service).active_state = active.to_owned();
        known(&mut facts.bus.service).sub_state = sub.to_owned();
        assert_eq!(fixes(&facts), [], "systemd starts it already: {active}");
    }
}

/// In a container, say. What the bus said is said of the unit.
#[test]
fn no_command_starts_logind_where_no_systemd_runs() {
    let mut facts = healthy();
    facts.bus.login = unseen(NotObserved::Absent);
    facts.bus.is_booted = false;
    let found = finding(&facts, "logind").unwrap();
    assert_eq!((found.severity, found.fix.as_slice()), (Problem, [].as_slice()), "{found:?}");
    assert_eq!(found.evidence, ["systemd does not run this machine"]);
}

#[test]
fn without_logind_the_agents_own_word_counts() {
    for kind in [NotObserved::Absent, NotObserved::Silent, NotObserved::Failed] {
        let mut facts = healthy();
        facts.bus.login = unseen(kind);
        assert_eq!(finding(&facts, "lock").unwrap().severity, Info, "{kind:?}");
        known(&mut facts.agent).lock.state = winddown_control::api::LockState::Waiting;
        known(&mut facts.agent).lock.why = Some("logind left the bus".to_owned());
        let lock = finding(&facts, "lock").unwrap();
        assert_eq!(lock.severity, Problem, "{kind:?}");
        assert!(lock.evidence[0].contains("logind left the bus"), "{lock:?}");
    }
}

#[test]
fn a_delay_that_is_too_short_names_the_file_and_the_command() {
    check(&[
        (
            "vendor's drop-in",
            |f| {
                f.files.setting = set("/usr/lib/systemd/logind.conf.d/zzz.conf", 10);
                known(&mut f.bus.login).delay = secs(10);
            },
            "delay",
            Warning,
            "/usr/lib/systemd/logind.conf.d/zzz.conf: InhibitDelayMaxSec=10s",
            "cp /usr/lib/systemd/logind.conf.d/zzz.conf /etc/systemd/logind.conf.d && sed -i ",
        ),
        (
            "administrator's drop-in",
            |f| {
                f.files.setting = set("/etc/systemd/logind.conf.d/zzz.conf", 10);
                known(&mut f.bus.login).delay = secs(10);
            },
            "delay",
            Warning,
            "sorts after",
            "InhibitDelayMaxSec=32/' /etc/systemd/logind.conf.d/zzz.conf",
        ),
        (
            "not read again",
            |f| known(&mut f.bus.login).delay = secs(5),
            "delay",
            Warning,
            "has not read",
            "systemctl kill -s HUP systemd-logind",
        ),
        (
            "nobody sets it",
            |f| {
                f.files.setting = Fact::Known(None);
                known(&mut f.bus.login).delay = secs(5);
            },
            "delay",
            Warning,
            "no file sets",
            "mkdir -p -m 755 /etc/systemd/logind.conf.d",
        ),
        (
            "none",
            |f| {
                f.files.setting = set("/etc/systemd/logind.conf.d/zzz.conf", 0);
                known(&mut f.bus.login).delay = secs(0);
            },
            "delay",
            Problem,
            "zzz.conf: InhibitDelayMaxSec=0",
            "InhibitDelayMaxSec=32/' /etc/systemd/logind.conf.d/zzz.conf",
        ),
        (
            "ours is short",
            |f| {
                f.files.setting = set("/etc/systemd/logind.conf.d/zz-winddown.conf", 12);
                known(&mut f.bus.login).delay = secs(12);
            },
            "delay",
            Warning,
            "zz-winddown.conf",
            "systemctl restart winddown",
        ),
    ]);
    // The agent's own file beats these: it is only missing.
    for file in [
        "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf",
        "/etc/systemd/logind.conf",
        "/usr/lib/systemd/logind.conf",
        "/etc/systemd/logind.conf.d/99-site.conf",
    ] {
        let mut facts = healthy();
        facts.files.setting = set(file, 10);
        known(&mut facts.bus.login).delay = secs(10);
        let live = finding(&facts, "delay").unwrap();
        assert_eq!(live.fix_id, Some(Fix::DelayNotRaised), "{file}: {live:?}");
        assert!(live.evidence[0].starts_with(file), "{live:?}");
        facts.live = false;
        facts.bus.login = Fact::not_live();
        let image = finding(&facts, "delay").unwrap();
        assert_eq!((image.severity, &*image.fix), (Info, &[][..]), "{file}: {image:?}");
    }
    let mut facts = healthy();
    known(&mut facts.bus.login).delay = winddown_systemd::drop_in::INFINITY;
    let delay = finding(&facts, "delay").unwrap();
    assert_eq!(delay.title, "logind waits an unlimited time, 32s are required");
}

#[test]
fn ways_down_that_go_around_logind_are_told() {
    check(&[
        (
            "systemd 249",
            |f| known(&mut f.bus.system).version = "249.11".into(),
            "paths",
            Info,
            "systemd#22058",
            "",
        ),
        (
            "busybox",
            |f| known(&mut f.files.commands)[0].leads_to = path("/bin/busybox"),
            "paths",
            Info,
            "/usr/sbin/reboot is /bin/busybox",
            "",
        ),
    ]);
    let mut facts = healthy();
    known(&mut facts.bus.system).version = "255.4-1ubuntu8".to_owned();
    let seen = finding(&facts, "paths").unwrap();
    assert_eq!(seen.severity, Well);
    assert!(seen.evidence.iter().any(|line| line.contains("soft-reboot")), "{seen:?}");
    assert!(seen.evidence.iter().any(|line| line.contains("reboot -f")), "{seen:?}");
}

fn last(outcome: &str) -> Fact<ReportList> {
    let last = ReportEntry {
        id: "x".to_owned(),
        outcome: outcome.to_owned(),
        pods: 3,
        graceful: Some(outcome == "clean"),
        ..ReportEntry::default()
    };
    Fact::Known(ReportList { reports: vec![last], problems: Vec::new() })
}
