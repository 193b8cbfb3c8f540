//! What the pods of this runtime use. Memory and tasks are read in the units' cgroups.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use winddown_engine::stats::{CgroupDirs, PodPlaces, remove_rotated_logs};
use winddown_shared::{
    ContainerKind, ContainerStats, Freed, Garbage, PodStats, PodStatsSource, PodUid, RuntimeError,
};

use super::units::ServiceUnits;
use super::{SystemdRuntime, names};
use crate::process::stats::remove_logs_of_dead;
use crate::process::{blocking, caused};
use crate::programs::paths;
use crate::programs::pod::{PodEntry, PodState};

/// Where cgroups are.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What runs of one container: its name, its main process and its unit.
type Running = (Arc<str>, Option<i32>, String);

impl<U: ServiceUnits> PodStatsSource for SystemdRuntime<U> {
    async fn pod_stats(
        &self,
        disk_age: Option<Duration>,
    ) -> Result<Vec<(PodUid, PodStats)>, RuntimeError> {
        let entries = self.entries();
        if let Some(age) = disk_age {
            let places = entries.iter().filter_map(|entry| self.places(entry)).collect();
            self.disk.refresh(places, age).await;
        }
        let running: Vec<(PodUid, Vec<Running>)> = entries
            .iter()
            .map(|entry| (entry.uid().clone(), self.running(entry.uid(), &entry.lock())))
            .filter(|(_, containers)| !containers.is_empty())
            .collect();
        let proc_root = self.context.config.proc_root.clone();
        let mut measured = blocking(move || Ok(measure(&proc_root, running))).await?;
        for (uid, stats) in &mut measured {
            let Some(disk) = self.disk.get(uid) else { continue };
            for container in &mut stats.containers {
                let logs = disk.logs.iter().find(|(name, _)| *name == container.name);
                container.logs = logs.map(|(_, used)| *used);
            }
            stats.ephemeral = Some(disk.on_disk);
        }
        Ok(measured)
    }

    async fn pods_cgroup(&self) -> Option<String> {
        Some(format!("/{}", names::SLICE))
    }
}

impl<U: ServiceUnits> Garbage for SystemdRuntime<U> {
    async fn remove_dead_containers(&self) -> Result<Freed, RuntimeError> {
        remove_logs_of_dead(&self.context.config, &self.entries()).await
    }

    async fn remove_rotated_logs(&self) -> Result<Freed, RuntimeError> {
        let entries = self.entries();
        let places = entries.iter().filter_map(|entry| self.places(entry));
        let dirs: Vec<PathBuf> = places.flat_map(|pod| pod.logs).map(|(_, path)| path).collect();
        let removal = move || {
            let what = || "giving back the room of turned logs".to_owned();
            remove_rotated_logs(&dirs).map_err(|e| caused(what(), e))
        };
        blocking(removal).await
    }
}

impl<U: ServiceUnits> SystemdRuntime<U> {
    fn places(&self, entry: &PodEntry) -> Option<PodPlaces> {
        let config = &self.context.config;
        let (logs, names): (PathBuf, Vec<Arc<str>>) = {
            let state = entry.lock();
            let pod = state.pod.as_ref()?;
            let logs = paths::logs(config, pod.namespace(), pod.name(), entry.uid());
            (logs, state.containers.iter().map(|c| Arc::clone(&c.name)).collect())
        };
        Some(PodPlaces {
            uid: entry.uid().clone(),
            logs: names.into_iter().map(|name| (name.clone(), logs.join(&*name))).collect(),
            volumes: Vec::new(),
            in_memory: Vec::new(),
            other: vec![paths::pod(config, entry.uid())],
        })
    }

    /// Regular containers first, then the others, each in the spec's order.
    fn running(&self, uid: &PodUid, state: &PodState) -> Vec<Running> {
        let order = |kind| match kind {
            ContainerKind::Regular => 0,
            ContainerKind::Init => 1,
            ContainerKind::Sidecar => 2,
        };
        let mut containers: Vec<_> = state.containers.iter().filter(|c| c.is_running()).collect();
        containers.sort_by_key(|c| order(c.kind));
        let one = |container: &crate::programs::pod::Container| {
            let unit = names::main(uid, &container.name, container.run.as_ref()?.attempt);
            let pid = self.context.unit_cache.view(&unit).and_then(|view| view.main_pid);
            Some((Arc::clone(&container.name), pid, unit))
        };
        containers.into_iter().filter_map(one).collect()
    }
}

fn measure(proc_root: &Path, pods: Vec<(PodUid, Vec<Running>)>) -> Vec<(PodUid, PodStats)> {
    let one = |(uid, containers): (PodUid, Vec<Running>)| {
        let mut stats = PodStats::default();
        let (mut memory, mut tasks) = (Some(0_u64), Some(0_u64));
        for (name, pid, unit) in containers {
            let place = (proc_root, Path::new(CGROUPS));
            let dirs = pid.and_then(|pid| CgroupDirs::of_process(place, pid, &unit));
            let used = dirs.map_or((None, None), |dirs| (dirs.working_set(), dirs.tasks()));
            memory = memory.zip(used.0).map(|(sum, one)| sum.saturating_add(one));
            tasks = tasks.zip(used.1).map(|(sum, one)| sum.saturating_add(one));
            let memory_working_set = used.0;
            stats.containers.push(ContainerStats {
                name,
                memory_working_set,
                ..ContainerStats::default()
            });
        }
        (stats.memory_working_set, stats.processes) = (memory, tasks);
        (uid, stats)
    };
    pods.into_iter().map(one).collect()
}
