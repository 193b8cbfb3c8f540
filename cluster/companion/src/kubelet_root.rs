//! Reads from the kubelet's directory what it holds for a pod: mounts, devices, claims. Blocking.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use winddown_host::{Mount, if_exists, kernel, mounts, regular};
use winddown_shared::PodUid;

use super::local_node::NodeError;
use mounts_below::mounts_below;

mod mounts_below;

/// The kubelet's checkpoint of prepared claims and the pods they are for.
const CLAIMS: &str = "dra_manager_state";
/// The only version of the checkpoint.
const CLAIMS_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";
/// The directory in which CSI drivers stage volumes.
const STAGED: &str = "plugins/kubernetes.io/csi";
/// The file that names a directory's volume.
const VOLUME: &str = "vol_data.json";
/// Maximum size in bytes of a file that is read; a claim takes a few hundred bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A kubelet's root directory (`--root-dir`).
#[derive(Clone, Debug)]
pub struct KubeletRoot {
    root: PathBuf,
    proc: PathBuf,
}

/// What the directory showed at one time.
#[derive(Debug)]
pub struct KubeletHolds {
    root: PathBuf,
    mounts: Vec<Mount>,
    claims: Result<Vec<Claim>, NodeError>,
    unused: Result<Vec<String>, NodeError>,
}

/// The checkpoint file; its data is a string of JSON.
#[derive(Deserialize)]
struct Checkpoint {
    #[serde(rename = "Data")]
    data: String,
}

#[derive(Deserialize)]
struct Claims {
    #[serde(rename = "apiVersion", default)]
    version: String,
    #[serde(rename = "ClaimInfoStateList")]
    list: Option<Vec<Claim>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Claim {
    claim_name: String,
    namespace: String,
    #[serde(rename = "PodUIDs")]
    pods: BTreeMap<String, serde::de::IgnoredAny>,
}

/// A volume, as identified by its driver.
#[derive(Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
struct Volume {
    driver_name: String,
    volume_handle: String,
}

// === impl KubeletRoot ===

impl KubeletRoot {
    /// The kubelet of this machine with this root directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), proc: "/proc".into() }
    }

    /// Reads what the kubelet holds now, for all pods. `runtime`: the process of the container runtime. It has to see
    /// every mount that the kubelet makes for a container, so its mounts are what counts: the two may have a mount
    /// namespace of their own, from which nothing reaches that of process 1 (OpenShift's `kubens.service`).
    ///
    /// # Errors
    /// The mounts cannot be read, or the container runtime does not have the directory.
    pub fn look(&self, runtime: u32) -> Result<KubeletHolds, NodeError> {
        let (own, theirs) = (self.mounts_of("self")?, self.mounts_of(&runtime.to_string())?);
        // The kernel lists mounts by their real paths, and the directory may be a link to another disk.
        let root = match fs::canonicalize(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.root.clone(),
            root => root.map_err(|error| unread(&self.root, &error))?,
        };
        let mounts = mounts_below(&root, &own, &theirs).ok_or_else(|| {
            let root = root.display();
            let why = format!("{root} is nowhere among the mounts of the container runtime");
            NodeError::because(format!("{why} (process {runtime})"))
        })?;
        let real = Self { root, proc: self.proc.clone() };
        let (unused, claims) = (real.unused_volumes(&mounts), real.claims());
        Ok(KubeletHolds { root: real.root, mounts, claims, unused })
    }

    fn mounts_of(&self, process: &str) -> Result<Vec<Mount>, NodeError> {
        let path = self.proc.join(process).join("mountinfo");
        let text = kernel::read(&path).map_err(|error| unread(&path, &error))?;
        Ok(mounts(&text).collect())
    }

    fn unused_volumes(&self, mounts: &[Mount]) -> Result<Vec<String>, NodeError> {
        let below = self.root.join(STAGED);
        let is_staged = |point: &Path| point.starts_with(&below) && point.ends_with("globalmount");
        let points = mounts.iter().map(|mount| &mount.point);
        let staged: Vec<_> = points.filter(|point| is_staged(point)).collect();
        if staged.is_empty() {
            return Ok(Vec::new());
        }
        let used = self.used()?;
        let is_free = |point: &&PathBuf| {
            let volume = point.parent().and_then(|of| volume_of(&of.join(VOLUME)));
            // A mount without a volume file may be any pod's.
            volume.is_none_or(|volume| !used.contains(&volume))
        };
        let free = staged.into_iter().filter(is_free);
        Ok(free.map(|point| point.display().to_string()).collect())
    }

    /// The CSI volumes that pods use.
    fn used(&self) -> Result<HashSet<Volume>, NodeError> {
        let mut used = HashSet::new();
        for pod in entries(&self.root.join("pods"))? {
            for volume in entries(&pod.join("volumes/kubernetes.io~csi"))? {
                used.extend(volume_of(&volume.join(VOLUME)));
            }
        }
        Ok(used)
    }

    fn claims(&self) -> Result<Vec<Claim>, NodeError> {
        let path = self.root.join(CLAIMS);
        // A kubelet that supports claims creates the file when it starts.
        let read = if_exists(read(&path)).map_err(|error| unread(&path, &error))?;
        let Some(text) = read else { return Ok(Vec::new()) };
        claims(&text).map_err(|why| NodeError::because(format!("{}: {why}", path.display())))
    }
}

// === impl KubeletHolds ===

impl KubeletHolds {
    /// What is held for the pod, as text for users: mount points, except those in memory, and claims. `has_claims`:
    /// whether the pod's object names any.
    ///
    /// # Errors
    /// The claims cannot be read, or have an unknown version: the answer is unknown, not empty.
    pub fn of(&self, uid: &PodUid, has_claims: bool) -> Result<Vec<String>, NodeError> {
        let of_pod = self.root.join("pods").join(uid.as_str());
        let drivers = self.root.join("plugins");
        // A raw block device is passed to a pod as a file named by the pod's UID, on which the device node is mounted.
        let is_device = |point: &Path| {
            point.starts_with(&drivers)
                && point.file_name().is_some_and(|name| name == uid.as_str())
        };
        let of_this = self.mounts.iter().filter(|mount| {
            let is_lasting = mount.point.starts_with(&of_pod) && !mount.is_in_memory;
            is_lasting || is_device(&mount.point)
        });
        let mut held: Vec<String> =
            of_this.map(|mount| mount.point.display().to_string()).collect();
        match &self.claims {
            Ok(claims) => held.extend(claims_of(claims, uid)),
            Err(unknown) if has_claims => return Err(unknown.clone()),
            // Devices requested by amount also become claims, but the pod's spec does not name them.
            Err(_) => {}
        }
        Ok(held)
    }

    /// Mount points of staged volumes that no pod uses any more: the kubelet is about to unstage
    /// them. Which pod used them is not recorded anywhere.
    ///
    /// # Errors
    /// A file or directory cannot be read: the answer is unknown, not empty.
    pub fn unused_volumes(&self) -> Result<Vec<String>, NodeError> {
        self.unused.clone()
    }
}

/// Parses the checkpoint; returns all prepared claims.
fn claims(text: &[u8]) -> Result<Vec<Claim>, String> {
    let checkpoint: Checkpoint = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let claims: Claims =
        serde_json::from_str(&checkpoint.data).map_err(|error| error.to_string())?;
    if claims.version != CLAIMS_VERSION {
        return Err(format!("its version is {:?}, and {CLAIMS_VERSION} is known", claims.version));
    }
    Ok(claims.list.unwrap_or_default())
}

/// The claims that are prepared for the pod, as text for users.
fn claims_of(claims: &[Claim], uid: &PodUid) -> impl Iterator<Item = String> {
    let of_pod = claims.iter().filter(|one| one.pods.contains_key(uid.as_str()));
    of_pod.map(|one| format!("the devices of claim {}/{}", one.namespace, one.claim_name))
}

fn volume_of(path: &Path) -> Option<Volume> {
    volume(&read(path).ok()?)
}

/// Parses a volume file.
fn volume(text: &[u8]) -> Option<Volume> {
    serde_json::from_slice(text).ok()
}

/// The entries of a directory; none if it does not exist.
fn entries(path: &Path) -> Result<Vec<PathBuf>, NodeError> {
    let listed = fs::read_dir(path).and_then(|all| all.map(|one| Ok(one?.path())).collect());
    match listed {
        Ok(entries) => Ok(entries),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(unread(path, &error)),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    regular::read(path, MAX_FILE_BYTES)
}

fn unread(path: &Path, error: &io::Error) -> NodeError {
    NodeError::because(format!("{} cannot be read: {error}", path.display()))
}

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(test)]
mod tests;
