//! Removes links to logs that are gone: those of this agent, of earlier ones, and of a kubelet's, as the kubelet does.

use std::path::Path;
use std::sync::Arc;

use winddown_engine::log_links::{self, DeadLink};
use winddown_shared::error_chain;

use super::config::CriConfig;
use super::{CriContext, api};

/// Removes the links whose logs are gone, except those of containers that may run: while a log is rotated, it does not
/// exist for a moment.
pub(super) async fn sweep(context: &Arc<CriContext>) {
    let Some(links) = context.config.logs.links.clone() else { return };
    let looked = {
        let links = links.clone();
        tokio::task::spawn_blocking(move || log_links::dead(&links)).await
    };
    let mut due = Vec::new();
    // The start of a container has told of a directory that cannot be read.
    for link in looked.ok().and_then(Result::ok).unwrap_or_default() {
        // A runtime that hangs holds up no rotation of logs.
        if context.health.borrow().reachable && has_ended(context, &link).await {
            due.push(link);
        }
    }
    if due.is_empty() {
        return;
    }
    let remove_all = move || {
        for link in due {
            if let Err(error) = link.remove(&links) {
                tracing::debug!(
                    ?link,
                    error = error_chain(&error),
                    "cannot remove a link to a log that is gone"
                );
            }
        }
    };
    let _ = tokio::task::spawn_blocking(remove_all).await;
}

/// Removes the links to the logs of a pod, in this directory. Blocks.
pub(super) fn remove_of_pod(config: &CriConfig, logs: &Path) {
    if let Some(links) = &config.logs.links {
        log_links::remove_below(links, logs);
    }
}

/// Whether the container of the link has exited or is gone.
async fn has_ended(context: &CriContext, link: &DeadLink) -> bool {
    let Some(id) = link.id() else { return true };
    let request = api::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    match context.client.container_status(request).await {
        Ok(answer) => answer
            .status
            .is_some_and(|status| status.state() == api::ContainerState::ContainerExited),
        Err(error) => error.is_not_found(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use winddown_runtimes_tests::{FakeCri, Fault};

    use super::*;
    use crate::CriRuntime;

    #[tokio::test]
    async fn dead_links_go_also_those_of_others_unless_their_container_may_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = CriConfig::below(dir.path());
        let links = dir.path().join("containers");
        std::fs::create_dir(&links).unwrap();
        config.logs.links = Some(links.clone());
        let cri = FakeCri::start(&dir.path().join("cri.sock"), config.wall.clone());
        let runtime = CriRuntime::open(config).await.unwrap();
        runtime.health().wait_for(|health| health.reachable).await.unwrap();
        let running = cri.plant_foreign_pod();
        let (log, gone) = (dir.path().join("0.log"), PathBuf::from("/no/such/log"));
        std::fs::write(&log, "").unwrap();
        let left = || {
            let entries = std::fs::read_dir(&links).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut all: Vec<String> = names.collect();
            all.sort();
            all
        };
        let rotated = format!("d_n_main-{running}.log");
        for (target, name) in [
            (&log, "a_n_main-0123456789.log"),
            (&gone, "b_n_main-0123456789.log"),
            (&gone, "c_n_main-short.log"),
            (&gone, &*rotated),
            (&gone, "notes"),
        ] {
            symlink(target, links.join(name)).unwrap();
        }
        std::fs::write(links.join("file.log"), "").unwrap();
        cri.script("ContainerStatus", 2, Fault::Error("too busy"));
        sweep(&runtime.context).await;
        let kept = ["a_n_main-0123456789.log", &*rotated, "file.log", "notes"];
        let unknown = ["a_n_main-0123456789.log", "b_n_main-0123456789.log"];
        assert_eq!(left(), [&unknown[..], &kept[1..]].concat(), "no answer is not an answer");
        sweep(&runtime.context).await;
        assert_eq!(left(), kept);
    }
}
