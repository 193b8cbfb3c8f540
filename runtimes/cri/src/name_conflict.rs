//! Handles name conflicts at the runtime.
//!
//! The name of a sandbox or a container contains its attempt, so that nothing is created twice. If the name
//! is taken, an earlier call, by an agent that died or got no answer, has created the object after
//! all, or is still creating it, or the runtime is about to roll it back because its caller is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_shared::{Backoff, Pod, RuntimeError};

use super::client::CallError;
use super::{CriContext, api, failed, labels};

/// How long to wait for a name that stays taken by what is not listed.
const FREE_NAME_TIMEOUT: Duration = Duration::from_secs(3);

/// What has a name that is taken.
pub(super) enum NameHolder<T> {
    /// The object itself, made by an earlier call.
    Ours(T),
    /// An object that others have made, which keeps the name.
    Others,
    /// Nothing that is listed: it is being made, or removed.
    Unlisted,
}

/// Creates an object. While its name is taken, looks for the existing one, and tries again for a while unless others
/// have made that. As cancel-safe as `make`.
///
/// # Errors
/// As `make`; also if the name is taken by an object of others, or stays taken by one that is not listed.
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
                NameHolder::Others => return Err(error),
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
    let label_selector = labels::of_pod_by_anyone(uid);
    let filter = Some(api::PodSandboxFilter { label_selector, id: String::new() });
    let request = api::ListPodSandboxRequest { filter };
    let Ok(listed) = context.client.list_pod_sandbox(request).await else {
        return NameHolder::Unlisted;
    };
    let mut named = listed.items;
    named.retain(|sandbox| sandbox.metadata.as_ref().is_some_and(|m| m.attempt == attempt));
    if named.iter().any(|sandbox| !sandbox.labels.contains_key(labels::MANAGED)) {
        return NameHolder::Others;
    }
    let ready = named.into_iter().find(|s| s.state() == api::PodSandboxState::SandboxReady);
    ready.map_or(NameHolder::Unlisted, |sandbox| NameHolder::Ours(sandbox.id))
}

/// The first attempt of the pod that no sandbox made by others has: a kubelet that ran the node before leaves its own.
/// `None` if there are none, or if they cannot be listed.
///
/// # Errors
/// One of them is ready: the pod may run in it.
pub(super) async fn after_sandboxes_of_others(
    context: &CriContext,
    pod: &Pod,
) -> Result<Option<u32>, RuntimeError> {
    let label_selector = labels::of_pod_by_anyone(pod.uid().as_str());
    let filter = Some(api::PodSandboxFilter { label_selector, id: String::new() });
    let request = api::ListPodSandboxRequest { filter };
    let Ok(listed) = context.client.list_pod_sandbox(request).await else { return Ok(None) };
    let mut others = listed.items;
    others.retain(|sandbox| !sandbox.labels.contains_key(labels::MANAGED));
    if let Some(ready) = others.iter().find(|s| s.state() == api::PodSandboxState::SandboxReady) {
        return Err(failed(format!(
            "pod {}: sandbox {id}, which winddown has not made, may run it: drain the node with what made the \
             sandbox, or remove it with crictl",
            pod.pod_ref(),
            id = ready.id
        )));
    }
    let attempts = others.iter().map(|s| s.metadata.as_ref().map_or(0, |m| m.attempt));
    Ok(attempts.max().map(|attempt| attempt.saturating_add(1)))
}

/// What has the name of the pod's container with this attempt: the ID of one in this sandbox that was not started.
pub(super) async fn container(
    context: &Arc<CriContext>,
    uid: &str,
    sandbox: &str,
    (name, attempt): (&str, u32),
) -> NameHolder<String> {
    let label_selector = labels::of_pod(uid);
    let filter = Some(api::ContainerFilter { label_selector, id: String::new() });
    let request = api::ListContainersRequest { filter };
    let Ok(listed) = context.client.list_containers(request).await else {
        return NameHolder::Unlisted;
    };
    let found = listed.containers.into_iter().find(|container| {
        container.state() == api::ContainerState::ContainerCreated
            && container.pod_sandbox_id == sandbox
            && container.metadata.as_ref().is_some_and(|m| m.name == name && m.attempt == attempt)
    });
    found.map_or(NameHolder::Unlisted, |container| NameHolder::Ours(container.id))
}
