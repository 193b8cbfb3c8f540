//! Tests of a whole node on a paused clock: in-memory containers, a scripted login manager, real reports.

mod cluster;
mod fit;
mod guard;
mod notices;
mod pressure;
mod restarts;
mod start;
mod unit_stop;
mod unknown;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as kube;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_host::UsagePaths;
use winddown_shared::testing::{FakeInhibitor, FakeRuntime, pod_with};
use winddown_shared::{
    CONFIG_SOURCE_ANNOTATION, LockState, Pod, Runtime, ShutdownKind, WallClock, WallTime, WayDown,
};
use winddown_shutdown::{BootClock, Outcome, PodEnd, ShutdownReport, Trigger};

use super::{
    Configuration, Configured, Machine, Node, NodeIdentity, Settings, ShutdownGuard, ShutdownHandle,
};
use crate::cluster::Cluster;
use crate::cluster::after_nodes::ShutdownAfterNodes;
use winddown_config::{Config, Mode, PriorityPeriod, ShutdownPeriods};
use winddown_control::api::{DrainEvent, DrainRequest, ErrorCode, KillBody, PodState};
use winddown_control::{ActApi, HealthApi, PlanApi, StatusApi};
use winddown_static_pods::DesiredManifests;

const POWER_OFF: WayDown = WayDown { kind: ShutdownKind::PowerOff, limit: None };

struct Bench {
    node: Node<FakeRuntime>,
    shutdown: ShutdownHandle,
    configured: Configured,
    runtime: FakeRuntime,
    login: FakeInhibitor,
    notice_aggregator: winddown_notices::NoticeAggregator,
    manifests: watch::Sender<Arc<DesiredManifests>>,
    state: tempfile::TempDir,
}

type MakeGuard = Box<dyn FnOnce(&Configured, PathBuf) -> ShutdownGuard>;

/// The parts of the node that a test may change.
struct Parts {
    configuration: Configuration,
    /// In place of those of the configuration.
    settings: Option<watch::Receiver<Settings>>,
    machine: Option<Machine>,
    pressure: Option<UsagePaths>,
    cluster: Option<Cluster>,
    after_nodes: Option<ShutdownAfterNodes>,
    wall: WallClock,
    identity: NodeIdentity,
    guard: Option<MakeGuard>,
    health: fn(&FakeRuntime) -> Result<(), String>,
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A node with 30 s for its pods, 10 of them for critical ones, and a login manager that allows 40 s.
fn bench(runtime: FakeRuntime, login: FakeInhibitor) -> Bench {
    bench_in(tempfile::tempdir().unwrap(), boot_clock(), runtime, login)
}

/// As [`bench`], on a state directory that may have contents, in the boot of `boot_clock`.
fn bench_in(
    state: tempfile::TempDir,
    boot_clock: BootClock,
    runtime: FakeRuntime,
    login: FakeInhibitor,
) -> Bench {
    bench_with(state, boot_clock, runtime, login, |_| {})
}

/// As [`bench_in`], with changed parts.
fn bench_with(
    state: tempfile::TempDir,
    boot_clock: BootClock,
    runtime: FakeRuntime,
    login: FakeInhibitor,
    change: impl FnOnce(&mut Parts),
) -> Bench {
    let notice_aggregator = winddown_notices::NoticeAggregator::new();
    let manifests = watch::Sender::new(Arc::new(DesiredManifests::default()));
    // Like the machine's, this clock continues while no agent runs.
    let since_boot = boot_clock.clone();
    let wall =
        WallClock::new(move || WallTime::UNIX_EPOCH + since_boot.now().saturating_sub(secs(1000)));
    let mut parts = Parts {
        configuration: configuration(&state, secs(30)),
        settings: None,
        machine: None,
        pressure: None,
        cluster: None,
        after_nodes: None,
        wall,
        identity: NodeIdentity { name: "n1".into(), boot_id: "boot".into() },
        guard: None,
        health: |_| Ok(()),
    };
    change(&mut parts);
    let Parts {
        configuration,
        settings,
        machine,
        pressure,
        cluster,
        after_nodes,
        wall,
        identity,
        guard,
        health,
    } = parts;
    let configured = Configured::new(configuration);
    let guard = guard.map(|guard| guard(&configured, state.path().join("run")));
    let plugin = configured.shutdown(Arc::new(login.clone())).notices(notice_aggregator.clone());
    let shutdown = plugin.handle();
    let companion = configured.configuration().config.node.mode == Mode::Companion;
    let node = Node::builder(Arc::new(runtime.clone()))
        .admits_all(companion)
        .runtime_health(health)
        .settings(settings.unwrap_or_else(|| configured.settings()))
        .state_directory(state.path())
        .source(manifests.subscribe())
        .identity(identity)
        .machine(machine)
        .clocks(wall, boot_clock)
        .plugin(plugin)
        .plugins(guard)
        .plugin(configured.ordered_start())
        .plugin(configured.preemption())
        .plugins(pressure.map(|places| configured.eviction(places)))
        .plugins(cluster)
        .plugins(after_nodes)
        .start()
        .unwrap();
    Bench { node, shutdown, configured, runtime, login, notice_aggregator, manifests, state }
}

/// A boot clock that follows the paused clock.
fn boot_clock() -> BootClock {
    let origin = Instant::now();
    BootClock::new(move || secs(1000) + origin.elapsed())
}

fn configuration(state: &tempfile::TempDir, total: Duration) -> Configuration {
    let shutdown = ShutdownPeriods::Total { total, critical: secs(10) }.into();
    let mut config = Config { shutdown, ..Config::default() };
    config.access.state_directory = state.path().to_owned();
    Configuration {
        config: Arc::new(config),
        file: None,
        warnings: Vec::new(),
        at_restart: Vec::new(),
        loaded_at: WallTime::UNIX_EPOCH,
    }
}

impl Bench {
    async fn want(&self, pods: &[&Pod]) {
        self.manifests.send_modify(|now| {
            let generation = now.generation + 1;
            let pods = pods.iter().copied().cloned().collect();
            *now = Arc::new(DesiredManifests {
                generation,
                complete: true,
                pods,
                ..DesiredManifests::default()
            });
        });
        tokio::time::sleep(secs(1)).await;
    }

    async fn released(&self) {
        use winddown_shared::Inhibitor;
        let mut state = self.login.state();
        let held = state.wait_for(|s| s.lock == LockState::Released);
        tokio::time::timeout(secs(300), held).await.unwrap().unwrap();
    }

    /// The machine powers off in a way that the login manager does not announce.
    fn stop_unit(&self) -> tokio::task::JoinHandle<()> {
        self.stop_unit_within(None)
    }

    /// The same, and the service manager waits no longer than this.
    fn stop_unit_within(&self, limit: Option<Duration>) -> tokio::task::JoinHandle<()> {
        let shutdown = self.shutdown.clone();
        let way = std::future::ready(Some(WayDown { limit, ..POWER_OFF }));
        tokio::spawn(async move { shutdown.end_pods_if_going_down(way).await })
    }

    /// Stops the agent as a restart of its unit does: the pods keep running, and it reports nothing more.
    fn stop(self) -> (tempfile::TempDir, BootClock, FakeRuntime, FakeInhibitor) {
        let Self { node, runtime, login, state, .. } = self;
        node.0.core.stop.cancel();
        (state, node.0.core.boot_clock.clone(), runtime, login)
    }

    fn report(&self) -> ShutdownReport {
        self.shutdown.reports().latest().unwrap().unwrap()
    }
}

fn pod(name: &str, priority: i32, grace: i64) -> Pod {
    pod_with(&format!("uid-{name}"), name, |pod| {
        let source = (CONFIG_SOURCE_ANNOTATION.to_owned(), "file".to_owned());
        pod.metadata.annotations = Some([source].into());
        let spec = pod.spec.get_or_insert_default();
        spec.priority = Some(priority);
        spec.termination_grace_period_seconds = Some(grace);
    })
}

fn held() -> FakeInhibitor {
    FakeInhibitor::holding(secs(40))
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_pods_in_order_and_leaves_a_report_before_the_lock_goes() {
    let b = bench(FakeRuntime::default(), held());
    let (web, dns) = (pod("web", 0, 30), pod("dns", 2_000_000_000, 30));
    b.runtime.stop_takes(web.uid(), secs(4));
    b.runtime.stop_takes(dns.uid(), secs(2));
    b.want(&[&web, &dns]).await;
    let begun = Instant::now();
    b.login.prepare();
    b.released().await;
    assert_eq!(begun.elapsed().as_secs(), 6);
    assert_eq!(b.runtime.stops(), [web.uid().clone(), dns.uid().clone()]);
    let report = b.report();
    assert_eq!(report.outcome, Outcome::Clean);
    assert_eq!(report.groups.len(), 2);
    assert!(b.state.path().join("graceful_node_shutdown_state").exists());
    let status = b.node.status();
    let said = status.pods.iter().find(|p| p.name == "web").unwrap();
    assert_eq!(said.reason, "Terminated");
    assert_eq!(said.phase, "Failed");
}

#[tokio::test(start_paused = true)]
async fn an_agent_started_in_the_middle_of_a_shutdown_ends_what_runs_and_admits_nothing() {
    let runtime = FakeRuntime::default();
    let (running, new) = (pod("running", 0, 30), pod("new", 0, 30));
    runtime.sync_pod(&running).await.unwrap();
    let login = held();
    login.prepare();
    let b = bench(runtime, login);
    b.want(&[&running, &new]).await;
    b.released().await;
    assert_eq!(b.runtime.stops(), [running.uid().clone()]);
    assert_eq!(b.runtime.starts(), [running.uid().clone()], "the new pod was not started");
    let report = b.report();
    let pods: Vec<_> = report.groups.iter().flat_map(|g| &g.pods).collect();
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].end, PodEnd::Exited);
    assert_eq!(b.node.status().rejected[0].reason, "NodeShutdown");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_shutdown_leaves_a_node_that_works_as_before() {
    let b = bench(FakeRuntime::default(), held());
    let (web, dns) = (pod("web", 0, 30), pod("dns", 2_000_000_000, 30));
    b.runtime.stop_takes(web.uid(), secs(10));
    b.want(&[&web, &dns]).await;
    b.login.prepare();
    tokio::time::sleep(secs(2)).await;
    b.login.cancel();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(b.runtime.stops(), [web.uid().clone()], "the critical pod was spared");
    assert!(b.login.is_held());
    let status = b.node.status();
    assert!(status.pods.iter().all(|p| p.state == PodState::Syncing), "{:?}", status.pods);
}

#[tokio::test(start_paused = true)]
async fn pods_are_held_back_until_the_login_manager_has_said_something_or_is_silent_for_long() {
    let login = held();
    login.modify(|s| s.lock = LockState::Waiting { why: "slow".into() });
    let b = bench(FakeRuntime::default(), login);
    let web = pod("web", 0, 30);
    b.want(&[&web]).await;
    assert!(b.runtime.starts().is_empty());
    tokio::time::sleep(secs(2)).await;
    assert_eq!(b.runtime.starts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn kill_ends_one_pod_and_says_how() {
    let b = bench(FakeRuntime::default(), held());
    let (web, other) = (pod("web", 0, 30), pod("other", 0, 30));
    b.runtime.stop_takes(web.uid(), secs(100));
    b.want(&[&web, &other]).await;
    let body = KillBody { grace_seconds: Some(3), ..KillBody::default() };
    let answer = b.node.kill("default", "web", body).await.unwrap();
    assert_eq!(answer.took_seconds.round(), 3.0);
    assert_eq!(answer.forced, ["main"]);
    assert_eq!(b.runtime.stops(), [web.uid().clone()]);
    let missing = b.node.kill("default", "nobody", KillBody::default()).await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::NotFound);
    let wrong = KillBody { uid: Some("else".into()), ..KillBody::default() };
    let another = b.node.kill("default", "other", wrong).await.unwrap_err();
    assert_eq!(another.code, ErrorCode::NotFound);
    assert!(another.hint.contains("-o wide"), "plain status shows no UID: {another:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_tells_every_step_and_lets_no_pod_in_after_it() {
    let b = bench(FakeRuntime::default(), held());
    let (web, dns) = (pod("web", 0, 30), pod("dns", 2_000_000_000, 30));
    b.want(&[&web, &dns]).await;
    let request = DrainRequest { text: "rack moves".to_owned(), ..DrainRequest::default() };
    let mut events = b.node.drain(request).await.unwrap();
    assert_eq!(b.node.drain(DrainRequest::default()).await.unwrap_err().code, ErrorCode::Conflict);
    let mut told = Vec::new();
    while let Some(event) = events.recv().await {
        told.push(event);
    }
    assert!(matches!(told[0], DrainEvent::Started { groups: 2, pods: 2, .. }), "{told:?}");
    let steps = told.iter().map(|event| match event {
        DrainEvent::GroupStarted { .. } => "group",
        DrainEvent::PodTerminated { name, .. } => name,
        DrainEvent::GroupFinished { .. } => "over",
        _ => "",
    });
    let steps: Vec<&str> = steps.filter(|step| !step.is_empty()).collect();
    assert_eq!(steps, ["group", "web", "over", "group", "dns", "over"]);
    assert!(matches!(
        told.last(),
        Some(DrainEvent::Finished { terminated: 2, still_running: 0, .. })
    ));
    let asked = b.report().requested_by.unwrap();
    assert_eq!(asked.message.as_deref(), Some("rack moves"));
    b.want(&[&web, &dns, &pod("late", 0, 30)]).await;
    assert_eq!(b.node.status().rejected[0].name, "late");
    assert!(b.login.is_held(), "the node stays up");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_only_a_shutdown_can_end_is_refused_to_a_kill_and_holds_up_no_drain() {
    let b = bench(FakeRuntime::default(), held());
    let (web, etcd) = (pod("web", 0, 30), pod("etcd", 2_000_000_000, 30));
    b.runtime.stops_at_shutdown_only(etcd.uid());
    b.want(&[&web, &etcd]).await;
    let why = "refused as scripted";
    let refused = b.node.kill("default", "etcd", KillBody::default()).await.unwrap_err();
    let named = format!("pod default/etcd is left as it is: {why}");
    assert_eq!((refused.code, refused.message), (ErrorCode::Conflict, named));
    let begun = Instant::now();
    let mut events = b.node.drain(DrainRequest::default()).await.unwrap();
    let mut told = Vec::new();
    while let Some(event) = events.recv().await {
        told.push(event);
    }
    assert!(begun.elapsed() < secs(5), "{:?}", begun.elapsed());
    let stays = DrainEvent::PodNotDrained {
        namespace: "default".to_owned(),
        name: "etcd".to_owned(),
        message: why.to_owned(),
    };
    assert!(told.contains(&stays), "{told:?}");
    assert!(
        !told
            .iter()
            .any(|event| matches!(event, DrainEvent::GroupFinished { still_running: 1, .. }))
    );
    assert!(matches!(
        told.last(),
        Some(DrainEvent::Finished { terminated: 1, still_running: 0, .. })
    ));
    let report = b.report();
    assert_eq!((report.outcome, report.count(PodEnd::NotDrainable)), (Outcome::Clean, 1));
    assert!(report.headline().ends_with("; 1 pod stays."), "{}", report.headline());
    assert_eq!(b.runtime.stops(), [web.uid().clone()]);

    b.login.prepare();
    b.released().await;
    let graces = b.runtime.graces(etcd.uid());
    assert!(graces.len() == 1 && graces[0] >= secs(10), "{graces:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_the_plan_at_once() {
    let b = bench(FakeRuntime::default(), held());
    b.want(&[&pod("web", 0, 300)]).await;
    assert_eq!(b.node.shutdown_plan(None).await.requested_seconds, 30.0);
    b.configured.replace(configuration(&b.state, secs(20)));
    assert_eq!(b.node.shutdown_plan(None).await.requested_seconds, 20.0);
    let group = &b.node.shutdown_plan(None).await.groups[0];
    assert_eq!((group.shutdown_grace_period_seconds, group.deadline_seconds), (10.0, Some(20.0)));
    assert_eq!(group.pods[0].grace_seconds, 20.0, "nobody else needs the time");
}

#[tokio::test(start_paused = true)]
async fn a_plan_shows_what_is_left_of_the_grace_of_a_pod_that_is_terminating_already() {
    let b = bench(FakeRuntime::default(), held());
    let (web, db) = (pod("web", 0, 30), pod("db", 0, 30));
    b.runtime.stop_takes(web.uid(), secs(25));
    b.want(&[&web, &db]).await;
    let node = b.node.clone();
    let kill = tokio::spawn(async move { node.kill("default", "web", KillBody::default()).await });
    tokio::time::sleep(secs(10)).await;
    let plan = b.node.shutdown_plan(None).await;
    let pods = plan.groups.iter().flat_map(|group| &group.pods);
    let left: Vec<_> = pods.map(|pod| (&*pod.name, pod.grace_left_seconds)).collect();
    assert_eq!(left, [("db", None), ("web", Some(20.0))]);
    kill.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn pods_whose_default_grace_is_cut_are_listed_apart_from_those_that_ask_for_more() {
    let b = bench(FakeRuntime::default(), held());
    b.want(&[&pod("web", 0, 30), &pod("dns", 2_000_000_000, 30)]).await;
    let plan = b.node.status().shutdown_plan;
    assert!(plan.warnings.is_empty(), "{plan:?}");
    assert_eq!(
        plan.default_grace_cut,
        ["2 pods ask for 30s, the default, and are guaranteed 10s to 20s"]
    );
    b.want(&[&pod("web", 0, 40)]).await;
    let plan = b.node.status().shutdown_plan;
    assert_eq!(plan.warnings, ["pod default/web asks for 40s and gets 30s"]);
    assert!(plan.default_grace_cut.is_empty(), "{plan:?}");
}

/// A configuration that has both forms of the periods is refused.
#[tokio::test(start_paused = true)]
async fn what_is_to_be_raised_for_a_pod_that_is_cut_is_in_the_form_that_the_configuration_has() {
    let b = bench(FakeRuntime::default(), held());
    b.want(&[&pod("web", 0, 5)]).await;
    assert_eq!(b.node.status().shutdown_plan.raise, "", "it gets its time");
    b.want(&[&pod("web", 0, 40)]).await;
    let raise = b.node.status().shutdown_plan.raise;
    assert!(raise.starts_with("shutdownGracePeriod (for critical pods"), "{raise}");
    let mut listed = configuration(&b.state, secs(30));
    let groups = vec![PriorityPeriod { priority: 0, period: secs(30) }];
    Arc::make_mut(&mut listed.config).shutdown = ShutdownPeriods::ByPriority(groups).into();
    b.configured.replace(listed);
    let raise = b.node.status().shutdown_plan.raise;
    assert_eq!(raise, "the group's seconds in shutdownGracePeriodByPodPriority");
}

#[test]
fn a_shutdown_policy_of_the_library_is_that_of_a_node_without_a_configuration() {
    let configured = crate::policy_of(&Config::default().shutdown);
    assert_eq!(winddown_shutdown::Policy::default(), configured);
}

#[tokio::test(start_paused = true)]
async fn a_plan_without_graceful_shutdown_names_the_pods_that_would_be_killed() {
    let b = bench(FakeRuntime::default(), held());
    b.want(&[&pod("web", 0, 300)]).await;
    let mut off = configuration(&b.state, secs(0));
    let total = ShutdownPeriods::Total { total: secs(0), critical: secs(0) };
    Arc::make_mut(&mut off.config).shutdown = total.into();
    b.configured.replace(off);
    for within in [None, Some(secs(60))] {
        let plan = b.node.shutdown_plan(within).await;
        let names: Vec<_> = plan.not_protected.iter().map(|pod| &*pod.name).collect();
        assert_eq!((plan.pod_count(), names), (0, vec!["web"]), "{within:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_plan_and_the_status_say_when_logind_gives_less() {
    let login = FakeInhibitor::holding(secs(3));
    login.modify(|s| s.delay_set_by = Some("/etc/systemd/logind.conf.d/zzz-site.conf".into()));
    let b = bench(FakeRuntime::default(), login);
    b.want(&[&pod("web", 0, 30)]).await;
    let plan = b.node.shutdown_plan(None).await;
    let shortened = plan.shortened.unwrap();
    assert_eq!(shortened.set_by.as_deref(), Some("/etc/systemd/logind.conf.d/zzz-site.conf"));
    assert!(shortened.available_seconds < 3.0);
    assert_eq!(b.node.status().lock.delay_seconds, Some(3.0));
}

#[tokio::test(start_paused = true)]
async fn readiness_follows_the_lock_and_the_change_counter_follows_everything() {
    let b = bench(FakeRuntime::default(), held());
    b.want(&[&pod("web", 0, 30)]).await;
    assert!(b.node.readiness().ok());
    let mut changes = b.node.changes();
    changes.borrow_and_update();
    b.login.modify(|s| s.lock = LockState::Waiting { why: "logind went away".into() });
    tokio::time::timeout(secs(5), changes.changed()).await.unwrap().unwrap();
    let readiness = b.node.readiness();
    assert!(!readiness.ok());
    assert!(readiness.text("readyz", true).contains("logind went away"));
}
