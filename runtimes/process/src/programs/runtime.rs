//! Implements [`Runtime`], which the pod workers call.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use winddown_engine::status::status;
use winddown_engine::unsupported::{self, refused_or_ignored};
use winddown_engine::{log_links, stopping, sync};
use winddown_host::{PodFiles, if_exists, mount_table, removal};
use winddown_shared::{
    Freed, Garbage, Grace, MemoryFigure, NodeEnding, Pod, PodRuntimeStatus, PodStats, PodStopped,
    PodUid, Recorder, Runtime, RuntimeError, RuntimePlaces, RuntimePod, SyncedPod,
    UnsupportedField,
};

use super::{
    ProgramContext, ProgramDriver, ProgramRuntime, blocking, blocking_on, caused, failed, paths,
    pod, stats,
};

/// How many times the removal of a directory is retried while files are still written to it.
const REMOVAL_TRIES: usize = 8;

impl<D: ProgramDriver> Runtime for ProgramRuntime<D> {
    fn pod_logs(&self) -> Option<&Path> {
        Some(&self.context.config.log_dir)
    }

    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        let has_started =
            self.context.pods.get(pod.uid()).is_some_and(|entry| pod::has_started(&entry.lock()));
        let unsupported = unsupported_here(&self.context, pod);
        let mut ignored = refused_or_ignored(unsupported, has_started)?;
        ignored.extend(unsupported::ephemeral(pod));
        let entry = self.context.pods.get_or_new(pod.uid());
        entry.lock().want(pod);
        let again_in = sync::pass(&self.context, &entry, pod).await?;
        let status = status(&entry.lock(), D::SCHEME);
        let mut synced = SyncedPod::from(status);
        (synced.again_in, synced.ignored) = (again_in, ignored);
        Ok(synced)
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        match self.context.pods.get(uid) {
            Some(entry) => stopping::stop(&self.context, &entry, pod, grace).await,
            None => Ok(PodStopped::of_nothing()),
        }
    }

    async fn clean_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let Some(entry) = self.context.pods.get(uid) else { return Ok(()) };
        self.context.termination_notices.forget(&entry);
        D::clean_up(&self.context, uid).await?;
        let config = &self.context.config;
        let (proc_root, path) = (config.proc_root.clone(), paths::pod(config, uid));
        blocking_on(PodFiles::Unmount, move || {
            mount_table::unmount_below(&proc_root, &path)
                .map_err(|e| caused("unmounting the pod's volumes".to_owned(), e))
        })
        .await
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let Some(entry) = self.context.pods.get(uid) else { return Ok(()) };
        let Some(places) = pod::places(&entry.lock(), &self.context.config, uid) else {
            return Err(failed(format!("pod {uid} still runs: stop it before it is forgotten")));
        };
        D::clean_up(&self.context, uid).await?;
        let links = self.context.config.log_links.clone();
        let logs = pod::logs_of(&entry.lock(), &self.context.config, uid);
        let removal = move || {
            if let Some((links, logs)) = links.zip(logs) {
                log_links::remove_below(&links, &logs);
            }
            places.iter().try_for_each(|place| remove_all(place))
        };
        entry.with_files(PodFiles::Remove, removal).await?;
        self.context.pods.remove(uid);
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        let entry = self.context.pods.get(uid);
        Ok(entry.map(|entry| status(&entry.lock(), D::SCHEME)).unwrap_or_default())
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        Ok(self.context.pods.list())
    }

    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, RuntimeError> {
        let config = &self.context.config;
        let (proc_root, path) = (config.proc_root.clone(), paths::pod(config, uid));
        blocking(move || mount_table::of_pod(&proc_root, &path)).await
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.context.pods.changes()
    }

    fn record_to(&self, recorder: &Arc<dyn Recorder>) {
        self.context.pods.record_to(recorder);
    }

    fn identify_as(&self, program: &str) {
        self.context.pods.identify_as(program);
    }

    fn announce(&self, ending: Option<Arc<NodeEnding>>) {
        self.context.termination_notices.announce(ending, &self.context.pods);
    }

    fn survives_soft_reboot(&self, uid: &PodUid) -> bool {
        // Programs would keep the old root, and write their logs to where they are never found.
        let same_root = !self.context.config.next_root.exists();
        let entry = self.context.pods.get(uid).filter(|_| same_root);
        entry.is_some_and(|entry| entry.lock().survives_soft_reboot())
    }

    fn has_completed(&self, pod: &Pod) -> bool {
        self.context.pods.get(pod.uid()).is_some_and(|entry| entry.lock().has_completed(pod))
    }

    fn supports(&self, pod: &Pod) -> Result<(), RuntimeError> {
        refused_or_ignored(unsupported_here(&self.context, pod), false).map(drop)
    }

    async fn pod_stats(
        &self,
        disk_age: Option<Duration>,
    ) -> Result<Option<Vec<(PodUid, PodStats)>>, RuntimeError> {
        stats::of_pods(self, disk_age).await.map(Some)
    }

    async fn places(&self) -> Result<RuntimePlaces, RuntimeError> {
        let pods_cgroup = self.context.driver.pods_cgroup();
        let mut places = RuntimePlaces::default();
        places.pods_cgroup = pods_cgroup;
        Ok(places)
    }

    async fn collect_garbage(&self, what: Garbage) -> Result<Freed, RuntimeError> {
        stats::collect(&self.context, what).await
    }

    async fn reclaim_memory(
        &self,
        uid: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> Result<Freed, RuntimeError> {
        stats::take_back(&self.context, uid, figure, bytes, time).await
    }
}

/// Returns the fields of the pod that this kind of runtime or this machine cannot honour.
fn unsupported_here<D: ProgramDriver>(
    context: &ProgramContext<D>,
    pod: &Pod,
) -> Vec<UnsupportedField> {
    let mut unsupported = context.driver.unsupported(pod);
    unsupported.extend(context.config.survivors.unsupported(pod));
    unsupported
}

/// Removes a directory or a file. A supervisor or a watcher may still write into it (the final records of an attempt),
/// so the removal is retried: each writes at most once more.
fn remove_all(path: &Path) -> Result<(), RuntimeError> {
    use std::io::ErrorKind::DirectoryNotEmpty;
    let mut result = removal::tree(path);
    for _ in 0..REMOVAL_TRIES {
        match &result {
            Err(e) if e.kind() == DirectoryNotEmpty => result = removal::tree(path),
            _ => break,
        }
    }
    let cannot = |e| caused(format!("cannot remove {}", path.display()), e);
    if_exists(result).map(drop).map_err(cannot)
}
