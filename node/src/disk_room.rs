//! What is left on the disks that the agent and its pods write to, for the status and the metrics, as a plug-in. It is
//! looked at on request.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use winddown_control::api::{self, DirectoryUse};
use winddown_host::{FreeSpace, OneThread};
use winddown_shared::{Mutex, Runtime};

use crate::metrics::{PluginGauge, ScrapedNode};
use crate::plugin::{NodePlugin, PluginRegistry, PluginSection};

/// How long a look may take: a dead disk does not answer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// The plug-in that shows how full the disks of some directories are.
pub struct DiskRoom {
    directories: Vec<(DirectoryUse, PathBuf)>,
}

impl DiskRoom {
    /// Looks at these directories. One that does not exist yet is not shown.
    pub fn new(directories: impl IntoIterator<Item = (DirectoryUse, PathBuf)>) -> Self {
        Self { directories: directories.into_iter().collect() }
    }
}

impl<R: Runtime> NodePlugin<R> for DiskRoom {
    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        // Nothing is known to be wrong before the first look.
        let unseen = |one| api::DirectoryStatus { is_low: false, ..silent(one) };
        let found = self.directories.iter().map(unseen).collect();
        let looked = Looked {
            directories: self.directories,
            disk: OneThread::default(),
            found: Mutex::new(found),
        };
        node.contributions.sections.push(std::sync::Arc::new(looked));
    }
}

/// The directories as they were at the last request.
struct Looked {
    directories: Vec<(DirectoryUse, PathBuf)>,
    disk: OneThread,
    found: Mutex<Vec<api::DirectoryStatus>>,
}

impl PluginSection for Looked {
    fn refresh(&self) -> BoxFuture<'_, ()> {
        async {
            let directories = self.directories.clone();
            let look = self.disk.run(move |()| look(directories));
            *self.found.lock() = match timeout(LOOK_TIMEOUT, look).await {
                Ok(found) => found.unwrap_or_default(),
                Err(_) => self.directories.iter().map(silent).collect(),
            };
        }
        .boxed()
    }

    fn status(&self, status: &mut api::Status) {
        status.directories = self.found.lock().clone();
    }

    fn facts(&self, facts: &mut ScrapedNode) {
        let found = self.found.lock();
        let low: Vec<_> =
            found.iter().map(|one| (one.holds.as_str(), usize::from(one.is_low))).collect();
        if !low.is_empty() {
            facts.of_plugins.push(PluginGauge::labelled(
                "winddown_directory_low",
                "Whether the disk of a directory is almost full, cannot be written or does not answer.",
                "directory",
                &low,
            ));
        }
    }
}

fn look(directories: Vec<(DirectoryUse, PathBuf)>) -> Vec<api::DirectoryStatus> {
    let look = |(holds, path): (DirectoryUse, PathBuf)| {
        let left = FreeSpace::of(&path).ok()?;
        let few = match holds {
            DirectoryUse::Run => FreeSpace::FEW_BYTES_IN_MEMORY,
            _ => FreeSpace::FEW_BYTES,
        };
        Some(api::DirectoryStatus {
            holds,
            path: path.display().to_string(),
            free_bytes: Some(left.bytes),
            free_inodes: left.inodes,
            read_only: left.read_only,
            is_full: left.is_full(),
            is_low: left.is_low(few) || left.read_only,
        })
    };
    directories.into_iter().filter_map(look).collect()
}

/// A directory whose disk does not answer.
fn silent((holds, path): &(DirectoryUse, PathBuf)) -> api::DirectoryStatus {
    api::DirectoryStatus {
        holds: *holds,
        path: path.display().to_string(),
        is_low: true,
        ..api::DirectoryStatus::default()
    }
}
