//! Whether the configuration file was changed after the agent had read it, for the status, as a plug-in. It is looked at on
//! request.

use std::path::PathBuf;
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
    /// When it was last changed, as it was at the last request.
    changed: Mutex<Option<WallTime>>,
}

impl ConfigFile {
    /// Looks at `file`, which need not exist, from which `configured` was read or will be.
    pub fn new(configured: Configured, file: impl Into<PathBuf>) -> Self {
        let (disk, changed) = (OneThread::default(), Mutex::new(None));
        Self { configured, file: file.into(), disk, changed }
    }
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
            let look = self.disk.run(move |()| {
                WallTime::try_from(std::fs::metadata(file).ok()?.modified().ok()?).ok()
            });
            // Of a disk that does not answer nothing is known.
            let found = timeout(LOOK_TIMEOUT, look).await.ok().and_then(Result::ok);
            *self.changed.lock() = found.flatten();
        }
        .boxed()
    }

    fn status(&self, status: &mut api::Status) {
        let read = self.configured.configuration().loaded_at;
        // A read within the same second may have seen the change.
        let is_newer = |at: &WallTime| at.as_second() > read.as_second();
        status.config.changed_at = self.changed.lock().filter(is_newer);
    }

    fn facts(&self, _facts: &mut ScrapedNode) {}
}

#[cfg(test)]
mod tests {
    use winddown_config::Config;
    use winddown_host::machine::wall_clock;

    use super::*;

    #[tokio::test]
    async fn a_file_that_is_newer_than_what_was_read_of_it_is_told_of_until_it_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.yaml");
        let now = wall_clock().now();
        let configured = Configured::of(Config::default(), now);
        let looked = ConfigFile::new(configured.clone(), &file);
        let told = async || {
            let mut status = api::Status::new(now, api::NodeStatus::default());
            looked.refresh().await;
            looked.status(&mut status);
            status.config.changed_at
        };
        assert_eq!(told().await, None, "there is no file");
        let written = std::fs::File::create(&file).unwrap();
        let seconds = Duration::from_secs;
        written.set_modified((now - seconds(60)).into()).unwrap();
        assert_eq!(told().await, None, "it was read afterwards");
        let later = now + seconds(5);
        written.set_modified(later.into()).unwrap();
        assert_eq!(told().await, Some(later));
        configured.replace(crate::Configuration { loaded_at: later, ..configured.configuration() });
        assert_eq!(told().await, None);
    }
}
