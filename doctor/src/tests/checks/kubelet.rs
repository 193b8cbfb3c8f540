//! A node with a kubelet and without winddown.

use super::super::*;
use super::Severity::{Info, Ok as Well, Problem, Warning};

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
    facts.installed = Fact::Known(Installed::default());
    facts.processes = Fact::Known(vec![Process { pid: 9, name: "kubelet".into() }]);
    facts.kubelet = Fact::Known(Some(config));
    known(&mut facts.login).locks = vec![lock("kubelet")];
    facts
}

fn config(facts: &mut Facts) -> &mut KubeletConfig {
    known(&mut facts.kubelet).as_mut().unwrap()
}

#[test]
fn a_node_without_winddown_is_told_how_its_kubelets_shutdown_is_and_not_what_the_agent_lacks() {
    let ids: Vec<_> = findings(&alone()).iter().map(|finding| finding.id).collect();
    assert_eq!(ids, ["kubelet-shutdown", "logind", "paths", "oom"]);
    assert!(findings(&alone()).iter().all(|finding| finding.severity == Well));
    for program in ["kubelite", "k3s-server"] {
        let facts = Facts { processes: process(program), ..alone() };
        assert!(finding(&facts, "kubelet-shutdown").is_some(), "{program} contains a kubelet");
    }
    // With a configuration or a unit of winddown, or without a kubelet, the findings are about the agent.
    for ours in [
        |facts: &mut Facts| facts.config.read = ConfigRead::Valid(Vec::new()),
        |facts: &mut Facts| known(&mut facts.installed).unit = true,
        |facts: &mut Facts| facts.processes = Fact::Known(Vec::new()),
    ] {
        let mut facts = alone();
        ours(&mut facts);
        assert_eq!(finding(&facts, "kubelet-shutdown"), None);
        assert!(finding(&facts, "agent").is_some());
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
            "no shutdownGracePeriod",
            "set shutdownGracePeriod",
        ),
        (
            "logind is impatient",
            |f| known(&mut f.login).delay = secs(5),
            Problem,
            "shutdownGracePeriod: 30s",
            "InhibitDelayMaxSec=30",
        ),
        (
            "logind has its own 5 s",
            |f| {
                known(&mut f.login).delay = secs(5);
                f.setting = Fact::Known(None);
            },
            Problem,
            "no file sets InhibitDelayMaxSec",
            "systemctl restart kubelet",
        ),
        (
            "no lock",
            |f| known(&mut f.login).locks.clear(),
            Problem,
            "logind lists 0 locks",
            "systemctl restart kubelet",
        ),
        ("unreadable", |f| config(f).problem = "bad".into(), Warning, "bad", ""),
        ("not found", |f| f.kubelet = Fact::Known(None), Info, "", ""),
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
