//! Handles name conflicts at the runtime.
//!
//! The name of a sandbox or a container contains its attempt, so that nothing is created twice. If the name
//! is taken, an earlier call, by an agent that died or got no answer, has created the object after
//! all, or is still creating it, or the runtime is about to roll it back because its caller is gone. CRI-O then answers
//! with the object that has the name, whoever made it and whether or not it is over, so the names of others are avoided
//! from the start.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_shared::{Backoff, Pod, RuntimeError};

use super::client::CallError;
use super::{CriContext, api, failed, health, labels};

/// How long to wait for a name that stays taken by what is not listed.
const FREE_NAME_TIMEOUT: Duration = Duration::from_secs(3);

/// What has a name that is taken.
pub(super) enum NameHolder<T> {
    /// The object itself, made by an earlier call.
    Ours(T),
    /// Nothing that is listed: it is being made, or removed.
    Unlisted,
}

/// Creates an object. While its name is taken, looks for the existing one, and tries again for a while. As cancel-safe
/// as `make`.
///
/// # Errors
/// As `make`; also if the name stays taken by an object that is not listed.
pub(super) async fn create_or_find<T, M, F>(
    make: impl Fn() -> M,
    find: impl Fn() -> F,
) -> Result<T, CallError>
where
    M: Future<Output = Result<T, CallError>>,
    F: Future<Output = NameHolder<T>>,
{
    let deadline = Instant::now() + FREE_NAME_TIMEOUT;
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(200));
    loop {
        match make().await {
            Err(error) if error.is_name_taken() => match find().await {
                NameHolder::Ours(found) => return Ok(found),
                NameHolder::Unlisted if Instant::now() >= deadline => return Err(error),
                NameHolder::Unlisted => sleep(backoff.next_delay()).await,
            },
            outcome => return outcome,
        }
    }
}

/// What has the name of the pod's sandbox with this attempt: the ID of a ready one.
pub(super) async fn sandbox(
    context: &Arc<CriContext>,
    uid: &str,
    attempt: u32,
) -> NameHolder<String> {
    let Ok(listed) = context.client.sandboxes(labels::of_pod(uid)).await else {
        return NameHolder::Unlisted;
    };
    let ready = listed.into_iter().find(|sandbox| {
        sandbox.state() == api::PodSandboxState::SandboxReady
            && sandbox.metadata.as_ref().is_some_and(|m| m.attempt == attempt)
    });
    ready.map_or(NameHolder::Unlisted, |sandbox| NameHolder::Ours(sandbox.id))
}

/// The first attempt of the pod that no sandbox made by others has, and that none after it has: a kubelet that ran the
/// node before leaves its own.
///
/// # Errors
/// One of them is ready: the pod may run in it. Or the runtime did not answer.
pub(super) async fn after_sandboxes_of_others(
    context: &CriContext,
    pod: &Pod,
) -> Result<u32, RuntimeError> {
    let listed = context.client.sandboxes(labels::of_pod_by_anyone(pod.uid().as_str())).await;
    let mut others = listed.map_err(|error| unlisted(context, error, pod))?;
    others.retain(|sandbox| !sandbox.labels.contains_key(labels::MANAGED));
    if let Some(ready) = others.iter().find(|s| s.state() == api::PodSandboxState::SandboxReady) {
        return Err(failed(format!(
            "pod {}: sandbox {id}, which winddown has not made, may run it: drain the node with what made the \
             sandbox, or remove it with crictl",
            pod.pod_ref(),
            id = ready.id
        )));
    }
    Ok(after(others.iter().filter_map(|s| s.metadata.as_ref()).map(|m| m.attempt)))
}

/// The same for the containers of this name.
pub(super) async fn after_containers_of_others(
    context: &CriContext,
    pod: &Pod,
    name: &str,
) -> Result<u32, RuntimeError> {
    let listed = context.client.containers(labels::of_pod_by_anyone(pod.uid().as_str())).await;
    let listed = listed.map_err(|error| unlisted(context, error, pod))?;
    let others = listed.iter().filter(|one| !one.labels.contains_key(labels::MANAGED));
    let named = others.filter_map(|one| one.metadata.as_ref()).filter(|m| m.name == name);
    Ok(after(named.map(|m| m.attempt)))
}

fn after(attempts: impl Iterator<Item = u32>) -> u32 {
    attempts.max().map_or(0, |attempt| attempt.saturating_add(1))
}

fn unlisted(context: &CriContext, error: CallError, pod: &Pod) -> RuntimeError {
    health::note_unreachable(context, &error);
    error.during(format!("listing what others have made of pod {}", pod.pod_ref()))
}

/// What has the name of the pod's container with this attempt: the ID of one in this sandbox that was not started.
pub(super) async fn container(
    context: &Arc<CriContext>,
    uid: &str,
    sandbox: &str,
    (name, attempt): (&str, u32),
) -> NameHolder<String> {
    let Ok(listed) = context.client.containers(labels::of_pod(uid)).await else {
        return NameHolder::Unlisted;
    };
    let found = listed.into_iter().find(|container| {
        container.state() == api::ContainerState::ContainerCreated
            && container.pod_sandbox_id == sandbox
            && container.metadata.as_ref().is_some_and(|m| m.name == name && m.attempt == attempt)
    });
    found.map_or(NameHolder::Unlisted, |container| NameHolder::Ours(container.id))
}
