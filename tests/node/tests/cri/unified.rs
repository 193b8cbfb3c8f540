//! Containers on control groups of version 2, with all controllers: containerd 1.7 with systemd 257, and
//! those of Debian's next release.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{Scenario, Setup, TestResult};
use winddown_node_tests::{IMAGE, Need, Suite, TestPod, on_each_release};

/// Starting a process takes some fifteen times as long there as on the host.
const PATIENCE: Duration = Duration::from_secs(240);
/// The limits of every container that is one of a pod, as the node sees them.
const LIMITS: &str = "cd /sys/fs/cgroup && grep -rs . --include=memory.max --include=memory.oom.group --include=cpu.max \
     --include=cpu.weight .";

fn limited(name: &str, script: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"hostNetwork": true, "restartPolicy": "Never", "containers": [{
            "name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", script],
            "resources": {"limits": {"memory": "32Mi", "cpu": "500m"}},
        }]},
    })
    .to_string()
}

async fn pod(scenario: &Scenario, name: &str) -> Value {
    let status = scenario.status().await.unwrap_or_default();
    let pods = status["pods"].as_array().cloned().unwrap_or_default();
    let is_it = |pod: &Value| pod["name"].as_str().is_some_and(|text| text.starts_with(name));
    pods.into_iter().find(is_it).unwrap_or_default()
}

async fn until(scenario: &Scenario, name: &str, phase: &str) -> TestResult<String> {
    let is = async || pod(scenario, name).await["phase"] == phase;
    let what = format!("{name} to be {phase}");
    if let Err(error) = scenario.node.wait_until(&what, PATIENCE, is).await {
        let journal = scenario.node.journal(&["--unit=winddown", "--unit=containerd"]).await?;
        return Err(format!("{error}\n{}\n{journal}", scenario.status().await?).into());
    }
    Ok(pod(scenario, name).await.to_string())
}

/// Removes a pod that runs, and waits until systemd has no slice of it.
async fn leaves_no_slice(scenario: &Scenario, name: &str) -> TestResult {
    let pod = pod(scenario, name).await;
    let uid = pod["uid"].as_str().ok_or("it has a UID")?.replace('-', "_");
    let list = ["systemctl", "list-units", "--all", "--type=slice", "--plain", "--no-legend"];
    let slices = async || scenario.node.run(&list).await;
    let before = slices().await?;
    assert!(before.contains(&format!("pod{uid}.slice")), "{before}");
    scenario.node.run(&["rm", &format!("/etc/winddown/pods/{name}.yaml")]).await?;
    let is_gone = async || slices().await.is_ok_and(|listed| !listed.contains(&uid));
    let waited = scenario.node.wait_until("the pod's slice to be gone", PATIENCE, is_gone).await;
    if let Err(error) = waited {
        let journal = scenario.node.journal(&["--unit=winddown"]).await?;
        return Err(format!("{error}\n{}\n{journal}", slices().await?).into());
    }
    Ok(())
}

on_each_release!(
    since 257, containers_have_their_limits_on_cgroup_v2_and_end_in_order: have_limits_and_end_in_order
);

async fn have_limits_and_end_in_order(test: &str, suite: Suite) -> TestResult {
    let setup =
        Setup { suite, needs: &[Need::Controllers], seconds: [20, 20, 20], ..Setup::default() };
    let pods = [("web", 0), ("queue", 1000), ("agent", 2_000_000_000)];
    let pods = pods.map(|(name, priority)| TestPod::new(name, priority, 300));
    let Some(mut scenario) = Scenario::with_containerd_as(test, pods.into(), &setup).await? else {
        return Ok(());
    };
    let hungry = "exec dd if=/dev/zero of=/dev/null bs=100M count=1";
    for (name, script) in [("bounded", "trap 'exit 0' TERM; sleep 1000 & wait"), ("hungry", hungry)]
    {
        let path = format!("/etc/winddown/pods/{name}.yaml");
        scenario.node.write(&path, limited(name, script), 0o644)?;
    }
    scenario.start().await?;
    let hungry = until(&scenario, "hungry", "Failed").await?;
    // Whether it says OOMKilled is containerd's: its event of that may come after that of the end.
    assert!(hungry.contains("137"), "{hungry}");
    until(&scenario, "bounded", "Running").await?;
    let limits = scenario.node.run(&["sh", "-c", LIMITS]).await?;
    let of_container = limits.lines().filter(|line| line.contains("cri-containerd-"));
    for wanted in ["memory.max:33554432", "memory.oom.group:1", "cpu.max:50000 100000"] {
        assert!(of_container.clone().any(|line| line.ends_with(wanted)), "{wanted}: {limits}");
    }
    let doctor = scenario.node.run(&["sh", "-c", "winddown doctor -o json || true"]).await?;
    let doctor: Value = serde_json::from_str(&doctor)?;
    assert!(matches!(doctor["severity"].as_str(), Some("ok" | "info")), "{doctor:#}");
    leaves_no_slice(&scenario, "bounded").await?;

    scenario.power_off().await?;
    scenario.node.wait_off(PATIENCE).await?;
    // Starting a process takes fifteen times as long there, and containerd starts some for each end.
    let (_, last_exit) = scenario.assert_ended_within(Duration::from_secs(5))?;
    scenario.lock_outlived(last_exit).await?;
    let report = scenario.report_after_next_boot().await?;
    assert_eq!((&report["outcome"], &report["nodeAction"]), (&json!("clean"), &json!("powerOff")));
    Ok(())
}
