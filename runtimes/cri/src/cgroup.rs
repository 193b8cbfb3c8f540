//! Removes the cgroups of pods that are gone: the runtime, or systemd for it, creates them as parents of its
//! containers' cgroups and leaves them behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use winddown_host::service_units::UnitError;
use winddown_shared::{PodUid, QosClass, error_chain};

use super::CriContext;
use super::config::{CgroupDriver, CriConfig};
use super::spec::{cgroup_parent, pod_cgroup};

/// How long systemd may take to accept that slices are stopped.
const SLICE_STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// All of them, because the class of an unconfigured pod is unknown.
const CLASSES: [QosClass; 3] = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];

/// Has systemd stop the pod's slices, if it manages cgroups: it created them for the containers, and keeps them until
/// they are stopped. A slice that stays is no reason to keep the pod.
pub(super) async fn stop_slices(context: &CriContext, uid: &PodUid) {
    let (Some(root), Some(slices)) =
        (&context.config.cgroups.parent, &context.config.cgroups.slices)
    else {
        return;
    };
    let driver = CgroupDriver::Systemd;
    if !context.driver.get(context).await.is_ok_and(|manager| manager == Some(driver)) {
        return;
    }
    // Awaited here: a stop that came later could end the pod's next containers.
    let stops = CLASSES.map(|qos| slices.stop(cgroup_parent(root, driver, uid, qos)));
    let late = |_| vec![Err(UnitError::Silent { call: "StopUnit", why: "it is late".to_owned() })];
    let answers = timeout(SLICE_STOP_TIMEOUT, join_all(stops)).await.unwrap_or_else(late);
    if let Some(error) = answers.into_iter().find_map(Result::err) {
        tracing::warn!(%uid, error = error_chain(&error), "cannot remove the slice of a removed pod; it stays until the next boot");
    }
}

/// Removes the pod's empty cgroups. Blocking.
///
/// A cgroup that is not empty stays, and a later attempt removes it.
pub(super) fn remove(config: &CriConfig, uid: &PodUid) {
    let Some(root) = &config.cgroups.parent else { return };
    // On version 1 runc creates those of slices also in hierarchies that systemd does not manage.
    let drivers = [CgroupDriver::Cgroupfs, CgroupDriver::Systemd];
    let of = |driver| CLASSES.map(|qos| pod_cgroup(root, driver, uid, qos));
    let groups: Vec<PathBuf> = drivers.into_iter().flat_map(of).collect();
    for hierarchy in hierarchies(&config.cgroups.mount) {
        for group in &groups {
            remove_empty(&hierarchy.join(group));
        }
    }
}

/// The roots of the cgroup hierarchies: the unified one, or one directory per controller.
fn hierarchies(mount: &Path) -> Vec<PathBuf> {
    let mut all = vec![mount.to_owned()];
    if !mount.join("cgroup.controllers").exists() {
        let entries = fs::read_dir(mount).into_iter().flatten().flatten();
        all.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    all
}

fn remove_empty(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    // The kernel refuses to remove a cgroup that still has processes.
    let _ = fs::remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_cgroups_go_in_every_hierarchy_and_others_stay() {
        let mount = tempfile::tempdir().unwrap();
        let mut config = CriConfig::below(mount.path());
        config.cgroups.mount = mount.path().to_owned();
        for dir in [
            "cpu/winddown/burstable/podu/left",
            "cpu/winddown/burstable/podother",
            "memory/winddown/podu",
            "freezer/winddown.slice/winddown-burstable.slice/winddown-burstable-podu.slice",
            "freezer/winddown.slice/winddown-burstable.slice/winddown-burstable-podother.slice",
        ] {
            fs::create_dir_all(mount.path().join(dir)).unwrap();
        }
        remove(&config, &PodUid::new("u"));
        assert!(!mount.path().join("cpu/winddown/burstable/podu").exists());
        assert!(!mount.path().join("memory/winddown/podu").exists());
        assert!(mount.path().join("cpu/winddown/burstable/podother").exists());
        let slices = mount.path().join("freezer/winddown.slice/winddown-burstable.slice");
        assert!(!slices.join("winddown-burstable-podu.slice").exists());
        assert!(slices.join("winddown-burstable-podother.slice").exists());
    }
}
