//! The driver on a paused clock.

mod cordons;
mod shutdowns;
mod trouble;

use std::time::Duration;

use http::Method;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::super::controller::{NodeController, NodeSettings, Registration};
use super::super::handle::NodeControllerHandle;
use super::ledger::{Ledger, Mishap};
use super::*;
use crate::events::{Events, NodeRef};

const NODE: &str = "/api/v1/nodes/n1";
const STATUS: &str = "/api/v1/nodes/n1/status";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";

/// A running controller and its surroundings.
struct Agent {
    handle: NodeControllerHandle,
    facts: watch::Sender<NodeFacts>,
    events: Events,
    stop: CancellationToken,
}

impl Agent {
    /// Starts on this ledger, with these facts and settings.
    fn start_with(ledger: &Ledger, facts: NodeFacts, settings: NodeSettings) -> Self {
        let (facts, told) = watch::channel(facts);
        let events = Events::unwritten(NodeRef::new(NAME), 1000, clock());
        let (controller, handle) = NodeController::builder(ledger.client(), NAME, told, clock())
            .settings(settings)
            .events(events.clone())
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(controller.run(stop.clone()));
        Self { handle, facts, events, stop }
    }

    fn start(ledger: &Ledger) -> Self {
        Self::start_with(ledger, facts(), NodeSettings::default())
    }

    /// Starts, becomes ready, and has reported that to the API server.
    async fn ready(ledger: &Ledger) -> Self {
        let agent = Self::start(ledger);
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

fn ready_is(ledger: &Ledger) -> (String, String) {
    let ready = ledger.condition("Ready");
    (ready["status"].as_str().unwrap().into(), ready["message"].as_str().unwrap().into())
}

/// The longest and the shortest time between requests.
fn gaps(entries: &[super::ledger::Entry]) -> (Duration, Duration) {
    let gaps = entries.windows(2).map(|pair| pair[1].at - pair[0].at);
    (gaps.clone().min().unwrap(), gaps.max().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_is_registered_not_ready_and_becomes_ready_when_it_is_told() {
    let ledger = Ledger::new();
    let agent = Agent::start(&ledger);
    agent.told().await;
    assert_eq!(ready_is(&ledger), ("False".into(), "the node agent is starting".into()));
    assert_eq!(ledger.node()["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
    assert_eq!(ledger.node()["status"]["nodeInfo"]["bootID"], BOOT);
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    assert_eq!(ready_is(&ledger), ("True".into(), "kubelet is posting ready status".into()));
    let server = agent.handle.server_node();
    let uid = server.borrow().as_ref().unwrap().metadata.uid.clone().unwrap();
    assert_eq!(agent.handle.state().borrow().uid.as_deref(), Some(uid.as_str()));
    let lease = ledger.get(LEASE).unwrap();
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], uid);
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_renews_its_lease_every_ten_seconds_and_reports_every_five_minutes() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    sleep(Duration::from_secs(3600)).await;
    let renewals = ledger.sent(&Method::PUT, LEASE);
    assert!((345..=360).contains(&renewals.len()), "{}", renewals.len());
    let (shortest, longest) = gaps(&renewals);
    assert!(shortest >= Duration::from_secs(10) && longest < Duration::from_millis(10_500));
    let times: Vec<_> =
        renewals.iter().map(|one| one.body["spec"]["renewTime"].to_string()).collect();
    assert!(times.is_sorted() && times.windows(2).all(|pair| pair[0] != pair[1]));
    let reports = ledger.sent(&Method::PATCH, STATUS);
    assert!((11..=14).contains(&reports.len()), "{}", reports.len());
    assert_eq!(ledger.sent(&Method::PATCH, NODE).len(), 0);
    let state = agent.handle.state().borrow().clone();
    assert_eq!(state.lease_renewals, renewals.len() as u64 + 1, "and its creation");
    assert_eq!(state.status_writes, reports.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_the_status_is_the_sign_of_life() {
    let ledger = Ledger::new();
    let settings = NodeSettings { lease: None, ..NodeSettings::default() };
    let agent = Agent::start_with(&ledger, facts(), settings);
    agent.handle.set_ready(Ok(()));
    sleep(Duration::from_secs(600)).await;
    let reports = ledger.sent(&Method::PATCH, STATUS);
    assert!((55..=62).contains(&reports.len()), "{}", reports.len());
    assert_eq!(ledger.get(LEASE), None);
}

#[tokio::test(start_paused = true)]
async fn facts_that_change_are_written_at_once_and_those_that_do_not_are_not() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    sleep(Duration::from_secs(3)).await;
    let before = ledger.sent(&Method::PATCH, STATUS).len();
    let changed = Instant::now();
    agent.facts.send_modify(|facts| {
        facts.capacity.insert("example.com/thing".into(), Quantity("1".into()));
        facts.labels.insert("zone".into(), "a".into());
    });
    sleep(Duration::from_secs(2)).await;
    let written = ledger.sent(&Method::PATCH, STATUS);
    assert_eq!(written.len(), before + 1);
    assert_eq!(written[before].at, changed);
    assert_eq!(ledger.node()["metadata"]["labels"]["zone"], "a");
    agent.facts.send_modify(|_| {});
    sleep(Duration::from_secs(2)).await;
    assert_eq!(ledger.sent(&Method::PATCH, STATUS).len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn events_tell_what_changed_once_and_in_the_kubelets_words() {
    let ledger = Ledger::new();
    let agent = Agent::start(&ledger);
    agent.told().await;
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    let healthy = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
    assert_eq!(agent.heard(), [&["Starting"], &healthy[..], &["NodeReady"]].concat());
    agent.handle.set_pressure(vec![winddown_shared::PressureCondition::Disk]);
    agent.told().await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(agent.heard(), ["NodeHasDiskPressure", "NodeNotReady", "NodeNotSchedulable"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_rebooted_says_so() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    agent.stop.cancel();
    let mut facts = facts();
    facts.info.boot_id = "boot-2".into();
    let agent = Agent::start_with(&ledger, facts, NodeSettings::default());
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    assert!(agent.heard().contains(&"Rebooted".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_stopped_leaves_the_node_as_it_is() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    let before = ledger.node();
    agent.stop.cancel();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(ledger.node(), before);
    assert_eq!(ledger.sent(&Method::DELETE, "").len(), 0);
}

#[test]
fn settings_that_ask_for_a_timer_faster_than_a_second_are_refused_by_name() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let build = |name: &str, settings| {
        let (_, told) = watch::channel(facts());
        let built = NodeController::builder(Ledger::new().client(), name, told, clock())
            .settings(settings)
            .build();
        built.err().map(|error| error.to_string())
    };
    let fast = NodeSettings { update_frequency: Duration::from_millis(5), ..Default::default() };
    let text = "nodeStatusUpdateFrequency is 5ms: at least 1s is possible";
    assert_eq!(build("n1", fast).as_deref(), Some(text));
    assert!(build("", NodeSettings::default()).unwrap().contains("nodeName"));
    assert_eq!(build("n1", NodeSettings::default()), None);
    let _ = Registration::default();
}
