//! A node with containerd, a real kubelet that belongs to a real API server, and winddown beside it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use winddown_node_tests::crio::{self, Crio};
use winddown_node_tests::kubelet::{self, KUBECONFIG, KUBELET, STATIC_PODS};
use winddown_node_tests::scenario::{GROUPS, Scenario, Setup, TestResult};
use winddown_node_tests::{Bridge, Need, PodLog, Process, Suite, TestPod, read_pod_log};

use super::DOWN;
use crate::RealApi;
use crate::proxy::{Proxy, Way};
use crate::server::{HOUR, named};

/// How long the kubelet may take to run all pods.
const RUNS: Duration = Duration::from_secs(300);
/// Pods with a volume that the kubelet mounts, where that is asked for: one with a group behind it, and the last.
pub(crate) const WITH_VOLUMES: [&str; 2] = ["queue-0", "agent-0"];
/// The static pod.
pub(crate) const STATIC: &str = "static-0";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Who ends the pods when the node goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Winddown,
    /// The kubelet, by its own graceful shutdown; no agent runs.
    Kubelet,
    /// Whoever deletes them through the API server, group by group; no agent runs, and the machine stays up.
    Requests,
}

pub(crate) struct Machine {
    pub(crate) scenario: Scenario,
    pub(crate) bridge: Option<Bridge>,
    pub(crate) api: &'static RealApi,
    pub(crate) node: String,
    /// Between the node and the API server.
    way: Proxy,
    address: Ipv4Addr,
}

/// What runs on the machine, and how it ends.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) ends: Ends,
    pub(crate) pods: Vec<TestPod>,
    /// The time of each of the three groups, in seconds.
    pub(crate) seconds: [u32; 3],
    /// Those of [`WITH_VOLUMES`] have a volume.
    pub(crate) volumes: bool,
    /// CRI-O runs them, and not containerd.
    pub(crate) crio: bool,
    /// Where it is among several nodes, if it is not the only one.
    pub(crate) place: Option<Place>,
    /// The node's release of Debian: after Debian 12 the node has its own kernel and control groups of version 2.
    pub(crate) suite: Suite,
}

/// A node among several.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Decides its address and those of its pods, which have networks of their own.
    pub(crate) number: u8,
    /// What they all see.
    pub(crate) shared: PathBuf,
}

impl Place {
    fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, self.number)
    }
}

impl Wanted {
    pub(crate) fn by(ends: Ends) -> Self {
        let (pods, suite) = (pods(), Suite::default());
        Self { ends, pods, seconds: [6, 4, 4], volumes: false, crio: false, place: None, suite }
    }
}

/// Four ordinary pods, two of a higher priority, a critical one; and a static one beside them.
fn pods() -> Vec<TestPod> {
    let ordinary = (0..4).map(|n| TestPod::new(format!("web-{n}"), 0, 500 + 200 * n));
    let queues = (0..2).map(|n| TestPod::new(format!("queue-{n}"), 1000, 500));
    let critical = [TestPod::new("agent-0", 2_000_000_000, 400)];
    ordinary.chain(queues).chain(critical).map(TestPod::in_container).collect()
}

fn class_of(pod: &TestPod) -> Option<&'static str> {
    match pod.priority {
        0 => None,
        1000 => Some("queue"),
        _ => Some("system-cluster-critical"),
    }
}

impl Machine {
    /// The machine with all its pods running. None, after saying so, where a program is missing.
    pub(crate) async fn set(test: &str, ends: Ends) -> TestResult<Option<Self>> {
        Self::set_with(test, Wanted::by(ends)).await
    }

    /// The same, as it is wanted.
    pub(crate) async fn set_with(test: &str, wanted: Wanted) -> TestResult<Option<Self>> {
        let Some(api) = RealApi::get().await else { return Ok(None) };
        Self::set_at(api, test, wanted).await
    }

    /// The same, with the node at this API server.
    pub(crate) async fn set_at(
        api: &'static RealApi,
        test: &str,
        wanted: Wanted,
    ) -> TestResult<Option<Self>> {
        let (ends, volumes) = (wanted.ends, wanted.volumes);
        let Some(machine) = Self::joined(api, test, wanted).await? else { return Ok(None) };
        machine.make_pods(volumes).await?;
        machine.leave_pods_to(ends).await?;
        Ok(Some(machine))
    }

    /// The machine with a kubelet that belongs to the API server, and nothing else yet.
    pub(crate) async fn joined(
        api: &'static RealApi,
        test: &str,
        wanted: Wanted,
    ) -> TestResult<Option<Self>> {
        let Some(kubelet) = named(test, "WINDDOWN_KUBELET") else { return Ok(None) };
        let mut more = format!("mode: companion\nkubeconfig: {KUBECONFIG}\n");
        let Wanted { ends, pods, seconds, crio, place, suite, .. } = wanted;
        let scenario = if crio {
            let Some(crio) = Crio::named(test, "cgroupfs") else { return Ok(None) };
            let setup = Setup { more, seconds, ..Setup::default() };
            Scenario::with_crio(test, pods, &setup, &crio).await?
        } else {
            more += "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n";
            let needs: &[Need] = if suite == Suite::Bookworm { &[] } else { &[Need::Controllers] };
            let shared = place.as_ref().map(|place| place.shared.clone());
            let setup = Setup { suite, needs, more, seconds, shared, ..Setup::default() };
            Scenario::with_containerd_as(test, pods, &setup).await?
        };
        let Some(scenario) = scenario else { return Ok(None) };
        // One API server has the nodes of all tests.
        let node = format!("kubelet-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        scenario.node.write("/etc/hostname", &node, 0o644)?;
        scenario.node.run(&["hostname", &node]).await?;
        let address = place.as_ref().map_or(kubelet::ADDRESS, Place::address);
        if let Some(place) = place {
            scenario.node.configure_pod_network(place.number)?;
        }
        let way = Proxy::to(&api.url).await;
        let mut machine = Self { scenario, bridge: None, api, node, way, address };
        machine.connect().await?;
        let mut configuration = machine.configuration(ends, seconds);
        if crio {
            configuration["containerRuntimeEndpoint"] = json!(format!("unix://{}", crio::SOCKET));
        }
        machine.start_kubelet(&kubelet, &configuration).await?;
        Ok(Some(machine))
    }

    /// From now on winddown runs, or is not there.
    pub(crate) async fn leave_pods_to(&self, ends: Ends) -> TestResult {
        let node = &self.scenario.node;
        match ends {
            Ends::Winddown => {
                node.run(&["systemctl", "start", "winddown"]).await?;
                self.agent_knows_all().await
            }
            Ends::Kubelet | Ends::Requests => self.remove_winddown().await,
        }
    }

    /// The programs stay, for what they say of such a node.
    async fn remove_winddown(&self) -> TestResult {
        let all = "cp $(dirname $(command -v winddown))/winddown* /root/
winddown uninstall --force; rm -r /etc/winddown";
        self.scenario.node.run(&["sh", "-ec", all]).await?;
        Ok(())
    }

    /// Boots the node, which is off, and has the kubelet start.
    pub(crate) async fn boot_again(&mut self) -> TestResult {
        self.scenario.node.start().await?;
        self.connect().await?;
        let node = &self.scenario.node;
        node.prepare_for_kubelet(self.address).await?;
        node.run(&["systemctl", "start", "kubelet"]).await?;
        Ok(())
    }

    /// From now on the node reaches the API server.
    pub(crate) async fn connect(&mut self) -> TestResult {
        let host = self.way.url.trim_start_matches("https://").parse()?;
        self.bridge = Some(Bridge::open(&self.scenario.node, host).await?);
        Ok(())
    }

    /// Where the node finds the API server.
    pub(super) fn api_address(&self) -> TestResult<SocketAddr> {
        let mut address: SocketAddr = self.way.url.trim_start_matches("https://").parse()?;
        address.set_ip(Bridge::end_of(&self.scenario.node).into());
        Ok(address)
    }

    /// From now on it does not.
    pub(crate) async fn cut_off(&mut self) {
        if let Some(bridge) = self.bridge.take() {
            bridge.close().await;
        }
    }

    /// From now on the API server takes what the node sends, and answers nothing.
    pub(crate) fn silence(&self) {
        self.way.set(Way::Silent);
    }

    /// Kills what ends the pods. The node's own kernel hides its processes.
    pub(crate) async fn kill(&self, ends: Ends) -> TestResult {
        let unit = if ends == Ends::Winddown { "winddown" } else { "kubelet" };
        let kill = ["systemctl", "kill", "--kill-whom=main", "--signal=KILL", unit];
        self.scenario.node.run(&kill).await?;
        Ok(())
    }

    /// The kubelet's process.
    pub(crate) fn kubelet(&self) -> TestResult<Process> {
        let mut found = self.scenario.node.processes_with(KUBELET);
        found.pop().map(|(process, _)| process).ok_or_else(|| "the kubelet has no process".into())
    }

    /// Names of pods by the group that they end with, in order.
    pub(crate) fn groups(&self) -> Vec<(&'static str, Vec<&str>)> {
        let of = |priority: i32| -> Vec<&str> {
            let pods = self.scenario.pods.iter().filter(|pod| pod.priority == priority);
            pods.map(|pod| pod.name.as_str()).collect()
        };
        vec![("ordinary", of(0)), ("queues", of(1000)), ("critical", of(2_000_000_000))]
    }

    async fn start_kubelet(&self, program: &Path, configuration: &Value) -> TestResult {
        let node = &self.scenario.node;
        let user = format!("system:node:{}", self.node);
        let issued = self.api.authority.client(&user, &["system:nodes"], HOUR);
        for (name, text) in [
            ("ca.crt", self.api.authority.pem()),
            ("node.crt", issued.certificate),
            ("node.key", issued.key),
        ] {
            node.write(&format!("/var/lib/kubelet/{name}"), text, 0o600)?;
        }
        let user = json!({
            "client-certificate": "/var/lib/kubelet/node.crt",
            "client-key": "/var/lib/kubelet/node.key",
        });
        node.write(KUBECONFIG, self.kubeconfig(&user)?, 0o600)?;
        node.install_kubelet(program, configuration, self.address).await?;
        node.run(&["systemctl", "start", "kubelet"]).await?;
        Ok(())
    }

    fn kubeconfig(&self, user: &Value) -> TestResult<String> {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {
                "server": format!("https://{}", self.api_address()?), "certificate-authority": "/var/lib/kubelet/ca.crt",
            }}],
            "users": [{"name": "u", "user": user}],
        });
        Ok(kubeconfig.to_string())
    }

    /// Has the agent come with the rights of `companion-mode.yaml`, which may taint the node, and not with the
    /// kubelet's credentials.
    pub(crate) async fn give_agent_its_rights(&self) -> TestResult {
        let name = format!("companion-of-{}", self.node);
        let group = "rbac.authorization.k8s.io";
        self.api
            .apply(&[json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "winddown:companion"},
                "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
            })])
            .await;
        let issued = self.api.authority.client(&name, &[], HOUR);
        let [certificate, key, file] =
            ["agent.crt", "agent.key", "kubeconfig"].map(|name| format!("/etc/winddown/{name}"));
        let node = &self.scenario.node;
        let user = json!({"client-certificate": certificate, "client-key": key});
        node.write(&certificate, issued.certificate, 0o600)?;
        node.write(&key, issued.key, 0o600)?;
        node.write(&file, self.kubeconfig(&user)?, 0o600)?;
        let change = format!(
            "sed -i 's,{KUBECONFIG},{file},' /etc/winddown/config.yaml; systemctl restart winddown"
        );
        node.run(&["sh", "-ec", &change]).await?;
        self.agent_knows_all().await
    }

    /// Does what `winddown install --companion` says is to be done.
    pub(crate) async fn leave_pods_to_winddown(&self) -> TestResult {
        let node = &self.scenario.node;
        node.configure_kubelet(&self.configuration(Ends::Winddown, [0; 3]))?;
        let before = self.ready_at().await;
        node.run(&["systemctl", "restart", "kubelet"]).await?;
        // Until it has looked at its pods it ends none: seconds on a busy machine.
        let again = async || self.ready_at().await > before;
        self.eventually("the kubelet is ready again", again).await?;
        node.run(&["systemctl", "enable", "--now", "winddown"]).await?;
        self.agent_knows_all().await
    }

    /// When the kubelet last said that the node is ready, in whole seconds, if that is what it said last.
    pub(crate) async fn ready_at(&self) -> Option<Timestamp> {
        let nodes: Api<Node> = Api::all(self.api.admin().await);
        let conditions = nodes.get(&self.node).await.ok()?.status?.conditions?;
        let ready = conditions.into_iter().find(|one| one.type_ == "Ready" && one.status == "True");
        Some(ready?.last_heartbeat_time?.0)
    }

    /// Waits until the agent holds its lock, and the API server has told it the pods and the static one.
    pub(super) async fn agent_knows_all(&self) -> TestResult {
        self.scenario.lock_is_back().await?;
        if self.scenario.pods.is_empty() {
            return Ok(());
        }
        self.eventually("the agent knows all pods", async || {
            let status = self.scenario.status_from_outside().await.unwrap_or_default();
            status["pods"].as_array().is_some_and(|pods| pods.len() > self.scenario.pods.len())
        })
        .await
    }

    /// Binds the pods to the node, and waits until they and the static one run.
    async fn make_pods(&self, volumes: bool) -> TestResult {
        self.eventually("the node is ready", async || self.ready_at().await.is_some()).await?;
        self.api.namespace(&self.node).await;
        self.api
            .apply(&[json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "queue"}, "value": 1000})])
            .await;
        let pods: Api<Pod> = Api::namespaced(self.api.admin().await, &self.node);
        for pod in &self.scenario.pods {
            let mut object: Value = serde_json::from_str(&pod.manifest())?;
            object["metadata"]["namespace"] = json!(self.node);
            object["metadata"]["labels"] = json!({"app": pod.name});
            if volumes && WITH_VOLUMES.contains(&pod.name.as_str()) {
                self.give_volume(&pod.name, &mut object).await?;
            }
            let spec = object["spec"].as_object_mut().ok_or("a pod without a spec")?;
            spec.remove("priority");
            spec.insert("nodeName".into(), json!(self.node));
            spec.insert("automountServiceAccountToken".into(), json!(false));
            if let Some(class) = class_of(pod) {
                spec.insert("priorityClassName".into(), json!(class));
            }
            pods.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        }
        let fixed = TestPod::new(STATIC, 0, 300).in_container();
        let mut manifest: Value = serde_json::from_str(&fixed.manifest())?;
        manifest["metadata"]["namespace"] = json!("default");
        manifest["spec"]["priorityClassName"] = json!("system-node-critical");
        manifest["spec"]["priority"] = json!(2_000_001_000);
        self.scenario.node.write(
            &format!("{STATIC_PODS}/static-0.yaml"),
            manifest.to_string(),
            0o600,
        )?;
        self.eventually("all run, says the API server", async || {
            let all = pods.list(&kube::api::ListParams::default()).await;
            let running = |pod: &Pod| {
                pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
            };
            all.is_ok_and(|all| all.items.iter().all(running))
        })
        .await?;
        self.scenario.wait_started(self.scenario.pods.len()).await?;
        let mirrors: Api<Pod> = Api::namespaced(self.api.admin().await, "default");
        let mirror = format!("{STATIC}-{}", self.node);
        self.eventually("the static pod has its mirror", async || {
            mirrors.get(&mirror).await.is_ok_and(|pod| {
                pod.status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
            })
        })
        .await
    }

    /// Deletes the pods of a group, all at once, and waits for the last exit: what the API server, the kubelet and the
    /// container runtime need for that by themselves.
    pub(crate) async fn delete(&self, group: &[&str]) -> TestResult {
        let pods: Api<Pod> = Api::namespaced(self.api.admin().await, &self.node);
        let params = DeleteParams::default().grace_period(30);
        for deleted in join_all(group.iter().map(|pod| pods.delete(pod, &params))).await {
            deleted?;
        }
        self.eventually("the pods have terminated", async || {
            let logs = self.scenario.logs();
            group.iter().all(|pod| !logs[*pod].exits.is_empty())
        })
        .await
    }

    /// The pods with a sidecar, and what that wrote down.
    pub(crate) fn sidecars(&self) -> Vec<(&TestPod, PodLog)> {
        let pods = self.scenario.pods.iter().filter(|pod| pod.has_sidecar);
        let log = |pod: &TestPod| {
            read_pod_log(&self.scenario.node, &[pod.sidecar()]).into_values().next()
        };
        pods.map(|pod| (pod, log(pod).unwrap_or_default())).collect()
    }

    /// Waits until all preStop hooks of the first group run: an agent that is killed when it is about to run one leaves
    /// it out, so that it does not run twice.
    pub(crate) async fn hooks_of_first_group_run(&self) -> TestResult {
        let run = async || {
            let logs = self.scenario.logs();
            let pods = self.scenario.pods.iter().filter(|pod| pod.priority == 0 && pod.has_hook);
            let mut logs: Vec<PodLog> = pods.map(|pod| logs[&pod.name].clone()).collect();
            logs.extend(self.sidecars().into_iter().map(|(_, log)| log));
            logs.iter().all(|log| !log.hooks.is_empty())
        };
        self.scenario.node.wait_until("the hooks of the first group to run", DOWN, run).await?;
        Ok(())
    }

    /// Starts the kubelet again, and the agent if there is one, which then knows all pods from the container runtime.
    pub(crate) async fn start_again(&self, ends: Ends) -> TestResult {
        let node = &self.scenario.node;
        node.run(&["systemctl", "restart", "kubelet"]).await?;
        if ends == Ends::Winddown {
            node.run(&["systemctl", "restart", "winddown"]).await?;
            self.agent_knows_all().await?;
        }
        // Until it has registered its shutdown inhibitor.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(())
    }

    /// What the static pod wrote down.
    pub(crate) fn log_of_static_pod(&self) -> TestResult<PodLog> {
        let fixed = TestPod::new(STATIC, 0, 300).in_container();
        let logs = read_pod_log(&self.scenario.node, &[fixed]);
        Ok(logs.into_values().next().ok_or("the static pod wrote nothing")?)
    }

    /// Fails unless the static pod ended once, by itself, after all others.
    pub(crate) fn assert_static_pod_was_last(&self) -> TestResult {
        let log = self.log_of_static_pod()?;
        assert_eq!((log.starts.len(), log.exits.len()), (1, 1), "{log:?}");
        let others = self.scenario.logs();
        let last = others.values().flat_map(|log| &log.exits).max().ok_or("no pod exited")?;
        let early = Duration::from_nanos(last.saturating_sub(log.terms[0]));
        assert!(
            early.is_zero(),
            "the static pod was asked {early:?} before the others had terminated"
        );
        Ok(())
    }

    /// Gives delay locks so many seconds, in a file that wins.
    pub(crate) async fn give_logind(&self, seconds: u32) -> TestResult {
        let node = &self.scenario.node;
        let text = format!("[Login]\nInhibitDelayMaxSec={seconds}\n");
        node.write("/etc/systemd/logind.conf.d/zz.conf", text, 0o644)?;
        node.run(&["systemctl", "kill", "-s", "HUP", "systemd-logind"]).await?;
        let given = async || {
            self.scenario.logind_delay().await.is_ok_and(|delay| delay == f64::from(seconds))
        };
        node.wait_until("logind to read it", RUNS, given).await?;
        Ok(())
    }

    /// Fails unless `winddown doctor` says so of the kubelet's own shutdown.
    pub(crate) async fn assert_doctor_says(&self, severity: &Value, seen: &str) -> TestResult {
        let doctor = "/root/winddown doctor -o json || true";
        let said = self.scenario.node.run(&["sh", "-c", doctor]).await?;
        let said: Value = serde_json::from_str(&said)?;
        let findings = said["findings"].as_array().ok_or("no findings")?;
        let own = findings.iter().find(|finding| finding["id"] == "kubelet-shutdown");
        let own = own.ok_or_else(|| format!("nothing of the kubelet's shutdown: {said:#}"))?;
        assert_eq!(own["severity"], *severity, "{own:#}");
        assert!(own.to_string().contains(seen), "{own:#}");
        Ok(())
    }

    fn configuration(&self, ends: Ends, seconds: [u32; 3]) -> Value {
        let mut configuration = kubelet::configuration(&self.scenario.node);
        configuration["authentication"]["x509"] =
            json!({"clientCAFile": "/var/lib/kubelet/ca.crt"});
        if ends == Ends::Kubelet {
            let groups = GROUPS.iter().zip(seconds);
            let group = |(priority, seconds)| json!({"priority": priority, "shutdownGracePeriodSeconds": seconds});
            configuration["shutdownGracePeriodByPodPriority"] = groups.map(group).collect();
        }
        configuration
    }

    pub(crate) async fn eventually(&self, what: &str, is: impl AsyncFn() -> bool) -> TestResult {
        let waiting = self.scenario.node.wait_until(what, RUNS, async || is().await).await;
        if let Err(error) = waiting {
            let journal = self.scenario.node.journal(&["--unit=kubelet", "--lines=20"]).await?;
            return Err(format!("{error}\n{journal}").into());
        }
        Ok(())
    }
}
