//! A node with winddown and twenty pods, with the operations that all tests share.
//!
//! All errors are texts for the reader of the test's output.

mod outcome;
mod setup;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::crio::{self, Crio};
use crate::installation::Installation;
use crate::packages::install_for;
use crate::{
    Flavour, Need, Node, PodLog, Process, Recipe, TestPod, base_or_skip, install_pods, programs,
    read_pod_log,
};

pub(crate) use outcome::has_unknown_end;
pub(crate) use setup::group_of;
pub use setup::{GROUPS, Setup, seven_pods, twenty_pods};

/// The result type of tests and their helpers.
pub type TestResult<T = ()> = Result<T, Box<dyn Error>>;

/// A generous timeout for a busy machine: promised durations are asserted separately.
pub const SOON: Duration = Duration::from_secs(20);
/// The timeout for pods to run. A failed start of a container is retried after 10 s.
const STARTED: Duration = Duration::from_secs(45);
/// The same with the node's own kernel, where a process takes much longer to start.
const STARTED_ON_OWN_KERNEL: Duration = Duration::from_secs(240);
/// How long the next agent may take to hold the lock, as promised. It takes less than half a second on an idle machine.
pub const LOCK_BACK: Duration = Duration::from_secs(2);

/// A node with winddown installed, and the pods to run on it.
#[derive(Debug)]
pub struct Scenario {
    /// The node.
    pub node: Node,
    /// The pods in the node's manifests folder.
    pub pods: Vec<TestPod>,
}

impl Scenario {
    /// Boots a node and installs winddown and the pods, as an operator would. The agent is not started. Returns none,
    /// after reporting why, if no node can be booted.
    pub async fn installed(test: &str) -> TestResult<Option<Self>> {
        Self::installed_with(test, twenty_pods()).await
    }

    /// Like [`Self::installed`], with other pods.
    pub async fn installed_with(test: &str, pods: Vec<TestPod>) -> TestResult<Option<Self>> {
        Self::installed_as(test, pods, &Setup::default()).await
    }

    /// Like [`Self::installed`], with another node, pods and configuration.
    pub async fn installed_as(
        test: &str,
        pods: Vec<TestPod>,
        setup: &Setup,
    ) -> TestResult<Option<Self>> {
        Self::plain(test, pods, "process", setup).await
    }

    /// Like [`Self::installed_with`], with the pods as systemd services.
    pub async fn with_services(test: &str, pods: Vec<TestPod>) -> TestResult<Option<Self>> {
        Self::with_services_as(test, pods, &Setup::default()).await
    }

    /// Like [`Self::with_services`], with another node or configuration.
    pub async fn with_services_as(
        test: &str,
        pods: Vec<TestPod>,
        setup: &Setup,
    ) -> TestResult<Option<Self>> {
        Self::plain(test, pods, "systemd", setup).await
    }

    /// A node without containerd.
    async fn plain(
        test: &str,
        pods: Vec<TestPod>,
        runtime: &str,
        setup: &Setup,
    ) -> TestResult<Option<Self>> {
        let recipe = Recipe::cheapest(setup.suite, setup.needs).ok_or("no node has all of that")?;
        check_listed(recipe, runtime)?;
        let Some(base) = base_or_skip(test, recipe).await? else { return Ok(None) };
        let node = Node::create(&base).await?;
        Self::install(node, pods, runtime, setup).await.map(Some)
    }

    /// Boots a node with containerd, the required images, winddown configured for it, and pods in containers. The agent
    /// is not started. Returns none, after reporting why, if no node can be booted.
    pub async fn with_containerd(test: &str, pods: Vec<TestPod>) -> TestResult<Option<Self>> {
        Self::with_containerd_as(test, pods, &Setup::default()).await
    }

    /// Like [`Self::with_containerd`], with another configuration.
    pub async fn with_containerd_as(
        test: &str,
        pods: Vec<TestPod>,
        setup: &Setup,
    ) -> TestResult<Option<Self>> {
        let needs = [setup.needs, &[Need::Containers]].concat();
        let recipe = Recipe::cheapest(setup.suite, &needs).ok_or("no node has all of that")?;
        check_listed(recipe, "cri")?;
        let Some(base) = base_or_skip(test, recipe).await? else { return Ok(None) };
        let node = Node::create(&base).await?;
        node.configure_containerd()?;
        let pods = pods.into_iter().map(TestPod::in_container).collect();
        let scenario = Self::install(node, pods, "cri", setup).await?;
        scenario.node.import_images().await?;
        Ok(Some(scenario))
    }

    /// Like [`Self::with_containerd_as`], with CRI-O in the place of containerd.
    pub async fn with_crio(
        test: &str,
        pods: Vec<TestPod>,
        setup: &Setup,
        crio: &Crio,
    ) -> TestResult<Option<Self>> {
        let recipe = Recipe::from(Flavour::Containerd);
        let Some(base) = base_or_skip(test, recipe).await? else { return Ok(None) };
        let node = Node::create(&base).await?;
        node.configure_containerd()?;
        node.install_crio(crio)?;
        let pods = pods.into_iter().map(TestPod::in_container).collect();
        let endpoint = format!("containerRuntimeEndpoint: unix://{}\n", crio::SOCKET);
        let setup = Setup { more: format!("{}{endpoint}", setup.more), ..setup.clone() };
        let scenario = Self::install(node, pods, "cri", &setup).await?;
        scenario.node.crio_listens().await?;
        Ok(Some(scenario))
    }

    /// Installs winddown and pods in a created node, and boots it.
    async fn install(
        mut node: Node,
        pods: Vec<TestPod>,
        runtime: &str,
        setup: &Setup,
    ) -> TestResult<Self> {
        let config = setup.config(runtime);
        if setup.package.is_none() {
            Installation::of(runtime, &config).await?.lay_into(&node)?;
        }
        install_pods(&node, &pods)?;
        if let Some(bytes) = setup.disk {
            node.add_disk(bytes).await?;
        }
        if let Some(folder) = &setup.shared {
            node.share(folder)?;
        }
        node.start().await?;
        match &setup.package {
            Some(deb) => install_for(&node, deb, runtime, &config).await?,
            None => {
                Installation::enable(&node).await?;
                node.has_programs(&programs().await?)?;
            }
        }
        Ok(Self { node, pods })
    }

    /// Like [`Self::installed`], but with the agent and all pods running and the lock held.
    pub async fn running(test: &str) -> TestResult<Option<Self>> {
        let Some(scenario) = Self::installed(test).await? else { return Ok(None) };
        scenario.start().await?;
        Ok(Some(scenario))
    }

    /// Starts the agent, and waits for its pods and its lock.
    pub async fn start(&self) -> TestResult {
        if let Err(error) = self.node.run(&["systemctl", "start", "winddown"]).await {
            let journal = self.node.journal(&["--unit=winddown"]).await.unwrap_or_default();
            return Err(format!("{error}\n{journal}").into());
        }
        self.wait_started(self.pods.len()).await?;
        self.lock_is_back().await?;
        Ok(())
    }

    /// The logs of all pods.
    pub fn logs(&self) -> BTreeMap<String, PodLog> {
        read_pod_log(&self.node, &self.pods)
    }

    /// The output of a `winddown` command.
    pub async fn text(&self, args: &[&str]) -> TestResult<String> {
        Ok(self.node.run(&[&["winddown"], args].concat()).await?)
    }

    /// The output of `winddown status -o json`.
    pub async fn status(&self) -> TestResult<Value> {
        Ok(serde_json::from_str(&self.text(&["status", "--output", "json"]).await?)?)
    }

    /// The same, from the agent's socket on the host: this starts no process in the node, which may be shutting down,
    /// and takes hardly any time from the agent. (A node with its own kernel cannot be asked from outside.)
    pub async fn status_from_outside(&self) -> TestResult<Value> {
        if self.node.has_own_kernel() {
            return self.status().await;
        }
        let socket = self.node.host_path("/run/winddown/winddown.sock");
        let asked = async {
            let mut socket = UnixStream::connect(socket).await?;
            let request = b"GET /v1/status HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
            socket.write_all(request).await?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await?;
            let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
            Ok::<_, Box<dyn Error>>(serde_json::from_str(body)?)
        };
        tokio::time::timeout(Duration::from_secs(2), asked).await?
    }

    /// Waits until logind lists the lock and a running agent reports that it holds it. Returns how long that took.
    pub async fn lock_is_back(&self) -> TestResult<Duration> {
        let held = async || {
            let status = self.status_from_outside().await;
            status.is_ok_and(|status| status["lock"]["state"] == "held")
                && self.lock_is_listed().await
        };
        let waited = self.node.wait_until("the lock to be held", SOON, held).await;
        match waited {
            Ok(took) => Ok(took),
            Err(error) => {
                let status = self.text(&["status"]).await.unwrap_or_else(|e| e.to_string());
                Err(format!("{error}\n{status}").into())
            }
        }
    }

    /// Waits until an agent with another PID than `old` holds the lock. Returns how long that took.
    pub async fn another_agent_than(&self, old: &Value) -> TestResult<Duration> {
        let changed = async || {
            let status = self.status_from_outside().await;
            status.is_ok_and(|status| {
                status["node"]["pid"] != *old && status["lock"]["state"] == "held"
            })
        };
        Ok(self.node.wait_until("a new agent with the lock", SOON, changed).await?)
    }

    /// The agent's process; waits until it exists.
    pub async fn agent(&self) -> TestResult<Process> {
        let mut found = None;
        let there = async || {
            found = self.node.process(&["/usr/bin/winddownd"]);
            found.is_some()
        };
        self.node.wait_until("the agent's process", SOON, there).await?;
        Ok(found.ok_or("the agent has no process")?)
    }

    /// Waits until the first pod was asked to stop.
    pub async fn someone_is_asked(&self) -> TestResult {
        let asked = async || self.logs().values().any(|log| !log.terms.is_empty());
        self.node.wait_until("the first pod to be asked", SOON, asked).await?;
        Ok(())
    }

    /// Waits until the agent reports that all pods are in `phase`.
    pub async fn all_pods_are(&self, phase: &str) -> TestResult {
        let are = async || {
            let status = self.status_from_outside().await.unwrap_or_default();
            let pods = status["pods"].as_array().cloned().unwrap_or_default();
            pods.len() == self.pods.len() && pods.iter().all(|pod| pod["phase"] == phase)
        };
        if let Err(error) =
            self.node.wait_until(&format!("all pods to be {phase}"), SOON, are).await
        {
            return Err(format!("{error}\n{}", self.status().await?).into());
        }
        Ok(())
    }

    /// Waits until at least `count` pods have been started. Returns how long that took.
    pub async fn wait_started(&self, count: usize) -> TestResult<Duration> {
        let what = format!("{count} pods to run");
        let started = || self.logs().values().filter(|log| !log.starts.is_empty()).count();
        let patience = match self.node.has_own_kernel() {
            true => STARTED_ON_OWN_KERNEL,
            false => STARTED,
        };
        match self.node.wait_until(&what, patience, async || started() >= count).await {
            Ok(took) => Ok(took),
            Err(error) => {
                let status = self.text(&["status"]).await.unwrap_or_else(|error| error.to_string());
                Err(format!("{error}\n{status}").into())
            }
        }
    }

    /// Fails unless every pod was started once and never asked to stop.
    pub fn assert_nothing_was_asked(&self) -> TestResult {
        for (name, log) in self.logs() {
            if log.starts.len() != 1 || !log.terms.is_empty() {
                return Err(format!("{name} was not left alone: {log:?}").into());
            }
        }
        Ok(())
    }

    /// Whether logind itself lists a lock of winddown.
    pub async fn lock_is_listed(&self) -> bool {
        let listed = self.node.run(&["systemd-inhibit", "--list", "--no-legend"]).await;
        listed.is_ok_and(|text| text.lines().any(|line| line.contains("winddown")))
    }

    /// How long logind waits for delay locks according to itself, in seconds.
    pub async fn logind_delay(&self) -> TestResult<f64> {
        let said = self.node.run(&logind_property("InhibitDelayMaxUSec")).await?;
        let micros: u64 = said.trim().trim_start_matches("t ").parse()?;
        Ok(Duration::from_micros(micros).as_secs_f64())
    }

    /// The PID of each pod, from its log. Fails unless each pod was started once, was never asked to stop, and still
    /// runs.
    pub async fn untouched_pids(&self) -> TestResult<Vec<u32>> {
        let mut pids = Vec::new();
        for (name, log) in self.logs() {
            let [(_, pid)] = log.starts[..] else {
                return Err(format!("{name} was started {} times", log.starts.len()).into());
            };
            if !log.terms.is_empty() {
                return Err(format!("{name} was asked to stop").into());
            }
            pids.push(pid);
        }
        let alive = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        self.node.run(&["sh", "-c", &format!("kill -0 {alive}")]).await?;
        Ok(pids)
    }

    /// The logs of the pods with this priority.
    pub fn group(&self, priority: i32) -> Vec<PodLog> {
        let logs = self.logs();
        let of_group = self.pods.iter().filter(|pod| pod.priority == priority);
        of_group.map(|pod| logs[&pod.name].clone()).collect()
    }

    /// Waits until the agent logs `text` at `since` or later, in nanoseconds since 1970, and returns when it did.
    pub async fn said_after(&self, since: u64, text: &str) -> TestResult<u64> {
        let mut at = None;
        let said = async || {
            let entries = self.node.journal_entries(&["--unit=winddown"]).await.unwrap_or_default();
            let mut entries = entries.into_iter().filter(|entry| entry.at >= since);
            at = entries.find(|entry| entry.message.contains(text)).map(|entry| entry.at);
            at.is_some()
        };
        self.node.wait_until(&format!("the agent to say '{text}'"), SOON, said).await?;
        Ok(at.ok_or("it was said")?)
    }

    /// Asks logind to power the node off. Returns the time just before, in nanoseconds since 1970.
    pub async fn power_off(&self) -> TestResult<u64> {
        let now = self.node.run(&["date", "+%s%N"]).await?.trim().parse()?;
        self.node.shut_down(&["systemctl", "poweroff"]).await?;
        Ok(now)
    }
}

/// Checks that the combination is in the table of platforms, so that the table is complete.
fn check_listed(recipe: Recipe, runtime: &str) -> TestResult {
    match crate::platforms::is_listed(recipe, runtime) {
        true => Ok(()),
        false => Err(format!("{recipe:?} with {runtime} is not in the list of platforms").into()),
    }
}

/// The command that reads a property of logind.
pub(crate) fn logind_property(name: &str) -> [&str; 6] {
    let login = ["org.freedesktop.login1", "/org/freedesktop/login1"];
    ["busctl", "get-property", login[0], login[1], "org.freedesktop.login1.Manager", name]
}

/// The findings of `winddown doctor -o json` that are warnings or problems.
pub fn not_well(doctor: &Value) -> impl Iterator<Item = &Value> {
    let findings = doctor["findings"].as_array().into_iter().flatten();
    findings.filter(|finding| finding["severity"] == "warning" || finding["severity"] == "problem")
}
