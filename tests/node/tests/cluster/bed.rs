//! A node with winddown that belongs to a cluster: an API server on the host, and what it has heard.

use std::sync::Arc;

use serde_json::{Value, json};
use winddown_apiserver::ApiServer;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult};
use winddown_node_tests::{Bridge, TestPod, read_pod_log};

pub(crate) const KUBECONFIG: &str = "/etc/winddown/kubeconfig";

/// The API server, and the node with its way there.
pub(crate) struct Bed {
    pub(crate) server: ApiServer,
    pub(crate) scenario: Scenario,
    bridge: Option<Bridge>,
}

impl Bed {
    /// A node whose agent runs and is registered. `pods` can be bound to it; none is yet. Nothing,
    /// after saying so, where no node can be booted.
    pub(crate) async fn joined(test: &str, pods: Vec<TestPod>) -> TestResult<Option<Self>> {
        Self::joined_on(test, pods, setup()).await
    }

    /// The same on such a node. What `setup` adds to the configuration comes after what makes it a cluster's.
    pub(crate) async fn joined_on(
        test: &str,
        pods: Vec<TestPod>,
        setup: Setup,
    ) -> TestResult<Option<Self>> {
        Self::join(Scenario::installed_as(test, pods, &setup).await?).await
    }

    /// The same with containerd.
    pub(crate) async fn joined_with_containerd(
        test: &str,
        pods: Vec<TestPod>,
    ) -> TestResult<Option<Self>> {
        Self::join(Scenario::with_containerd_as(test, pods, &setup()).await?).await
    }

    async fn join(installed: Option<Scenario>) -> TestResult<Option<Self>> {
        let Some(scenario) = installed else { return Ok(None) };
        // Their script and their logs stay; the pods themselves are to come from the API.
        scenario.node.run(&["sh", "-c", "rm /etc/winddown/pods/*.json"]).await?;
        let server = ApiServer::start().await?;
        scenario.node.write(KUBECONFIG, server.kubeconfig(), 0o600)?;
        let mut bed = Self { server, scenario, bridge: None };
        bed.connect().await?;
        if let Err(error) = bed.scenario.node.run(&["systemctl", "start", "winddown"]).await {
            let journal = bed.scenario.node.journal(&["--unit=winddown"]).await?;
            return Err(format!("{error}\n{journal}").into());
        }
        bed.scenario.lock_is_back().await?;
        bed.node_is("registered and ready", |node| is(node, "Ready", "True")).await?;
        Ok(Some(bed))
    }

    /// From now on the node reaches the API server.
    pub(crate) async fn connect(&mut self) -> TestResult {
        self.bridge = Some(Bridge::open(&self.scenario.node, self.server.address()).await?);
        Ok(())
    }

    /// From now on it does not, and what it was saying is broken off.
    pub(crate) async fn cut_off(&mut self) {
        if let Some(bridge) = self.bridge.take() {
            bridge.close().await;
        }
    }

    /// Somebody makes the pod and binds it to the node.
    pub(crate) fn bind(&self, pod: &TestPod) -> TestResult {
        self.bind_with(pod, &json!({}))
    }

    /// The same, with further fields of its spec.
    pub(crate) fn bind_with(&self, pod: &TestPod, more: &Value) -> TestResult {
        self.bind_as(pod, |object| {
            for (field, value) in more.as_object().into_iter().flatten() {
                object["spec"][field] = value.clone();
            }
        })
    }

    /// The same, changed.
    pub(crate) fn bind_as(&self, pod: &TestPod, change: impl FnOnce(&mut Value)) -> TestResult {
        let mut object: Value = serde_json::from_str(&pod.manifest())?;
        object["spec"]["nodeName"] = self.node()?["metadata"]["name"].clone();
        object["spec"]["automountServiceAccountToken"] = json!(false);
        object["status"] = json!({"phase": "Pending"});
        change(&mut object);
        self.server.apply(object)?;
        Ok(())
    }

    /// Binds every pod of the scenario.
    pub(crate) fn bind_all(&self) -> TestResult {
        self.scenario.pods.iter().try_for_each(|pod| self.bind(pod))
    }

    /// The pod's object now.
    pub(crate) fn pod(&self, name: &str) -> TestResult<Arc<Value>> {
        Ok(self.server.get(&path(name)).ok_or_else(|| format!("no pod {name}"))?)
    }

    /// The Node object now.
    pub(crate) fn node(&self) -> TestResult<Arc<Value>> {
        Ok(self.server.list("nodes").pop().ok_or("no node is registered")?)
    }

    /// Waits until the API server has heard of these pods that they are in `phase`.
    pub(crate) async fn pods_are(&self, pods: &[TestPod], phase: &str) -> TestResult {
        for pod in pods {
            let what = format!("{} to be {phase}", pod.name);
            let heard = self.server.within(SOON * 2, &what, |all| {
                (all.get(&path(&pod.name))?["status"]["phase"] == *phase).then_some(())
            });
            if let Err(error) = heard.await {
                return Err(self.explain(&format!("{error}\n{:#}", self.pod(&pod.name)?)).await);
            }
        }
        Ok(())
    }

    /// Waits until the API server has heard of these pods that they run, and their programs have said so.
    pub(crate) async fn pods_run(&self, pods: &[TestPod]) -> TestResult {
        self.pods_are(pods, "Running").await?;
        let node = &self.scenario.node;
        let all_started = async || {
            let logs = read_pod_log(node, pods);
            logs.values().all(|log| !log.starts.is_empty())
        };
        node.wait_until("their programs to run", SOON, all_started).await?;
        Ok(())
    }

    /// Waits until the pod's object is not there any more.
    pub(crate) async fn pod_is_gone(&self, name: &str) -> TestResult {
        let gone =
            |all: &winddown_apiserver::Objects<'_>| all.get(&path(name)).is_none().then_some(());
        if let Err(error) = self.server.until(&format!("{name} to be gone"), gone).await {
            return Err(self.explain(&error.to_string()).await);
        }
        Ok(())
    }

    /// Waits until the Node object is as `so` wants it.
    pub(crate) async fn node_is(&self, what: &str, so: impl Fn(&Value) -> bool) -> TestResult {
        let heard =
            self.server.within(SOON * 2, what, |all| so(all.list("nodes").first()?).then_some(()));
        if let Err(error) = heard.await {
            return Err(self.explain(&format!("{error}\n{:#?}", self.server.list("nodes"))).await);
        }
        Ok(())
    }

    /// Kills the agent, and waits for the next one to hold the lock.
    pub(crate) async fn kill_agent(&self) -> TestResult {
        let old = self.scenario.status().await?["node"]["pid"].clone();
        self.scenario.agent().await?.kill()?;
        self.scenario.another_agent_than(&old).await?;
        Ok(())
    }

    /// Fails unless each of these pods was started once.
    pub(crate) fn assert_started_once(&self) {
        for (name, log) in self.scenario.logs() {
            assert_eq!(log.starts.len(), 1, "{name}: {log:?}");
        }
    }

    /// Fails unless the API server was told of each pod that the node's shutdown ended it.
    pub(crate) fn assert_all_terminated(&self) -> TestResult {
        for pod in &self.scenario.pods {
            let status = self.pod(&pod.name)?["status"].clone();
            assert_eq!(status["phase"], "Failed", "{}: {status:#}", pod.name);
            assert_eq!(status["reason"], "Terminated", "{}: {status:#}", pod.name);
        }
        Ok(())
    }

    async fn explain(&self, error: &str) -> Box<dyn std::error::Error> {
        let status = self.scenario.text(&["status"]).await.unwrap_or_else(|e| e.to_string());
        let journal = self.scenario.node.journal(&["--unit=winddown", "--lines=60"]).await;
        let journal = journal.unwrap_or_else(|error| error.to_string());
        format!("{error}\n{status}\n{journal}").into()
    }
}

/// A node of a cluster.
pub(crate) fn setup() -> Setup {
    let more = format!("mode: cluster\nkubeconfig: {KUBECONFIG}\n");
    Setup { more, ..Setup::default() }
}

/// Whether an object's condition has this status.
pub(crate) fn is(object: &Value, condition: &str, status: &str) -> bool {
    let all = object["status"]["conditions"].as_array();
    all.into_iter().flatten().any(|one| one["type"] == condition && one["status"] == status)
}

fn path(name: &str) -> String {
    format!("pods/default/{name}")
}
