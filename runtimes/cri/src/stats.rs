//! Resource usage of the pods of this runtime.
//!
//! Memory, tasks and CPU time are read from the containers' cgroups, which needs no call to the runtime and works while
//! it hangs. The runtime is asked only about containers without a cgroup here (virtual machines), and about
//! containers' writable layers, which only it knows.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use winddown_engine::files;
use winddown_engine::stats::{CgroupDirs, DiskCache, Figures, PodDirs};
use winddown_shared::{
    ContainerStats, DiskUse, Pod, PodStats, PodUid, RuntimeError, RuntimePlaces,
};

use super::pod::{Container, PodEntry, PodState};
use super::spec::pods_cgroup;
use super::{CriConfig, CriContext, api, blocking, dirs};

mod layers;

use layers::Layers;

/// How long to wait for the runtime's report on containers without a cgroup here: eviction waits 2 s for all figures.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// State kept between measurements.
#[derive(Debug, Default)]
pub(crate) struct LastMeasurement {
    disk: DiskCache,
    layers: Layers,
}

/// A container to measure.
struct Target {
    name: Arc<str>,
    id: Arc<str>,
    pid: Option<i32>,
    is_running: bool,
}

/// The measured usage of a pod.
struct Measured {
    uid: PodUid,
    containers: Vec<MeasuredContainer>,
    /// Usage of the pod's own cgroup.
    own: Figures,
}

struct MeasuredContainer {
    name: Arc<str>,
    id: Arc<str>,
    /// None of a container that has exited.
    figures: Option<Figures>,
    layer: Option<DiskUse>,
}

/// The usage of the pods, see [`Runtime::pod_stats`](winddown_shared::Runtime::pod_stats).
pub(super) async fn of_pods(
    context: &Arc<CriContext>,
    disk_age: Option<Duration>,
) -> Result<Vec<(PodUid, PodStats)>, RuntimeError> {
    context.ensure_adopted().await?;
    let entries = context.pods.all();
    if let Some(age) = disk_age {
        let places = entries.iter().filter_map(|entry| places(context, entry)).collect();
        let walk = context.stats.disk.refresh(places, age);
        tokio::join!(walk, context.stats.layers.refresh(context, age));
    }
    let pods: Vec<(PodUid, Vec<Target>)> = entries
        .iter()
        .map(|entry| (entry.uid().clone(), targets(&entry.lock())))
        .filter(|(_, containers)| !containers.is_empty())
        .collect();
    let (proc, mount) = (context.config.paths.proc.clone(), context.config.cgroups.mount.clone());
    let mut all = blocking(move || Ok(measure(&proc, &mount, pods))).await?;
    let is_unknown =
        |c: &MeasuredContainer| c.figures.is_some_and(|known| known.memory_working_set.is_none());
    let is_asked = all.iter().any(|pod| pod.containers.iter().any(is_unknown));
    let report = context.stats.layers.refresh(context, Duration::ZERO);
    let is_silent = is_asked && timeout(REPORT_TIMEOUT, report).await.is_err();
    let has_layers = context.stats.layers.enter(&mut all, is_silent);
    let finished = all.into_iter().map(|pod| {
        let (uid, mut stats) = finish(&context.stats.disk, pod);
        stats.has_unknown_layers = !has_layers;
        (uid, stats)
    });
    Ok(finished.collect())
}

/// Where the container runtime keeps images and layers, and in which control group the pods are.
pub(super) async fn runtime_places(
    context: &Arc<CriContext>,
) -> Result<RuntimePlaces, RuntimeError> {
    let answer = context.client.image_fs_info(api::ImageFsInfoRequest {}).await;
    let answer = answer.map_err(|e| e.during("asking where images are"))?;
    let first = |systems: Vec<api::FilesystemUsage>| {
        let path = systems.into_iter().next()?.fs_id?.mountpoint;
        (!path.is_empty()).then(|| path.into())
    };
    let pods_cgroup = match &context.config.cgroups.parent {
        Some(root) => {
            let driver = context.driver.get(context).await;
            let driver = driver.map_err(|e| e.during("asking who manages control groups"))?;
            driver.map(|driver| pods_cgroup(root, driver))
        }
        None => None,
    };
    let mut places = RuntimePlaces::default();
    places.pods_cgroup = pods_cgroup;
    places.images = first(answer.image_filesystems);
    places.containers = first(answer.container_filesystems);
    Ok(places)
}

/// The places of a pod's files. `None` if only the pod's labels are known.
pub(super) fn places(context: &CriContext, entry: &PodEntry) -> Option<PodDirs> {
    let (config, uid) = (&context.config, entry.uid());
    let state = entry.lock();
    let pod = state.pod.as_ref()?;
    let logs = dirs::logs_of(config, pod);
    let names = state.containers.iter().map(|c| Arc::clone(&c.name));
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let empty = volumes.filter_map(|v| Some((v.name.as_str(), v.empty_dir.as_ref()?)));
    let (mut dirs_of, mut in_memory) = (Vec::new(), Vec::new());
    for (name, source) in empty.filter(|(name, _)| files::is_safe(name)) {
        let name = Arc::<str>::from(name);
        if source.medium.as_deref() == Some("Memory") {
            in_memory.push(Arc::clone(&name));
        }
        dirs_of.push((Arc::clone(&name), dirs::volume(config, uid, &name)));
    }
    let own = dirs::pod(config, uid);
    Some(PodDirs {
        uid: uid.clone(),
        made: made_volumes(config, pod),
        logs: names.map(|name| (Arc::clone(&name), logs.join(&*name))).collect(),
        volumes: dirs_of,
        in_memory,
        other: vec![dirs::hosts(config, uid), own.join("messages")],
    })
}

/// The pod's volumes with content from an API server. A `hostPath` of its own that leads to those of others is none.
fn made_volumes(config: &CriConfig, pod: &Pod) -> Vec<(Arc<str>, PathBuf)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let made = volumes.filter_map(|volume| {
        let path = Path::new(&volume.host_path.as_ref()?.path);
        let is_in = |made: &PathBuf| path.starts_with(made.join(pod.uid().as_str()));
        let is_made = config.made_volumes.iter().any(is_in);
        is_made.then(|| (Arc::from(volume.name.as_str()), path.to_owned()))
    });
    made.collect()
}

fn targets(state: &PodState) -> Vec<Target> {
    let one = |container: &Container| {
        let run = container.run.as_ref()?;
        let (name, id) = (Arc::clone(&container.name), Arc::clone(&run.id));
        Some(Target { name, id, pid: run.own.pid, is_running: run.is_running() })
    };
    state.measured().into_iter().filter_map(one).collect()
}

impl Target {
    fn cgroup(&self, proc: &Path, mount: &Path) -> Option<CgroupDirs> {
        let pid = self.pid.filter(|_| self.is_running)?;
        CgroupDirs::of_process((proc, mount), pid, &self.id)
    }
}

/// Reads the cgroups. Blocks while the kernel aggregates their counters.
fn measure(proc: &Path, mount: &Path, pods: Vec<(PodUid, Vec<Target>)>) -> Vec<Measured> {
    let one = |(uid, targets): (PodUid, Vec<Target>)| {
        let mut around = None;
        let of_container = |target: Target| {
            let dirs = target.cgroup(proc, mount);
            around = around.take().or_else(|| pod_cgroup(dirs.as_ref()?, &uid));
            let figures = dirs.as_ref().map(Figures::of).unwrap_or_default();
            let Target { name, id, is_running, .. } = target;
            let figures = is_running.then_some(figures);
            MeasuredContainer { name, id, figures, layer: None }
        };
        let containers = targets.into_iter().map(of_container).collect();
        Measured { uid, containers, own: around.as_ref().map(Figures::of).unwrap_or_default() }
    };
    pods.into_iter().map(one).collect()
}

/// Returns a function that finds the cgroup of a running pod, if the pod has one.
pub(super) fn cgroup_of(
    context: &CriContext,
    uid: &PodUid,
) -> impl Fn() -> Option<CgroupDirs> + use<> {
    let containers = context.pods.get(uid).map(|entry| targets(&entry.lock()));
    let (uid, config) = (uid.clone(), &context.config);
    let (proc, mount) = (config.paths.proc.clone(), config.cgroups.mount.clone());
    move || {
        let of_pod = |container: &Target| pod_cgroup(&container.cgroup(&proc, &mount)?, &uid);
        containers.iter().flatten().find_map(of_pod)
    }
}

/// The parent of a container's cgroup, if it is the pod's: its name then contains the UID, in which the systemd
/// driver replaces dashes by underscores.
fn pod_cgroup(container: &CgroupDirs, uid: &PodUid) -> Option<CgroupDirs> {
    let uid = uid.as_str();
    container.parent(uid).or_else(|| container.parent(&uid.replace('-', "_")))
}

/// Computes the totals of a pod: its own cgroup counts more than those of its containers, the sandbox for instance.
fn finish(disk: &DiskCache, pod: Measured) -> (PodUid, PodStats) {
    let Measured { uid, containers, mut own } = pod;
    // Swap limits are set on the containers.
    let figures = || containers.iter().filter_map(|container| container.figures);
    let swappable = figures().filter_map(|figures| figures.swappable).sum();
    own.swappable = own.swappable.map(|all| all.min(swappable));
    // Memory is reclaimed from the pod's own cgroup.
    let sum = Figures::sum(figures());
    let sum = Figures { active_file: None, swappable: None, ..sum };
    let mut stats = PodStats::default();
    own.or(sum).enter(&mut stats);
    let of_container = |container: MeasuredContainer| {
        let MeasuredContainer { name, figures, layer, .. } = container;
        ContainerStats { rootfs: layer, ..figures.unwrap_or_default().of_container(name) }
    };
    stats.containers = containers.into_iter().map(of_container).collect();
    disk.enter(&uid, &mut stats);
    (uid, stats)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_volumes_of_a_pod_from_the_api_are_measured_with_it_and_those_of_others_are_not() {
        let mut config = CriConfig::below(Path::new("/"));
        config.made_volumes = vec!["/var/made".into(), "/run/made".into()];
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
            "spec": {"containers": [], "volumes": [
                {"name": "config", "hostPath": {"path": "/var/made/u1/config"}},
                {"name": "token", "hostPath": {"path": "/run/made/u1/token"}},
                {"name": "others", "hostPath": {"path": "/var/made/u2/config"}},
                {"name": "all", "hostPath": {"path": "/var/made"}},
                {"name": "scratch", "emptyDir": {}},
            ]},
        });
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        let made = made_volumes(&config, &pod);
        let names: Vec<_> = made.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["config", "token"]);
    }
}
