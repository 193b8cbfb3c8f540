//! Rotation of container logs.
//!
//! The runtime writes the logs and never rotates them, so the agent does: it renames a log that has
//! become too long and asks the runtime to start a new file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use winddown_engine::files;
use winddown_shared::error_chain;
use winddown_shim::log;

use super::{Context, api};

/// The interval between two checks of the logs' lengths.
const LOOK: Duration = Duration::from_secs(10);

/// Rotates logs that have become too long, for as long as the agent lives.
pub(super) async fn follow(context: Arc<Context>) {
    if context.config.log_max_bytes == 0 {
        return;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let (logs, max_bytes, max_files) =
            (running(&context), context.config.log_max_bytes, context.config.log_max_files);
        let turn_all = move || turn_all(logs, max_bytes, max_files);
        for id in tokio::task::spawn_blocking(turn_all).await.unwrap_or_default() {
            let request = api::ReopenContainerLogRequest { container_id: id.to_string() };
            if let Err(error) = context.client.reopen_container_log(request).await {
                tracing::warn!(container = %id, error = error_chain(&error), "cannot begin a new log");
            }
        }
    }
}

/// Rotates the logs that are too long. Returns the containers whose logs were rotated. Blocking.
fn turn_all(logs: Vec<(Arc<str>, PathBuf)>, max_bytes: u64, max_files: u32) -> Vec<Arc<str>> {
    let turned = logs.into_iter().filter(|(_, path)| match log::rotate_beyond(path, max_bytes, max_files) {
        Ok(turned) => turned,
        Err(error) => {
            tracing::warn!(path = %path.display(), error = error_chain(&error), "cannot turn a log");
            false
        }
    });
    turned.map(|(id, _)| id).collect()
}

fn running(context: &Context) -> Vec<(Arc<str>, PathBuf)> {
    let entries = context.pods.all();
    let mut all = Vec::new();
    for entry in entries {
        let state = entry.lock();
        let (namespace, name) = &state.label;
        let logs = files::pod_logs(&context.config.log_dir, namespace, name, entry.uid());
        for container in &state.containers {
            if let Some(run) = container.run.as_ref().filter(|run| run.is_running()) {
                let file = files::run_log(&container.name, run.attempt);
                all.push((Arc::clone(&run.id), logs.join(file)));
            }
        }
    }
    all
}
