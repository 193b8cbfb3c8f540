//! `make pages PICTURES=1`: runs the scenarios of the documentation's pictures on disposable nodes. The results go to the tests
//! that draw the pictures and check them.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult};
use winddown_node_tests::{Need, Suite, install_pods};

/// How long two hundred pods may take to start, and a node to shut down.
const PATIENCE: Duration = Duration::from_secs(120);
const NODE: i32 = 2_000_001_000;
const REPORTS: &str = "programs/render/tests/reports";
const SCREENS: &str = "programs/tests/live";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match runs().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pictures: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn runs() -> TestResult {
    five().await?;
    pressed().await?;
    thirty().await?;
    two_hundred().await
}

/// A pod in a picture.
struct Pod {
    name: String,
    priority: i32,
    /// How long it takes to stop, in milliseconds.
    stops: u64,
    /// How long its preStop hook takes, in milliseconds.
    hook: u64,
    grace: u64,
    /// Whether it ignores SIGTERM.
    deaf: bool,
}

/// An ordinary pod of a deployment that stops within `stops` milliseconds.
fn pod(name: impl Into<String>, stops: u64) -> Pod {
    Pod { name: name.into(), priority: 0, stops, hook: 0, grace: 30, deaf: false }
}

impl Pod {
    fn manifest(&self) -> Value {
        let (namespace, name) = self.name.split_once('/').unwrap_or(("default", &self.name));
        let manner = if self.deaf { "deaf" } else { "willing" };
        let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64().to_string();
        let script = "/usr/local/bin/pod-under-test";
        let command = ["/bin/sh", script, name, &seconds(self.stops), manner];
        let mut container = json!({ "name": "main", "image": "host", "command": command });
        if self.hook > 0 {
            let exec = json!({ "command": ["sleep", seconds(self.hook)] });
            container["lifecycle"] = json!({ "preStop": { "exec": exec } });
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": { "component": name },
            },
            "spec": {
                "hostNetwork": true,
                "priority": self.priority,
                "terminationGracePeriodSeconds": self.grace,
                "containers": [container],
            },
        })
    }
}

/// Boots a node and starts these pods. `config` is added to its configuration.
async fn node(config: &str, pods: &[Pod]) -> TestResult<Scenario> {
    node_with(&[], config, pods).await
}

/// The same, with a kind of node that meets these needs.
async fn node_with(needs: &'static [Need], config: &str, pods: &[Pod]) -> TestResult<Scenario> {
    let setup = Setup { suite: Suite::Trixie, needs, ..Setup::default() };
    let scenario = Scenario::installed_as("pictures", Vec::new(), &setup).await?;
    let scenario = scenario.ok_or("no node can be booted here")?;
    let config = format!(
        "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: process\nnodeName: edge-1\n{config}"
    );
    scenario.node.write("/etc/winddown/config.yaml", config, 0o644)?;
    install_pods(&scenario.node, &[])?;
    for pod in pods {
        let path = format!("/etc/winddown/pods/{}.json", pod.name.replace('/', "_"));
        scenario.node.write(&path, pod.manifest().to_string(), 0o644)?;
    }
    scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    let run = async || {
        let status = scenario.status_from_outside().await.unwrap_or_default();
        let listed = status["pods"].as_array().cloned().unwrap_or_default();
        listed.iter().filter(|pod| pod["readyContainers"] == 1).count() == pods.len()
    };
    scenario.node.wait_until("all pods to run", PATIENCE, run).await?;
    scenario.lock_is_back().await?;
    Ok(scenario)
}

/// Waits until the node is off, and saves its report.
async fn keep(mut scenario: Scenario, name: &str) -> TestResult {
    scenario.node.wait_off(PATIENCE).await?;
    write(REPORTS, name, &scenario.newest_report()?)
}

fn write(folder: &str, name: &str, what: &Value) -> TestResult {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = serde_json::to_string_pretty(what)?;
    fs::write(root.join(folder).join(format!("{name}.json")), text + "\n")?;
    Ok(())
}

/// Three pods of a shop, and two pods of the node itself.
fn pods_of_five() -> [Pod; 5] {
    let system = |name: &str, stops, hook| Pod { priority: NODE, hook, ..pod(name, stops) };
    [
        pod("web-7d9f8b6c5d-x2k4q", 1200),
        pod("database-0", 3000),
        pod("shop/cart-5b8f6d7c9-qv2lm", 900),
        system("kube-system/node-local-dns-8xk2p", 1000, 0),
        system("kube-system/log-shipper-b4tqz", 2500, 900),
    ]
}

/// A clean reboot, and the idle node before it.
async fn five() -> TestResult {
    let eviction = "evictionHard: {memory.available: 100Mi}\n";
    let scenario = node(eviction, &pods_of_five()).await?;
    write(SCREENS, "idle", &scenario.status().await?)?;
    scenario.node.shut_down(&["systemctl", "reboot"]).await?;
    keep(scenario, "five").await
}

/// The memory that is left on the node under memory pressure, in MiB.
const LEFT: u64 = 230;

/// A small node with its own kernel: a batch pod takes so much memory that the soft threshold is met, but not the hard
/// one.
async fn pressed() -> TestResult {
    let config = "evictionHard: {memory.available: 100Mi}\nevictionSoft: {memory.available: 30%}\n\
                  evictionSoftGracePeriod: {memory.available: 1m30s}\n";
    let scenario = node_with(&[Need::Controllers], config, &pods_of_five()).await?;
    let free = scenario
        .node
        .run(&["awk", "/^MemAvailable/ {print int($2 / 1024)}", "/proc/meminfo"])
        .await?;
    let takes = free.trim().parse::<u64>()?.saturating_sub(LEFT);
    println!("pictures: of {} MiB a pod takes {takes}", free.trim());
    // The pod allocates its memory in /dev/shm, which must be allowed to take more than half.
    scenario.node.run(&["mount", "-o", "remount,size=90%", "/dev/shm"]).await?;
    let script = format!("head -c {takes}M /dev/zero >/dev/shm/import; sleep infinity & wait");
    let mut import = pod("batch/nightly-import-0", 0).manifest();
    import["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", script]);
    scenario.node.write("/root/import.json", import.to_string(), 0o644)?;
    // Moved within the node, because its own kernel does not notify the agent of the host's writes.
    scenario.node.run(&["mv", "/root/import.json", "/etc/winddown/pods/"]).await?;
    let is_short = async || {
        let status = scenario.status_from_outside().await.unwrap_or_default();
        status["pressure"]["conditions"].as_array().is_some_and(|met| !met.is_empty())
    };
    if let Err(error) = scenario.node.wait_until("pressure", PATIENCE, is_short).await {
        return Err(format!("{error}: {}", scenario.status().await?["pressure"]).into());
    }
    write(SCREENS, "pressure", &scenario.status().await?)
}

/// Thirty pods: logind allows too little time, endpoints are drained first, two pods ignore SIGTERM, and the agent is
/// killed in the middle.
async fn thirty() -> TestResult {
    let mut pods: Vec<Pod> = (0..18)
        .map(|n: u64| {
            let service = ["api-gateway", "checkout", "search", "mailer", "thumbnails", "cart"]
                [(n % 6) as usize];
            pod(format!("shop/{service}-{}", n / 6), 300 + n * 97 % 1900)
        })
        .collect();
    pods.push(Pod { deaf: true, grace: 3, ..pod("batch/legacy-import-0", 0) });
    pods.push(Pod { deaf: true, ..pod("batch/video-encoder-0", 0) });
    pods.push(Pod { hook: 800, ..pod("shop/orders-db-0", 2600) });
    pods.push(Pod { hook: 400, ..pod("shop/ledger-db-0", 1500) });
    for (name, stops) in [
        ("node-local-dns", 500),
        ("log-shipper", 1200),
        ("metrics-agent", 300),
        ("storage-agent", 800),
    ] {
        pods.push(Pod { priority: NODE, ..pod(format!("kube-system/{name}-x7k2p"), stops) });
    }
    for (name, stops) in [
        ("kube-apiserver", 1100),
        ("kube-scheduler", 200),
        ("kube-controller-manager", 400),
        ("etcd", 700),
    ] {
        pods.push(Pod { priority: NODE, ..pod(format!("kube-system/{name}"), stops) });
    }
    let config = "evictionHard: {memory.available: 100Mi}\nshutdownEndpointDrainPeriod: 1s\n";
    let scenario = node(config, &pods).await?;
    let little = "[Login]\nInhibitDelayMaxSec=16\n";
    scenario.node.write("/etc/systemd/logind.conf.d/zzzz-site.conf", little, 0o644)?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    let cut = async || {
        let status = scenario.status_from_outside().await.unwrap_or_default();
        status["lock"]["state"] == "held" && status["lock"]["delaySeconds"] == 16.0
    };
    scenario.node.wait_until("logind's limit", SOON, cut).await?;
    let agent = scenario.agent().await?;
    scenario.node.shut_down(&["systemctl", "reboot", "--message=kernel 6.12.57"]).await?;
    let half = async || {
        let status = scenario.status_from_outside().await.unwrap_or_default();
        status["shutdown"]["groups"][0]["terminated"].as_u64() >= Some(12)
    };
    scenario.node.wait_until("half of the pods to end", SOON, half).await?;
    write(SCREENS, "shutdown", &scenario.status_from_outside().await?)?;
    let next = async || {
        let status = scenario.status_from_outside().await.unwrap_or_default();
        status["shutdown"]["groups"][2]["terminated"].as_u64() >= Some(1)
    };
    scenario.node.wait_until("the second group", PATIENCE, next).await?;
    agent.kill()?;
    keep(scenario, "thirty").await
}

/// Two hundred pods, four of which ignore SIGTERM.
async fn two_hundred() -> TestResult {
    let services =
        ["api-gateway", "checkout", "search", "mailer", "thumbnails", "cart", "ads", "feed"];
    let pods: Vec<Pod> = (0..200_u64)
        .map(|n| {
            let service = services[(n % 8) as usize];
            let stops = 200 + n * 733 % 4100;
            let name = format!("shop/{service}-{:02}", n / 8);
            match n {
                0..4 => Pod { deaf: true, grace: 4 + n, ..pod(format!("batch/import-{n}"), 0) },
                4..172 => pod(name, stops),
                _ => Pod {
                    priority: NODE,
                    ..pod(format!("kube-system/agent-{:02}", n - 172), stops / 3)
                },
            }
        })
        .collect();
    let scenario = node("evictionHard: {memory.available: 100Mi}\nmaxPods: 200\n", &pods).await?;
    scenario.node.shut_down(&["systemctl", "poweroff"]).await?;
    keep(scenario, "twohundred").await
}
