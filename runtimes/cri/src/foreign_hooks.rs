//! The preStop hooks that another program recorded in its containers.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::{Instant, sleep};

use super::api::Container;
use super::client::CriClient;
use super::labels;

/// What is left of the grace period for the signal when a hook would use all of it: a quarter, and at most this.
const MAX_SIGNAL_TIME: Duration = Duration::from_secs(2);
/// The shortest time of a command: the runtime takes whole seconds, and none means no limit.
const MIN_COMMAND_TIMEOUT: Duration = Duration::from_secs(1);

/// A container's preStop hook; `None` if it has none.
pub(super) fn of(container: &Container) -> Option<k8s::LifecycleHandler> {
    let facts = labels::read_container(&container.labels, &container.annotations)?;
    facts.spec.lifecycle?.pre_stop
}

/// Runs the hook within `grace`. Returns the rest of `grace`, and whether the hook ran: a request over HTTP needs the pod's
/// address, which is not recorded. A command that fails has run.
pub(super) async fn run(
    client: &Arc<CriClient>,
    container: &Container,
    hook: k8s::LifecycleHandler,
    grace: Duration,
) -> (Duration, bool) {
    let begun = Instant::now();
    let within = grace.saturating_sub(MAX_SIGNAL_TIME.min(grace / 4));
    let ran = if let Some(command) = hook.exec.and_then(|exec| exec.command) {
        match client.exec_sync(&container.id, command, within.max(MIN_COMMAND_TIMEOUT)).await {
            Ok(answer) => {
                if answer.exit_code != 0 {
                    let (pod, name) = labels::title(&container.labels);
                    tracing::info!(
                        pod,
                        container = name,
                        "preStop hook: exit code {}",
                        answer.exit_code
                    );
                }
                true
            }
            Err(error) => {
                let (pod, name) = labels::title(&container.labels);
                tracing::warn!(pod, container = name, "preStop hook: {error}");
                error.is_deadline_of_the_runtime()
            }
        }
    } else if let Some(pause) = hook.sleep {
        let pause = Duration::from_secs(u64::try_from(pause.seconds).unwrap_or(0));
        sleep(pause.min(within)).await;
        true
    } else {
        false
    };
    (grace.saturating_sub(begun.elapsed()), ran)
}
