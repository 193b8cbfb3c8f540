//! A node that goes down and comes back, with the API server there, gone or silent.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_api_client::node_pods::KubePods;
use winddown_cluster::after_boot::{AfterBoot, AfterBootPolicy, TerminatedPods};
use winddown_cluster::pods::StatusSide;

use super::agent::{Agent, LONG, Onlooker, until};
use super::phase_of;
use crate::RealApi;
use crate::in_memory::InMemory;
use crate::node::{Life, condition};
use crate::proxy::{Proxy, Way};
use crate::server::wall;

/// For the last words.
const RESERVE: Duration = Duration::from_secs(3);
/// How much later than at the end of the reserve a busy machine may notice it.
const LATE: Duration = Duration::from_secs(3);
/// Two groups.
const FIRST: [&str; 2] = ["a", "b"];
const SECOND: &str = "c";
const PODS: [&str; 3] = ["a", "b", "c"];

/// When the way to the API server is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutAt {
    Never,
    /// As the shutdown begins.
    T0,
    /// The same, until the node is about to go.
    T0UntilTheEnd,
    /// Between the two groups.
    T1,
}

/// A node, its disk, and its way to the API server.
struct Machine {
    api: &'static RealApi,
    name: &'static str,
    proxy: Proxy,
    disk: TempDir,
    onlooker: Onlooker,
}

/// The time between two boots.
struct Boot {
    agent: Agent,
    life: Life,
    memory: InMemory,
    ended: TerminatedPods,
}

/// What the API server was not told in time.
#[derive(Debug, PartialEq, Eq)]
struct NotDelivered {
    pods: Vec<String>,
    node: bool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_goes_down_says_so_and_how_its_pods_ended_within_the_reserve() {
    down_and_back("down-told", CutAt::Never, Way::Open).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_as_it_begins_to_go_down_a_node_tells_everything_after_the_boot() {
    down_and_back("down-t0-closed", CutAt::T0, Way::Closed).await;
    down_and_back("down-t0-silent", CutAt::T0, Way::Silent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_until_it_is_about_to_go_a_node_tells_everything_before_it_goes() {
    down_and_back("down-t0-passing", CutAt::T0UntilTheEnd, Way::Closed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_between_two_groups_a_node_tells_of_the_second_after_the_boot() {
    down_and_back("down-t1-closed", CutAt::T1, Way::Closed).await;
    down_and_back("down-t1-silent", CutAt::T1, Way::Silent).await;
}

async fn down_and_back(name: &'static str, cut: CutAt, way: Way) {
    let Some(machine) = Machine::new(name).await else { return };
    let boot = machine.boot("boot-1").await;
    for pod in PODS {
        machine.api.pod(name, pod, name).await;
    }
    machine.onlooker.until_phases("Running", PODS.len()).await;
    let node = boot.life.node().await;
    assert_eq!(condition(&node, "Ready")["status"], "True");

    let left = boot.go_down(&machine, cut, way).await;
    let expected = match cut {
        CutAt::Never | CutAt::T0UntilTheEnd => NotDelivered { pods: vec![], node: false },
        CutAt::T0 => NotDelivered { pods: PODS.map(str::to_owned).into(), node: true },
        CutAt::T1 => NotDelivered { pods: vec![SECOND.to_owned()], node: false },
    };
    assert_eq!(left, expected, "{name}");
    machine.is_as_told(&left).await;

    machine.proxy.set(Way::Open);
    let boot = machine.boot("boot-2").await;
    for pod in PODS {
        was_ended_by_its_node(&machine.onlooker.until_phase(pod, "Failed").await);
    }
    // The controller has been through all pods when one that is new runs.
    machine.api.pod(name, "new", name).await;
    machine.onlooker.until_phase("new", "Running").await;
    assert_eq!(boot.memory.created(), [1], "nothing runs twice");
    boot.life.told().await;
    let node = boot.life.node().await;
    assert_eq!(condition(&node, "Ready")["status"], "True");
    assert!(node["spec"].get("unschedulable").is_none(), "{node}");

    boot.clean_up(&machine).await;
    let stats = || boot.agent.outbox.stats();
    until("all is said", async || stats().unacknowledged == 0 && stats().spool.files == 0).await;
    assert_eq!(phase_of(&machine.onlooker.pods.get("new").await.unwrap()), "Running");
    boot.off().await;
    machine.api.remove(name, name).await;
}

fn was_ended_by_its_node(pod: &Pod) {
    let pod = serde_json::to_value(pod).unwrap();
    assert_eq!(pod["status"]["reason"], "Terminated");
    assert_eq!(condition(&pod, "DisruptionTarget")["reason"], "TerminationByKubelet");
    assert_eq!(condition(&pod, "Ready")["status"], "False");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 143);
}

fn goes_down(node: &Value) -> bool {
    let ready = condition(node, "Ready");
    let down = ready["status"] == "False";
    if down {
        assert_eq!(ready["reason"], "KubeletNotReady");
        assert_eq!(ready["message"], "node is shutting down");
        assert_eq!(condition(node, "GracefulNodeShutdownInProgress")["status"], "True");
        assert_eq!(node["spec"]["unschedulable"], true);
    }
    down
}

// === impl Machine ===

impl Machine {
    async fn new(name: &'static str) -> Option<Self> {
        let api = RealApi::get().await?;
        api.namespace(name).await;
        let proxy = Proxy::to(&api.url).await;
        let onlooker = Onlooker::new(api, name, name).await;
        Some(Self { api, name, proxy, disk: tempfile::tempdir().unwrap(), onlooker })
    }

    async fn boot(&self, boot: &str) -> Boot {
        let client = self.api.node_at(&self.proxy.url, self.name).await.client();
        let memory = InMemory::default();
        let spool = self.disk.path().join("statuses");
        let agent = Agent::start(client.clone(), self.name, &memory, &spool);
        let life = Life::begin(self.api, client, self.name, boot).await;
        life.handle.set_ready(Ok(()));
        life.told().await;
        let ended = TerminatedPods::new(self.disk.path().join("ended"), Some(boot.into()), wall());
        Boot { agent, life, memory, ended }
    }

    /// The API has what it was told, and nothing else.
    async fn is_as_told(&self, left: &NotDelivered) {
        for name in PODS {
            let pod = self.onlooker.pods.get(name).await.unwrap();
            if left.pods.iter().any(|left| left == name) {
                assert_eq!(phase_of(&pod), "Running", "{name}");
            } else {
                was_ended_by_its_node(&pod);
            }
        }
        let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(self.api.admin().await);
        let node = serde_json::to_value(nodes.get(self.name).await.unwrap()).unwrap();
        assert_eq!(goes_down(&node), !left.node, "{node}");
    }
}

// === impl Boot ===

impl Boot {
    /// Ends the pods in two groups and says so, then switches off.
    async fn go_down(self, machine: &Machine, cut: CutAt, way: Way) -> NotDelivered {
        if matches!(cut, CutAt::T0 | CutAt::T0UntilTheEnd) {
            machine.proxy.set(way);
        }
        self.life.handle.set_shutting_down(true);
        for name in FIRST {
            self.end(name).await;
        }
        if cut == CutAt::T1 {
            self.life.told().await;
            until("the first group is told", async || {
                self.agent.outbox.stats().unacknowledged == 0
            })
            .await;
            machine.proxy.set(way);
        }
        self.end(SECOND).await;

        // A node that waits for its server to come back has to have the time for it.
        let passing = cut == CutAt::T0UntilTheEnd;
        let reserve = Instant::now() + if passing { LONG } else { RESERVE };
        let pods = self.agent.outbox.flush(reserve);
        let (pods, node, ()) = tokio::join!(pods, self.life.handle.flush(reserve), async {
            assert!(self.ended.flush(reserve).await, "the list of ended pods is on disk");
            if passing {
                machine.proxy.set(Way::Open);
            }
        });
        assert!(Instant::now() < reserve + LATE, "{:?} too late", reserve.elapsed());
        let mut pods: Vec<_> = pods.iter().map(|pod| pod.name.to_string()).collect();
        pods.sort();
        let left = NotDelivered { pods, node: node.is_err() };
        self.off().await;
        left
    }

    /// Ends one pod, as the node does; returns when the controller has said so to the outbox.
    async fn end(&self, name: &str) {
        let pod = self.memory.pod(name).unwrap();
        self.ended.note(pod.pod_ref(), "shutdown");
        self.memory.end_by_the_node(&pod);
        let outbox = &self.agent.outbox;
        until("it is said", async || outbox.final_status(pod.uid()).is_some()).await;
    }

    /// Removes what the boot before has left in the API.
    async fn clean_up(&self, machine: &Machine) {
        let (_ready, is_ready) = watch::channel(true);
        let stop = CancellationToken::new();
        let _guard = stop.clone().drop_guard();
        let client = machine.api.node(machine.name).await.client();
        let driver = AfterBoot::new(self.ended.clone(), AfterBootPolicy::Delete, wall());
        let pods = KubePods::new(client, machine.name.to_owned());
        tokio::spawn(driver.run(pods, is_ready, stop));
        for name in PODS {
            machine.onlooker.gone(name).await;
        }
        until("nothing is left on the list", async || self.ended.all().is_empty()).await;
        assert!(self.ended.flush(Instant::now() + LONG).await);
    }

    async fn off(self) {
        self.agent.kill().await;
        self.life.stop.cancel();
    }
}
