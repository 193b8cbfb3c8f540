//! Removes the cgroups of pods that are gone: the runtime creates them as parents of its containers'
//! cgroups and leaves them behind.

use std::fs;
use std::path::{Path, PathBuf};

use winddown_shared::{PodUid, QosClass};

use super::config::{CgroupDriver, CriConfig};
use super::spec::cgroup_parent;

/// Removes the pod's empty cgroups; those managed by systemd are removed by systemd. Blocking.
///
/// A cgroup that is not empty stays, and a later attempt removes it.
pub(super) fn remove(config: &CriConfig, uid: &PodUid) {
    let Some(root) = &config.cgroup_parent else { return };
    // The QoS class of an unconfigured pod is unknown.
    let classes = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];
    let parents = classes.map(|qos| cgroup_parent(root, CgroupDriver::Cgroupfs, uid, qos));
    for hierarchy in hierarchies(&config.cgroup_mount) {
        for parent in &parents {
            remove_empty(&hierarchy.join(parent.trim_start_matches('/')));
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
        config.cgroup_mount = mount.path().to_owned();
        for dir in [
            "cpu/winddown/burstable/podu/left",
            "cpu/winddown/burstable/podother",
            "memory/winddown/podu",
        ] {
            fs::create_dir_all(mount.path().join(dir)).unwrap();
        }
        remove(&config, &PodUid::new("u"));
        assert!(!mount.path().join("cpu/winddown/burstable/podu").exists());
        assert!(!mount.path().join("memory/winddown/podu").exists());
        assert!(mount.path().join("cpu/winddown/burstable/podother").exists());
    }
}
