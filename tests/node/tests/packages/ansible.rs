//! The role for Ansible, played on a node of kubeadm: the pods' grace is there at each moment, and a second run changes
//! nothing.

use std::time::Duration;

use winddown_node_tests::packages::repository;
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::{Flavour, Node, Suite, base_or_skip, programs};

use super::walkthroughs::lay_out;
use super::with_a_kubelet::{
    is_protected_by_companion, keeps_grace, node_of_kubeadm, start_kubelet,
};

const PLAYBOOK: &str = "\
- hosts: all
  gather_facts: false
  roles:
  - role: winddown
    winddown_programs: /root/programs
    winddown_companion: true
    winddown_config:
      reportsKept: 10
";

const PLAY: [&str; 10] = [
    "env",
    "LC_ALL=C.UTF-8",
    "HOME=/root",
    "ansible-playbook",
    "-i",
    "localhost,",
    "-c",
    "local",
    "--diff",
    "/root/site.yaml",
];

#[tokio::test]
async fn the_role_for_ansible_protects_a_node_of_kubeadm_which_keeps_its_grace_meanwhile()
-> TestResult {
    let test = "the_role_for_ansible_protects_a_node_of_kubeadm_which_keeps_its_grace_meanwhile";
    let tools = Suite::Trixie.with(Flavour::Tools);
    let Some(node) = node_of_kubeadm(test, tools).await? else { return Ok(()) };
    node.install_programs(&programs().await?, "/root/programs")?;
    let role = repository().join("programs/packaging/ansible/winddown");
    lay_out(&node, &role, std::path::Path::new("/root/roles/winddown"))?;
    node.write("/root/site.yaml", PLAYBOOK, 0o644)?;
    start_kubelet(&node).await?;

    let played = play_while_watched(&node).await?;
    assert!(played.contains("failed=0") && !played.contains("changed=0"), "{played}");
    is_protected_by_companion(&node).await?;
    assert!(node.read("/etc/winddown/config.yaml")?.contains("reportsKept: 10"), "{played}");
    let again = node.run(&PLAY).await?;
    assert!(again.contains("changed=0") && again.contains("failed=0"), "{again}");
    keeps_grace(&node, "the second run").await?;

    // What takes effect at a restart only, and what the units have to fit.
    let other =
        PLAYBOOK.replace("reportsKept: 10", "reportsKept: 11\n      shutdownGracePeriod: 10m");
    node.write("/root/site.yaml", &other, 0o644)?;
    let played = play_while_watched(&node).await?;
    assert!(played.contains("failed=0"), "{played}");
    let running = node.run(&["winddown", "config", "show", "--running"]).await?;
    assert!(running.contains("reportsKept: 11"), "{running}");
    let stop = node.run(&["systemctl", "show", "-P", "TimeoutStopUSec", "winddown"]).await?;
    assert!(stop.trim().starts_with("10min"), "{stop}");
    let again = node.run(&PLAY).await?;
    assert!(again.contains("changed=0") && again.contains("failed=0"), "{again}");

    writes_the_language_of_the_file(&node).await?;

    let other = PLAYBOOK.replace("reportsKept: 10", "runtime: process");
    node.write("/root/site.yaml", &other, 0o644)?;
    let refused = node.exec(&PLAY, Duration::from_secs(120)).await?.stdout;
    assert!(refused.contains("This would leave the running pods to no agent"), "{refused}");
    Ok(())
}

/// Without a kubelet `winddown_config` is the whole file, and a field that is left out has its default.
#[tokio::test]
async fn the_role_for_ansible_leaves_no_running_pod_to_an_agent_of_another_runtime() -> TestResult {
    let test = "the_role_for_ansible_leaves_no_running_pod_to_an_agent_of_another_runtime";
    let tools = Suite::Trixie.with(Flavour::Tools);
    let Some(base) = base_or_skip(test, tools).await? else { return Ok(()) };
    let node = Node::boot(&base).await?;
    node.install_programs(&programs().await?, "/root/programs")?;
    let role = repository().join("programs/packaging/ansible/winddown");
    lay_out(&node, &role, std::path::Path::new("/root/roles/winddown"))?;
    let alone = PLAYBOOK.replace("    winddown_companion: true\n", "");
    for (config, is_refused) in [
        ("runtime: systemd", false),
        ("reportsKept: 11", true),
        ("runtime: systemd\n      reportsKept: 12", false),
        ("runtime: systemd\n      mode: cluster", true),
    ] {
        node.write("/root/site.yaml", alone.replace("reportsKept: 10", config), 0o644)?;
        let played = node.exec(&PLAY, Duration::from_secs(120)).await?.stdout;
        let refused = played.contains("This would leave the running pods to no agent");
        assert_eq!((refused, played.contains("failed=0")), (is_refused, !is_refused), "{played}");
    }
    // A file that was edited by hand, whose runtime the running agent does not have.
    let file = alone.replace("    winddown_config:\n      reportsKept: 10\n", "");
    node.write("/root/site.yaml", file, 0o644)?;
    node.run(&["sed", "-i", "s/^runtime: systemd/runtime: cri/", "/etc/winddown/config.yaml"])
        .await?;
    let played = node.exec(&PLAY, Duration::from_secs(120)).await?.stdout;
    assert!(played.contains("This would leave the running pods to no agent"), "{played}");
    Ok(())
}

/// The kubelet of EKS has JSON, and a list by priority counts beside periods of 0s.
async fn writes_the_language_of_the_file(node: &Node) -> TestResult {
    let eks =
        repository().join("programs/tests/data/kubelets/eks/etc/kubernetes/kubelet/config.json");
    let of_eks = std::fs::read_to_string(eks)?;
    let by_priority = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: 7\n\
                       shutdownGracePeriodByPodPriority:\n- priority: 0\n  shutdownGracePeriodSeconds: 9\n";
    for (text, is_json) in [(of_eks.as_str(), true), (by_priority, false)] {
        node.write("/root/kubelet", text, 0o600)?;
        let line = "winddown_companion: true\n    winddown_kubelet_config: /root/kubelet";
        let other = PLAYBOOK.replace("winddown_companion: true", line);
        node.write("/root/site.yaml", other, 0o644)?;
        let played = node.exec(&PLAY, Duration::from_secs(120)).await?.stdout;
        assert!(played.contains("failed=0"), "{played}");
        let written = node.read("/root/kubelet")?;
        match serde_json::from_str::<serde_json::Value>(&written) {
            Ok(has) => {
                assert!(is_json, "{written}");
                assert_eq!(has["shutdownGracePeriod"], "0s", "{written}");
                assert_eq!(has["kind"], "KubeletConfiguration", "{written}");
            }
            Err(error) => {
                assert!(!is_json, "{error}: {written}");
                let lines: Vec<_> = written.lines().collect();
                for line in [
                    "shutdownGracePeriod: 0s",
                    "shutdownGracePeriodByPodPriority: []",
                    "maxPods: 7",
                ] {
                    assert!(lines.contains(&line), "{written}");
                }
                assert!(!written.contains("priority:"), "{written}");
            }
        }
        let mode = node.run(&["stat", "-c", "%a", "/root/kubelet"]).await?;
        assert_eq!(mode.trim(), "600");
    }
    node.write("/root/site.yaml", PLAYBOOK, 0o644)?;
    Ok(())
}

/// Plays the role, and looks at the grace of the pods meanwhile.
async fn play_while_watched(node: &Node) -> TestResult<String> {
    let watch = async {
        loop {
            keeps_grace(node, "a task of the role").await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        played = node.exec(&PLAY, Duration::from_secs(120)) => Ok(played?.stdout),
        broken = watch => broken,
    }
}
