//! Tests of pods that hold shutdowns.

use std::sync::OnceLock;

use winddown_config::GuardedNamespace;
use winddown_control::api;
use winddown_shared::ShutdownBlock;

use super::*;

/// A fake logind that grants the lock as soon as it is wanted.
struct Logind {
    wanted: watch::Receiver<Option<ShutdownBlock>>,
    lock: watch::Sender<LockState>,
}

impl Logind {
    async fn follow(&self) {
        tokio::time::sleep(secs(1)).await;
        let held = self.wanted.borrow().is_some();
        self.lock.send_replace(if held { LockState::Held } else { LockState::Released });
    }

    fn told(&self) -> Option<String> {
        self.wanted.borrow().as_ref().map(|block| block.who.clone())
    }
}

/// A node whose pods in `default` may hold shutdowns for a minute, and its logind.
fn guarded(state: tempfile::TempDir, clock: BootClock, runtime: FakeRuntime) -> (Bench, Logind) {
    guarded_in(Some("default"), state, clock, runtime)
}

fn guarded_in(
    namespace: Option<&'static str>,
    state: tempfile::TempDir,
    clock: BootClock,
    runtime: FakeRuntime,
) -> (Bench, Logind) {
    let made = Arc::new(OnceLock::new());
    let makes = Arc::clone(&made);
    let b = bench_with(state, clock, runtime, held(), move |parts| {
        let mut config = Config::clone(&parts.configuration.config);
        let one = |name: &str| GuardedNamespace { namespace: name.to_owned(), timeout: secs(60) };
        config.shutdown.guard = namespace.map(one).into_iter().collect();
        parts.configuration.config = Arc::new(config);
        parts.guard = Some(Box::new(move |configured, directory| {
            configured.guard(Some(directory), |wanted| {
                let lock = watch::Sender::new(LockState::Released);
                let shown = lock.subscribe();
                let _ = makes.set(Logind { wanted, lock });
                shown
            })
        }));
    });
    (b, Arc::into_inner(made).and_then(OnceLock::into_inner).unwrap())
}

fn first() -> (Bench, Logind) {
    guarded(tempfile::tempdir().unwrap(), boot_clock(), FakeRuntime::default())
}

fn asking(name: &str) -> Pod {
    let mut object = kube::Pod::clone(&pod(name, 0, 30));
    let label = (crate::GUARD_LABEL.to_owned(), "true".to_owned());
    object.metadata.labels = Some([label].into());
    Pod::new(object).unwrap()
}

fn guard_of(b: &Bench) -> Option<api::GuardStatus> {
    b.node.status().guard
}

#[tokio::test(start_paused = true)]
async fn a_pod_holds_shutdowns_for_its_time_and_everything_says_so() {
    let (b, logind) = first();
    assert!(logind.told().is_none() && guard_of(&b).is_none());
    b.want(&[&asking("backup"), &pod("web", 0, 30)]).await;
    assert_eq!(logind.told().as_deref(), Some("winddown: pod default/backup"));
    let status = guard_of(&b).unwrap();
    assert_eq!((status.state, status.pods.len()), (api::LockState::Released, 1));
    logind.follow().await;
    assert_eq!(guard_of(&b).unwrap().state, api::LockState::Held);
    let text = b.node.metrics();
    assert!(text.contains("\nwinddown_guard_blocking_pods 1\n"), "{text}");
    assert!(text.contains("\nwinddown_guard_lock_held 1\n"), "{text}");
    let plan = b.node.shutdown_plan(None).await;
    assert!(plan.warnings.iter().any(|said| said.contains("pod default/backup")), "{plan:?}");

    tokio::time::sleep(secs(60)).await;
    assert!(logind.told().is_none() && guard_of(&b).is_none());
    assert!(b.node.metrics().contains("\nwinddown_guard_expired_pods 1\n"));
    assert!(b.runtime.stops().is_empty(), "it runs on");
}

/// The sender of the notice shuts the machine down, and a refusal would cost it its power.
#[tokio::test(start_paused = true)]
async fn no_shutdown_is_refused_while_a_notice_is_in_effect() {
    let (b, logind) = first();
    let mut backup = kube::Pod::clone(&asking("backup"));
    backup.spec.as_mut().unwrap().priority = Some(2_000_000_000);
    let (web, backup) = (pod("web", 0, 30), Pod::new(backup).unwrap());
    b.runtime.stop_takes(web.uid(), secs(20));
    b.want(&[&backup, &web]).await;
    assert!(logind.told().is_some());
    let body = api::NoticeBody { in_seconds: Some(30), ..api::NoticeBody::default() };
    let _events = b.node.give_notice(body).await.unwrap();
    tokio::time::sleep(secs(1)).await;
    assert!(!b.runtime.stops().contains(backup.uid()), "its turn has not come");
    assert_eq!(logind.told(), None);
}

#[tokio::test(start_paused = true)]
async fn the_time_for_which_the_machine_sleeps_counts_for_a_hold() {
    let (slept, clock) = (Arc::new(std::sync::atomic::AtomicU64::new(0)), boot_clock());
    let more = Arc::clone(&slept);
    let clock =
        BootClock::new(move || clock.now() + secs(more.load(std::sync::atomic::Ordering::SeqCst)));
    let (b, logind) = guarded(tempfile::tempdir().unwrap(), clock, FakeRuntime::default());
    b.want(&[&asking("backup")]).await;
    assert!(logind.told().is_some());
    slept.store(3600, std::sync::atomic::Ordering::SeqCst);
    tokio::time::sleep(secs(6)).await;
    assert!(logind.told().is_none() && guard_of(&b).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_guard_without_namespaces_that_can_get_none_any_more_lets_the_node_work() {
    let state = tempfile::tempdir().unwrap();
    let b = bench_with(state, boot_clock(), FakeRuntime::default(), held(), |parts| {
        parts.guard = Some(Box::new(|_, directory| {
            let policy = watch::Sender::default().subscribe();
            let lock = watch::Sender::new(LockState::Released).subscribe();
            let directory = Some(directory);
            ShutdownGuard { policy, wanted: watch::Sender::default(), lock, directory }
        }));
    });
    b.want(&[&pod("web", 0, 30)]).await;
    assert!(b.runtime.runs(pod("web", 0, 30).uid()));
}

#[tokio::test(start_paused = true)]
async fn an_operator_releases_a_pod_and_only_one_that_holds() {
    let (b, logind) = first();
    b.want(&[&asking("backup"), &asking("other"), &pod("web", 0, 30)]).await;
    logind.follow().await;
    let answer = b.node.release("default", "backup").await.unwrap();
    assert_eq!(answer.still_blocked_by, ["default/other"]);
    for name in ["backup", "web", "none"] {
        let error = b.node.release("default", name).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::NotFound, "{name}");
    }
    let released = b.node.release("default", "other");
    let (answer, ()) = tokio::join!(released, logind.follow());
    assert!(answer.unwrap().still_blocked_by.is_empty() && logind.told().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_hold_goes_on_under_the_next_agent_with_the_rest_of_its_time() {
    let (b, _) = first();
    let pods = [asking("backup"), asking("released")];
    b.want(&[&pods[0], &pods[1]]).await;
    let released = b.node.release("default", "released").await.unwrap();
    assert_eq!(released.still_blocked_by, ["default/backup"]);
    tokio::time::sleep(secs(40)).await;
    let (state, clock, runtime, _) = b.stop();
    // The runtime has not reported yet what runs.
    runtime.fail(true);
    let (b, logind) = guarded(state, clock, runtime);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(logind.told().as_deref(), Some("winddown: pod default/backup"));
    b.runtime.fail(false);
    b.want(&[&pods[0], &pods[1]]).await;
    assert_eq!(logind.told().as_deref(), Some("winddown: pod default/backup"));
    tokio::time::sleep(secs(20)).await;
    assert!(logind.told().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_release_names_the_pod_that_asked_while_it_waited_for_the_lock() {
    let (b, logind) = first();
    let (backup, other) = (asking("backup"), asking("other"));
    b.want(&[&backup]).await;
    logind.follow().await;
    let pods = [&backup, &other];
    let (answer, ()) = tokio::join!(b.node.release("default", "backup"), b.want(&pods));
    assert_eq!(answer.unwrap().still_blocked_by, ["default/other"]);
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_under_the_next_agent_if_its_configuration_allows_none() {
    let (b, _) = first();
    b.want(&[&asking("backup")]).await;
    assert!(guard_of(&b).is_some());
    let (state, clock, runtime, _) = b.stop();
    let (b, logind) = guarded_in(None, state, clock, runtime);
    b.want(&[&asking("backup")]).await;
    tokio::time::sleep(secs(1)).await;
    assert!(guard_of(&b).is_none() && logind.told().is_none());
    b.login.prepare();
    b.released().await;
    assert_eq!(b.report().warnings, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_did_not_ask_ends_the_pods_and_the_report_names_who_held_it() {
    let (b, logind) = first();
    b.want(&[&asking("backup")]).await;
    b.login.prepare();
    b.released().await;
    assert!(logind.told().is_none(), "a lock that blocks is of no more use");
    let report = b.report();
    assert_eq!(report.warnings, ["default/backup blocked shutdowns, and this one bypassed logind"]);
    assert_eq!(report.outcome, Outcome::Clean);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_of_the_holds_is_set_aside() {
    let state = tempfile::tempdir().unwrap();
    let run = state.path().join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("guard.json"), "{").unwrap();
    let (b, logind) = guarded(state, boot_clock(), FakeRuntime::default());
    b.want(&[&asking("backup")]).await;
    assert!(logind.told().is_some());
    assert_eq!(winddown_host::regular::read(&run.join("guard.bad"), 9).unwrap(), b"{");
}

/// A status change of a pod that holds nothing does not cause a check of all pods: a boot has many of both.
#[tokio::test(start_paused = true)]
async fn pods_that_do_not_ask_do_not_have_all_pods_looked_at() {
    let (b, logind) = first();
    let looks = || crate::guard::LOOKS.with(std::cell::Cell::get);
    let mut pods: Vec<Pod> = (0..50).map(|i| pod(&format!("web-{i}"), 0, 30)).collect();
    pods.push(asking("backup"));
    b.want(&pods.iter().collect::<Vec<_>>()).await;
    assert_eq!(logind.told().as_deref(), Some("winddown: pod default/backup"));
    let before = looks();
    for pod in &pods[..50] {
        b.runtime.exit(pod.uid(), 0);
        tokio::time::sleep(secs(1)).await;
    }
    assert!(looks() - before < 10, "{} looks for 50 pods", looks() - before);
}
