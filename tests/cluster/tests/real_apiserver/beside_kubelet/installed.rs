//! Installed by `winddown install --companion` beside a kubelet that ends its pods itself.

use std::time::Duration;

use winddown_node_tests::packages::{Packages, are_here};
use winddown_node_tests::scenario::TestResult;

use super::machine::{Ends, Machine, Wanted};
use super::{DOWN, ends_in_order};

/// Unpacking writes debug programs.
const DPKG: Duration = Duration::from_secs(120);

/// A node whose kubelet ends its pods itself, without winddown.
async fn beside_kubelet(test: &str) -> TestResult<Option<Machine>> {
    let wanted = Wanted { seconds: [40, 30, 30], ..Wanted::by(Ends::Kubelet) };
    Machine::set_with(test, wanted).await
}

/// Installs it as an operator does, and fails unless it says what is to be done next.
async fn install(machine: &Machine, program: &str) -> TestResult {
    let node = &machine.scenario.node;
    let said = node.run(&[program, "install", "--companion"]).await?;
    for words in [
        "the kubelet is kubelet.service, and it terminates pods at a shutdown as well",
        "/var/lib/kubelet/config.yaml",
        "shutdownGracePeriodByPodPriority has 3 groups",
        "systemctl restart kubelet",
        "systemctl enable winddown && systemctl restart winddown",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let config = node.run(&["cat", "/etc/winddown/config.yaml"]).await?;
    for line in ["mode: companion", "kubeconfig: /var/lib/kubelet/kubeconfig", "- priority: 1000"] {
        assert!(config.contains(line), "{line}: {config}");
    }
    let enabled = node.run(&["systemctl", "is-enabled", "winddown"]).await;
    assert!(enabled.is_err(), "two agents would terminate the pods: {enabled:?}");
    Ok(())
}

/// Does what it says is to be done, and fails unless the pods then end in order.
async fn end_pods(mut machine: Machine, test: &str) -> TestResult {
    machine.leave_pods_to_winddown().await?;
    machine.scenario.untouched_pids().await?;
    let asked = machine.scenario.power_off().await?;
    ends_in_order(&mut machine, test, asked, DOWN).await
}

#[tokio::test]
async fn it_installs_itself_beside_the_kubelet_takes_itself_away_and_ends_the_pods() -> TestResult {
    let test = "it_installs_itself_beside_the_kubelet_takes_itself_away_and_ends_the_pods";
    let Some(machine) = beside_kubelet(test).await? else { return Ok(()) };
    let node = &machine.scenario.node;
    install(&machine, "/root/winddown").await?;

    node.run(&["/root/winddown", "uninstall"]).await?;
    let left = "ls -d /etc/winddown /etc/systemd/system/winddown.service || true";
    assert_eq!(node.run(&["sh", "-c", left]).await?, "");
    machine.scenario.untouched_pids().await?;

    install(&machine, "/root/winddown").await?;
    end_pods(machine, test).await
}

#[tokio::test]
async fn a_package_is_set_up_beside_the_kubelet_and_ends_the_pods() -> TestResult {
    let test = "a_package_is_set_up_beside_the_kubelet_and_ends_the_pods";
    if !are_here(test, &[("dpkg-deb", "dpkg"), ("strip", "binutils")])? {
        return Ok(());
    }
    let Some(machine) = beside_kubelet(test).await? else { return Ok(()) };
    let node = &machine.scenario.node;
    let path = "/var/tmp/winddown.deb";
    node.install(&Packages::the_deb().await?, path)?;
    let unpacked = node.exec(&["dpkg", "--install", path], DPKG).await?;
    assert!(unpacked.status.success(), "{unpacked:?}");
    let running = node.run(&["systemctl", "is-active", "winddown"]).await;
    assert!(running.is_err(), "a package starts nothing: {running:?}");

    install(&machine, "winddown").await?;
    let again = node.run(&["winddown", "install", "--companion"]).await?;
    for verb in ["created", "updated", "removed"] {
        assert!(!again.contains(&format!("{verb} ")), "{again}");
    }
    machine.scenario.untouched_pids().await?;
    end_pods(machine, test).await
}
