//! A node with containerd, pods that take things, and a small disk or little memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::cgroup::Group;
use winddown_node_tests::scenario::{Scenario, TestResult};
use winddown_node_tests::{IMAGE, Node};

use crate::bounded::{MIB, Turn, asked};

/// Where pods write down what happens to them, in the node and in the pods.
const LOGS: &str = "/var/log/pods-under-test";
const PROGRAM: &str = "/usr/local/bin/pressure-pod";
/// Long enough for images to be old, and for what takes its ten seconds three times.
const LIMIT: Duration = Duration::from_secs(180);
/// Where a pod's empty directory is in its container.
pub(super) const DATA: &str = "/data";

/// One pod.
#[derive(Debug, Clone, Default)]
pub(super) struct Taker {
    pub(super) name: &'static str,
    pub(super) priority: i32,
    /// A mode of `pressure-pod`, its number, and the directory that it is about.
    pub(super) does: (&'static str, u64, &'static str),
    /// Whether it has an empty directory, and what that is limited to.
    pub(super) data: Option<Option<&'static str>>,
    /// What its container may have on disks.
    pub(super) ephemeral: Option<&'static str>,
    /// What a second container, which does nothing, may have on disks; none without one.
    pub(super) beside: Option<&'static str>,
}

/// A node with the pods in its manifests folder; the agent is not started.
pub(super) struct Stage {
    pub(super) scenario: Scenario,
    pods: Vec<&'static str>,
    _turn: Turn,
}

impl Stage {
    /// None, after saying so, where no node can be booted.
    pub(super) async fn set(test: &str, config: &str, pods: &[Taker]) -> TestResult<Option<Self>> {
        let turn = Turn::wait(false).await;
        let Some(scenario) = Scenario::with_containerd(test, Vec::new()).await? else {
            return Ok(None);
        };
        let node = &scenario.node;
        node.install(env!("CARGO_BIN_EXE_pressure-pod").as_ref(), PROGRAM)?;
        let head = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: cri\n";
        node.write("/etc/winddown/config.yaml", format!("{head}{config}"), 0o644)?;
        for pod in pods {
            node.write(&format!("{LOGS}/{}", pod.name), "", 0o666)?;
            let path = format!("/etc/winddown/pods/{}.json", pod.name);
            node.write(&path, pod.manifest().to_string(), 0o644)?;
        }
        let pods = pods.iter().map(|pod| pod.name).collect();
        Ok(Some(Self { scenario, pods, _turn: turn }))
    }

    pub(super) fn node(&self) -> &Node {
        &self.scenario.node
    }

    /// Gives the node so much memory, in MiB, and says which group bounds it.
    pub(super) fn bound_memory(&self, mib: u64) -> TestResult<Group> {
        let group = Group::of_node(self.node().name()).ok_or("the node has no group of its own")?;
        group.bound_memory(mib * MIB)?;
        Ok(group)
    }

    /// Makes small file systems in memory, each for the directories named, and puts what containerd
    /// needs into them.
    pub(super) async fn small_disks(&self, disks: &[(&str, &[&str])]) -> TestResult {
        let node = self.node();
        node.run(&["systemctl", "stop", "containerd"]).await?;
        for (number, (options, directories)) in disks.iter().enumerate() {
            let disk = format!("/mnt/disk-{number}");
            node.run(&["mkdir", "-p", &disk]).await?;
            node.run(&["mount", "-t", "tmpfs", "-o", options, "none", &disk]).await?;
            for directory in *directories {
                let part = format!("{disk}/{}", directory.replace('/', "-"));
                node.run(&["mkdir", "-p", &part, directory]).await?;
                node.run(&["mount", "--bind", &part, directory]).await?;
            }
        }
        node.run(&["systemctl", "start", "containerd"]).await?;
        Ok(node.import_images().await?)
    }

    /// Starts the agent and waits until all pods have started.
    pub(super) async fn start(&self) -> TestResult {
        self.node().run(&["systemctl", "start", "winddown"]).await?;
        let started = || self.pods.iter().all(|pod| self.log(pod).contains("start"));
        self.until("all pods to run", async || started()).await
    }

    /// What a pod has written down.
    pub(super) fn log(&self, pod: &str) -> String {
        self.node().read(&format!("{LOGS}/{pod}")).unwrap_or_default()
    }

    /// Where that is, as the host sees it.
    pub(super) fn log_on_host(&self, pod: &str) -> PathBuf {
        self.node().host_path(&format!("{LOGS}/{pod}"))
    }

    /// When a pod was asked to stop, in ns on the monotonic clock.
    pub(super) fn asked(&self, pod: &str) -> Option<i128> {
        asked(&self.log(pod))
    }

    /// The pods that were evicted, with the message of each.
    pub(super) async fn evicted(&self) -> TestResult<Vec<(String, String)>> {
        let status = self.scenario.status_from_outside().await?;
        let pods = status["pods"].as_array().into_iter().flatten();
        let mut evicted: Vec<(String, String)> = pods
            .filter(|pod| pod["reason"] == "Evicted")
            .map(|pod| {
                let name = pod["name"].as_str().unwrap_or_default();
                let name = name.strip_suffix("-winddown-node").unwrap_or(name);
                (name.to_owned(), pod["message"].as_str().unwrap_or_default().to_owned())
            })
            .collect();
        evicted.sort();
        Ok(evicted)
    }

    /// Waits until these pods, and no others, were evicted, and says with which messages. One may be
    /// back before the next is.
    pub(super) async fn until_evicted(&self, names: &[&str]) -> TestResult<Vec<(String, String)>> {
        let mut seen = BTreeMap::new();
        let are = async || {
            seen.extend(self.evicted().await.unwrap_or_default());
            seen.len() >= names.len()
        };
        self.until(&format!("{names:?} to be evicted"), are).await?;
        assert!(seen.keys().eq(names.iter()), "{seen:?}");
        Ok(seen.into_iter().collect())
    }

    /// Waits until no threshold is met.
    pub(super) async fn until_relieved(&self) -> TestResult {
        let is_over = async || {
            let status = self.scenario.status_from_outside().await.unwrap_or_default();
            let thresholds = status["pressure"]["thresholds"].as_array();
            thresholds.is_some_and(|all| all.iter().all(|one| one["metForSeconds"].is_null()))
        };
        self.until("the shortage to be over", is_over).await
    }

    /// The agent's last decisions: for what, and what came of it.
    pub(super) async fn history(&self) -> TestResult<Vec<(String, String)>> {
        let plan = self.scenario.text(&["plan", "eviction", "-o", "json"]).await?;
        let plan: Value = serde_json::from_str(&plan)?;
        let records = plan["history"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(records.map(|record| (text(&record["signal"]), text(&record["outcome"]))).collect())
    }

    /// Waits, and says on failure what the agent knows and has logged.
    pub(super) async fn until(&self, what: &str, is_so: impl AsyncFnMut() -> bool) -> TestResult {
        if let Err(error) = self.node().wait_until(what, LIMIT, is_so).await {
            let status = self.scenario.text(&["status", "-o", "wide"]).await.unwrap_or_default();
            let plan = self.scenario.text(&["plan", "eviction"]).await.unwrap_or_default();
            let journal = self.node().journal(&["--unit=winddown"]).await.unwrap_or_default();
            let disks = self.node().run(&["df"]).await.unwrap_or_default();
            return Err(format!("{error}\n{status}\n{plan}\n{disks}\n{journal}").into());
        }
        Ok(())
    }
}

impl Taker {
    fn manifest(&self) -> Value {
        let (mode, number, directory) = self.does;
        let log = format!("{LOGS}/{}", self.name);
        let mut volumes = vec![
            json!({ "name": "program", "hostPath": { "path": PROGRAM, "type": "File" } }),
            json!({ "name": "logs", "hostPath": { "path": LOGS, "type": "Directory" } }),
        ];
        let mut mounts = vec![
            json!({ "name": "program", "mountPath": PROGRAM, "readOnly": true }),
            json!({ "name": "logs", "mountPath": LOGS }),
        ];
        if let Some(limit) = self.data {
            let empty = limit.map_or(json!({}), |limit| json!({ "sizeLimit": limit }));
            volumes.push(json!({ "name": "data", "emptyDir": empty }));
            mounts.push(json!({ "name": "data", "mountPath": DATA }));
        }
        let mut container = json!({
            "name": "main",
            "image": IMAGE,
            "command": [PROGRAM, log, mode, number.to_string(), directory],
            "volumeMounts": mounts,
        });
        if let Some(limit) = self.ephemeral {
            container["resources"]["limits"]["ephemeral-storage"] = limit.into();
        }
        let mut containers = vec![container];
        if let Some(limit) = self.beside {
            containers.push(json!({
                "name": "beside",
                "image": IMAGE,
                "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"],
                "resources": { "limits": { "ephemeral-storage": limit } },
            }));
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": self.name },
            "spec": {
                "hostNetwork": true,
                "priority": self.priority,
                "terminationGracePeriodSeconds": 30,
                "containers": containers,
                "volumes": volumes,
            },
        })
    }
}
