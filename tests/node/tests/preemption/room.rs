//! What there is, what the pods ask for, and what the agent says of them.

use serde_json::{Value, json};
use winddown_node_tests::scenario::{SOON, Scenario, TestResult};
use winddown_node_tests::{TestPod, read_pod_log};

/// `system-node-critical`.
pub(crate) const CRITICAL: i32 = 2_000_001_000;

/// What the hard threshold of memory keeps from the pods unless configured.
const KEPT_KIB: u64 = 100 * 1024;

/// What a pod asks for.
#[derive(Debug, Clone)]
pub(crate) struct Asks {
    pub(crate) cpu: String,
    pub(crate) memory: String,
    /// The limits are the same: the pod is of the class `Guaranteed`.
    pub(crate) limited: bool,
    /// The pod asks as a whole, and its container for nothing.
    pub(crate) whole: bool,
}

impl Asks {
    /// What the pods of the kubelet's own scenario ask for.
    pub(crate) fn little(limited: bool) -> Self {
        Self { cpu: "100m".to_owned(), memory: "100Mi".to_owned(), limited, whole: false }
    }

    /// All that pods may have of this machine.
    pub(crate) fn everything() -> TestResult<Self> {
        let processors = winddown_node_tests::usage::processors()?;
        let memory = std::fs::read_to_string("/proc/meminfo")?;
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let total: u64 = total.ok_or("no MemTotal")?.trim().trim_end_matches(" kB").parse()?;
        let memory = format!("{}Ki", total - KEPT_KIB);
        Ok(Self { cpu: processors.to_string(), memory, limited: false, whole: false })
    }

    fn resources(&self) -> Value {
        let amounts = json!({ "cpu": self.cpu, "memory": self.memory });
        match self.limited {
            true => json!({ "requests": amounts, "limits": amounts }),
            false => json!({ "requests": amounts }),
        }
    }
}

/// Puts a pod that asks for something into the manifests folder, in place of one of its name.
pub(crate) fn put(scenario: &Scenario, pod: &TestPod, asks: Option<&Asks>) -> TestResult {
    let path = format!("/etc/winddown/pods/{}.json", pod.name);
    scenario.node.write(&path, manifest(pod, asks)?, 0o644)?;
    Ok(())
}

/// The manifest of a pod that asks for something.
pub(crate) fn manifest(pod: &TestPod, asks: Option<&Asks>) -> TestResult<String> {
    let mut manifest: Value = serde_json::from_str(&pod.manifest())?;
    if let Some(asks) = asks {
        let place = match asks.whole {
            true => &mut manifest["spec"],
            false => &mut manifest["spec"]["containers"][0],
        };
        place["resources"] = asks.resources();
    }
    Ok(manifest.to_string())
}

/// A further pod, of the kind that the node runs.
pub(crate) fn pod_like(scenario: &Scenario, name: &str, priority: i32) -> TestPod {
    let pod = TestPod::new(name, priority, 100);
    match scenario.pods.iter().any(|pod| pod.image.is_some()) {
        true => pod.in_container(),
        false => pod,
    }
}

/// Adds lines to the configuration of the agent, which is not started yet.
pub(crate) fn configure(scenario: &Scenario, lines: &str) -> TestResult {
    let file = "/etc/winddown/config.yaml";
    let config = scenario.node.read(file)? + lines;
    scenario.node.write(file, config, 0o644)?;
    Ok(())
}

/// What a scrape inside the node gets.
pub(crate) async fn metrics(scenario: &Scenario) -> TestResult<String> {
    let scrape = "exec 3<>/dev/tcp/127.0.0.1/9477 && \
                  printf 'GET /metrics HTTP/1.1\\r\\nHost: n\\r\\nConnection: close\\r\\n\\r\\n' >&3 && cat <&3";
    Ok(scenario.node.run(&["bash", "-c", scrape]).await?)
}

/// The pod of that name, as the agent tells it; null when it tells nothing of it.
pub(crate) async fn told(scenario: &Scenario, name: &str) -> TestResult<Value> {
    let status = scenario.status().await?;
    let named = |pod: &&Value| {
        let full = pod["name"].as_str().unwrap_or_default();
        full.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let pods = status["pods"].as_array().into_iter().flatten();
    let rejected = status["rejected"].as_array().into_iter().flatten();
    Ok(pods.chain(rejected).find(named).cloned().unwrap_or(Value::Null))
}

/// Waits until the agent says that the pod runs, and it has said so itself.
pub(crate) async fn wait_running(scenario: &Scenario, pod: &TestPod) -> TestResult {
    let name = &pod.name;
    let runs = async || {
        let log = read_pod_log(&scenario.node, std::slice::from_ref(pod));
        let said = !log[name].starts.is_empty();
        said && told(scenario, name).await.is_ok_and(|pod| pod["phase"] == "Running")
    };
    if let Err(error) = scenario.node.wait_until(&format!("{name} to run"), SOON, runs).await {
        let status = scenario.text(&["status", "-o", "wide"]).await.unwrap_or_default();
        let journal = scenario.node.journal(&["--unit=winddown"]).await.unwrap_or_default();
        return Err(format!("{error}\n{status}\n{journal}").into());
    }
    Ok(())
}

/// The texts of the agent's last decisions of one kind.
pub(crate) async fn decisions(scenario: &Scenario, kind: &str) -> TestResult<Vec<String>> {
    let status = scenario.status().await?;
    let all = status["decisions"].as_array().into_iter().flatten();
    let of_kind = all.filter(|decision| decision["kind"] == kind);
    Ok(of_kind.filter_map(|decision| decision["text"].as_str().map(str::to_owned)).collect())
}
