//! What the cases do with pods, as the pod workers do it: what fails is tried again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use winddown_shared::{
    ContainerExit, ContainerState, ContainerStatus, Grace, Pod, PodRuntimeStatus, PodStopped,
    PodUid, Runtime, RuntimeError, RuntimePod, error_chain,
};

use crate::{PodBehaviour, RuntimeUnderTest};

tokio::task_local! {
    /// See [`RuntimeUnderTest::PATIENCE`].
    pub(crate) static PATIENCE: Duration;
}

/// How long what has to happen may take.
pub(crate) fn patience() -> Duration {
    PATIENCE.with(|patience| *patience)
}

/// How much longer than its grace a stop may take, and how far a call may be from its time.
pub(crate) const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// A grace in which every container that hears SIGTERM has ended.
pub(crate) const AMPLE_GRACE: Duration = Duration::from_secs(20);
/// How often a condition is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// The longest time between two syncs of a container that waits to be restarted.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// What went wrong, for people.
pub(crate) type Step<T = ()> = Result<T, String>;

/// A pod whose container runs and hears signals, on an open runtime.
pub(crate) async fn running<S: RuntimeUnderTest>(
    subject: &S,
    behaviour: PodBehaviour,
) -> Step<(S::Runtime, Pod)> {
    let (runtime, pod) = (subject.open().await, subject.pod("web", behaviour));
    until_running(subject, &runtime, &pod).await?;
    Ok((runtime, pod))
}

/// Syncs until the pod's container runs, and returns its status.
pub(crate) async fn until_running<S: RuntimeUnderTest>(
    subject: &S,
    runtime: &S::Runtime,
    pod: &Pod,
) -> Step<ContainerStatus> {
    let deadline = Instant::now() + patience();
    loop {
        let seen = match bounded("sync_pod", runtime.sync_pod(pod)).await {
            Ok(synced) => match &synced.status.containers[..] {
                [one] if is_running(one) => {
                    subject.hears_signals(pod).await;
                    return Ok(one.clone());
                }
                other => format!("{other:?}"),
            },
            Err(error) => error,
        };
        if Instant::now() > deadline {
            let patience = patience();
            return Err(format!("the pod does not run {patience:?} after its first sync: {seen}"));
        }
        sleep(5 * LOOK_INTERVAL).await;
    }
}

/// Waits until the pod's container has exited.
pub(crate) async fn until_exited<R: Runtime>(runtime: &R, pod: &Pod) -> Step<ContainerExit> {
    let deadline = Instant::now() + patience();
    loop {
        let status = status(runtime, pod.uid()).await?;
        if let Some(exit) = exit_of(&status) {
            return Ok(exit.clone());
        }
        if Instant::now() > deadline {
            let patience = patience();
            return Err(format!("the pod has not exited within {patience:?}: {status:?}"));
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// A container of a pod that crashed.
pub(crate) struct Crash {
    /// Its state in each answer of `sync_pod` until it ran again.
    pub(crate) meanwhile: Vec<ContainerStatus>,
    /// When it ran again; none if it has not within the time that a case waits.
    pub(crate) restarted: Option<ContainerStatus>,
}

/// Runs a pod that crashes, as the pod workers do, until it runs again.
pub(crate) async fn crash<S: RuntimeUnderTest>(
    subject: &S,
    code: i32,
) -> Step<(S::Runtime, Pod, Crash)> {
    let runtime = subject.open().await;
    let pod = subject.pod("crashing", PodBehaviour::Crashes(code));
    eventually("sync_pod", || runtime.sync_pod(&pod)).await?;
    let deadline = Instant::now() + patience();
    let has_exited = |one: &ContainerStatus| {
        one.last_exit.is_some() || matches!(one.state, ContainerState::Exited(_))
    };
    while !status(&runtime, pod.uid()).await?.containers.iter().any(has_exited) {
        if Instant::now() > deadline {
            return Err(format!("the pod has not crashed within {:?}", patience()));
        }
        sleep(LOOK_INTERVAL).await;
    }
    let (deadline, mut meanwhile) = (Instant::now() + patience(), Vec::new());
    loop {
        let synced = eventually("sync_pod", || runtime.sync_pod(&pod)).await?;
        let [one] = &synced.status.containers[..] else {
            return Err(format!("one container is shown as {:?}", synced.status.containers));
        };
        let restarted = is_running(one).then(|| one.clone());
        if restarted.is_some() || Instant::now() > deadline {
            return Ok((runtime, pod, Crash { meanwhile, restarted }));
        }
        meanwhile.push(one.clone());
        sleep(
            synced.again_in.map_or(LOOK_INTERVAL, |wait| wait.clamp(LOOK_INTERVAL, LONGEST_WAIT)),
        )
        .await;
    }
}

pub(crate) async fn stop<R: Runtime>(runtime: &R, pod: &Pod, grace: Duration) -> Step<PodStopped> {
    stop_within(runtime, pod, Grace::fixed(grace), grace + KILL_TIMEOUT).await
}

/// Ends a pod that the case needs no more. How well is not its subject.
pub(crate) async fn end<R: Runtime>(runtime: &R, pod: &Pod) {
    let _ = stop_within(runtime, pod, Grace::fixed(Duration::from_secs(1)), AMPLE_GRACE).await;
}

/// Stops the pod; the stop has to resolve within `time`.
pub(crate) async fn stop_within<R: Runtime>(
    runtime: &R,
    pod: &Pod,
    grace: Grace,
    time: Duration,
) -> Step<PodStopped> {
    match timeout(time, runtime.stop_pod(pod.uid(), Some(pod), grace)).await {
        Ok(stopped) => stopped.map_err(|error| failed("stop_pod", &error)),
        Err(_) => Err(format!("stop_pod has not resolved within {time:?}")),
    }
}

/// Repeats a call that may fail, as the workers do, until it succeeds.
pub(crate) async fn eventually<T, F>(what: &str, mut call: impl FnMut() -> F) -> Step<T>
where
    F: Future<Output = Result<T, RuntimeError>>,
{
    let deadline = Instant::now() + patience();
    loop {
        match bounded(what, call()).await {
            Ok(done) => return Ok(done),
            Err(why) if Instant::now() > deadline => return Err(why),
            Err(_) => sleep(5 * LOOK_INTERVAL).await,
        }
    }
}

pub(crate) async fn clean<R: Runtime>(runtime: &R, uid: &PodUid) -> Step {
    eventually("clean_pod", || runtime.clean_pod(uid)).await
}

pub(crate) async fn forget<R: Runtime>(runtime: &R, uid: &PodUid) -> Step {
    eventually("forget_pod", || runtime.forget_pod(uid)).await
}

pub(crate) async fn status<R: Runtime>(runtime: &R, uid: &PodUid) -> Step<PodRuntimeStatus> {
    eventually("pod_status", || runtime.pod_status(uid)).await
}

pub(crate) async fn listed<R: Runtime>(runtime: &R, pod: &Pod) -> Step<Option<RuntimePod>> {
    let pods = eventually("list_pods", || runtime.list_pods()).await?;
    Ok(pods.into_iter().find(|listed| listed.uid == *pod.uid()))
}

/// Fails unless nothing of the pod runs, by its status and by the listing.
pub(crate) async fn nothing_runs<R: Runtime>(runtime: &R, pod: &Pod) -> Step {
    let status = status(runtime, pod.uid()).await?;
    let names: Vec<&Arc<str>> = status.running().collect();
    if !names.is_empty() {
        return Err(format!("pod_status says that {names:?} still runs"));
    }
    match listed(runtime, pod).await? {
        Some(listed) if listed.running => Err("list_pods says that the pod still runs".to_owned()),
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn exit_of(status: &PodRuntimeStatus) -> Option<&ContainerExit> {
    status.containers.iter().find_map(|container| match &container.state {
        ContainerState::Exited(exit) => Some(exit),
        ContainerState::Waiting { .. } | ContainerState::Running { .. } => None,
    })
}

pub(crate) fn is_running(container: &ContainerStatus) -> bool {
    matches!(container.state, ContainerState::Running { .. })
}

/// A call with its error as a text; one that hangs has failed.
pub(crate) async fn bounded<T>(
    what: &str,
    call: impl Future<Output = Result<T, RuntimeError>>,
) -> Step<T> {
    match timeout(patience(), call).await {
        Ok(answer) => answer.map_err(|error| failed(what, &error)),
        Err(_) => Err(format!("{what} has not answered within {:?}", patience())),
    }
}

fn failed(what: &str, error: &RuntimeError) -> String {
    format!("{what} fails: {}", error_chain(error))
}
