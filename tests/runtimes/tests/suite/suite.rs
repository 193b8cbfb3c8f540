//! What our runtimes have in common beyond what any runtime must do (`shared/conformance`). Each scenario is played on every
//! stage, with the same answers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use winddown_shared::{
    CONFIG_SOURCE_ANNOTATION, CONFIG_SPEC_ANNOTATION, ContainerKind, EndCause, Event, Grace, Pod,
    PodEventKind, Recorder, Runtime as _, RuntimeError, SyncedPod,
};

use crate::bed::{
    Act, POLITE, STUBBORN, eventually, exit_of, is_running, pod, secs, status_until, stop,
    sync_until, waits_for, watched,
};
use crate::stage::Stage;

/// Hands the names of all scenarios to a macro.
macro_rules! common_scenarios {
    ($then:ident $($words:ident)*) => {
        $then! { $($words)* =>
            a_container_runs_and_ends_with_its_exit_code
            a_container_that_is_asked_to_end_gets_its_time
            a_pod_survives_the_agent_and_is_adopted_as_it_is
            what_a_pod_was_started_with_is_known_to_the_next_agent_without_its_manifest
            a_container_that_crashes_is_started_again_after_a_while
            an_end_that_was_asked_for_is_no_crash
            a_pod_that_exited_with_0_when_it_was_stopped_is_not_done_for_the_next_agent
            a_container_that_exited_with_0_when_its_probe_failed_is_started_again
            a_container_that_exits_by_itself_is_reported_once_with_its_last_line
            init_containers_come_first_and_sidecars_go_last
            an_init_container_that_fails_for_good_fails_the_pod
            nothing_is_left_of_a_pod_that_was_forgotten
            log_shippers_find_the_log_of_a_pod_by_a_link_until_it_is_forgotten
            a_pre_stop_sleep_is_inside_the_grace
            a_stop_says_which_pre_stop_hook_failed_and_why
            a_probe_that_fails_ends_the_container_within_its_own_grace
            a_container_without_grace_hears_the_signal_when_its_probe_fails
            containers_are_stopped_together
            a_second_stop_tells_the_same_as_the_first
            a_kill_that_this_agent_did_not_order_is_not_an_exit
            a_pod_that_runs_goes_on_without_what_only_a_new_one_is_refused_for
        }
    };
}
pub(crate) use common_scenarios;

fn one(container: &Value) -> Value {
    json!({"containers": [container]})
}

fn never(containers: &Value) -> Value {
    json!({"restartPolicy": "Never", "containers": containers})
}

pub(crate) async fn a_container_runs_and_ends_with_its_exit_code<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let pod = pod("web", &never(&json!([stage.container("main", Act::exits(3))])));
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let exit = exit_of(&seen[0]).unwrap();
    assert_eq!((exit.exit_code, &*exit.reason), (3, "Error"));
    assert!(exit.started_at.unwrap() <= exit.finished_at.unwrap());
    assert!(!seen[0].ready && seen[0].id.contains("://"));
    assert_eq!(runtime.sync_pod(&pod).await.unwrap().again_in, None);
}

pub(crate) async fn a_container_that_is_asked_to_end_gets_its_time<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let slow = Act { stop: "0.5", stop_code: 7, ..POLITE };
    let pod = pod("web", &one(&stage.container("main", slow)));
    stage.up(&runtime, &pod).await;
    let began = Instant::now();
    let stopped = stop(&runtime, &pod, 20).await;
    assert!(began.elapsed() >= Duration::from_millis(500) && began.elapsed() < secs(15));
    assert!(stopped.signalled_at.unwrap() < began + secs(5));
    let main = &stopped.containers[0];
    assert_eq!((&*main.name, main.exit_code, main.forced), ("main", 7, false));
    let status = runtime.pod_status(pod.uid()).await.unwrap();
    assert_eq!(exit_of(&status.containers[0]).unwrap().exit_code, 7);
}

pub(crate) async fn a_pod_survives_the_agent_and_is_adopted_as_it_is<S: Stage>(stage: &S) {
    let spec = json!({"initContainers": [stage.container("prepare", Act::exits(0))],
        "containers": [stage.container("main", POLITE)]});
    let pod = pod("web", &spec);
    let runtime = stage.open().await;
    let before = sync_until(&runtime, &pod, |c| is_running(&c[1])).await;
    stage.hears(&pod).await;
    drop(runtime);
    let runtime = stage.open().await;
    let listed = runtime.list_pods().await.unwrap();
    assert_eq!((listed.len(), &*listed[0].name, listed[0].running), (1, "web", true));
    let after = runtime.sync_pod(&pod).await.unwrap().status.containers;
    assert_eq!(after[1].id, before[1].id);
    assert_eq!((after[1].restart_count, after[1].ready), (0, true));
    assert_eq!(exit_of(&after[0]).unwrap().exit_code, 0);
    assert!(!stop(&runtime, &pod, 20).await.forced());
}

/// Also after the manifest has changed under a UID of its own, and the pod was started again.
pub(crate) async fn what_a_pod_was_started_with_is_known_to_the_next_agent_without_its_manifest<
    S: Stage,
>(
    stage: &S,
) {
    for (mark, cpu) in [("old", "10m"), ("new", "20m")] {
        let mut container = stage.container("main", POLITE);
        container["resources"]["requests"] = json!({"cpu": cpu, "memory": "1Mi"});
        let mut object = pod("web", &one(&container)).object().clone();
        let marked = [(CONFIG_SOURCE_ANNOTATION, "file"), (CONFIG_SPEC_ANNOTATION, mark)];
        object.metadata.annotations = Some(marked.map(|(k, v)| (k.into(), v.into())).into());
        let pod = Pod::new(object).unwrap();
        let runtime = stage.open().await;
        stage.up(&runtime, &pod).await;
        drop(runtime);
        let runtime = stage.open().await;
        let found = runtime.list_pods().await.unwrap().remove(0);
        assert_eq!((found.running, found.spec_mark.as_deref()), (true, Some(mark)));
        assert_eq!(found.requests.as_ref(), Some(pod.fit_requests()));
        stop(&runtime, &pod, 20).await;
        stage.clean(&runtime, pod.uid()).await;
    }
}

pub(crate) async fn a_container_that_crashes_is_started_again_after_a_while<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let spec = json!({"restartPolicy": "OnFailure",
        "containers": [stage.container("main", Act::exits(1))]});
    let pod = pod("web", &spec);
    let looping = |c: &[winddown_shared::ContainerStatus]| waits_for(&c[0]) == "CrashLoopBackOff";
    let seen = sync_until(&runtime, &pod, looping).await;
    assert_eq!(seen[0].last_exit.as_ref().unwrap().exit_code, 1);
    let seen = sync_until(&runtime, &pod, |c| c[0].restart_count >= 3).await;
    assert!(seen[0].last_exit.is_some());
    stop(&runtime, &pod, 5).await;
}

/// A pod whose stop was called off comes back at once, however often.
pub(crate) async fn an_end_that_was_asked_for_is_no_crash<S: Stage>(stage: &S) {
    let pod = pod("web", &one(&stage.container("main", POLITE)));
    let runtime = stage.open().await;
    for round in 0..3 {
        let synced = runtime.sync_pod(&pod).await.unwrap();
        assert!(is_running(&synced.status.containers[0]), "{round}: {synced:?}");
        stage.hears(&pod).await;
        stop(&runtime, &pod, 20).await;
    }
}

/// An exit that was reported: container, exit code, what failed, last line, and whether it is restarted.
pub(crate) type ReportedExit = (String, i32, Option<EndCause>, Option<String>, bool);

/// The exits that were reported.
#[derive(Default)]
pub(crate) struct ReportedExits(pub(crate) Mutex<Vec<ReportedExit>>);

impl Recorder for ReportedExits {
    fn record(&self, event: &Event) {
        let Event::ContainerExited { container, exit, failed, last_line, again_in, .. } = event
        else {
            return;
        };
        let last_line = last_line.as_deref().map(str::to_owned);
        let exit = (container.to_string(), exit.exit_code, *failed, last_line, again_in.is_some());
        self.0.lock().unwrap().push(exit);
    }
}

pub(crate) async fn a_pod_that_exited_with_0_when_it_was_stopped_is_not_done_for_the_next_agent<
    S: Stage,
>(
    stage: &S,
) {
    let spec = json!({"restartPolicy": "OnFailure",
        "containers": [stage.container("main", POLITE)]});
    let pod = pod("web", &spec);
    let runtime = stage.open().await;
    stage.up(&runtime, &pod).await;
    assert_eq!(stop(&runtime, &pod, 20).await.containers[0].exit_code, 0);
    eventually("the request is on disk", || !requests(stage.dir()).is_empty()).await;
    drop(runtime);
    let runtime = stage.open().await;
    runtime.list_pods().await.unwrap();
    assert!(!runtime.has_completed(&pod));
    sync_until(&runtime, &pod, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    stop(&runtime, &pod, 20).await;
}

/// Counts the containers that were stopped because a probe failed.
#[derive(Default)]
struct Condemned(AtomicUsize);

impl Recorder for Condemned {
    fn record(&self, event: &Event) {
        if let Event::Pod(one) = event
            && matches!(one.what, PodEventKind::Killing(EndCause::Probe(_)))
        {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// As with a kubelet, its exit code says nothing, to this agent and to the next one.
pub(crate) async fn a_container_that_exited_with_0_when_its_probe_failed_is_started_again<
    S: Stage,
>(
    stage: &S,
) {
    let runtime = stage.open().await;
    let condemned = Arc::new(Condemned::default());
    runtime.record_to(&(Arc::clone(&condemned) as Arc<dyn Recorder>));
    let (main, listener) = watched(stage.container("main", Act { stop: "1", ..POLITE }));
    let pod = pod("web", &json!({"restartPolicy": "OnFailure", "containers": [main]}));
    stage.up(&runtime, &pod).await;
    drop(listener);
    // Not until it is gone: that would start it again.
    while condemned.0.load(Ordering::Relaxed) == 0 {
        runtime.sync_pod(&pod).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    let seen = status_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 0);
    assert!(!runtime.has_completed(&pod));
    drop(runtime);
    let runtime = stage.open().await;
    runtime.list_pods().await.unwrap();
    assert!(!runtime.has_completed(&pod), "to the next agent");
    sync_until(&runtime, &pod, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    stop(&runtime, &pod, 20).await;
}

/// The notes below this directory about runs that were asked to stop.
pub(crate) fn requests(dir: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| if path.is_dir() { requests(&path) } else { vec![path] };
    let all = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let all = all.flat_map(|entry| below(entry.path()));
    all.filter(|path| path.to_string_lossy().ends_with("asked")).collect()
}

pub(crate) async fn a_container_that_exits_by_itself_is_reported_once_with_its_last_line<
    S: Stage,
>(
    stage: &S,
) {
    let runtime = stage.open().await;
    let reported = Arc::new(ReportedExits::default());
    runtime.record_to(&(Arc::clone(&reported) as Arc<dyn Recorder>));
    let containers =
        json!([stage.container("main", Act::exits(3)), stage.container("side", POLITE)]);
    let web = pod("web", &never(&containers));
    sync_until(&runtime, &web, |c| exit_of(&c[0]).is_some() && is_running(&c[1])).await;
    eventually("the exit is reported", || !reported.0.lock().unwrap().is_empty()).await;
    runtime.sync_pod(&web).await.unwrap();
    stage.hears(&web).await;
    stop(&runtime, &web, 20).await;
    let last_line = stage.logs().map(|_| "up".to_owned());
    assert_eq!(*reported.0.lock().unwrap(), [("main".to_owned(), 3, None, last_line, false)]);
}

pub(crate) async fn init_containers_come_first_and_sidecars_go_last<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let mut proxy = stage.container("proxy", POLITE);
    proxy["restartPolicy"] = json!("Always");
    let slow = Act { stop: "0.7", ..POLITE };
    let spec = json!({
        "initContainers": [stage.container("prepare", Act::exits(0)), proxy],
        "containers": [stage.container("main", slow)],
    });
    let pod = pod("web", &spec);
    let status = runtime.sync_pod(&pod).await.unwrap().status.containers;
    if is_running(&status[0]) {
        assert_eq!(waits_for(&status[2]), "PodInitializing");
    }
    let seen = sync_until(&runtime, &pod, |c| is_running(&c[2])).await;
    assert_eq!(seen[1].kind, ContainerKind::Sidecar);
    assert!(is_running(&seen[1]) && seen[0].ready);
    stage.hears(&pod).await;
    let stopped = stop(&runtime, &pod, 20).await;
    assert!(!stopped.forced());
    let ends = status_until(&runtime, &pod, |c| c.iter().all(|c| exit_of(c).is_some())).await;
    let finished = |i: usize| exit_of(&ends[i]).unwrap().finished_at.unwrap();
    // A busy runtime notes an end late. Asked together, the sidecar would have ended 0.7 s before the other.
    let sooner = finished(1).duration_until(finished(2)).as_millis();
    assert!(sooner < 350, "the sidecar ended {sooner} ms before the container it serves");
}

pub(crate) async fn an_init_container_that_fails_for_good_fails_the_pod<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let mut spec = never(&json!([stage.container("main", POLITE)]));
    spec["initContainers"] = json!([stage.container("prepare", Act::exits(4))]);
    let pod = pod("web", &spec);
    sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let status = runtime.sync_pod(&pod).await.unwrap().status.containers;
    assert_eq!(exit_of(&status[0]).unwrap().exit_code, 4);
    assert_eq!(waits_for(&status[1]), "PodInitializing");
}

pub(crate) async fn nothing_is_left_of_a_pod_that_was_forgotten<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let pod = pod("web", &one(&stage.container("main", POLITE)));
    stage.up(&runtime, &pod).await;
    let early = runtime.forget_pod(pod.uid()).await.unwrap_err().to_string();
    assert!(early.contains("still runs"), "{early}");
    stop(&runtime, &pod, 20).await;
    let left = runtime.list_pods().await.unwrap();
    assert_eq!((left.len(), left[0].running), (1, false));
    stage.clean(&runtime, pod.uid()).await;
    runtime.forget_pod(pod.uid()).await.unwrap();
    assert_eq!(runtime.list_pods().await.unwrap(), vec![]);
    drop(runtime);
    assert_eq!(stage.open().await.list_pods().await.unwrap(), vec![]);
}

pub(crate) async fn log_shippers_find_the_log_of_a_pod_by_a_link_until_it_is_forgotten<S: Stage>(
    stage: &S,
) {
    let links = stage.dir().join("containers");
    let all = || {
        let entries = std::fs::read_dir(&links).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let is_found = || {
        let all = all();
        assert_eq!(all.len(), 1, "{all:?}");
        let name = all[0].file_name().unwrap().to_str().unwrap();
        let id = name.strip_prefix("web_default_main-").unwrap().strip_suffix(".log").unwrap();
        assert!(id.len() == 64 && id.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
        let log = stage.dir().join("logs/default_web_uid-web/main/0.log");
        assert_eq!(std::fs::read_link(&all[0]).unwrap(), log);
    };
    let runtime = stage.open().await;
    let web = pod("web", &one(&stage.container("main", POLITE)));
    stage.up(&runtime, &web).await;
    is_found();
    // As if an earlier agent had made none.
    std::fs::remove_file(&all()[0]).unwrap();
    drop(runtime);
    let runtime = stage.open().await;
    sync_until(&runtime, &web, |c| is_running(&c[0])).await;
    is_found();
    stop(&runtime, &web, 20).await;
    is_found();
    stage.clean(&runtime, web.uid()).await;
    runtime.forget_pod(web.uid()).await.unwrap();
    assert_eq!(all(), Vec::<std::path::PathBuf>::new());
}

pub(crate) async fn a_pre_stop_sleep_is_inside_the_grace<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let mut main = stage.container("main", STUBBORN);
    main["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
    let pod = pod("web", &one(&main));
    stage.up(&runtime, &pod).await;
    let began = Instant::now();
    let stopped = stop(&runtime, &pod, 2).await;
    assert!(stopped.signalled_at.unwrap() >= began + secs(1));
    assert!(stopped.forced() && began.elapsed() < secs(10));
    assert!(stopped.stopped_at.unwrap() >= began + secs(2));
}

pub(crate) async fn a_stop_says_which_pre_stop_hook_failed_and_why<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let mut main = stage.container("main", POLITE);
    main["lifecycle"] = json!({"preStop": {"httpGet": {"host": "127.0.0.1", "port": 1}}});
    let pod = pod("web", &one(&main));
    stage.up(&runtime, &pod).await;
    for _ in 0..2 {
        let stopped = stop(&runtime, &pod, 5).await;
        let said = stopped.remark.as_deref().unwrap_or_default();
        let why = said.strip_prefix("preStop hook of main failed: ").unwrap_or_default();
        assert!(!why.is_empty() && !stopped.forced(), "{stopped:?}");
    }
}

pub(crate) async fn containers_are_stopped_together<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let slow = Act { stop: "4", ..POLITE };
    let all: Vec<Value> = ["a", "b", "c"].iter().map(|name| stage.container(name, slow)).collect();
    let pod = pod("web", &json!({"containers": all}));
    stage.up(&runtime, &pod).await;
    let began = Instant::now();
    let stopped = stop(&runtime, &pod, 30).await;
    assert_eq!((stopped.containers.len(), stopped.forced()), (3, false));
    assert!(began.elapsed() < secs(12), "one after the other: {:?}", began.elapsed());
}

pub(crate) async fn a_second_stop_tells_the_same_as_the_first<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let slow = Act { stop: "1", stop_code: 2, ..POLITE };
    let pod = pod("web", &one(&stage.container("main", slow)));
    stage.up(&runtime, &pod).await;
    let grace = Grace::fixed(secs(30));
    // The first wait is abandoned; the stop is not.
    let first = runtime.stop_pod(pod.uid(), Some(&pod), grace.clone());
    assert!(timeout(Duration::from_millis(200), first).await.is_err());
    let (second, third) = tokio::join!(
        runtime.stop_pod(pod.uid(), Some(&pod), grace.clone()),
        runtime.stop_pod(pod.uid(), Some(&pod), grace.clone()),
    );
    let (second, third) = (second.unwrap(), third.unwrap());
    assert_eq!(second.containers, third.containers);
    assert_eq!((second.containers[0].exit_code, second.forced()), (2, false));
}

/// The kill of an earlier agent may take effect only now, because the runtime hung.
pub(crate) async fn a_kill_that_this_agent_did_not_order_is_not_an_exit<S: Stage>(stage: &S) {
    let (pod, gate) = stage.gated("web", Act { stop: "gate", stop_code: 137, ..POLITE });
    let runtime = stage.open().await;
    stage.up(&runtime, &pod).await;
    gate.open();
    let stopped = stop(&runtime, &pod, 60).await;
    assert_eq!((stopped.containers[0].exit_code, stopped.forced()), (137, true));
}

pub(crate) async fn a_pod_that_runs_goes_on_without_what_only_a_new_one_is_refused_for<S: Stage>(
    stage: &S,
) {
    let changed = |pod: &Pod, change: &dyn Fn(&mut Value)| {
        let mut object = serde_json::to_value(pod.object()).unwrap();
        change(&mut object["spec"]);
        Pod::new(serde_json::from_value(object).unwrap()).unwrap()
    };
    let debug = |spec: &mut Value| {
        spec["ephemeralContainers"] = json!([{"name": "debugger", "image": "none"}]);
    };
    let both = |spec: &mut Value| {
        debug(spec);
        spec["hostUsers"] = json!(false);
    };
    let fields = |synced: SyncedPod| {
        synced.ignored.into_iter().map(|ignored| ignored.field).collect::<Vec<_>>()
    };
    let runtime = stage.open().await;
    let web = pod("web", &one(&stage.container("main", POLITE)));
    stage.up(&runtime, &web).await;
    let before = runtime.sync_pod(&web).await.unwrap();
    assert_eq!(before.ignored, []);
    let debugged = runtime.sync_pod(&changed(&web, &debug)).await.unwrap();
    let touched = debugged.status.containers[0] != before.status.containers[0];
    assert!(!touched, "kubectl debug touched the pod");
    let not_run: &[&str] = if S::RUNS_EPHEMERAL { &[] } else { &["spec.ephemeralContainers"] };
    assert_eq!(fields(debugged), not_run);
    drop(runtime);
    // The next agent refuses more than the one that took the pod.
    let runtime = stage.open().await;
    let web = changed(&web, &both);
    let adopted = runtime.sync_pod(&web).await.unwrap();
    assert_eq!(adopted.status.containers[0].id, before.status.containers[0].id);
    assert!(is_running(&adopted.status.containers[0]));
    assert_eq!(fields(adopted), [&["spec.hostUsers"], not_run].concat());
    stop(&runtime, &web, 20).await;
    let other = changed(&pod("other", &one(&stage.container("main", POLITE))), &both);
    let refused = runtime.sync_pod(&other).await.unwrap_err();
    assert!(
        matches!(&refused, RuntimeError::Unsupported { field, .. } if field == "spec.hostUsers")
    );
}

pub(crate) async fn a_container_without_grace_hears_the_signal_when_its_probe_fails<S: Stage>(
    stage: &S,
) {
    let runtime = stage.open().await;
    let (main, listener) = watched(stage.container("main", Act { stop_code: 7, ..POLITE }));
    let pod = pod("web", &json!({"terminationGracePeriodSeconds": 0, "containers": [main]}));
    stage.up(&runtime, &pod).await;
    stage.hears(&pod).await;
    drop(listener);
    let seen = sync_until(&runtime, &pod, |c| c[0].restart_count == 1).await;
    assert_eq!(seen[0].last_exit.as_ref().map(|exit| exit.exit_code), Some(7));
    stop(&runtime, &pod, 0).await;
}

pub(crate) async fn a_probe_that_fails_ends_the_container_within_its_own_grace<S: Stage>(
    stage: &S,
) {
    let runtime = stage.open().await;
    let (mut main, listener) = watched(stage.container("main", STUBBORN));
    main["livenessProbe"]["terminationGracePeriodSeconds"] = json!(1);
    let pod = pod("web", &json!({"terminationGracePeriodSeconds": 1000, "containers": [main]}));
    stage.up(&runtime, &pod).await;
    drop(listener);
    let seen = sync_until(&runtime, &pod, |c| c[0].restart_count == 1).await;
    assert_eq!(seen[0].last_exit.as_ref().map(|exit| exit.exit_code), Some(137));
    stop(&runtime, &pod, 0).await;
}
