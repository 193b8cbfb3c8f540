//! The interface to sources of the pods' resource usage.

use std::path::PathBuf;
use std::time::Duration;

use crate::{PodStats, PodUid, RuntimeError};

/// Measures the resource usage of pods. A runtime implements it in addition to [`Runtime`](crate::Runtime).
pub trait PodStatsSource: Send + Sync + 'static {
    /// The usage of every pod of which something runs, in no particular order.
    ///
    /// Memory and processes are read on every call. Disk usage takes a walk through files, so it is cached: with
    /// `disk_age`, values older than that are measured again (off the async threads, in bounded time, never two walks
    /// at once); without it, the last values are returned. Cancel-safe.
    ///
    /// # Errors
    /// Nothing is known of any pod. If only one pod, or a part of it, is unknown, it is absent.
    fn pod_stats(
        &self,
        disk_age: Option<Duration>,
    ) -> impl Future<Output = Result<Vec<(PodUid, PodStats)>, RuntimeError>> + Send;

    /// The cgroup that all its pods are in, as a path from the root of the hierarchy (`/winddown`).
    /// `None` if they are in none, or the runtime does not know yet.
    fn pods_cgroup(&self) -> impl Future<Output = Option<String>> + Send {
        async { None }
    }

    /// The locations of images and of the containers' writable layers.
    ///
    /// # Errors
    /// The runtime did not answer.
    fn image_places(&self) -> impl Future<Output = Result<ImagePlaces, RuntimeError>> + Send {
        async { Ok(ImagePlaces::default()) }
    }
}

/// The locations where a runtime keeps images and the containers' writable layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePlaces {
    /// A directory on the file system of the images; `None` if there are no images.
    pub images: Option<PathBuf>,
    /// A directory on the file system of the containers' writable layers, if the runtime
    /// distinguishes it from that of the images.
    pub containers: Option<PathBuf>,
}
