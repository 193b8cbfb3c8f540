//! The locations of pods' volumes.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1 as api;
use winddown_host::if_exists;
use winddown_shared::{Pod, PodUid};

use super::needs;
use super::payload::Payload;
use super::room::{MemoryRoom, RoomTurn};

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

    /// Creates the parent directories of the volume. Only their owner can enter them: a mount of
    /// the volume does not need access to its parents.
    pub(crate) fn prepare(&self, volume: &Path) -> io::Result<()> {
        for above in [volume.parent().and_then(Path::parent), volume.parent()] {
            let Some(dir) = above else { continue };
            if !dir.is_dir() {
                DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
                fs::set_permissions(dir, Permissions::from_mode(0o700))?;
            }
        }
        Ok(())
    }

    /// Waits for the turn to write the files of the volume, if it is in memory.
    pub(crate) fn turn(&self, volume: &Path, files: &Payload) -> io::Result<Option<RoomTurn<'_>>> {
        let is_in_memory = volume.starts_with(&self.memory);
        is_in_memory.then(|| self.room.turn(&self.memory, volume, files)).transpose()
    }

    /// Removes a volume, and the pod's directory if that was its only one. What cannot be removed goes with the pod.
    pub(crate) fn take_back(&self, volume: &Path) {
        let _ = fs::remove_dir_all(volume);
        let _ = volume.parent().map(fs::remove_dir);
    }

    /// Removes all volumes of a pod.
    pub(crate) fn remove(&self, uid: &str) -> io::Result<()> {
        if !is_safe(uid) {
            return Ok(());
        }
        for root in [&self.disk, &self.memory] {
            if_exists(fs::remove_dir_all(root.join(uid)))?;
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
                if is_left && fs::remove_dir_all(entry.path()).is_ok() {
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
