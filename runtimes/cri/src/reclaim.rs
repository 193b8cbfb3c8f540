//! Reclaims what no running pod needs: dead containers, unused images, rotated logs.

use std::sync::Arc;
use std::time::Duration;

use winddown_engine::files;
use winddown_engine::stats::{reclaim_memory, remove_rotated_logs};
use winddown_shared::{Freed, Garbage, MemoryFigure, PodUid, RuntimeError};

use super::client::CallError;
use super::end_note::EndNote;
use super::pod::{self, Dead, PodEntry};
use super::{CriContext, api, blocking, caused, dirs, garbage, stats, volumes};

mod images;

pub(crate) use images::ImageAges;

/// How long to wait for the runtime to report containers that have just exited.
const EXIT_REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Removes what no pod needs, see [`Runtime::collect_garbage`](winddown_shared::Runtime::collect_garbage).
pub(super) async fn collect(
    context: &Arc<CriContext>,
    what: Garbage,
) -> Result<Freed, RuntimeError> {
    match what {
        Garbage::DeadContainers => remove_dead_containers(context).await,
        Garbage::RotatedLogs => {
            let entries = context.pods.all();
            remove_rotated_logs(entries.iter().filter_map(|entry| stats::places(context, entry)))
                .await
        }
        Garbage::UnusedImages { min_age } => remove_unused_images(context, min_age).await,
    }
}

/// Has the kernel reclaim memory from a pod.
pub(super) async fn take_back(
    context: &Arc<CriContext>,
    uid: &PodUid,
    figure: MemoryFigure,
    bytes: u64,
    time: Duration,
) -> Result<Freed, RuntimeError> {
    let find = stats::cgroup_of(context, uid);
    reclaim_memory(move || find().into_iter().collect(), figure, bytes, time).await
}

/// Removes the containers of pods that were stopped, and their `emptyDir` volumes. How the newest ended stays known, also
/// to the next agent.
async fn remove_dead_containers(context: &Arc<CriContext>) -> Result<Freed, RuntimeError> {
    context.ensure_adopted().await?;
    let entries = context.pods.all();
    let (mut freed, mut left) = (Freed::default(), Ok(()));
    for entry in entries {
        note_exits(&entry).await;
        let dead = garbage::take_dead(&mut entry.lock());
        let mut held: Option<Arc<str>> = None;
        for (name, dead) in dead {
            // The newest run comes last: without it, a listing would take an older run for the newest.
            let is_free = held.as_ref() != Some(&name);
            let removed = match is_free {
                true => remove_dead(context, &entry, &name, &dead).await,
                false => Ok(()),
            };
            if is_free && removed.is_ok() {
                freed += Freed::new(1, 0);
                continue;
            }
            // The next listing includes it again, except the newest run, whose flag is reset here.
            if let Some(run) = entry.lock().run(&name, &dead.id) {
                run.own.reclaimed = false;
            }
            held = Some(name);
            if let Err(error) = removed {
                left = Err(error);
            }
        }
        match remove_volumes(context, &entry).await {
            Ok(more) => freed += more,
            Err(error) => left = Err(error),
        }
    }
    left.map(|()| freed)
}

/// Removes one dead run of a container, with its log. If it is the newest, how it ended is noted before.
async fn remove_dead(
    context: &Arc<CriContext>,
    entry: &PodEntry,
    name: &Arc<str>,
    dead: &Dead,
) -> Result<(), RuntimeError> {
    let note = entry.lock().run(name, &dead.id).and_then(|run| EndNote::of(run));
    if let Some(note) = note {
        let (config, uid, name) = (context.config.clone(), entry.uid().clone(), Arc::clone(name));
        let what = format!("cannot note how container {name} of pod {} ended", pod::title(entry));
        blocking(move || note.write(&config, &uid, &name).map_err(|e| caused(what, e))).await?;
    }
    let removed = garbage::remove_run(context, entry, name, dead).await;
    removed.map_err(|e| e.during(format!("removing a dead container of pod {}", pod::title(entry))))
}

async fn remove_unused_images(
    context: &Arc<CriContext>,
    min_age: Duration,
) -> Result<Freed, RuntimeError> {
    context.ensure_adopted().await?;
    let during = |error: CallError| error.during("looking for images that nothing uses");
    let images = context.client.list_images(api::ListImagesRequest {}).await.map_err(during)?;
    // After the images, so that an image that came into use in between counts as used.
    let all = api::ListContainersRequest { filter: None };
    let containers = context.client.list_containers(all).await.map_err(during)?.containers;
    let mut needed: Vec<String> = containers
        .into_iter()
        .flat_map(|c| [c.image.unwrap_or_default().image, c.image_ref])
        .collect();
    needed.extend(of_specs(context));
    needed.extend(sandbox_image(context).await.map_err(during)?);
    let unused = context.images.ages.unused(&images.images, &needed, min_age);
    let (mut freed, mut left) = (Freed::default(), Ok(()));
    for image in unused {
        let spec = api::ImageSpec { image: image.id.clone(), ..api::ImageSpec::default() };
        let request = api::RemoveImageRequest { image: Some(spec) };
        match context.client.remove_image(request).await {
            Ok(_) => {
                context.images.changed.notify_one();
                freed += Freed::new(1, image.size);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                let name = image.repo_tags.first().unwrap_or(&image.id);
                left = Err(error.during(format!("removing image {name}")));
            }
        }
    }
    left.map(|()| freed)
}

/// Waits for a short time until the runtime has reported how the containers of a stopped pod ended: the kernel
/// reports earlier, and a removed container can no longer be asked about.
async fn note_exits(entry: &PodEntry) {
    let runs = garbage::over(&entry.lock());
    let told = async {
        for (name, id) in &runs {
            pod::settled(entry, name, id).await;
        }
    };
    let _ = tokio::time::timeout(EXIT_REPORT_TIMEOUT, told).await;
}

/// Removes the `emptyDir` volumes of a pod that was stopped and cleaned up. They count as one item.
async fn remove_volumes(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
) -> Result<Freed, RuntimeError> {
    if !files::is_safe(entry.uid().as_str()) {
        return Ok(Freed::default());
    }
    // If the pod comes back meanwhile, it waits for this lock before it creates its volumes. If they are still being
    // created, on a file system that hangs for example, other pods must not wait for that.
    let turn = Arc::clone(entry.files());
    let Ok(turn) = turn.try_lock_owned() else { return Ok(Freed::default()) };
    let is_due = {
        let state = entry.lock();
        state.is_over() && !state.own.prepared
    };
    if !is_due {
        return Ok(Freed::default());
    }
    let proc_root = context.config.paths.proc.clone();
    let (pods, path) = (dirs::pods(&context.config), dirs::volumes(&context.config, entry.uid()));
    blocking(move || {
        let _turn = turn;
        if !path.exists() {
            return Ok(Freed::default());
        }
        volumes::remove_all(&proc_root, &pods, &path)?;
        Ok(Freed::new(1, 0))
    })
    .await
}

/// The images that known pods name, including those whose containers are still to be created.
fn of_specs(context: &CriContext) -> Vec<String> {
    let entries = context.pods.all();
    let mut names = Vec::new();
    for entry in entries {
        let state = entry.lock();
        let spec = state.pod.as_ref().and_then(|pod| pod.spec.as_ref());
        let containers =
            spec.into_iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
        names.extend(containers.filter_map(|c| c.image.clone()));
    }
    names
}

/// The image of the sandboxes. Newer runtimes mark it as pinned; of the older ones, containerd reports it in its
/// configuration.
async fn sandbox_image(context: &CriContext) -> Result<Option<String>, CallError> {
    let answer = context.client.status(api::StatusRequest { verbose: true }).await?;
    let config = answer.info.get("config").and_then(|text| serde_json::from_str(text).ok());
    let named = |config: serde_json::Value| Some(config.get("sandboxImage")?.as_str()?.to_owned());
    Ok(config.and_then(named))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use serde_json::json;
    use winddown_shared::{ContainerState, Grace, Runtime as _, WallTime};

    use super::*;
    use crate::scene::scene_of;
    use crate::{CriConfig, CriRuntime};

    /// Nothing else says of a pod from a file that it has done its work.
    #[tokio::test]
    async fn a_pod_that_has_completed_does_not_run_again_because_its_container_was_reclaimed() {
        let dir = tempfile::tempdir().unwrap();
        let main =
            json!({"name": "main", "image": "app:1", "command": ["act", "0", "7", "0", "0"]});
        let spec = json!({"restartPolicy": "Never", "containers": [main]});
        let (cri, config, runtime, pod) = scene_of(dir.path(), &spec).await;
        let mut changes = runtime.changes();
        runtime.sync_pod(&pod).await.unwrap();
        while !runtime.has_completed(&pod) {
            tokio::time::timeout(Duration::from_secs(30), changes.recv()).await.unwrap().unwrap();
        }
        runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(Duration::ZERO)).await.unwrap();
        runtime.clean_pod(pod.uid()).await.unwrap();
        let reclaimed = runtime.collect_garbage(Garbage::DeadContainers).await.unwrap();
        assert_eq!((reclaimed.items, cri.holds().0), (1, 0));
        drop(runtime);

        let runtime = CriRuntime::open(config).await.unwrap();
        runtime.list_pods().await.unwrap();
        assert!(runtime.has_completed(&pod), "it would run again");
        let status = runtime.pod_status(pod.uid()).await.unwrap();
        let ContainerState::Exited(exit) = &status.containers[0].state else {
            panic!("{:?}", status.containers)
        };
        let finished_at = exit.finished_at.map(WallTime::as_second);
        assert_eq!((exit.exit_code, &*exit.reason, finished_at), (7, "Error", Some(1000)));
        assert_eq!(runtime.collect_garbage(Garbage::DeadContainers).await.unwrap().items, 0);
        runtime.sync_pod(&pod).await.unwrap();
        assert_eq!(cri.most_starts(), 1);
        assert!(cri.running().is_empty());
    }

    #[tokio::test]
    async fn a_pod_whose_volumes_are_still_being_created_delays_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = CriRuntime::open(CriConfig::below(dir.path())).await.unwrap();
        let entry = runtime.context.pods.get_or_new(&PodUid::new("u"));
        entry.lock().stopping = true;
        let _creating = entry.files().lock().await;
        let removed = remove_volumes(&runtime.context, &entry).now_or_never();
        assert_eq!(removed.expect("it does not wait").unwrap().items, 0);
    }
}
