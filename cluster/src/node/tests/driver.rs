//! The driver on a paused clock.

mod cordons;
mod ownership;
mod shutdowns;
mod trouble;

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use winddown_apiserver::{ApiServer, Fault, Request};

use super::super::controller::{NodeController, NodeSettings, Registration};
use super::super::handle::NodeControllerHandle;
use super::*;
use crate::events::{Events, NodeRef};

const NODE: &str = "nodes/n1";
const LEASE: &str = "leases.coordination.k8s.io/kube-node-lease/n1";

/// A running controller and its surroundings.
struct Agent {
    handle: NodeControllerHandle,
    facts: watch::Sender<NodeFacts>,
    events: Events,
    stop: CancellationToken,
    run: JoinHandle<()>,
}

impl Agent {
    fn start_with(server: &ApiServer, facts: NodeFacts, settings: NodeSettings) -> Self {
        Self::start_as(client(server), facts, settings)
    }

    fn start_as(client: kube::Client, facts: NodeFacts, settings: NodeSettings) -> Self {
        let (facts, told) = watch::channel(facts);
        let events = Events::unwritten(NodeRef::new(NAME), 1000, clock());
        let (controller, handle) = NodeController::builder(client, NAME, told, clock())
            .settings(settings)
            .events(events.clone())
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        let run = tokio::spawn(controller.run(stop.clone()));
        Self { handle, facts, events, stop, run }
    }

    fn start(server: &ApiServer) -> Self {
        Self::start_with(server, facts(), NodeSettings::default())
    }

    /// Starts, becomes ready, and has reported that to the API server.
    async fn ready(server: &ApiServer) -> Self {
        let agent = Self::start(server);
        agent.handle.set_ready(Ok(()));
        agent.told().await;
        agent
    }

    /// The reasons of the events since the last call.
    fn heard(&self) -> Vec<String> {
        let events = std::iter::from_fn(|| self.events.take());
        events.map(|event| event.reason.into_owned()).collect()
    }

    async fn told(&self) {
        self.handle.flush(Instant::now() + Duration::from_secs(60)).await.unwrap();
    }
}

/// A server, and an agent that is ready on it.
async fn ready() -> (ApiServer, Agent) {
    let server = ApiServer::in_memory().unwrap();
    let agent = Agent::ready(&server).await;
    (server, agent)
}

fn client(server: &ApiServer) -> kube::Client {
    kube::Client::new(server.service(), "default")
}

/// A connection with a node's rights, and no more.
fn restricted(server: &ApiServer) -> kube::Client {
    server.restrict_nodes(true);
    let hour = Duration::from_secs(3600);
    let identity = server.new_identity("system:node:n1", &["system:nodes"], hour).unwrap();
    kube::Client::new(server.service_of(&identity), "default")
}

/// Another client creates or changes the node.
fn apply(server: &ApiServer, mut metadata: Value) {
    metadata["name"] = NAME.into();
    server.apply(json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })).unwrap();
}

/// The node as the server has it.
fn there(server: &ApiServer) -> Value {
    server.get(NODE).map(|node| (*node).clone()).unwrap_or_default()
}

fn condition(server: &ApiServer, kind: &str) -> Value {
    let all = there(server)["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

fn sent(server: &ApiServer, verb: &str, resource: &str) -> Vec<Request> {
    server.requests().into_iter().filter(|request| request.is(verb, resource)).collect()
}

fn ready_is(server: &ApiServer) -> (String, String) {
    let ready = condition(server, "Ready");
    (ready["status"].as_str().unwrap().into(), ready["message"].as_str().unwrap().into())
}

/// The longest and the shortest time between requests.
fn gaps(entries: &[Request]) -> (Duration, Duration) {
    let gaps = entries.windows(2).map(|pair| pair[1].at - pair[0].at);
    (gaps.clone().min().unwrap(), gaps.max().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_is_registered_not_ready_and_becomes_ready_when_it_is_told() {
    let server = ApiServer::in_memory().unwrap();
    let agent = Agent::start(&server);
    agent.told().await;
    assert_eq!(ready_is(&server), ("False".into(), "the node agent is starting".into()));
    assert_eq!(there(&server)["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
    assert_eq!(there(&server)["status"]["nodeInfo"]["bootID"], BOOT);
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    assert_eq!(ready_is(&server), ("True".into(), "kubelet is posting ready status".into()));
    let known = agent.handle.server_node();
    let uid = known.borrow().as_ref().unwrap().metadata.uid.clone().unwrap();
    assert_eq!(agent.handle.state().borrow().uid.as_deref(), Some(uid.as_str()));
    let lease = server.get(LEASE).unwrap();
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], uid);
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_renews_its_lease_every_ten_seconds_and_reports_every_five_minutes() {
    let (server, agent) = ready().await;
    sleep(Duration::from_secs(3600)).await;
    let renewals = sent(&server, "update", "leases");
    assert!((345..=360).contains(&renewals.len()), "{}", renewals.len());
    let (shortest, longest) = gaps(&renewals);
    assert!(shortest >= Duration::from_secs(10) && longest < Duration::from_millis(10_500));
    let times: Vec<_> =
        renewals.iter().map(|one| one.body["spec"]["renewTime"].to_string()).collect();
    assert!(times.is_sorted() && times.windows(2).all(|pair| pair[0] != pair[1]));
    let reports = sent(&server, "patch", "nodes/status");
    assert!((11..=14).contains(&reports.len()), "{}", reports.len());
    assert_eq!(server.count("patch", "nodes"), 0);
    let state = agent.handle.state().borrow().clone();
    assert_eq!(state.lease_renewals, renewals.len() as u64 + 1, "and its creation");
    assert_eq!(state.status_writes, reports.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_the_status_is_the_sign_of_life() {
    let server = ApiServer::in_memory().unwrap();
    let settings = NodeSettings { lease: None, ..NodeSettings::default() };
    let agent = Agent::start_with(&server, facts(), settings);
    agent.handle.set_ready(Ok(()));
    sleep(Duration::from_secs(600)).await;
    let reports = sent(&server, "patch", "nodes/status");
    assert!((55..=62).contains(&reports.len()), "{}", reports.len());
    assert_eq!(server.get(LEASE), None);
}

#[tokio::test(start_paused = true)]
async fn facts_that_change_are_written_at_once_and_those_that_do_not_are_not() {
    let (server, agent) = ready().await;
    sleep(Duration::from_secs(3)).await;
    let before = server.count("patch", "nodes/status");
    let changed = Instant::now();
    agent.facts.send_modify(|facts| {
        facts.capacity.insert("example.com/thing".into(), Quantity("1".into()));
        facts.labels.insert("zone".into(), "a".into());
    });
    sleep(Duration::from_secs(2)).await;
    let written = sent(&server, "patch", "nodes/status");
    assert_eq!(written.len(), before + 1);
    assert_eq!(written[before].at, changed);
    assert_eq!(there(&server)["metadata"]["labels"]["zone"], "a");
    agent.facts.send_modify(|_| {});
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.count("patch", "nodes/status"), before + 1);
}

#[tokio::test(start_paused = true)]
async fn events_tell_what_changed_once_and_in_the_kubelets_words() {
    let server = ApiServer::in_memory().unwrap();
    let agent = Agent::start(&server);
    agent.told().await;
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    let healthy = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
    assert_eq!(&*agent.events.take().unwrap().message, "Starting kubelet.");
    assert_eq!(agent.heard(), [&healthy[..], &["NodeReady"]].concat());
    agent.handle.set_pressure(vec![winddown_shared::PressureCondition::Disk]);
    agent.told().await;
    let event = agent.events.take().unwrap();
    assert_eq!(&*event.message, "Node n1 status is now: NodeHasDiskPressure");
    agent.handle.set_shutting_down(true);
    agent.told().await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(agent.heard(), ["NodeNotReady", "NodeNotSchedulable"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_rebooted_says_so() {
    let (server, agent) = ready().await;
    agent.stop.cancel();
    let mut facts = facts();
    facts.info.boot_id = "boot-2".into();
    let agent = Agent::start_with(&server, facts, NodeSettings::default());
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    let event = std::iter::from_fn(|| agent.events.take()).find(|event| event.reason == "Rebooted");
    assert_eq!(&*event.unwrap().message, "Node n1 has been rebooted, boot id: boot-2");
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_stopped_leaves_the_node_as_it_is() {
    let (server, agent) = ready().await;
    let before = there(&server);
    agent.stop.cancel();
    agent.run.await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(there(&server), before);
    assert_eq!(server.count("delete", "*"), 0);
}

#[test]
fn settings_that_ask_for_a_timer_faster_than_a_second_are_refused_by_name() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let server = ApiServer::in_memory().unwrap();
    let build = |name: &str, settings| {
        let (_, told) = watch::channel(facts());
        let built = NodeController::builder(client(&server), name, told, clock())
            .settings(settings)
            .build();
        built.err().map(|error| error.to_string())
    };
    let fast = NodeSettings { update_frequency: Duration::from_millis(5), ..Default::default() };
    let text = "nodeStatusUpdateFrequency is 5ms: write at least 1s";
    assert_eq!(build("n1", fast).as_deref(), Some(text));
    assert!(build("", NodeSettings::default()).unwrap().contains("nodeName"));
    assert_eq!(build("n1", NodeSettings::default()), None);
    let _ = Registration::default();
}
