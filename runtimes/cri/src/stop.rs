//! Stops containers, and determines which ones there are to stop.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use winddown_shared::{RuntimeError, error_chain};

use super::client::CallError;
use super::pod::{self, Dead, PodEntry};
use super::{CriContext, exits, garbage, list, observe};

mod container;

pub(super) use container::end;

/// How long a stop waits until containers that never ran are removed. They delay no other pod's turn for longer.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Resolves when no start of a pod that is being stopped is in progress, its running containers are known, and obsolete
/// ones have been stopped. Starts notice that the pod is being stopped and give up soon.
///
/// # Errors
/// A start does not finish, or the runtime does not answer.
pub(super) async fn settle(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
) -> Result<(), RuntimeError> {
    let times = &context.config.times;
    started(entry, times.start_patience + times.kill).await?;
    know_what_runs(context, entry).await?;
    remove_created(context, entry).await;
    Ok(())
}

/// Removes the containers that were created and not started. CRI-O's have a process each, and one of crun's waits for
/// its start through SIGTERM: systemd would wait for it at the end of a power-off. What is not removed in time is left to
/// the runtime.
async fn remove_created(context: &Arc<CriContext>, entry: &Arc<PodEntry>) {
    let created: Vec<(Arc<str>, Dead)> = {
        let state = entry.lock();
        let created = state.containers.iter().filter_map(|container| {
            let is_created = |run: &&pod::Run| run.end.is_none() && run.started_at.is_none();
            let run = container.run.as_ref().filter(is_created)?;
            Some((Arc::clone(&container.name), pod::as_dead(run)))
        });
        created.collect()
    };
    let removals = created.iter().map(async |(name, dead)| {
        if let Err(error) = remove_one_created(context, entry, name, dead).await {
            tracing::warn!(pod = %pod::title(entry), container = %name, error = error_chain(&error), "cannot remove a container that was created and not started");
        }
    });
    let _ = timeout(REMOVAL_TIMEOUT, join_all(removals)).await;
}

async fn remove_one_created(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    name: &str,
    dead: &Dead,
) -> Result<(), CallError> {
    let seen = observe::ask(context, entry, &dead.id, true).await?;
    if seen.stage() != observe::ContainerStage::Created {
        // An abandoned start was carried out meanwhile: what runs has its grace period.
        exits::enter(context, entry, &seen);
        return Ok(());
    }
    // CRI-O's RemoveContainer would wait 10 s for an exit after SIGTERM.
    context.client.stop_container(&dead.id, Duration::ZERO).await?;
    garbage::remove_run(context, entry, name, dead).await?;
    observe::enter_removed(context, entry, name, &dead.id);
    Ok(())
}

/// Resolves when no start is in progress.
///
/// # Errors
/// A start does not finish.
pub(super) async fn started(entry: &PodEntry, after: Duration) -> Result<(), RuntimeError> {
    let what = || format!("waiting for a start under way of pod {}", entry.uid());
    let late = |_| RuntimeError::Timeout { what: what(), after };
    timeout(after, winddown_engine::pod::started(entry)).await.map_err(late)
}

/// Lists the pod's containers if they are not known for sure, and stops those that are obsolete.
pub(super) async fn know_what_runs(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
) -> Result<(), RuntimeError> {
    if entry.lock().own.unsure {
        list::list_pod(context, entry).await?;
    }
    let strays = entry.lock().own.strays.clone();
    end_strays(context, entry, &strays).await
}

/// Stops obsolete containers without a grace period.
async fn end_strays(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    strays: &[Arc<str>],
) -> Result<(), RuntimeError> {
    for id in strays {
        match context.client.stop_container(id, Duration::ZERO).await {
            Err(error) if !error.is_not_found() => {
                return Err(error.during(format!("stopping container {id} of pod {}", entry.uid())));
            }
            _ => entry.lock().own.strays.retain(|known| known != id),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use winddown_shared::{Grace, Runtime as _};

    use crate::scene::scene_of;

    #[tokio::test]
    async fn a_start_that_is_carried_out_after_it_was_abandoned_is_ended_with_its_grace() {
        let dir = tempfile::tempdir().unwrap();
        let main =
            json!({"name": "main", "image": "app:1", "command": ["act", "never", "0", "0", "3"]});
        let (cri, _, runtime, pod) = scene_of(dir.path(), &json!({"containers": [main]})).await;
        runtime.sync_pod(&pod).await.unwrap();
        {
            // As a listing from before the start has it.
            let entry = runtime.context.pods.get(pod.uid()).unwrap();
            let mut state = entry.lock();
            let run = state.containers[0].run.as_mut().unwrap();
            (run.started_at, run.own.watched) = (None, false);
        }
        let stopped = runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(Grace::DEFAULT)).await;
        let exits: Vec<i32> = stopped.unwrap().containers.iter().map(|c| c.exit_code).collect();
        assert_eq!((exits, cri.running()), (vec![3], Vec::<String>::new()));
    }
}
