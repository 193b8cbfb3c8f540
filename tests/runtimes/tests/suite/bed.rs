//! What the tests share.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use winddown_shared::{
    ContainerExit, ContainerState, ContainerStatus, Grace, Pod, PodStopped, PodUid, Runtime,
    WallClock, error_chain,
};

/// How long a condition may take to become true. An emulated machine that shares its processors may let a whole call to
/// the container runtime time out, which then is tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What containers run: `act RUN CODE STOP STOP_CODE [GATE]`. Runs for RUN seconds (or `forever`) and
/// exits with CODE; asked to end, takes STOP seconds (or `never` does) and exits with STOP_CODE. `gate`
/// in the place of a time lasts until the file GATE is there.
pub(crate) const ACT: &str = "#!/bin/sh
run=$1 code=$2 stop=$3 stop_code=$4 gate=$5
pass() { until [ -e \"$gate\" ]; do sleep 0.02 & wait $!; done; }
asked() {
  echo asked
  case \"$stop\" in 0) ;; gate) pass ;; *) sleep \"$stop\" ;; esac
  exit \"$stop_code\"
}
if [ \"$stop\" = never ]; then trap 'echo asked' TERM; else trap asked TERM; fi
echo up
case \"$run\" in
  forever) while :; do sleep 1000 & wait $!; done ;;
  gate) pass ;;
  *) sleep \"$run\" & wait $! ;;
esac
exit \"$code\"
";

/// The arguments of `act`.
#[derive(Clone, Copy)]
pub(crate) struct Act {
    pub(crate) run: &'static str,
    pub(crate) code: i32,
    pub(crate) stop: &'static str,
    pub(crate) stop_code: i32,
}

/// Runs for ever, and ends with 0 as soon as it is asked.
pub(crate) const POLITE: Act = Act { run: "forever", code: 0, stop: "0", stop_code: 0 };
/// Runs for ever, whoever asks it to end.
pub(crate) const STUBBORN: Act = Act { stop: "never", ..POLITE };

impl Act {
    /// Runs for a moment and exits with `code`.
    pub(crate) fn exits(code: i32) -> Self {
        Act { run: "0.1", code, ..POLITE }
    }

    pub(crate) fn words(self) -> [String; 4] {
        [self.run.into(), self.code.to_string(), self.stop.into(), self.stop_code.to_string()]
    }
}

/// What keeps a container of [`Stage::gated`](crate::stage::Stage::gated) from going on: a file that is
/// not there yet.
pub(crate) struct Gate(pub(crate) PathBuf);

impl Gate {
    /// Lets the container go on.
    pub(crate) fn open(&self) {
        std::fs::write(&self.0, []).unwrap();
    }
}

/// A container that is alive for as long as something listens.
pub(crate) fn watched(mut container: Value) -> (Value, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    container["livenessProbe"] = json!({"tcpSocket": {"host": "127.0.0.1", "port": port},
        "periodSeconds": 1, "failureThreshold": 1});
    (container, listener)
}

/// A pod on the host's network.
pub(crate) fn pod(name: &str, spec: &Value) -> Pod {
    let mut spec = spec.clone();
    spec["hostNetwork"] = json!(true);
    let meta = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}")});
    let object = json!({"metadata": meta, "spec": spec});
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "did not happen: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Syncs as the pod workers do, until the status satisfies `wanted`. Errors are tried again.
pub(crate) async fn sync_until<R: Runtime>(
    runtime: &R,
    pod: &Pod,
    wanted: impl Fn(&[ContainerStatus]) -> bool,
) -> Vec<ContainerStatus> {
    let mut changes = runtime.changes();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (wait, seen) = match runtime.sync_pod(pod).await {
            Ok(synced) if wanted(&synced.status.containers) => return synced.status.containers,
            Ok(synced) => (synced.again_in.unwrap_or(PATIENCE), format!("{:?}", synced.status)),
            Err(error) => (Duration::from_millis(100), format!("{error:?}")),
        };
        assert!(Instant::now() < deadline, "last seen: {seen}");
        let left = deadline.saturating_duration_since(Instant::now());
        let _ = timeout(wait.min(left), changes.recv()).await;
    }
}

/// Waits until the runtime says so by itself.
pub(crate) async fn status_until<R: Runtime>(
    runtime: &R,
    pod: &Pod,
    wanted: impl Fn(&[ContainerStatus]) -> bool,
) -> Vec<ContainerStatus> {
    let mut changes = runtime.changes();
    loop {
        let status = runtime.pod_status(pod.uid()).await.unwrap();
        if wanted(&status.containers) {
            return status.containers;
        }
        let heard = timeout(PATIENCE, changes.recv()).await;
        assert!(heard.is_ok(), "last seen: {:?}", status.containers);
    }
}

/// Syncs until every container runs.
pub(crate) async fn run<R: Runtime>(runtime: &R, pod: &Pod) {
    sync_until(runtime, pod, |all| !all.is_empty() && all.iter().all(is_running)).await;
}

/// Stops with a grace of so many seconds.
pub(crate) async fn stop<R: Runtime>(runtime: &R, pod: &Pod, seconds: u64) -> PodStopped {
    runtime.stop_pod(pod.uid(), Some(pod), Grace::fixed(secs(seconds))).await.unwrap()
}

/// Cleans up after a pod. What fails is tried again, as the pod workers do: containerd 2.1 refuses to end a
/// sandbox while it has not seen to the end of the container yet ("ttrpc: closed").
pub(crate) async fn clean<R: Runtime>(runtime: &R, uid: &PodUid) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = runtime.clean_pod(uid).await {
        assert!(Instant::now() < deadline, "{}", error_chain(&error));
        sleep(Duration::from_millis(100)).await;
    }
}

/// Cleans up after a pod and forgets it.
pub(crate) async fn forget<R: Runtime>(runtime: &R, pod: &Pod) {
    clean(runtime, pod.uid()).await;
    runtime.forget_pod(pod.uid()).await.unwrap();
}

pub(crate) fn exit_of(container: &ContainerStatus) -> Option<&ContainerExit> {
    match &container.state {
        ContainerState::Exited(exit) => Some(exit),
        _ => None,
    }
}

pub(crate) fn is_running(container: &ContainerStatus) -> bool {
    matches!(container.state, ContainerState::Running { .. })
}

/// Why a container waits; empty if it does not.
pub(crate) fn waits_for(container: &ContainerStatus) -> String {
    match &container.state {
        ContainerState::Waiting { reason, .. } => reason.to_string(),
        _ => String::new(),
    }
}

pub(crate) fn clock() -> WallClock {
    #[allow(clippy::disallowed_methods, reason = "real processes, real time")]
    WallClock::new(jiff::Timestamp::now)
}

/// Says that a test did not run; fails it where nothing may be skipped.
pub(crate) fn skip(test: &str, why: &str) {
    println!("SKIPPED: {test}: {why}");
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "skipped: {test}: {why}");
}
