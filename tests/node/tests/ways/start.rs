//! Pods that start in the reverse of the order in which they end, after a boot and after a soft reboot.

use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult};
use winddown_node_tests::{IMAGE, Node, Suite, on_each_release};

on_each_release!(since 257, pods_start_in_order_after_each_boot_and_each_soft_reboot: each_boot);

/// Ready two seconds after it has started. The image has a shell and little else.
const SLOW: &str = ": >/ready; sleep 2; echo yes >/ready; exec sleep 1000";

async fn each_boot(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, more: "startGroupTimeout: 15s\n".to_owned(), ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, vec![], &setup).await? else {
        return Ok(());
    };
    scenario.node.run(&["systemctl", "enable", "winddown"]).await?;
    add(&scenario.node, "web", 0, "exec sleep 1000", "host")?;
    add(&scenario.node, "net", 2_000_000_000, SLOW, "host")?;
    scenario.start().await?;
    let first = report(&scenario, SOON).await?;
    started_in_order(&first)?;

    // One that comes later waits for none.
    add(&scenario.node, "late", 0, "exec sleep 1000", "host")?;
    let runs = async || said_of(&scenario, "late").await.is_ok_and(|pod| pod["ready"] == true);
    scenario.node.wait_until("the late pod to run", SOON, runs).await?;
    assert_eq!(report(&scenario, SOON).await?, first);

    scenario.node.run(&["sh", "-c", "systemctl soft-reboot"]).await?;
    let again = async || report(&scenario, SOON).await.is_ok_and(|now| now != first);
    scenario.node.wait_until("another start", SOON * 2, again).await?;
    let second = report(&scenario, SOON).await?;
    started_in_order(&second)?;
    assert_eq!(second["bootId"], first["bootId"]);
    scenario.node.exec(&["systemctl", "is-system-running", "--wait"], SOON).await?;

    scenario.power_off().await?;
    scenario.node.wait_off(SOON * 2).await?;
    scenario.node.start().await?;
    let again = async || report(&scenario, SOON).await.is_ok_and(|now| now != second);
    scenario.node.wait_until("a third start", SOON * 2, again).await?;
    started_in_order(&report(&scenario, SOON).await?)
}

#[tokio::test]
async fn containers_start_in_order_and_one_that_is_never_ready_costs_its_groups_time() -> TestResult
{
    let test = "containers_start_in_order_and_one_that_is_never_ready_costs_its_groups_time";
    let setup = Setup { more: "startGroupTimeout: 15s\n".to_owned(), ..Setup::default() };
    let Some(scenario) = Scenario::with_containerd_as(test, vec![], &setup).await? else {
        return Ok(());
    };
    add(&scenario.node, "web", 0, "exec sleep 1000", IMAGE)?;
    add(&scenario.node, "net", 2_000_000_000, SLOW, IMAGE)?;
    add(&scenario.node, "liar", 2_000_000_000, "exec sleep 1000", IMAGE)?;
    scenario.start().await?;
    let waits =
        async || said_of(&scenario, "web").await.is_ok_and(|pod| pod["reason"] == "WaitingForTurn");
    scenario.node.wait_until("web to wait", SOON, waits).await?;
    let status = scenario.status().await?;
    assert_eq!(
        (&status["start"]["waiting"], &status["start"]["group"]),
        (&1.into(), &GROUP.into())
    );
    let known = report(&scenario, SOON).await?;
    assert_eq!(known["outcome"], "notReady", "{known:#}");
    let [system, ordinary] = groups(&known)?;
    assert_eq!((state_of(system, "net"), state_of(system, "liar")), ("ready", "notReady"));
    let took = system["tookSeconds"].as_f64().ok_or("no time")?;
    assert!((15.0..16.5).contains(&took), "{known:#}");
    assert_eq!(state_of(ordinary, "web"), "ready");
    let text = scenario.text(&["report", "--start"]).await?;
    assert!(text.contains("1 pod not ready in time"), "{text}");

    // The next agent of the boot begins no other start.
    let pid = scenario.status().await?["node"]["pid"].clone();
    scenario.agent().await?.kill()?;
    scenario.another_agent_than(&pid).await?;
    assert_eq!(report(&scenario, SOON).await?, known);
    let restarts = said_of(&scenario, "net").await?["containers"][0]["restarts"].clone();
    assert_eq!(restarts, 0, "the agent's restart touched a pod");
    Ok(())
}

/// What the group of the two critical pods is called.
const GROUP: &str = "priority 2000000000 and above";

/// A pod that runs `script`, and is ready once the file `/ready` says so; `web` and `late` are so at once.
fn add(node: &Node, name: &str, priority: i32, script: &str, image: &str) -> TestResult {
    let probe = "    readinessProbe: {exec: {command: [sh, -c, '[ -s FILE ]']}, periodSeconds: 1, timeoutSeconds: 10}\n";
    let probe = match name {
        "net" => probe.replace("FILE", "/ready"),
        "liar" => probe.replace("FILE", "/never"),
        _ => String::new(),
    };
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  priority: {priority}\n  \
         hostNetwork: true\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {image}\n    \
         command: [sh, -c, '{script}']\n{probe}"
    );
    Ok(node.write(&format!("/etc/winddown/pods/{name}.yaml"), text, 0o644)?)
}

/// The report of the start once it is over.
async fn report(scenario: &Scenario, limit: Duration) -> TestResult<Value> {
    let mut found = Value::Null;
    let over = async || {
        let text = scenario.text(&["report", "--start", "-o", "json"]).await;
        found = text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        found["tookSeconds"].is_number()
    };
    scenario.node.wait_until("the start to be over", limit, over).await?;
    Ok(found)
}

fn groups(report: &Value) -> TestResult<[&Value; 2]> {
    let groups: Vec<&Value> = report["groups"].as_array().into_iter().flatten().collect();
    groups.try_into().map_err(|_| format!("not two groups: {report:#}").into())
}

fn state_of<'a>(group: &'a Value, name: &str) -> &'a str {
    let pods = group["pods"].as_array().into_iter().flatten();
    let mut named = pods.filter(|pod| pod["name"].as_str().is_some_and(|n| n.starts_with(name)));
    named.next().and_then(|pod| pod["state"].as_str()).unwrap_or_default()
}

/// `net` was ready before the others started.
fn started_in_order(report: &Value) -> TestResult {
    assert_eq!(report["outcome"], "ready", "{report:#}");
    let [system, ordinary] = groups(report)?;
    assert_eq!(system["name"], GROUP, "{report:#}");
    let states = (state_of(system, "net"), state_of(ordinary, "web"));
    assert_eq!(states, ("ready", "ready"), "{report:#}");
    let seconds = |of: &Value| of.as_f64().ok_or("no time");
    let (took, waited) =
        (seconds(&system["tookSeconds"])?, seconds(&ordinary["pods"][0]["waitedSeconds"])?);
    assert!(took >= 2.0 && waited >= took, "{report:#}");
    Ok(())
}

/// What the status says of a pod.
async fn said_of(scenario: &Scenario, name: &str) -> TestResult<Value> {
    let status = scenario.status_from_outside().await?;
    let pods = status["pods"].as_array().into_iter().flatten();
    let mut named = pods.filter(|pod| pod["name"].as_str().is_some_and(|n| n.starts_with(name)));
    Ok(named.next().ok_or("no such pod")?.clone())
}
