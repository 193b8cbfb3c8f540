//! A node works without some of its plug-ins. Each test runs a node with another list of plug-ins, in builds with and
//! without their features; `cargo run -p xtask -- plugins` makes all of these builds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use winddown_control::api::{DrainRequest, ErrorCode, KillBody, PodState};
use winddown_control::{ActApi, HealthApi, PlanApi, StatusApi};
use winddown_node::{Node, NodeBuilder, PluginError, Product};
use winddown_shared::testing::{FakeRuntime, pod};
use winddown_shared::{Counter, Plugin, PluginMetric, PluginName};
use winddown_static_pods::DesiredManifests;

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Starts a node with the plug-ins that `list` adds, waits until its two pods run, and ends one of them.
async fn runs(
    list: impl FnOnce(NodeBuilder<FakeRuntime>) -> NodeBuilder<FakeRuntime>,
) -> Node<FakeRuntime> {
    let runtime = FakeRuntime::default();
    let (web, dns) = (pod("web"), pod("dns"));
    let pods = vec![web.clone(), dns.clone()];
    let wanted = DesiredManifests { generation: 1, complete: true, pods, ..Default::default() };
    let wanted = watch::Sender::new(Arc::new(wanted));
    let node = Node::builder(Arc::new(runtime.clone())).source(wanted.subscribe());
    let node = list(node).start().unwrap();
    node.pods_are_known().await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(node.status().pods.len(), 2);
    assert!(runtime.runs(web.uid()) && runtime.runs(dns.uid()));

    node.kill(web.namespace(), web.name(), KillBody::default()).await.unwrap();
    assert!(!runtime.runs(web.uid()) && runtime.runs(dns.uid()));
    let status = node.status();
    let ended = status.pods.iter().find(|pod| pod.uid == web.uid().as_str()).unwrap();
    assert_eq!((ended.state, &*ended.reason), (PodState::Finished, "Terminated"));
    assert!(node.metrics().ends_with("# EOF\n"));
    node
}

#[tokio::test(start_paused = true)]
async fn a_node_without_any_plug_in_runs_pods_and_ends_one_when_asked() {
    let node = runs(|list| list).await;
    assert!(node.readiness().ok(), "{}", node.readiness().text("readyz", true));
    let status = node.status();
    assert!(status.cluster.is_none());
    assert_eq!(serde_json::to_value(&status).unwrap().get("pressure"), None);
    assert!(node.shutdown_plan(None).await.groups.is_empty());
    for absent in ["kubelet_eviction", "kubelet_preemptions"] {
        assert!(!node.metrics().contains(absent), "{absent}");
    }
    let refused = node.drain(DrainRequest::default()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
    assert_eq!(refused.message, "this agent terminates no pods before a shutdown");
    #[cfg(feature = "eviction")]
    assert_eq!(node.eviction_plan(None).await.unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(node.preemption_plan(None, None).unwrap_err().code, ErrorCode::NotFound);
    node.shut_down().await;
}

/// A plug-in with a given name and the name of its metric.
struct Counts(PluginName, &'static str);

impl Plugin for Counts {
    fn name(&self) -> PluginName {
        self.0
    }

    fn metrics(&self) -> Vec<PluginMetric> {
        vec![(&Counter::new(self.1, "Looks")).into()]
    }
}

#[tokio::test(start_paused = true)]
async fn plug_ins_that_could_not_be_told_apart_start_no_node() {
    let (name, other) = (PluginName::new("max-age"), PluginName::new("max"));
    let start = |list: [Counts; 2]| {
        let node = Node::builder(Arc::new(FakeRuntime::default())).plugins(list).start();
        node.map(|node| node.metrics())
    };
    let twice = start([Counts(name, "max_age_a"), Counts(name, "max_age_b")]);
    assert_eq!(twice.unwrap_err(), PluginError::NameTaken { name });
    let ours = start([Counts(name, "max_age_a"), Counts(other, "winddown_inhibitor_held")]);
    let wrong = PluginError::MetricName { plugin: other, metric: "winddown_inhibitor_held" };
    assert_eq!(ours.unwrap_err(), wrong);
    let builder = Node::builder(Arc::new(FakeRuntime::default())).product(Product::new("max", "1"));
    let as_ours = builder.plugin(Counts(other, "max_b")).start().map(|node| node.metrics());
    assert_eq!(as_ours.unwrap_err(), PluginError::MetricOfNode { plugin: other });
    let metrics = start([Counts(name, "max_age_a"), Counts(other, "max_b")]).unwrap();
    assert!(metrics.contains("max_age_a_total 0\n") && metrics.contains("max_b_total 0\n"));
}

#[cfg(feature = "shutdown")]
mod with_shutdown {
    use std::path::Path;

    use super::*;
    use winddown_control::api::{ProtectionReason, ProtectionState, TerminatedBy};
    use winddown_node::ordered_start::OrderedStart;
    use winddown_node::{
        ApiServerUse, KubeletFacts, KubeletPresence, NodePlugin, Shutdown, ShutdownGuard,
    };
    use winddown_shared::testing::FakeInhibitor;
    use winddown_shared::{Inhibitor, InhibitorState, LockState};
    use winddown_shutdown::{Outcome, Policy, RecordFile, RecordStore};

    /// The plug-ins that can be deleted, each with a metric of its own.
    fn beyond(state: &Path) -> [(&'static str, Box<dyn NodePlugin<FakeRuntime>>); 2] {
        let policy = watch::Sender::new([("default".to_owned(), secs(60))].into()).subscribe();
        let lock = watch::Sender::new(LockState::Released).subscribe();
        let wanted = watch::Sender::default();
        let guard = ShutdownGuard { policy, wanted, lock, directory: None };
        let policy = Policy::from_periods(secs(30), secs(10)).unwrap();
        let policy = watch::Sender::new(Arc::new(policy)).subscribe();
        let start = OrderedStart::new(policy, secs(30), state);
        [
            ("winddown_guard_lock_held", Box::new(guard)),
            ("winddown_start_waiting_pods", Box::new(start)),
        ]
    }

    /// Runs a node with a shutdown and `others`, which ends its pods when it goes down; returns its metrics before that.
    async fn goes_down(state: &Path, others: Vec<Box<dyn NodePlugin<FakeRuntime>>>) -> String {
        let login = FakeInhibitor::holding(secs(40));
        let policy = Policy::from_periods(secs(30), secs(10)).unwrap();
        let shutdown = Shutdown::new(Arc::new(login.clone()), policy, state);
        let handle = shutdown.handle();
        let node = runs(|list| list.plugin(shutdown).plugins(others)).await;
        let metrics = node.metrics();
        login.prepare();
        let mut lock = login.state();
        let released = lock.wait_for(|state| state.lock == LockState::Released);
        tokio::time::timeout(secs(60), released).await.unwrap().unwrap();
        let report = handle.reports().latest().unwrap().unwrap();
        assert_eq!((report.outcome, report.pods().count()), (Outcome::Clean, 1));
        assert!(winddown_shared::PodKiller::running(node.workers()).is_known_empty());
        metrics
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_with_a_shutdown_alone_ends_its_pods_before_it_goes_down() {
        goes_down(tempfile::tempdir().unwrap().path(), Vec::new()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_record_of_a_shutdown_is_in_the_nodes_directory_if_the_disk_takes_none() {
        let (disk, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(disk.path().join("shutdown.json")).unwrap();
        let login = FakeInhibitor::holding(secs(40));
        let policy = Policy::from_periods(secs(30), secs(10)).unwrap();
        let shutdown = Shutdown::new(Arc::new(login.clone()), policy, disk.path());
        let _node = runs(|list| list.state_directory(run.path()).plugin(shutdown)).await;
        login.prepare();
        let released = |state: &InhibitorState| state.lock == LockState::Released;
        login.state().wait_for(released).await.unwrap();
        let record = RecordFile::in_directory(run.path()).read().unwrap().unwrap();
        assert_eq!(record.report.pods().count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_without_one_of_the_plug_ins_that_can_be_deleted_has_all_others_and_goes_down() {
        let names = beyond(Path::new("")).map(|(metric, _)| metric);
        for out in names {
            let state = tempfile::tempdir().unwrap();
            let others = beyond(state.path()).into_iter().filter(|(metric, _)| *metric != out);
            let metrics = goes_down(state.path(), others.map(|(_, plugin)| plugin).collect()).await;
            for metric in names {
                assert_eq!(metrics.contains(metric), metric != out, "{metric} without {out}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kubelet_that_comes_and_goes_changes_the_verdict_in_status_and_metrics() {
        let (state, login) = (tempfile::tempdir().unwrap(), FakeInhibitor::holding(secs(40)));
        let policy = Policy::from_periods(secs(30), secs(10)).unwrap();
        let off = Some(Duration::ZERO);
        let kubelet = watch::Sender::new(KubeletFacts {
            presence: Some(KubeletPresence::Absent),
            wants: off,
            lock: Some(false),
            ..KubeletFacts::default()
        });
        let seen = kubelet.subscribe();
        let shutdown = Shutdown::new(Arc::new(login.clone()), policy, state.path())
            .kubelet_inspector(move || {
                let seen = *seen.borrow();
                async move { seen }
            });
        let node = runs(|list| list.plugin(shutdown)).await;
        let verdict = async || {
            tokio::time::advance(secs(5)).await;
            node.refresh().await;
            let is_protected = node.metrics().contains("\nwinddown_protected 1\n");
            let verdict = node.status().protection.unwrap();
            assert_eq!(is_protected, verdict.is_protected(), "{verdict:?}");
            verdict
        };
        let before = verdict().await;
        assert_eq!(
            (before.state, before.terminated_by),
            (ProtectionState::Protected, TerminatedBy::Agent)
        );
        kubelet.send_modify(|kubelet| kubelet.presence = Some(KubeletPresence::Runs));
        let changes = node.changes();
        let beside = verdict().await;
        assert_eq!(beside.state, ProtectionState::Unprotected);
        assert_eq!(beside.reason, ProtectionReason::NotACompanion);
        tokio::task::yield_now().await;
        assert!(changes.has_changed().unwrap(), "who watches the status is told");
        kubelet.send_modify(|kubelet| kubelet.presence = None);
        assert_eq!(verdict().await.state, ProtectionState::Unknown);
        kubelet.send_modify(|kubelet| kubelet.presence = Some(KubeletPresence::Absent));
        assert_eq!(verdict().await.state, ProtectionState::Protected);
        login.modify(|state| state.lock = LockState::Waiting { why: "logind is away".into() });
        assert_eq!(verdict().await.reason, ProtectionReason::LockNotHeld);
    }

    #[tokio::test(start_paused = true)]
    async fn a_companion_that_would_wait_for_its_api_server_protects_no_pod_meanwhile() {
        let (state, login) = (tempfile::tempdir().unwrap(), FakeInhibitor::holding(secs(40)));
        let policy = Policy::from_periods(secs(30), secs(10)).unwrap();
        let is_away = watch::Sender::new(ApiServerUse::Usable);
        let seen = is_away.subscribe();
        let shutdown =
            Shutdown::new(Arc::new(login), policy, state.path()).api_server(move || *seen.borrow());
        let node = runs(|list| list.admits_all(true).plugin(shutdown)).await;
        let verdict = || node.status().protection.unwrap();
        assert_eq!(verdict().state, ProtectionState::Protected);
        is_away.send_replace(ApiServerUse::Unusable);
        assert_eq!(verdict().state, ProtectionState::Limited);
        assert!(node.metrics().contains("\nwinddown_protected 1\n"));
        is_away.send_replace(ApiServerUse::Awaited);
        let told = verdict();
        assert_eq!(told.state, ProtectionState::Unprotected, "{told:?}");
        assert!(told.text.contains("waits for the API server"), "{told:?}");
        assert!(node.metrics().contains("\nwinddown_protected 0\n"));
    }
}

#[cfg(feature = "preemption")]
#[tokio::test(start_paused = true)]
async fn a_node_with_preemption_alone_says_whom_it_would_end() {
    let strategy = winddown_preemption::Strategy::Minimal;
    let node = runs(|list| list.plugin(winddown_node::Preemption::new(strategy))).await;
    assert_eq!(node.preemption_plan(None, None).unwrap().strategy, "minimal");
    assert!(node.metrics().contains("kubelet_preemptions"));
}

#[cfg(feature = "eviction")]
mod with_eviction {
    use super::*;
    use winddown_eviction::Policy;
    use winddown_host::UsagePaths;
    use winddown_node::Eviction;

    #[tokio::test(start_paused = true)]
    async fn a_node_with_eviction_alone_shows_what_runs_short() {
        let state = tempfile::tempdir().unwrap();
        let places = UsagePaths::of_host(state.path());
        let policy = Policy::new(Vec::new(), false);
        let node = runs(|list| list.plugin(Eviction::new(places, policy))).await;
        assert!(node.status().pressure.is_some());
        assert!(node.metrics().contains("kubelet_evictions"));
        assert!(node.eviction_plan(None).await.is_ok());
    }
}
