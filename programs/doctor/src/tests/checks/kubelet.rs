//! A node with a kubelet: without winddown, with an agent that is its companion, and with one that is not.

use winddown_control::api::{PodStatus, ProtectionReason as Why, ProtectionState};
use winddown_node::KubeletPresence;
use winddown_render::View;

use super::super::*;
use super::Severity::{Info, Ok as Well, Problem, Warning};
use crate::facts::KubeletOnDisk;

/// The kubelet wants 30 s, logind waits 37 s, and the kubelet holds its lock.
fn alone() -> Facts {
    let config = KubeletConfig {
        place: "/var/lib/kubelet/config.yaml:12".into(),
        file: "/var/lib/kubelet/config.yaml".into(),
        unit: "kubelet".into(),
        enabled: "shutdownGracePeriod: 30s".into(),
        wanted: secs(30),
        ..KubeletConfig::default()
    };
    let mut facts = healthy();
    facts.agent = unseen(NotObserved::Absent);
    facts.config.read = ConfigRead::Defaults;
    facts.files.installed = Fact::Known(Installed::default());
    facts.kubelet.processes = Fact::Known(vec![KubeletProcess { pid: 9, name: "kubelet".into() }]);
    facts.kubelet.config = Fact::Known(Some(config));
    known(&mut facts.bus.login).locks = vec![lock("kubelet")];
    facts
}

fn config(facts: &mut Facts) -> &mut KubeletConfig {
    known(&mut facts.kubelet.config).as_mut().unwrap()
}

fn is_away(facts: &mut Facts) {
    facts.kubelet.processes = Fact::Known(Vec::new());
    known(&mut facts.bus.login).locks.clear();
}

/// A node whose agent is the companion of a kubelet that leaves its pods alone.
fn companion() -> Facts {
    let mut facts = healthy();
    beside_kubelet(&mut facts);
    facts.kubelet.processes = process("kubelet");
    facts.kubelet.config = kubelet("");
    facts
}

/// The kubelet's own is off, the agent is gone, and its configuration says nothing: no word of that was in the text.
#[test]
fn with_a_wrong_configuration_and_without_agent_and_lock_the_verdict_is_known() {
    let mut facts = companion();
    facts.config.config = Config::default();
    facts.config.read = ConfigRead::Invalid(vec!["no".to_owned()]);
    facts.agent = unseen(NotObserved::Absent);
    known(&mut facts.bus.service).active_state = "failed".to_owned();
    known(&mut facts.bus.login).locks.retain(|lock| lock.who != "winddown");
    assert_eq!(facts.protection().state, ProtectionState::Unprotected);
    let text = crate::render(&diagnose(&facts), &View::default());
    assert!(text.contains("NOT PROTECTED: no agent answers"), "{text}");
    assert_eq!(finding(&facts, "paths").unwrap().title, "no shutdown terminates the pods in order");
    let unit = finding(&facts, "unit").unwrap();
    assert!(unit.why.starts_with("systemd does not start the agent again"), "{unit:?}");

    let mut facts = companion();
    facts.config.read = ConfigRead::Invalid(vec!["no".to_owned()]);
    let text = crate::render(&diagnose(&facts), &View::default());
    assert!(text.contains("whether the kubelet's pods are protected is not known"), "{text}");
    assert_eq!(finding(&facts, "paths").unwrap().severity, Info);
}

#[test]
fn a_kubelets_node_without_its_own_shutdown_is_shown_the_way_to_a_companion() {
    let mut facts = alone();
    config(&mut facts).enabled = String::new();
    config(&mut facts).wanted = Duration::ZERO;
    known(&mut facts.bus.login).locks.clear();
    let found = finding(&facts, "kubelet-shutdown").unwrap();
    assert!(found.advice[0].starts_with("`winddown install --companion`, or set "), "{found:?}");
    assert!(!found.why.contains("cannot delay"), "it is switched off: {found:?}");
}

#[test]
fn a_node_without_winddown_is_told_how_its_kubelets_shutdown_is_and_not_what_the_agent_lacks() {
    let ids: Vec<_> = findings(&alone()).iter().map(|finding| finding.id).collect();
    assert_eq!(ids, ["kubelet-shutdown", "logind", "paths", "oom"]);
    let paths = finding(&alone(), "paths").unwrap();
    assert_eq!(paths.severity, Info, "a kubelet ends nothing on ways past logind");
    assert!(paths.evidence[1].starts_with("kills the pods"), "{paths:?}");
    let others = findings(&alone()).into_iter().filter(|finding| finding.id != "paths");
    assert!(others.into_iter().all(|finding| finding.severity == Well));
    for program in ["kubelite", "k3s-server"] {
        let mut facts = alone();
        facts.kubelet.processes = process(program);
        assert!(finding(&facts, "kubelet-shutdown").is_some(), "{program} contains a kubelet");
    }
    // With a configuration or a unit of winddown, or without a kubelet, the findings are about the agent.
    for ours in [
        |facts: &mut Facts| facts.config.read = ConfigRead::Valid(Vec::new()),
        |facts: &mut Facts| known(&mut facts.files.installed).unit = true,
        is_away,
    ] {
        let mut facts = alone();
        ours(&mut facts);
        assert_eq!(finding(&facts, "kubelet-shutdown"), None);
        assert!(finding(&facts, "agent").is_some());
    }
}

/// A package starts and enables nothing, and brings a configuration with the defaults.
#[test]
fn an_agent_that_neither_runs_nor_is_enabled_says_nothing_against_its_kubelet() {
    let packaged = || {
        let mut facts = alone();
        facts.config.read = ConfigRead::Valid(Vec::new());
        known(&mut facts.files.installed).unit = true;
        known(&mut facts.bus.service).active_state = "inactive".to_owned();
        facts
    };
    let verdict = packaged().protection();
    assert_eq!(verdict.state, ProtectionState::Protected, "{verdict:?}");
    let found = finding(&packaged(), "kubelet-shutdown").unwrap();
    assert!(found.evidence.contains(&"winddown.service neither runs nor is enabled".to_owned()));
    type Used = (&'static str, fn(&mut Facts));
    let used: [Used; 6] = [
        ("enabled", |f| known(&mut f.files.installed).enabled = true),
        ("started again and again", |f| {
            known(&mut f.bus.service).active_state = "activating".to_owned();
        }),
        ("failed", |f| known(&mut f.bus.service).active_state = "failed".to_owned()),
        ("it is not known whether it runs", |f| f.bus.service = unseen(NotObserved::Silent)),
        ("set up as the companion", |f| f.config.config.node.mode = Mode::Companion),
        ("runs", |f| f.agent = Fact::Known(status())),
    ];
    for (how, used) in used {
        let mut facts = packaged();
        used(&mut facts);
        assert_eq!(finding(&facts, "kubelet-shutdown"), None, "{how}");
    }
}

#[test]
fn a_kubelet_that_does_not_protect_its_pods_is_found_with_the_cure() {
    type Case = (&'static str, fn(&mut Facts), Severity, &'static str, &'static str);
    let cases: [Case; 6] = [
        (
            "off",
            |f| config(f).enabled.clear(),
            Problem,
            "no shutdownGracePeriod above 0s",
            "set shutdownGracePeriod",
        ),
        (
            "logind is impatient",
            |f| known(&mut f.bus.login).delay = secs(5),
            Problem,
            "shutdownGracePeriod: 30s",
            "InhibitDelayMaxSec=30",
        ),
        (
            "logind has its own 5 s",
            |f| {
                known(&mut f.bus.login).delay = secs(5);
                f.files.setting = Fact::Known(None);
            },
            Problem,
            "no file sets InhibitDelayMaxSec",
            "systemctl restart kubelet",
        ),
        (
            "no lock",
            |f| known(&mut f.bus.login).locks.clear(),
            Problem,
            "logind lists 0 locks",
            "systemctl restart kubelet",
        ),
        ("unreadable", |f| config(f).problem = "bad".into(), Warning, "bad", ""),
        ("not found", |f| f.kubelet.config = Fact::Known(None), Warning, "process 9: kubelet", ""),
    ];
    for (what, break_it, severity, evidence, fix) in cases {
        let mut facts = alone();
        break_it(&mut facts);
        let found = finding(&facts, "kubelet-shutdown").unwrap();
        assert_eq!(found.severity, severity, "{what}: {found:?}");
        assert!(found.evidence.join("\n").contains(evidence), "{what}: {found:?}");
        assert!(super::says(&found, fix), "{what}: {found:?}");
    }
}

#[test]
fn a_kubelet_whose_configuration_is_not_found_is_not_called_well() {
    let mut facts = alone();
    facts.kubelet.config = Fact::Known(None);
    let diagnosis = diagnose(&facts);
    assert_eq!(diagnosis.severity, Warning);
    let verdict = diagnosis.protection.as_ref().unwrap();
    assert_eq!(verdict.state, ProtectionState::Unknown, "{verdict:?}");
    let text = render(&diagnosis, &View::default());
    assert!(!text.contains("all well") && text.contains("is not known"), "{text}");
}

#[test]
fn an_image_with_a_kubelet_and_without_winddown_is_told_how_the_kubelets_shutdown_is() {
    let unit = Fact::Known(Some("kubelet.service".to_owned()));
    let mut image = alone();
    image.live = false;
    image.root = "/image".into();
    image.agent = Fact::not_live();
    image.bus.login = Fact::not_live();
    image.bus.system = Fact::not_live();
    image.bus.service = Fact::not_live();
    image.kubelet.processes = Fact::not_live();
    image.kubelet.unit = unit;
    image.runtime.killers = Fact::not_live();
    image.files.setting = Fact::Known(None);
    let found = findings(&image);
    assert_eq!(found.iter().map(|found| found.id).collect::<Vec<_>>(), ["kubelet-shutdown"]);
    assert_eq!((found[0].severity, found[0].fix.len()), (Info, 0), "{found:?}");

    let mut off = image.clone();
    config(&mut off).enabled.clear();
    let found = finding(&off, "kubelet-shutdown").unwrap();
    assert_eq!(found.severity, Problem, "{found:?}");
    let edit = "`winddown install --root /image --companion`, or set shutdownGracePeriod and shutdownGracePeriodCriticalPods in \
                /image/var/lib/kubelet/config.yaml";
    assert_eq!(found.advice, [edit], "nothing is restarted in an image");

    // The kubelet's own file raises the delay, unless another one sorts after it.
    for (file, severity) in [
        ("logind.conf.d/10-site.conf", Info),
        ("logind.conf.d/zz-site.conf", Problem),
        ("logind.conf", Info),
    ] {
        let mut set_by = image.clone();
        set_by.files.setting = set(&format!("/etc/systemd/{file}"), 5);
        let found = finding(&set_by, "kubelet-shutdown").unwrap();
        assert_eq!(found.severity, severity, "{file}: {found:?}");
    }
    let mut unread = image.clone();
    unread.kubelet.config = Fact::Known(None);
    assert_eq!(finding(&unread, "kubelet-shutdown").unwrap().severity, Warning);
    let mut none = image;
    none.kubelet.unit = Fact::Known(None);
    assert_eq!(finding(&none, "kubelet-shutdown"), None);
    assert_eq!(finding(&none, "unit").unwrap().severity, Problem);
}

#[test]
fn a_kubelet_beside_an_agent_with_pods_of_its_own_is_a_problem_that_a_companion_solves() {
    type Change = fn(&mut Facts);
    let kubelets: [(&str, Change); 6] = [
        ("runs, with graceful shutdown", |f| {
            f.kubelet.config = kubelet("shutdownGracePeriod: 30s");
        }),
        ("runs, without", |f| f.kubelet.config = kubelet("")),
        ("runs, its configuration is not understood", |f| {
            f.kubelet.config = kubelet("");
            config(f).problem = "no YAML".to_owned();
        }),
        ("runs, its configuration is not found", |f| f.kubelet.config = Fact::Known(None)),
        ("holds a lock", |f| known(&mut f.bus.login).locks.push(lock("kubelet"))),
        ("is enabled", |f| {
            f.kubelet.processes = Fact::Known(Vec::new());
            f.kubelet.unit = Fact::Known(Some("kubelet.service".to_owned()));
        }),
    ];
    for mode in [Mode::Standalone, Mode::Cluster] {
        for runtime in [RuntimeKind::Process, RuntimeKind::Systemd, RuntimeKind::Cri] {
            for (what, change) in kubelets {
                let mut facts = healthy();
                facts.kubelet.processes = process("kubelet");
                facts.config.config.node.mode = mode;
                facts.config.config.node.runtime = runtime;
                change(&mut facts);
                let found = finding(&facts, "kubelet").unwrap();
                assert_eq!(found.severity, Problem, "{mode:?} {runtime:?}, {what}: {found:?}");
                assert!(!found.evidence.is_empty(), "{what}: {found:?}");
                let fix = found.fix.join("\n");
                let is_unread = what.contains("not understood");
                let told = if is_unread { found.advice.join("\n") } else { fix.clone() };
                assert!(told.contains("winddown install --companion"), "{what}: {told}");
                // What the command would need, it would not find.
                assert_eq!(found.fix.is_empty(), is_unread, "{what}: {fix}");
                for switches_off in ["sed", "0s", "restart kubelet", "shutdownGracePeriod"] {
                    assert!(!fix.contains(switches_off), "{what}: {fix}");
                }
                let text = render(&diagnose(&facts), &View::default());
                assert!(text.contains("\nNOT PROTECTED: a kubelet"), "{what}: {text}");
                assert!(!text.contains("every orderly way down"), "{what}: {text}");
            }
        }
    }
}

/// `systemctl enable --now` does nothing to an agent that was started before the configuration was written.
#[test]
fn an_agent_that_runs_in_another_mode_than_the_file_says_is_judged_by_what_it_is() {
    let mut facts = companion();
    known(&mut facts.agent).cluster = None;
    let verdict = facts.protection();
    assert_eq!((verdict.state, verdict.reason), (ProtectionState::Unprotected, Why::NotACompanion));
    let fix = |facts: &Facts| finding(facts, "kubelet").unwrap().fix;
    let restart = "systemctl restart winddown";
    assert_eq!(fix(&facts), [restart], "the configuration is as it has to be");
    known(&mut facts.agent).pods.push(PodStatus::default());
    assert_eq!(fix(&facts), ["winddown drain", restart, "winddown undrain"]);

    // The other way round a restart takes the companion away.
    let mut facts = companion();
    facts.config.config.node.mode = Mode::Standalone;
    known(&mut facts.agent).config.at_restart = vec!["mode".to_owned()];
    assert_eq!(facts.protection().state, ProtectionState::Protected);
    let found = finding(&facts, "config").unwrap();
    assert_eq!((found.severity, &*found.fix), (Problem, &[] as &[String]), "{found:?}");
    assert!(found.advice[0].starts_with("write `mode: companion` back into "), "{found:?}");
}

/// The periods of such a kubelet are as they should be, and count for nothing.
#[test]
fn a_kubelet_whose_feature_gate_is_off_is_told_to_remove_the_gate() {
    let mut facts = alone();
    config(&mut facts).enabled.clear();
    config(&mut facts).gate = "GracefulNodeShutdown: false from featureGates in /g.yaml".into();
    let found = finding(&facts, "kubelet-shutdown").unwrap();
    assert!(found.evidence[0].contains("GracefulNodeShutdown: false"), "{found:?}");
    let advice = "`winddown install --companion`, or remove GracefulNodeShutdown: false from featureGates in /g.yaml, then: \
                  `systemctl restart kubelet`";
    assert_eq!(found.advice, [advice]);
}

/// An installation replaces no file but a default to the letter: one that says the same in other words stops it.
#[test]
fn the_way_to_a_companion_keeps_the_configuration_and_ends_the_pods_that_the_agent_has() {
    let mut facts = healthy();
    facts.kubelet.processes = process("kubelet");
    let fix = |facts: &Facts| finding(facts, "kubelet").unwrap().fix;
    let (install, restart) = ("winddown install --companion", "systemctl restart winddown");
    let aside = "mv /etc/winddown/config.yaml /etc/winddown/config.yaml.standalone";
    assert_eq!(fix(&facts), [aside, install, restart]);
    facts.config.read = ConfigRead::Defaults;
    assert_eq!(fix(&facts), [install, restart], "there is no file");
    known(&mut facts.agent).pods.push(PodStatus::default());
    facts.config.read = ConfigRead::Valid(Vec::new());
    facts.config.config.node.max_pods = 7;
    assert_eq!(fix(&facts), [aside, install, "winddown drain", restart, "winddown undrain"]);
}

#[test]
fn only_of_a_kubelet_whose_configuration_was_read_it_is_said_that_it_leaves_its_pods_alone() {
    let mut facts = healthy();
    beside_kubelet(&mut facts);
    facts.kubelet.processes = process("kubelet");
    for kind in [NotObserved::Denied, NotObserved::Silent] {
        facts.kubelet.config = unseen(kind);
        assert_eq!(finding(&facts, "kubelet").unwrap().severity, Info, "{kind:?}");
    }
    facts.kubelet.config = kubelet("");
    known(&mut facts.kubelet.config).as_mut().unwrap().problem = "no YAML".to_owned();
    assert_eq!(finding(&facts, "kubelet").unwrap().severity, Info);
}

#[test]
fn a_kubelet_that_is_switched_off_but_was_not_restarted_is_restarted_and_no_more() {
    let mut facts = healthy();
    beside_kubelet(&mut facts);
    facts.kubelet.processes = process("k3s-server");
    facts.kubelet.config = kubelet("");
    known(&mut facts.kubelet.config).as_mut().unwrap().unit = "k3s".to_owned();
    known(&mut facts.bus.login).locks.push(lock("kubelet"));
    let found = finding(&facts, "kubelet").unwrap();
    assert_eq!((found.severity, found.fix), (Problem, vec!["systemctl restart k3s".to_owned()]));
    is_away(&mut facts);
    let found = finding(&facts, "kubelet").unwrap();
    assert_eq!(found.fix[0], "systemctl start k3s");
    assert!(found.why.starts_with("without a kubelet"), "{found:?}");
}

/// Nobody can say what podman or a script of root's started: not that no kubelet runs either.
#[test]
fn a_process_that_may_be_the_kubelet_is_not_taken_for_none() {
    use std::fs;
    let root = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| {
        let file = root.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let own = rustix::process::geteuid();
    put("run/systemd/system/x.conf", "");
    put("proc/1/comm", "systemd\n");
    put("etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/podman run kubelet\n");
    put("etc/systemd/system/multi-user.target.wants/kubelet.service", "");
    let presence = || {
        let mut facts = companion();
        facts.kubelet = KubeletOnDisk::look(root.path(), true, &Config::default());
        facts.protection_facts().kubelet.presence
    };
    assert_eq!(presence(), Some(KubeletPresence::Enabled));
    put("proc/9/comm", "kubelet\n");
    put("proc/9/status", &format!("Uid:\t{own}\t{own}\t{own}\t{own}\n"));
    put("proc/9/cgroup", "0::/machine.slice/libpod-a.scope\n");
    assert_eq!(presence(), Some(KubeletPresence::Runs));
    let link = root.path().join("etc/systemd/system/multi-user.target.wants/kubelet.service");
    fs::rename(&link, root.path().join("link")).unwrap();
    assert_eq!(presence(), None, "nothing says that it is one");
    fs::rename(root.path().join("link"), &link).unwrap();
    put("proc/9/cgroup", "0::/user.slice/user-0.slice/session-1.scope\n");
    assert_eq!(presence(), Some(KubeletPresence::Enabled), "who tries one out is known");
}

#[test]
fn the_fix_for_a_kubelet_whose_periods_are_no_lines_of_their_own_is_in_words() {
    let mut facts = companion();
    facts.kubelet.config = kubelet("shutdownGracePeriod: 30s");
    let config = known(&mut facts.kubelet.config).as_mut().unwrap();
    config.is_plain = false;
    config.lines = vec!["\"shutdownGracePeriod\": \"0s\"".to_owned()];
    let found = finding(&facts, "kubelet").unwrap();
    let words = "set these fields in /var/lib/kubelet/config.yaml: \"shutdownGracePeriod\": \"0s\", \
                 then: `systemctl restart kubelet`";
    assert_eq!(found.advice, [words]);
}

/// A command would change the file until its distribution writes it again, or puts the node out of service for it.
#[test]
fn a_file_that_a_distribution_writes_again_is_changed_by_no_command() {
    const AGAIN: &str = "the operator writes it: make the change there";
    let mut facts = companion();
    facts.kubelet.config = kubelet("shutdownGracePeriod: 30s");
    config(&mut facts).rewritten = AGAIN;
    let found = finding(&facts, "kubelet").unwrap();
    assert_eq!((found.fix_id, &*found.fix), (None, &[] as &[String]));
    assert!(found.advice[0].ends_with(&format!("{AGAIN}, then: `systemctl restart kubelet`")));

    let mut facts = alone();
    config(&mut facts).enabled.clear();
    config(&mut facts).rewritten = AGAIN;
    let found = finding(&facts, "kubelet-shutdown").unwrap();
    assert!(found.advice[0].contains(&format!("; {AGAIN}")), "{found:?}");
}

/// The name, the runtime and the directory were taken once from a kubelet that has got others since.
#[test]
fn a_configuration_for_another_kubelet_is_a_problem_with_its_fix() {
    let mut facts = companion();
    facts.kubelet.differences = vec![
        difference("nodeName", "node1", "node2"),
        difference("kubeletRootDir", "/var/lib/kubelet", "/data/kube let"),
    ];
    let found = finding(&facts, "kubelet").unwrap();
    assert_eq!(found.severity, Problem);
    assert!(
        found
            .evidence
            .contains(&"nodeName: it says node1, by the kubelet it would be node2".into())
    );
    let edit = "sed -i -e '/^nodeName:/d' -e '/^kubeletRootDir:/d' -e '$a\\' /etc/winddown/config.yaml && \
                printf '%s\\n' 'nodeName: node2' 'kubeletRootDir: \"/data/kube let\"' >>/etc/winddown/config.yaml";
    assert_eq!(found.fix, [edit, "systemctl restart winddown"]);
    let verdict = facts.protection();
    assert_eq!(
        (verdict.state, verdict.reason),
        (ProtectionState::Unprotected, Why::AnotherKubelet)
    );

    facts.config.has_lines = false;
    let found = finding(&facts, "kubelet").unwrap();
    assert_eq!((found.fix_id, found.advice.len()), (None, 1), "{found:?}");
}

#[test]
fn a_running_kubelet_is_compared_with_the_configuration_that_was_once_taken_from_it() {
    let root = tempfile::tempdir().unwrap();
    let put = |file: &str, text: &str| {
        let file = root.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    let own = rustix::process::geteuid();
    put("proc/9/comm", "kubelet\n");
    put("proc/9/status", &format!("Uid:\t{own}\t{own}\t{own}\t{own}\n"));
    put("proc/9/cgroup", "0::/system.slice/kubelet.service\n");
    put("etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n");
    put("run/crio/crio.sock", "");
    std::os::unix::fs::symlink("run", root.path().join("varrun")).unwrap();
    let mut ours = Config::default();
    ours.node.mode = Mode::Companion;
    ours.node.name = Some("node1".to_owned());
    ours.node.container_runtime_endpoint = "unix:///run/crio/crio.sock".to_owned();
    let differences = |options: &str| {
        put("proc/9/cmdline", &format!("/usr/bin/kubelet {options}").replace(' ', "\0"));
        KubeletOnDisk::look(root.path(), true, &ours).differences
    };
    let crio = "--container-runtime-endpoint=/varrun/crio/crio.sock";
    assert_eq!(
        differences(&format!("--hostname-override=Node1 --root-dir=/var/lib/kubelet/ {crio}")),
        []
    );
    // An agent with a root of its own has that before its paths.
    let rooted = ours.clone().rooted(root.path());
    assert_eq!(KubeletOnDisk::look(root.path(), true, &rooted).differences, []);
    let all = differences("--hostname-override=node2 --root-dir=/data --config=/c.yaml");
    let fields: Vec<_> = all.iter().map(|one| (one.field, &*one.kubelets)).collect();
    // Its configuration cannot be read, which may name another runtime.
    assert_eq!(fields, [("nodeName", "node2"), ("kubeletRootDir", "/data")]);
    let all = differences("--hostname-override=node1");
    let wanted = "unix:///run/containerd/containerd.sock";
    assert_eq!(all, [difference("containerRuntimeEndpoint", "unix:///run/crio/crio.sock", wanted)]);
}
