//! The seam to sources of the pods' usage.

use std::path::PathBuf;
use std::time::Duration;

use crate::{PodStats, PodUid, RuntimeError};

/// Tells what pods use. A runtime implements it beside [`Runtime`](crate::Runtime).
pub trait PodStatsSource: Send + Sync + 'static {
    /// What every pod with something running uses, in no particular order.
    ///
    /// Memory and processes are read for this call. What is on disk takes a walk through files, so it
    /// is kept: with `disk_age` what is older than that is measured again (off the async threads, in
    /// bounded time, never two walks at once), without it the last measurement is given. Cancel-safe.
    ///
    /// # Errors
    /// Nothing is known of any pod. What is not known of one pod, or of a part of it, is absent.
    fn pod_stats(
        &self,
        disk_age: Option<Duration>,
    ) -> impl Future<Output = Result<Vec<(PodUid, PodStats)>, RuntimeError>> + Send;

    /// The cgroup that all its pods are in, as a path from the root of the hierarchy (`/winddown`). None
    /// if they are in none, or the runtime does not say yet.
    fn pods_cgroup(&self) -> impl Future<Output = Option<String>> + Send {
        async { None }
    }

    /// Where images and the layers that containers write to are.
    ///
    /// # Errors
    /// The runtime did not answer.
    fn image_places(&self) -> impl Future<Output = Result<ImagePlaces, RuntimeError>> + Send {
        async { Ok(ImagePlaces::default()) }
    }
}

/// Where a runtime keeps images and what containers write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePlaces {
    /// A directory on the file system of the images; none if there are no images.
    pub images: Option<PathBuf>,
    /// A directory on the file system of the layers that containers write to, where the runtime tells
    /// it apart from that of the images.
    pub containers: Option<PathBuf>,
}
