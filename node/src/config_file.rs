//! Whether the configuration file was changed after the agent had read it, for the status, as a plug-in. It is looked at on
//! request.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use winddown_control::api;
use winddown_host::OneThread;
use winddown_shared::{Mutex, Runtime, WallTime};

use crate::Configured;
use crate::metrics::ScrapedNode;
use crate::plugin::{NodePlugin, PluginRegistry, PluginSection};

/// How long a look may take: a dead disk does not answer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// The plug-in that shows that the configuration file was changed and not read again.
pub struct ConfigFile {
    configured: Configured,
    file: PathBuf,
    disk: OneThread,
    seen: Mutex<FileSeen>,
}

/// The times of the file when it was read, or soon after, and at the last request. They need not be this machine's.
#[derive(Clone, Copy)]
struct FileSeen {
    read_at: WallTime,
    then: Option<WallTime>,
    now: Option<WallTime>,
}

impl ConfigFile {
    /// Looks at `file`, which need not exist, from which `configured` was read or will be.
    pub fn new(configured: Configured, file: impl Into<PathBuf>) -> Self {
        let file = file.into();
        let (read_at, then) = (configured.configuration().loaded_at, changed_at(&file));
        let seen = FileSeen { read_at, then, now: then };
        Self { configured, file, disk: OneThread::default(), seen: Mutex::new(seen) }
    }
}

fn changed_at(file: &Path) -> Option<WallTime> {
    WallTime::try_from(std::fs::metadata(file).ok()?.modified().ok()?).ok()
}

impl<R: Runtime> NodePlugin<R> for ConfigFile {
    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        node.contributions.sections.push(Arc::new(*self));
    }
}

impl PluginSection for ConfigFile {
    fn refresh(&self) -> BoxFuture<'_, ()> {
        async {
            let file = self.file.clone();
            let read_at = self.configured.configuration().loaded_at;
            let look = self.disk.run(move |()| changed_at(&file));
            // Of a disk that does not answer nothing is known.
            let Ok(Ok(now)) = timeout(LOOK_TIMEOUT, look).await else { return };
            let mut seen = self.seen.lock();
            let then = if seen.read_at == read_at { seen.then } else { now };
            *seen = FileSeen { read_at, then, now };
        }
        .boxed()
    }

    fn status(&self, status: &mut api::Status) {
        let FileSeen { then, now, .. } = *self.seen.lock();
        status.config.changed_at = now.filter(|_| now != then);
    }

    fn facts(&self, _facts: &mut ScrapedNode) {}
}

#[cfg(test)]
mod tests {
    use winddown_config::Config;
    use winddown_host::machine::wall_clock;

    use super::*;

    #[tokio::test]
    async fn a_file_that_has_changed_since_it_was_read_is_told_of_until_it_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        let file = std::fs::File::create(&path).unwrap();
        let (now, seconds) = (wall_clock().now(), Duration::from_secs);
        // Its time is another machine's, or this one's before its clock was set.
        file.set_modified((now + seconds(3600)).into()).unwrap();
        let configured = Configured::of(Config::default(), now);
        let looked = ConfigFile::new(configured.clone(), &path);
        let told = async || {
            let mut status = api::Status { time: now, ..api::Status::default() };
            looked.refresh().await;
            looked.status(&mut status);
            status.config.changed_at
        };
        assert_eq!(told().await, None);
        for (age, read_again) in [(60, 1), (7200, 2)] {
            let changed = now - seconds(age);
            file.set_modified(changed.into()).unwrap();
            assert_eq!(told().await, Some(changed), "whichever is older");
            let loaded_at = now + seconds(read_again);
            configured.replace(crate::Configuration { loaded_at, ..configured.configuration() });
            assert_eq!(told().await, None);
        }
    }
}
