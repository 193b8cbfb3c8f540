//! Pods as transient services of a real systemd: what it keeps, restarts and reloads through, and how the
//! node goes down.

use std::time::Duration;

use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{Suite, TestPod, on_each_release};

/// What systemd is asked about the pods' units.
const UNITS: &str = "winddown-pod*";

async fn units(scenario: &Scenario) -> TestResult<Vec<String>> {
    let list = ["systemctl", "list-units", "--all", "--plain", "--no-legend", UNITS];
    let text = scenario.node.run(&list).await?;
    Ok(text.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect())
}

#[tokio::test]
async fn pods_run_as_services_whatever_happens_to_the_agent_the_bus_and_systemd() -> TestResult {
    let test = "pods_run_as_services_whatever_happens_to_the_agent_the_bus_and_systemd";
    let Some(scenario) = Scenario::with_services(test, seven_pods()).await? else { return Ok(()) };
    scenario.start().await?;
    scenario.all_pods_are("Running").await?;
    let running = scenario.untouched_pids().await?;
    let all = units(&scenario).await?;
    let count = |ending: &str| all.iter().filter(|unit| unit.ends_with(ending)).count();
    assert_eq!((count(".service"), count("-log.service"), count(".slice")), (14, 7, 7), "{all:?}");

    let old = scenario.status().await?["node"]["pid"].clone();
    scenario.agent().await?.kill()?;
    scenario.another_agent_than(&old).await?;
    for command in [&["systemctl", "daemon-reload"][..], &["systemctl", "daemon-reexec"]] {
        scenario.node.run(command).await?;
        scenario.all_pods_are("Running").await?;
    }
    let old = scenario.status().await?["node"]["pid"].clone();
    scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    scenario.another_agent_than(&old).await?;
    scenario.all_pods_are("Running").await?;
    assert_eq!(scenario.untouched_pids().await?, running, "somebody was started again");
    assert_eq!(units(&scenario).await?, all);
    let status = scenario.status().await?;
    for pod in status["pods"].as_array().into_iter().flatten() {
        assert_eq!(pod["containers"][0]["restarts"], 0, "{pod}");
    }
    Ok(())
}

#[tokio::test]
async fn services_end_in_the_order_of_their_pods_and_in_their_own_time() -> TestResult {
    let test = "services_end_in_the_order_of_their_pods_and_in_their_own_time";
    let Some(mut scenario) = Scenario::with_services(test, seven_pods()).await? else {
        return Ok(());
    };
    scenario.start().await?;
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    let (_, last_exit) = scenario.assert_ended_in_order()?;
    scenario.lock_outlived(last_exit).await?;
    scenario.assert_systemd_killed_nothing().await?;
    let report = scenario.newest_report()?;
    assert_eq!(report["outcome"], "clean", "{report}");
    Ok(())
}

on_each_release!(a_shutdown_past_logind_ends_services_in_order_whatever_the_agents_unit_is_called: under_another_name);

async fn under_another_name(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(mut scenario) = Scenario::with_services_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    let rename =
        "cd /etc/systemd/system && mv winddown.service my-agent.service && systemctl daemon-reload";
    scenario.node.run(&["sh", "-c", rename]).await?;
    scenario.node.run(&["systemctl", "start", "my-agent"]).await?;
    scenario.wait_started(scenario.pods.len()).await?;
    // Straight to systemd: no signal, no delay.
    scenario.node.run(&["systemctl", "--no-block", "start", "poweroff.target"]).await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    scenario.assert_ended_in_order()?;
    Ok(())
}

#[tokio::test]
async fn a_service_that_ends_is_told_with_its_exit_code_and_nothing_of_it_is_left() -> TestResult {
    let test = "a_service_that_ends_is_told_with_its_exit_code_and_nothing_of_it_is_left";
    let Some(scenario) = Scenario::with_services(test, vec![TestPod::new("web-0", 0, 100)]).await?
    else {
        return Ok(());
    };
    for (name, script) in [
        ("fails", "echo to stdout; echo to stderr >&2; echo '<0>to all'; exit 7"),
        // Of each two the pod's command keeps one.
        ("killed", "kill -KILL $$$$"),
        ("leaves", "sleep 1000 & exit 0"),
        ("secret", "test \"$TOKEN\" = s3cret"),
        ("bounded", "cat /proc/self/cgroup; exec sleep 1"),
    ] {
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"hostNetwork": true, "restartPolicy": "Never", "containers": [{
                "name": "main", "image": "host", "command": ["/bin/sh", "-c", script],
                "env": [{"name": "TOKEN", "value": "s3cret"}],
                "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}},
            }]},
        });
        scenario.node.write(&format!("/etc/winddown/pods/{name}.yaml"), pod.to_string(), 0o644)?;
    }
    scenario.start().await?;
    let phase_of = async |name: &str| {
        let status = scenario.status().await.unwrap_or_default();
        let pods = status["pods"].as_array().cloned().unwrap_or_default();
        let is_it = |pod: &&serde_json::Value| {
            pod["name"].as_str().is_some_and(|text| text.starts_with(name))
        };
        pods.iter().find(is_it).map(|pod| pod["phase"].as_str().unwrap_or_default().to_owned())
    };
    for (name, phase) in [
        ("fails", "Failed"),
        ("killed", "Failed"),
        ("leaves", "Succeeded"),
        ("secret", "Succeeded"),
        ("bounded", "Succeeded"),
    ] {
        let ended = async || phase_of(name).await.as_deref() == Some(phase);
        if let Err(error) =
            scenario.node.wait_until(&format!("{name} to be {phase}"), SOON, ended).await
        {
            return Err(format!("{error}\n{}", scenario.status().await?).into());
        }
    }
    let failed =
        scenario.node.run(&["systemctl", "list-units", "--failed", "--plain", "--no-legend"]);
    assert_eq!(failed.await?, "", "no failed unit is left");
    let services = units(&scenario).await?;
    let services: Vec<&String> = services.iter().filter(|u| u.ends_with(".service")).collect();
    assert_eq!(services.len(), 2, "the one that runs, and its log: {services:?}");
    let log = "cat /var/log/winddown/*fails*/main/0.log";
    let log = scenario.node.run(&["sh", "-c", log]).await?;
    assert!(log.contains("stdout F to stdout") && log.contains("stderr F to stderr"), "{log}");
    let journal = scenario.node.journal(&["--output=json"]).await?;
    let mut lines = journal.lines().filter(|line| line.contains("\"to stdout\""));
    let line: serde_json::Value = serde_json::from_str(lines.next().ok_or("not in the journal")?)?;
    assert_eq!(line["WINDDOWN_CONTAINER"], "main", "{line}");
    assert_eq!(line["WINDDOWN_POD"], "fails-winddown-node", "{line}");
    let line = journal.lines().find(|line| line.contains("\"<0>to all\""));
    let line: serde_json::Value = serde_json::from_str(line.ok_or("its level was read")?)?;
    assert_eq!(line["PRIORITY"], "6", "{line}");
    // What every user may ask systemd says nothing of a container's environment.
    let shown = scenario.node.run(&["systemctl", "show", UNITS]).await?;
    assert!(!shown.contains("s3cret"), "{shown}");
    Ok(())
}

#[tokio::test]
async fn a_service_that_fails_again_and_again_is_named_with_its_cause_and_its_output() -> TestResult
{
    let test = "a_service_that_fails_again_and_again_is_named_with_its_cause_and_its_output";
    let Some(scenario) = Scenario::with_services(test, vec![TestPod::new("web-0", 0, 100)]).await?
    else {
        return Ok(());
    };
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"},
        "spec": {"hostNetwork": true, "priority": 0, "containers": [{
            "name": "main", "image": "host",
            "command": ["/bin/sh", "-c", "echo no such database >&2; exit 3"],
        }]},
    });
    scenario.node.write("/etc/winddown/pods/db.yaml", pod.to_string(), 0o644)?;
    scenario.start().await?;
    let node = &scenario.node;
    let said = async |command: &str| {
        node.run(&["sh", "-c", &format!("{command} 2>&1 || true")]).await.unwrap_or_default()
    };
    let is_named = async || said("winddown status").await.contains("CrashLoopBackOff");
    node.wait_until("the pod to be in a crash loop", SOON, is_named).await?;
    let (status, doctor) = (said("winddown status").await, said("winddown doctor").await);
    let cause = r#"container main exited with code 3 (Error): "no such database""#;
    for (text, line) in [
        (&status, format!("! default/db-winddown-node does not stay up: {cause}")),
        (&status, "`winddown describe default/db-winddown-node` shows more".to_owned()),
        (&doctor, "crash-loop       1 pod has a container that exits again and again".to_owned()),
        (&doctor, format!("seen  default/db-winddown-node: {cause}")),
    ] {
        assert!(text.contains(&line), "no {line:?} in\n{text}");
    }
    Ok(())
}

#[tokio::test]
async fn init_containers_run_again_after_a_container_lost_its_power_and_its_host_did_not()
-> TestResult {
    let test = "init_containers_run_again_after_a_container_lost_its_power_and_its_host_did_not";
    let Some(mut scenario) =
        Scenario::with_services(test, vec![TestPod::new("web-0", 0, 100)]).await?
    else {
        return Ok(());
    };
    let log = "/var/log/pods-under-test/db";
    let container = |name: &str, then: &str| {
        let script = format!("echo {name} >>{log}; {then}");
        serde_json::json!({"name": name, "image": "host", "command": ["/bin/sh", "-c", script]})
    };
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"},
        "spec": {
            "hostNetwork": true,
            "initContainers": [container("init", "exit 0")],
            "containers": [container("main", "exec sleep 1d")],
        },
    });
    scenario.node.write("/etc/winddown/pods/db.yaml", pod.to_string(), 0o644)?;
    scenario.node.run(&["systemctl", "enable", "winddown"]).await?;
    scenario.start().await?;
    let ran = async |scenario: &Scenario, times: usize| {
        let ran = || scenario.node.read(log).unwrap_or_default();
        let has_run = async || ran().matches("main").count() == times;
        scenario.node.wait_until("the pod to run", SOON, has_run).await?;
        TestResult::Ok(ran())
    };
    assert_eq!(ran(&scenario, 1).await?, "init\nmain\n");
    scenario.node.kill();
    scenario.node.start().await?;
    assert_eq!(ran(&scenario, 2).await?, "init\nmain\n".repeat(2));
    Ok(())
}

#[tokio::test]
async fn a_change_to_another_target_stops_no_service_and_a_shutdown_ends_them_in_order()
-> TestResult {
    let test = "a_change_to_another_target_stops_no_service_and_a_shutdown_ends_them_in_order";
    let Some(mut scenario) = Scenario::with_services(test, seven_pods()).await? else {
        return Ok(());
    };
    scenario.start().await?;
    scenario.all_pods_are("Running").await?;
    let (running, all) = (scenario.untouched_pids().await?, units(&scenario).await?);
    for target in ["multi-user.target", "rescue.target", "multi-user.target"] {
        scenario.node.run(&["systemctl", "isolate", target]).await?;
        assert_eq!(scenario.untouched_pids().await?, running, "after isolate {target}");
        assert_eq!(units(&scenario).await?, all, "after isolate {target}");
    }
    scenario.all_pods_are("Running").await?;
    scenario.node.run(&["systemctl", "isolate", "--no-block", "poweroff.target"]).await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    scenario.assert_ended_in_order()?;
    Ok(())
}

/// A pod that has `/var/log` as a volume can put these there. The last two are links of which systemd finds no end.
#[tokio::test]
async fn what_a_pod_puts_in_place_of_the_directories_of_logs_keeps_no_agent_from_starting()
-> TestResult {
    let test = "what_a_pod_puts_in_place_of_the_directories_of_logs_keeps_no_agent_from_starting";
    let Some(scenario) = Scenario::with_services(test, vec![TestPod::new("web-0", 0, 100)]).await?
    else {
        return Ok(());
    };
    let elsewhere = "/etc/elsewhere";
    for made in [
        format!("mkdir {elsewhere}; for each in $all; do ln -s {elsewhere} $each; done"),
        "for each in $all; do ln -s /no/such/directory $each; done".to_owned(),
        "for each in $all; do mkfifo $each; done".to_owned(),
        "for each in $all; do ln -s $each $each; done".to_owned(),
    ] {
        let put = format!("all='/var/log/winddown /var/log/containers'; rm -rf $all; {made}");
        scenario.node.run(&["sh", "-ec", &put]).await?;
        scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
        scenario.all_pods_are("Running").await?;
        let said = "journalctl _SYSTEMD_INVOCATION_ID=$(systemctl show --value -p InvocationID winddown) \
            | grep 'there is no directory of logs'";
        scenario.node.run(&["sh", "-ec", said]).await?;
        let doctor = scenario.node.exec(&["winddown", "doctor"], SOON).await?.stdout;
        assert!(doctor.contains("the directory of the pods' logs is none"), "{made}: {doctor}");
    }
    let made = scenario.node.run(&["ls", elsewhere]).await?;
    assert_eq!(made, "", "nothing is made where a link leads");
    Ok(())
}
