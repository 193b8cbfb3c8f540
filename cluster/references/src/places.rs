//! The locations of pods' volumes.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1 as api;
use winddown_host::{if_exists, regular, removal};
use winddown_shared::{Pod, PodUid, WallTime};

use super::payload::Payload;
use super::room::MemoryRoom;
use super::{atomic, needs};

/// The two directories in which each pod has a directory of its own.
#[derive(Clone, Debug)]
pub(crate) struct PodDirectories {
    /// On disk, for volumes without secrets.
    pub(crate) disk: PathBuf,
    /// In memory, for secrets and tokens.
    pub(crate) memory: PathBuf,
    /// The room there.
    pub(crate) room: MemoryRoom,
}

impl PodDirectories {
    pub(crate) fn of(&self, uid: &PodUid, volume: &api::Volume) -> PathBuf {
        let root = if needs::is_secret(volume) { &self.memory } else { &self.disk };
        root.join(uid.as_str()).join(&volume.name)
    }

    /// Whether this is an already resolved pod: it has volumes in these directories.
    pub(crate) fn are_in(&self, pod: &Pod) -> bool {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut paths = volumes.filter_map(|v| v.host_path.as_ref()).map(|h| Path::new(&h.path));
        let own = [&self.disk, &self.memory].map(|root| root.join(pod.uid().as_str()));
        paths.any(|path| own.iter().any(|own| path.starts_with(own)))
    }

    /// Writes a volume, as [`atomic::write`] does; when it is its turn, if it is in memory.
    pub(crate) fn write(
        &self,
        volume: &Path,
        files: &Payload,
        group: Option<u32>,
        now: WallTime,
    ) -> io::Result<bool> {
        let (root, _) = regular::split(volume, 2);
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let is_in_memory = root == self.memory;
        let _turn = is_in_memory.then(|| self.room.turn(root, volume, files)).transpose()?;
        atomic::write(volume, files, group, now)
    }

    /// Removes a volume, and the pod's directory if that was its only one. What cannot be removed goes with the pod.
    pub(crate) fn take_back(&self, volume: &Path) {
        let (root, below) = regular::split(volume, 2);
        let _ = removal::tree_below(root, below);
        let _ = volume.parent().map(fs::remove_dir);
    }

    /// Removes all volumes of a pod.
    pub(crate) fn remove(&self, uid: &str) -> io::Result<()> {
        if !is_safe(uid) {
            return Ok(());
        }
        for root in [&self.disk, &self.memory] {
            if_exists(removal::tree_below(root, uid.as_ref()))?;
        }
        Ok(())
    }

    /// Removes the volumes of all pods except those for which `is_known`. What cannot be removed is
    /// left for the next call. Returns how many directories were removed.
    pub(crate) fn remove_unknown(&self, is_known: impl Fn(&str) -> bool) -> usize {
        let mut removed = 0;
        for root in [&self.disk, &self.memory] {
            let Ok(entries) = fs::read_dir(root) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let is_left = name.to_str().is_some_and(|uid| !is_known(uid));
                if is_left && removal::tree_below(root, name.as_ref()).is_ok() {
                    removed += 1;
                }
            }
        }
        removed
    }
}

/// Whether `name` is safe as the name of a directory.
pub(crate) fn is_safe(name: &str) -> bool {
    !name.is_empty()
        && name.len() < 256
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'))
}
