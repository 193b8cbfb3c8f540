//! Where a node is measured for its pods.

use std::path::PathBuf;

/// Where a node is to be measured for its pods, besides the machine's own files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimePlaces {
    /// The cgroup that all pods are in, as a path from the root of the hierarchy (`/winddown`); `None` if they are in none.
    pub pods_cgroup: Option<String>,
    /// A directory on the file system of the images; `None` if there are no images.
    pub images: Option<PathBuf>,
    /// A directory on the file system of the containers' writable layers, if the runtime
    /// distinguishes it from that of the images.
    pub containers: Option<PathBuf>,
}
