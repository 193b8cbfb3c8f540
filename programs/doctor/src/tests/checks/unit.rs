//! The systemd unit.

use super::super::*;
use super::Severity::{Info, Ok as Well, Problem, Warning};
use super::check;

#[test]
fn what_is_wrong_with_the_unit_is_found() {
    check(&[
        (
            "not installed",
            |f| known(&mut f.bus.service).load_state = "not-found".into(),
            "unit",
            Problem,
            "",
            "winddown install",
        ),
        (
            "masked",
            |f| known(&mut f.bus.service).load_state = "masked".into(),
            "unit",
            Problem,
            "",
            "systemctl unmask winddown",
        ),
        (
            "broken",
            |f| known(&mut f.bus.service).load_state = "bad-setting".into(),
            "unit",
            Problem,
            "",
            "systemd-analyze verify",
        ),
        (
            "failed",
            |f| known(&mut f.bus.service).active_state = "failed".into(),
            "unit",
            Problem,
            "failed",
            "journalctl -u winddown -e",
        ),
        (
            "runs by hand",
            |f| known(&mut f.bus.service).active_state = "inactive".into(),
            "unit",
            Warning,
            "inactive",
            "systemctl start winddown",
        ),
        (
            "starting",
            |f| known(&mut f.bus.service).active_state = "activating".into(),
            "unit",
            Warning,
            "activating",
            "journalctl -u winddown -e",
        ),
        (
            "fails as it starts",
            |f| {
                known(&mut f.bus.service).active_state = "activating".into();
                known(&mut f.bus.service).sub_state = "auto-restart".into();
                known(&mut f.bus.service).result = "exit-code".into();
            },
            "unit",
            Problem,
            "result: exit-code",
            "journalctl -u winddown -e",
        ),
        (
            "edited",
            |f| known(&mut f.bus.service).need_daemon_reload = true,
            "unit",
            Warning,
            "",
            "systemctl daemon-reload",
        ),
        (
            "no systemd",
            |f| f.bus.service = unseen(NotObserved::Absent),
            "unit",
            Problem,
            "as was said",
            "",
        ),
        ("systemd hangs", |f| f.bus.service = unseen(NotObserved::Silent), "unit", Problem, "", ""),
        (
            "disabled",
            |f| known(&mut f.bus.service).unit_file_state = "disabled".into(),
            "boot",
            Warning,
            "disabled",
            "systemctl enable winddown",
        ),
        (
            "short stop",
            |f| known(&mut f.bus.service).timeout_stop = secs(20),
            "stop-time",
            Warning,
            "TimeoutStopSec=20s",
            "winddown install",
        ),
        (
            "a node that is off before the agent is done",
            |f| f.bus.limit = Fact::Known(Some(secs(45))),
            "stop-time",
            Warning,
            "JobTimeoutSec=45s",
            "JobTimeoutSec=62 below [Unit] of both, in drop-ins; then `systemctl daemon-reload`",
        ),
        (
            "no fd store",
            |f| known(&mut f.bus.service).fd_store_max = 0,
            "crash",
            Warning,
            "FileDescriptorStoreMax=0",
            "systemctl cat winddown",
        ),
        (
            "no restart",
            |f| known(&mut f.bus.service).restart = "no".into(),
            "crash",
            Warning,
            "Restart=no",
            "systemctl cat winddown",
        ),
        (
            "no watchdog",
            |f| known(&mut f.bus.service).watchdog = secs(0),
            "crash",
            Warning,
            "WatchdogSec=0",
            "systemctl cat winddown",
        ),
    ]);
}

#[test]
fn a_unit_that_is_not_active_is_not_said_to_have_no_watchdog() {
    let mut facts = healthy();
    known(&mut facts.bus.service).active_state = "inactive".to_owned();
    known(&mut facts.bus.service).watchdog = secs(0);
    assert_eq!(finding(&facts, "crash").unwrap().severity, Well);
}

#[test]
fn a_stop_time_that_an_operator_wrote_is_not_said_to_be_raised_by_an_installation() {
    let mut facts = healthy();
    known(&mut facts.bus.service).timeout_stop = secs(10);
    let found = finding(&facts, "stop-time").unwrap();
    assert_eq!(found.fix, ["winddown install"]);
    let directory = "/etc/systemd/system/winddown.service.d";
    known(&mut facts.bus.service).drop_ins =
        vec![format!("{directory}/20-stop-time.conf"), format!("{directory}/override.conf")];
    let found = finding(&facts, "stop-time").unwrap();
    assert_eq!((found.fix_id, found.advice.len()), (None, 1));
    assert!(found.advice[0].contains("to 32s where"), "{found:?}");
    assert!(found.advice[0].contains("override.conf"), "{found:?}");
}

#[test]
fn the_order_is_that_of_the_runtime_in_use() {
    check(&[
        (
            "no logind",
            |f| known(&mut f.bus.service).after.retain(|u| u != "systemd-logind.service"),
            "order",
            Problem,
            "not stopped before systemd-logind.service",
            " systemd-logind.service",
        ),
        (
            "no bus",
            |f| known(&mut f.bus.service).after.retain(|u| u != "dbus.service"),
            "order",
            Problem,
            "dbus.service",
            "systemctl",
        ),
        (
            "no runtime",
            |f| known(&mut f.bus.service).after.retain(|u| u != "containerd.service"),
            "order",
            Problem,
            "containerd.service",
            "daemon-reload",
        ),
        (
            "k3s",
            |f| {
                f.config.config.node.container_runtime_endpoint =
                    "unix:///run/k3s/containerd/containerd.sock".into();
            },
            "order",
            Problem,
            "not stopped before k3s.service",
            " k3s.service",
        ),
        (
            "a runtime whose unit is not known",
            |f| f.config.config.node.container_runtime_endpoint = "unix:///run/own/own.sock".into(),
            "order",
            Info,
            "unix:///run/own/own.sock",
            "After=",
        ),
    ]);
    let title = |facts: &Facts| finding(facts, "order").unwrap().title;
    let mut facts = healthy();
    facts.kubelet.config = kubelet("");
    beside_kubelet(&mut facts);
    assert_eq!(
        title(&facts),
        "the agent stops before logind, the bus, the kubelet and the runtime"
    );
    known(&mut facts.bus.service).after.retain(|unit| unit != "kubelet.service");
    let found = finding(&facts, "order").unwrap();
    assert_eq!(found.severity, Problem, "the kubelet would be gone before its pods");
    assert_eq!(found.evidence, ["winddown.service is not stopped before kubelet.service"]);
    // The file may be there from an earlier fix, which this one must not undo.
    assert!(found.fix[0].contains("containerd.service kubelet.service"), "{found:?}");
    // The agent would wait for what its own unit names.
    assert!(found.fix[0].contains("/winddown-order.target.d/50-order.conf"), "{found:?}");
    known(&mut facts.agent).cluster = None;
    assert_eq!(title(&facts), "the agent stops before logind, the bus and the runtime");
    for instead in ["dbus-broker.service", "dbus.socket"] {
        let mut facts = healthy();
        known(&mut facts.bus.service).after[0] = instead.to_owned();
        assert_eq!(finding(&facts, "order").unwrap().severity, Well, "{instead}");
    }
    let mut facts = healthy();
    facts.config.config.node.runtime = RuntimeKind::Process;
    known(&mut facts.bus.service).after.retain(|unit| unit != "containerd.service");
    known(&mut facts.bus.service).kill_mode = "process".to_owned();
    let worst = findings(&facts).into_iter().map(|found| found.severity).max();
    assert_eq!(worst, Some(Well), "the process runtime needs no containerd");
    known(&mut facts.bus.service).kill_mode = "mixed".to_owned();
    let crash = finding(&facts, "crash").unwrap();
    assert_eq!(crash.severity, Problem, "{crash:?}");
    assert!(crash.fix[0].contains("--runtime process"), "{crash:?}");
    // The drop-in of the installation is there: what overrides it, no installation changes.
    for other in ["winddown.service.d/override.conf", "service.d/10-all.conf"] {
        let ours = "/etc/systemd/system/winddown.service.d/10-process-runtime.conf".to_owned();
        let other = format!("/etc/systemd/system/{other}");
        known(&mut facts.bus.service).drop_ins = vec![ours, other.clone()];
        let crash = finding(&facts, "crash").unwrap();
        assert_eq!((crash.severity, crash.fix_id), (Problem, None), "{crash:?}");
        assert!(crash.advice[0].contains(&other), "{crash:?}");
    }
}

/// From the change of the file until their drain and a restart, the pods are still the children of an agent whose unit may
/// kill them.
#[test]
fn a_restart_that_kills_the_pods_of_the_runtime_before_a_changed_one_is_found() {
    let mut facts = healthy();
    known(&mut facts.agent).runtime.name = "process".to_owned();
    facts.config.config.node.runtime = RuntimeKind::Systemd;
    known(&mut facts.bus.service).kill_mode = "mixed".to_owned();
    let crash = finding(&facts, "crash").unwrap();
    assert_eq!((crash.severity, crash.fix_id), (Problem, None), "{crash:?}");
    let line = "`winddown drain`, `systemctl restart winddown`, `winddown undrain`";
    assert_eq!(crash.advice, [line]);
    facts.beyond.unenforced = Fact::Known(vec!["memory: not there".to_owned()]);
    assert_eq!(finding(&facts, "limits").unwrap().severity, Warning);
    known(&mut facts.agent).runtime.name = "systemd".to_owned();
    assert_eq!(finding(&facts, "crash").unwrap().severity, Well);
}

/// As a package has it until `winddown install` was run.
#[test]
fn a_unit_that_is_still_set_up_for_processes_is_found() {
    let mut facts = healthy();
    let ours = "/usr/lib/systemd/system/winddown.service.d/10-process-runtime.conf".to_owned();
    known(&mut facts.bus.service).drop_ins = vec![ours];
    known(&mut facts.bus.service).kill_mode = "process".to_owned();
    let found = finding(&facts, "crash").unwrap();
    assert_eq!(found.severity, Info, "{found:?}");
    assert!(found.advice[0].starts_with("`winddown install`"), "{found:?}");
    facts.config.config.node.runtime = RuntimeKind::Process;
    assert_eq!(finding(&facts, "crash").unwrap().severity, Well);
}

/// k3s and RKE2 have their sockets in the same place.
#[test]
fn a_runtime_whose_socket_is_two_distributions_is_that_of_the_unit_that_is_there() {
    let mut facts = healthy();
    facts.config.config.node.container_runtime_endpoint =
        "unix:///run/k3s/containerd/containerd.sock".into();
    facts.runtime.endpoint = unseen(NotObserved::Silent);
    let said = |facts: &Facts| finding(facts, "runtime").unwrap().advice;
    for unit in ["rke2-agent.service", "k3s.service"] {
        known(&mut facts.files.installed).runtime_units = vec![unit];
        assert_eq!(said(&facts), [format!("it hangs: `systemctl restart {unit}`")]);
        let order = finding(&facts, "order").unwrap();
        assert_eq!(order.evidence, [format!("winddown.service is not stopped before {unit}")]);
    }
    known(&mut facts.files.installed).runtime_units.clear();
    assert_eq!(said(&facts), ["it hangs: restart what listens there"]);
}

/// `install` puts this target on a node as it is.
#[test]
fn the_agent_is_stopped_before_every_unit_that_may_run_a_container_runtime() {
    let target = include_str!("../../../../../systemd/units/winddown-order.target");
    let named: Vec<&str> = target
        .lines()
        .filter_map(|line| line.strip_prefix("After="))
        .flat_map(str::split_whitespace)
        .collect();
    for unit in crate::facts::RUNTIME_UNITS.iter().flat_map(|(_, units)| *units) {
        assert!(named.contains(unit), "{unit}: {named:?}");
    }
}

#[test]
fn paths_that_the_units_sandbox_keeps_from_the_agent_are_found() {
    fn keep(facts: &mut Facts, field: &'static str, path: &str, hidden: bool) {
        facts.beyond.out_of_reach =
            Fact::Known(vec![OutOfReach { field, kubeconfig: None, path: path.into(), hidden }]);
    }
    fn named(facts: &mut Facts, field: &'static str, path: &str) {
        keep(facts, field, path, true);
        known(&mut facts.beyond.out_of_reach)[0].kubeconfig = Some("/var/lib/kubeconfig".into());
    }
    check(&[
        (
            "a state directory that the unit does not open",
            |f| keep(f, "stateDirectory", "/data/winddown", false),
            "sandbox",
            Problem,
            "config.yaml: stateDirectory: winddown.service may not write to /data/winddown",
            "ReadWritePaths=/data/winddown",
        ),
        (
            "a socket in another directory of /run",
            |f| keep(f, "controlSocket", "/run/own", false),
            "sandbox",
            Problem,
            "may not write to /run/own",
            "write another path below /run/winddown for controlSocket",
        ),
        (
            "a kubeconfig of root's home",
            |f| keep(f, "kubeconfig", "/root/.kube/config", true),
            "sandbox",
            Problem,
            "kubeconfig: winddown.service does not see /root/.kube/config",
            "write another path for kubeconfig in /etc/winddown/config.yaml",
        ),
        (
            "a credential command below /home",
            |f| named(f, "users.exec.command", "/home/k/login"),
            "sandbox",
            Problem,
            "/var/lib/kubeconfig: users.exec.command: winddown.service does not see /home/k/login",
            "write ProtectHome=read-only below [Service] in `systemctl edit winddown`",
        ),
        (
            "a token in /tmp",
            |f| named(f, "users.tokenFile", "/tmp/token"),
            "sandbox",
            Problem,
            "users.tokenFile: winddown.service does not see /tmp/token",
            "write PrivateTmp=no below [Service] in `systemctl edit winddown`",
        ),
    ]);
    // What an earlier fix has opened stays open.
    let mut facts = healthy();
    facts.config.config.access.state_directory = "/data/winddown".into();
    facts.config.config.access.pod_logs_dir = "/data/logs".into();
    keep(&mut facts, "podLogsDir", "/data/logs", false);
    let found = finding(&facts, "sandbox").unwrap();
    assert!(found.fix[0].ends_with(" /data/winddown /data/logs"), "{found:?}");
    assert!(found.fix[1].contains("ReadWritePaths=/data/winddown /data/logs\\n"), "{found:?}");
    let mut facts = healthy();
    keep(&mut facts, "stateDirectory", "/data/winddown", false);
    assert_eq!(finding(&facts, "state"), None, "this command may write it, the agent may not");
}
