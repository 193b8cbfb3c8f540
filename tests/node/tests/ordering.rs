//! Who stops before whom when the machine goes down and logind is not asked: systemd then stops
//! all units at once, save for what is ordered.
//!
//! With logind's announcement the pods are gone before systemd stops anything, so it is the way
//! past logind (`systemctl start poweroff.target`) that shows the order.

use std::time::Duration;

use winddown_node_tests::scenario::{SOON, Scenario, TestResult, seven_pods};
use winddown_node_tests::{JournalEntry, SYSTEMD_CGROUPS, TestPod, read_pod_log};

const DROP_IN: &str = include_str!("../../../systemd/units/scope.d/50-winddown.conf");
const GO: [&str; 4] = ["systemctl", "start", "--no-block", "poweroff.target"];

#[tokio::test]
async fn containers_in_scopes_of_systemd_and_their_runtime_stop_after_the_agent() -> TestResult {
    let test = "containers_in_scopes_of_systemd_and_their_runtime_stop_after_the_agent";
    let Some(mut scenario) = Scenario::with_containerd(test, seven_pods()).await? else {
        return Ok(());
    };
    let file = "/etc/containerd/config.toml";
    // Each container is then a unit of systemd's of its own.
    let config = scenario.node.read(file)? + SYSTEMD_CGROUPS;
    scenario.node.write(file, config, 0o644)?;
    scenario.node.run(&["systemctl", "restart", "containerd"]).await?;
    scenario.node.containerd_answers().await?;
    scenario.start().await?;
    let scopes = scopes(&scenario).await?;
    // Each pod is a container and its sandbox.
    assert_eq!(scopes.len(), 2 * scenario.pods.len(), "{scopes:?}");
    for scope in &scopes {
        assert_ordered(&scenario, scope, "Before", "winddown.service").await?;
    }
    goes_down_with_the_runtime_last(&mut scenario).await
}

#[tokio::test]
async fn containers_in_plain_control_groups_and_their_runtime_stop_after_the_agent() -> TestResult {
    let test = "containers_in_plain_control_groups_and_their_runtime_stop_after_the_agent";
    let Some(mut scenario) = Scenario::with_containerd(test, seven_pods()).await? else {
        return Ok(());
    };
    scenario.start().await?;
    assert_eq!(scopes(&scenario).await?, Vec::<String>::new());
    goes_down_with_the_runtime_last(&mut scenario).await
}

/// As a k3s without its datastore does, while its pods run.
#[tokio::test]
async fn the_agent_waits_for_no_unit_that_starts_for_ever_and_stops_before_it() -> TestResult {
    let test = "the_agent_waits_for_no_unit_that_starts_for_ever_and_stops_before_it";
    let Some(mut scenario) = Scenario::installed_with(test, seven_pods()).await? else {
        return Ok(());
    };
    let k3s = "[Service]\nType=notify\nTimeoutStartSec=0\nExecStart=/bin/sleep infinity\n";
    scenario.node.write("/etc/systemd/system/k3s.service", k3s, 0o644)?;
    scenario.node.run(&["systemctl", "daemon-reload"]).await?;
    scenario.node.run(&["systemctl", "start", "--no-block", "k3s"]).await?;
    scenario.start().await?;
    scenario.agent().await?.kill()?;
    scenario.lock_is_back().await?;
    scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    assert_ordered(&scenario, "winddown-order.target", "ActiveState", "active").await?;
    scenario.node.run(&GO).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    scenario.assert_ended_in_order()?;
    let entries = scenario.node.journal_entries(&["_PID=1"]).await?;
    let agent_gone = last(&entries, "winddown.service", "Stopped")?;
    assert!(last(&entries, "k3s.service", "Stopped")? >= agent_gone, "k3s was stopped too early");
    Ok(())
}

#[tokio::test]
async fn scopes_that_nobody_ends_are_stopped_after_the_agent_if_they_are_called_like_containers()
-> TestResult {
    let test =
        "scopes_that_nobody_ends_are_stopped_after_the_agent_if_they_are_called_like_containers";
    let Some(mut scenario) = Scenario::installed_with(test, seven_pods()).await? else {
        return Ok(());
    };
    // This node's pods are not containers, so "winddown install" left the scopes alone.
    for prefix in ["cri-containerd", "crio"] {
        let path = format!("/etc/systemd/system/{prefix}-.scope.d/50-winddown.conf");
        scenario.node.write(&path, DROP_IN, 0o644)?;
    }
    scenario.node.run(&["systemctl", "daemon-reload"]).await?;
    scenario.start().await?;
    // CRI-O has a monitor beside each container, in a scope of its own.
    let strangers = ["cri-containerd-0a1b", "crio-0a1b", "crio-conmon-0a1b", "somebody-else"];
    let strangers = strangers.map(|name| TestPod::new(name, 0, 100));
    for stranger in &strangers {
        run_in_scope(&scenario, stranger).await?;
    }
    assert_doctor_counts_containers_only(&scenario, "2 containers are scopes").await?;
    scenario.node.run(&GO).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    let (_, last_exit) = scenario.assert_ended_in_order()?;
    let logs = read_pod_log(&scenario.node, &strangers);
    // systemd asks the whole group at once, the program that tells the time included; so the time of
    // the request may be missing.
    let gone = |name: &str| *logs[name].exits.first().unwrap_or(&0);
    for ordered in ["cri-containerd-0a1b", "crio-0a1b", "crio-conmon-0a1b"] {
        assert!(gone(ordered) > last_exit, "{ordered}: {logs:?}");
    }
    // What the drop-in is good for: without it systemd asks at once.
    assert!((1..last_exit).contains(&gone("somebody-else")), "{logs:?}");
    Ok(())
}

/// Fails unless `winddown doctor` says so of the scopes, as it would on a node with CRI-O.
async fn assert_doctor_counts_containers_only(scenario: &Scenario, count: &str) -> TestResult {
    let config = "/run/crio.yaml";
    let text = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: cri\n\
                containerRuntimeEndpoint: unix:///run/crio/crio.sock\n";
    scenario.node.write(config, text, 0o644)?;
    // Its exit code is that of other checks: there is no CRI-O.
    let doctor = ["winddown", "doctor", "--config", config, "-o", "json"];
    let said = scenario.node.exec(&doctor, SOON).await?.stdout;
    assert!(said.contains("containers' scopes stop after the agent"), "{said}");
    assert!(said.contains(count), "{said}");
    Ok(())
}

/// Runs a pod's program in a scope of its own that has its name, as a container runtime does.
async fn run_in_scope(scenario: &Scenario, pod: &TestPod) -> TestResult {
    let (name, command) = (&pod.name, pod.command().join(" "));
    // The service that starts it is over when it runs, and leaves nothing behind in its own group.
    let start = format!(
        "systemd-run --quiet --scope --unit={name} {command} & \
         until systemctl is-active --quiet {name}.scope; do sleep 0.05; done"
    );
    let run = ["systemd-run", "--quiet", "--wait", "sh", "-c", &start];
    scenario.node.run(&run).await?;
    let started = async || {
        let log = read_pod_log(&scenario.node, std::slice::from_ref(pod));
        !log[name].starts.is_empty()
    };
    scenario.node.wait_until(name, SOON, started).await?;
    Ok(())
}

async fn goes_down_with_the_runtime_last(scenario: &mut Scenario) -> TestResult {
    assert_ordered(scenario, "winddown.service", "After", "winddown-order.target").await?;
    assert_ordered(scenario, "winddown-order.target", "After", "containerd.service").await?;
    scenario.node.run(&GO).await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    // Each pod was asked once, which is to say by the agent and not by systemd.
    let (_, last_exit) = scenario.assert_ended_in_order()?;
    let entries = scenario.node.journal_entries(&["_PID=1"]).await?;
    let stopping = |unit: &str| last(&entries, unit, "Stopping");
    assert!(stopping("containerd.service")? >= last_exit, "containerd was stopped under the pods");
    let agent_gone = last(&entries, "winddown.service", "Stopped")?;
    assert!(stopping("containerd.service")? >= agent_gone, "containerd was stopped too early");
    scenario.assert_systemd_killed_nothing().await
}

/// The units of systemd's that are containers.
async fn scopes(scenario: &Scenario) -> TestResult<Vec<String>> {
    let list = ["systemctl", "list-units", "--plain", "--no-legend", "cri-containerd-*.scope"];
    let text = scenario.node.run(&list).await?;
    Ok(text.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect())
}

/// Fails unless systemd says that `unit` is ordered `property` the unit `other`.
async fn assert_ordered(
    scenario: &Scenario,
    unit: &str,
    property: &str,
    other: &str,
) -> TestResult {
    let show = ["systemctl", "show", "--value", "--property", property, unit];
    let text = scenario.node.run(&show).await?;
    assert!(text.split_whitespace().any(|u| u == other), "{unit}: {property}={text}");
    Ok(())
}

/// When systemd last said that of the unit, in nanoseconds since 1970.
fn last(entries: &[JournalEntry], unit: &str, word: &str) -> TestResult<u64> {
    let said = entries.iter().rev().find(|e| e.unit == unit && e.message.starts_with(word));
    Ok(said.ok_or_else(|| format!("systemd never said {word} of {unit}"))?.at)
}
