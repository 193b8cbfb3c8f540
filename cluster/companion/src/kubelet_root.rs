//! Reads from the kubelet's directory what it holds for a pod: mounts, devices, claims. Blocking.

use std::collections::{BTreeMap, HashMap};
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
/// The directory in which the kubelet and CSI drivers stage volumes, each in a directory of its plug-in.
const STAGED: &str = "plugins/kubernetes.io";
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
    unused: Vec<String>,
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
        let (unused, claims) = (unused_volumes(&real.root, &mounts), real.claims());
        Ok(KubeletHolds { root: real.root, mounts, claims, unused })
    }

    fn mounts_of(&self, process: &str) -> Result<Vec<Mount>, NodeError> {
        let path = self.proc.join(process).join("mountinfo");
        let text = kernel::read(&path).map_err(|error| unread(&path, &error))?;
        Ok(mounts(&text).collect())
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
    pub fn unused_volumes(&self) -> Vec<String> {
        self.unused.clone()
    }
}

/// The staged mounts of which no pod has a mount: of the same file system and the same directory or device of it, or one below
/// that. Pods that share a volume have a mount each.
fn unused_volumes(root: &Path, mounts: &[Mount]) -> Vec<String> {
    let (pods, plugins) = (root.join("pods"), root.join(STAGED));
    let mut used: HashMap<_, Vec<&Path>> = HashMap::new();
    let mut staged = Vec::new();
    for mount in mounts {
        let below: Vec<_> = mount.point.strip_prefix(&plugins).into_iter().flatten().collect();
        let is_of_pod = match below[..] {
            // Raw devices; only those of CSI are staged first.
            [_, kind, place, ..] if kind == "volumeDevices" => place != "staging",
            // A plug-in's own directory may be mounted.
            [_, _, ..] => false,
            _ if mount.point.starts_with(&pods) => true,
            _ => continue,
        };
        match is_of_pod {
            true => used.entry(mount.device).or_default().push(&mount.root),
            false => staged.push(mount),
        }
    }
    let is_used = |mount: &&Mount| {
        let parts = used.get(&mount.device).into_iter().flatten();
        parts.into_iter().any(|part| part.starts_with(&mount.root))
    };
    staged.retain(|mount| !is_used(mount));
    staged.into_iter().map(|mount| mount.point.display().to_string()).collect()
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
