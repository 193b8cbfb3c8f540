//! Rotation of container logs.
//!
//! The runtime writes the logs and never rotates them, so the agent does: it renames a log that has
//! become too long and asks the runtime to start a new file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use winddown_host::{beat, pod_logs};
use winddown_shared::error_chain;

use super::{CriContext, api, dead_links};

/// The interval between two checks of the logs' lengths.
const LOG_CHECK_INTERVAL: Duration = beat::beats(3);
/// A pod's own links go with its logs. Those that are left, of earlier agents and of others, can wait for five minutes.
const LOOKS_TO_A_SWEEP: u64 = 25;

/// Rotates logs that have become too long, and removes links to logs that are gone, for as long as the agent lives.
pub(super) async fn follow(context: Arc<CriContext>) {
    let logs = &context.config.logs;
    if logs.max_bytes == 0 && logs.links.is_none() {
        return;
    }
    for look in 0_u64.. {
        beat::sleep(LOG_CHECK_INTERVAL).await;
        if logs.max_bytes > 0 {
            rotate(&context).await;
        }
        if look % LOOKS_TO_A_SWEEP == 0 {
            dead_links::sweep(&context).await;
        }
    }
}

/// Rotates logs that have become too long.
async fn rotate(context: &CriContext) {
    let (logs, max_bytes, max_files) =
        (running(context), context.config.logs.max_bytes, context.config.logs.max_files);
    let turn_all = move || turn_all(logs, max_bytes, max_files);
    for log in tokio::task::spawn_blocking(turn_all).await.unwrap_or_default() {
        let request = api::ReopenContainerLogRequest { container_id: log.id.to_string() };
        if let Err(error) = context.client.reopen_container_log(request).await {
            let (pod, container) = (log.pod, log.container);
            tracing::warn!(%pod, %container, error = error_chain(&error), "cannot start a new log");
        }
    }
}

/// The log of a container that runs.
struct ContainerLog {
    id: Arc<str>,
    pod: String,
    container: Arc<str>,
    path: PathBuf,
}

/// Rotates the logs that are too long, and returns them. Blocking.
fn turn_all(logs: Vec<ContainerLog>, max_bytes: u64, max_files: u32) -> Vec<ContainerLog> {
    let turned = logs.into_iter().filter(|one| {
        let turned = pod_logs::rotate_beyond(&one.path, max_bytes, max_files);
        turned.unwrap_or_else(|error| {
            let ContainerLog { pod, container, path, .. } = one;
            tracing::warn!(
                %pod, %container, path = %path.display(), error = error_chain(&error),
                "cannot rotate a log"
            );
            false
        })
    });
    turned.collect()
}

fn running(context: &CriContext) -> Vec<ContainerLog> {
    let entries = context.pods.all();
    let mut all = Vec::new();
    for entry in entries {
        let state = entry.lock();
        let (namespace, name) = &state.label;
        let logs = pod_logs::pod_logs(&context.config.logs.dir, namespace, name, entry.uid());
        for container in &state.containers {
            if let Some(run) = container.run.as_ref().filter(|run| run.is_running()) {
                all.push(ContainerLog {
                    id: Arc::clone(&run.id),
                    pod: format!("{namespace}/{name}"),
                    container: Arc::clone(&container.name),
                    path: logs.join(pod_logs::run_log(&container.name, run.attempt)),
                });
            }
        }
    }
    all
}
