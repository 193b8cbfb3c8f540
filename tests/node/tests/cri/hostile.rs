//! Pods that write what they should not, under the shipped unit.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{SOON, Scenario, TestResult, seven_pods};
use winddown_node_tests::{IMAGE, Node, NodeError};

/// What no pod may read, in the format of a log.
const SECRET: &str = "2026-01-01T00:00:00Z stderr F of-the-node";

fn pod(name: &str, containers: &[Value], volumes: &Value) -> String {
    let spec = json!({"hostNetwork": true, "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5, "containers": containers, "volumes": volumes});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}

fn container(name: &str, volume: &str, script: &str) -> Value {
    json!({"name": name, "image": IMAGE, "command": ["/bin/sh", "-c", script],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": volume, "mountPath": format!("/{volume}")}]})
}

/// Its volume is the one that collectors of logs mount. Each container puts something else in place of its own log, and
/// fails, so that the end of its log becomes its termination message: more containers than the agent has threads.
fn hostile() -> String {
    let replace = |n: usize| {
        let by = match n {
            0 => "busybox ln -s /etc/winddown-secret 0.log",
            1 => "busybox ln -s /dev/zero 0.log",
            2 => "busybox mkdir 0.log",
            3 => "cd .. && busybox mv c3 gone && busybox ln -s /etc c3",
            // Where a file of root's is a command of root's.
            4 => {
                "cd /log && busybox mv containers gone && busybox ln -s /etc/logrotate.d containers"
            }
            _ => "busybox mkfifo 0.log",
        };
        let go = format!("cd /log/winddown/default_hostile*/c{n} && busybox rm -f 0.log");
        container(&format!("c{n}"), "log", &format!("{go} && {by}; exit 1"))
    };
    let containers: Vec<Value> = (0..14).map(replace).collect();
    pod("hostile", &containers, &json!([{"name": "log", "hostPath": {"path": "/var/log"}}]))
}

async fn sh(node: &Node, script: &str) -> Result<String, NodeError> {
    node.run(&["sh", "-ec", script]).await
}

async fn wait_for(scenario: &Scenario, what: &str, script: &str) -> TestResult {
    let holds = async || sh(&scenario.node, script).await.is_ok();
    match scenario.node.wait_until(what, SOON, holds).await {
        Ok(_) => Ok(()),
        Err(error) => {
            let status = scenario.text(&["status", "-o", "json"]).await.unwrap_or_default();
            let journal = scenario.node.journal(&["--unit=winddown"]).await?;
            Err(format!("{error}\n{status}\n{journal}").into())
        }
    }
}

/// Waits until the pod whose name begins like this is in `phase`. Returns its name.
async fn wait_for_phase(scenario: &Scenario, prefix: &str, phase: &str) -> TestResult<String> {
    let mut name = String::new();
    let holds = async || {
        let status = scenario.status().await.unwrap_or_default();
        let mut pods = status["pods"].as_array().into_iter().flatten();
        let named = |pod: &&Value| pod["name"].as_str().is_some_and(|own| own.starts_with(prefix));
        let found = pods.find(named).filter(|pod| pod["phase"] == phase);
        name = found.map_or_else(String::new, |pod| pod["name"].as_str().unwrap_or("").to_owned());
        !name.is_empty()
    };
    if let Err(error) =
        scenario.node.wait_until(&format!("{prefix} to be {phase}"), SOON, holds).await
    {
        let journal = scenario.node.journal(&["--unit=winddown"]).await?;
        return Err(format!("{error}\n{}\n{journal}", scenario.status().await?).into());
    }
    Ok(name)
}

#[tokio::test]
async fn a_pod_that_replaces_its_logs_by_pipes_and_links_holds_up_no_other_and_reads_nothing()
-> TestResult {
    let test =
        "a_pod_that_replaces_its_logs_by_pipes_and_links_holds_up_no_other_and_reads_nothing";
    let Some(mut scenario) = Scenario::with_containerd(test, seven_pods()).await? else {
        return Ok(());
    };
    let node = &scenario.node;
    node.write("/etc/winddown-secret", format!("{SECRET}\n"), 0o600)?;
    sh(node, "mkdir -p /etc/logrotate.d").await?;
    node.write("/etc/winddown/pods/hostile.json", hostile(), 0o644)?;
    scenario.start().await?;
    wait_for_phase(&scenario, "hostile", "Failed").await?;
    let said = scenario.text(&["status", "-o", "json"]).await?;
    assert!(!said.contains("of-the-node"), "{said}");
    assert!(sh(node, "ls /etc/0.log").await.is_err(), "nothing is made where a link leads");
    assert_eq!(sh(node, "cat /etc/winddown-secret").await?.trim(), SECRET);

    // Its threads are free: another pod starts, also with the next agent, and ends on request.
    node.run(&["systemctl", "restart", "winddown"]).await?;
    let log = json!([{"name": "log", "hostPath": {"path": "/var/log"}}]);
    let after = container("main", "log", "trap 'exit 0' TERM; sleep 3600 & wait $!");
    node.write("/etc/winddown/pods/after.json", pod("after", &[after], &log), 0o644)?;
    let name = wait_for_phase(&scenario, "after", "Running").await?;
    let open =
        "nsenter -m -t $(systemctl show --value -p MainPID winddown) test -w /etc/logrotate.d";
    assert!(sh(node, open).await.is_err(), "a link opens no sandbox");
    assert!(sh(node, "ls /etc/logrotate.d/*.log").await.is_err());
    let advice = "journalctl -u winddown | grep 'let /var/log/containers be a directory of root'";
    sh(node, advice).await?;
    node.run(&["winddown", "kill", &name]).await?;

    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    scenario.assert_ended_in_order()?;
    let report = scenario.report_after_next_boot().await?;
    assert_eq!(report["outcome"], "clean", "{report}");
    Ok(())
}

#[tokio::test]
async fn an_empty_dir_in_memory_takes_no_more_than_its_limit() -> TestResult {
    let test = "an_empty_dir_in_memory_takes_no_more_than_its_limit";
    let Some(scenario) = Scenario::with_containerd(test, Vec::new()).await? else { return Ok(()) };
    let node = &scenario.node;
    let fill = "busybox dd if=/dev/zero of=/fast/x bs=65536 count=500 2>&1
        busybox rm /fast/x; echo ended; echo kept >/fast/kept; trap 'exit 0' TERM; sleep 3600 & wait $!";
    let volumes = json!([{"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]);
    let manifest = |name: &str| pod(name, &[container("main", "fast", fill)], &volumes);
    let used = "df --output=used /run | tail -1";
    scenario.start().await?;
    let before: u64 = sh(node, used).await?.trim().parse()?;
    node.write("/etc/winddown/pods/fills.json", manifest("fills"), 0o644)?;
    let log = "cat /var/log/winddown/default_fills*/main/0.log";
    wait_for(&scenario, "the volume to be full", &format!("{log} | grep -q ended")).await?;
    let said = sh(node, log).await?;
    assert!(said.contains("No space left on device"), "{said}");
    let after: u64 = sh(node, used).await?.trim().parse()?;
    assert!(after < before + 512, "{before} KiB of /run were used, and {after} are");
    let mounted = "grep -c ' /var/lib/winddown/cri/pods/.*/volumes/fast .* tmpfs .*size=1024k' \
        /proc/1/mountinfo";
    assert_eq!(sh(node, mounted).await?.trim(), "1");

    // The next agent finds it, and does not mount it again.
    node.run(&["systemctl", "restart", "winddown"]).await?;
    wait_for_phase(&scenario, "fills", "Running").await?;
    let kept = "cat /var/lib/winddown/cri/pods/*/volumes/fast/kept";
    assert_eq!(sh(node, mounted).await?.trim(), "1");
    assert_eq!(sh(node, kept).await?.trim(), "kept");

    // Without a mount there is no bound, so there is no pod.
    sh(node, "chmod a-x /usr/bin/systemd-run").await?;
    node.write("/etc/winddown/pods/second.json", manifest("second"), 0o644)?;
    let refused =
        "winddown status -o json | grep -q 'volume fast of pod .*second.*is not permitted to'";
    wait_for(&scenario, "the refusal to be told", refused).await?;
    assert!(sh(node, "ls /var/log/winddown/default_second*/main").await.is_err());
    sh(node, "chmod a+x /usr/bin/systemd-run; rm /etc/winddown/pods/*.json").await?;
    let gone = "! grep -q /volumes/fast /proc/1/mountinfo; test ! -e /var/lib/winddown/cri/pods/*";
    wait_for(&scenario, "the mount to be released", gone).await
}
