//! Installed by `winddown install --companion` beside a kubelet that ends its pods itself.

use winddown_node_tests::scenario::TestResult;

use super::machine::{Ends, Machine, Wanted};
use super::{DOWN, ends_in_order};

#[tokio::test]
async fn it_installs_itself_beside_the_kubelet_takes_itself_away_and_ends_the_pods() -> TestResult {
    let test = "it_installs_itself_beside_the_kubelet_takes_itself_away_and_ends_the_pods";
    let wanted = Wanted { seconds: [40, 30, 30], ..Wanted::by(Ends::Kubelet) };
    let Some(machine) = Machine::set_with(test, wanted).await? else { return Ok(()) };
    let node = &machine.scenario.node;
    let install = ["/root/winddown", "install", "--companion"];
    let said = node.run(&install).await?;
    for words in [
        "the kubelet is kubelet.service, and it ends pods at a shutdown as well",
        "/var/lib/kubelet/config.yaml",
        "shutdownGracePeriodByPodPriority has 3 groups",
        "systemctl restart kubelet",
        "systemctl enable --now winddown",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let config = node.run(&["cat", "/etc/winddown/config.yaml"]).await?;
    for line in ["mode: companion", "kubeconfig: /var/lib/kubelet/kubeconfig", "- priority: 1000"] {
        assert!(config.contains(line), "{line}: {config}");
    }
    let enabled = node.run(&["systemctl", "is-enabled", "winddown"]).await;
    assert!(enabled.is_err(), "two agents would end the pods: {enabled:?}");

    node.run(&["/root/winddown", "uninstall"]).await?;
    let left = "ls -d /etc/winddown /etc/systemd/system/winddown.service || true";
    assert_eq!(node.run(&["sh", "-c", left]).await?, "");
    machine.scenario.untouched_pids().await?;

    node.run(&install).await?;
    machine.leave_pods_to_winddown().await?;
    machine.scenario.untouched_pids().await?;
    let asked = machine.scenario.power_off().await?;
    ends_in_order(machine, test, asked, DOWN).await
}
