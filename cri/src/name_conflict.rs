//! A name conflict at the runtime.
//!
//! The name of a sandbox or a container carries its attempt, so that nothing is made twice. If it
//! is taken, an earlier call, of an agent that died or was not answered, has made the thing after
//! all, or is still making it, or the runtime is about to undo that because its caller is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::client::CallError;
use super::{Context, api, labels};

/// How long a name that stays taken is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// The first wait; it doubles up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(200);

/// Makes something. While its name is taken, looks for it, and tries again for a while. Cancel-safe as
/// far as `make` is.
///
/// # Errors
/// As `make`; also that the name stays taken by what is not shown.
pub(super) async fn or_make<T, M, F>(
    make: impl Fn() -> M,
    find: impl Fn() -> F,
) -> Result<T, CallError>
where
    M: Future<Output = Result<T, CallError>>,
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    let mut wait = SHORTEST;
    loop {
        match make().await {
            Err(error) if error.is_name_taken() => {
                if let Some(found) = find().await {
                    return Ok(found);
                }
                if Instant::now() >= deadline {
                    return Err(error);
                }
                sleep(wait).await;
                wait = (wait * 2).min(LONGEST);
            }
            outcome => return outcome,
        }
    }
}

/// The id of the pod's ready sandbox of this attempt.
pub(super) async fn sandbox(context: &Arc<Context>, uid: &str, attempt: u32) -> Option<String> {
    let label_selector = labels::of_pod(uid);
    let filter = Some(api::PodSandboxFilter { label_selector, id: String::new() });
    let request = api::ListPodSandboxRequest { filter };
    let listed = context.client.list_pod_sandbox(request).await.ok()?.items;
    let mut found = listed.into_iter().filter(|sandbox| {
        sandbox.state() == api::PodSandboxState::SandboxReady
            && sandbox.metadata.as_ref().is_some_and(|m| m.attempt == attempt)
    });
    found.next().map(|sandbox| sandbox.id)
}

/// The id of the pod's container of this name and attempt, if it is in this sandbox and was not started.
pub(super) async fn container(
    context: &Arc<Context>,
    uid: &str,
    sandbox: &str,
    (name, attempt): (&str, u32),
) -> Option<String> {
    let label_selector = labels::of_pod(uid);
    let filter = Some(api::ContainerFilter { label_selector, id: String::new() });
    let request = api::ListContainersRequest { filter };
    let listed = context.client.list_containers(request).await.ok()?.containers;
    let mut found = listed.into_iter().filter(|container| {
        container.state() == api::ContainerState::ContainerCreated
            && container.pod_sandbox_id == sandbox
            && container.metadata.as_ref().is_some_and(|m| m.name == name && m.attempt == attempt)
    });
    found.next().map(|container| container.id)
}
