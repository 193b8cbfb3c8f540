//! What the pod workers ask of the runtime, and what the pass over a pod asks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, watch};
use winddown_engine::mount_table;
use winddown_engine::unsupported::refused_or_ignored;
use winddown_shared::{
    Grace, Pod, PodRuntimeStatus, PodStopped, PodUid, Runtime, RuntimeError, RuntimePod, SyncedPod,
    UnsupportedField,
};
use winddown_shim::order::Command;

use super::{
    Context, ProcessRuntime, blocking, caused, check_supported, failed, hook, remove_all, start,
    stop,
};
use crate::programs::ending::Target;
use crate::programs::hook::HookError;
use crate::programs::pod::{PodEntry, Starting};
use crate::programs::{Programs, sync};
use crate::programs::{config::ProcessConfig, paths, status};

impl Runtime for ProcessRuntime {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        let has_started = self.entry(pod.uid()).is_some_and(|entry| entry.lock().has_started());
        let ignored = refused_or_ignored(pod, self.context.unsupported(pod), has_started)?;
        let synced = sync::sync(&self.context, &self.entry_for(pod), pod).await?;
        Ok(SyncedPod { ignored, ..synced })
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        match self.entry(uid) {
            Some(entry) => stop::stop(&self.context, &entry, pod, grace).await,
            None => Ok(PodStopped::default()),
        }
    }

    async fn clean_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let Some(entry) = self.entry(uid) else { return Ok(()) };
        let config = &self.context.config;
        let (proc_root, path) = (config.proc_root.clone(), paths::pod(config, uid));
        let context = Arc::clone(&self.context);
        blocking(move || {
            context.cgroups.remove_pod(entry.uid())?;
            mount_table::unmount_below(&proc_root, &path)
                .map_err(|e| caused("taking away the pod's mounts".to_owned(), e))
        })
        .await
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let Some(entry) = self.entry(uid) else { return Ok(()) };
        let Some(places) = entry.lock().places(&self.context.config, uid) else {
            return Err(failed(format!("pod {uid} still runs: stop it before it is forgotten")));
        };
        let context = Arc::clone(&self.context);
        blocking(move || {
            context.cgroups.remove_pod(entry.uid())?;
            places.iter().try_for_each(remove_all)
        })
        .await?;
        self.pods().remove(uid);
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        Ok(self
            .entry(uid)
            .map(|entry| status::status(&entry.lock(), Context::SCHEME))
            .unwrap_or_default())
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        Ok(self.pods().values().map(|entry| entry.lock().summary(entry.uid())).collect())
    }

    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, RuntimeError> {
        let config = &self.context.config;
        let (proc_root, path) = (config.proc_root.clone(), paths::pod(config, uid));
        blocking(move || mount_table::of_pod(&proc_root, &path)).await
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.context.changes.subscribe()
    }

    fn supports(&self, pod: &Pod) -> Result<(), RuntimeError> {
        refused_or_ignored(pod, self.context.unsupported(pod), false).map(drop)
    }
}

impl Context {
    /// Everything of `pod` that cannot be honoured here.
    fn unsupported(&self, pod: &Pod) -> Vec<UnsupportedField> {
        let mut found = check_supported(pod);
        found.extend(self.cgroups.unsupported(pod));
        found
    }
}

impl Programs for Context {
    const SCHEME: &'static str = "process";

    fn config(&self) -> &ProcessConfig {
        &self.config
    }

    fn alive(&self) -> watch::Receiver<()> {
        self.alive.clone()
    }

    async fn start(
        self: &Arc<Self>,
        starting: Starting,
        pod: &Pod,
        name: &Arc<str>,
    ) -> Result<(), RuntimeError> {
        start::start(self, starting, pod, name).await
    }

    async fn exec(
        self: &Arc<Self>,
        beside: (&Pod, &str),
        command: Command,
        _: Option<Duration>,
    ) -> Result<(), HookError> {
        hook::exec(self, beside, command).await
    }

    fn is_answer(_: &HookError) -> bool {
        true
    }

    async fn end(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        target: Target,
        grace: Grace,
    ) -> Result<(), RuntimeError> {
        stop::end_one(self, entry, target, grace, Duration::ZERO).await
    }
}
