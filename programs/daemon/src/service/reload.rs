//! Reads the configuration again while the agent runs.

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Sleep, sleep};

use winddown_doctor::obstacles;
use winddown_host::machine::wall_clock;

use super::{ServiceOptions, StartError, former_runtime, keep, load, prepare};
use winddown_node::Configuration;

/// A read that takes longer is logged; it continues.
const SLOW_READ: Duration = Duration::from_secs(10);

/// How long systemd may take to say what the agent's unit allows.
const SYSTEMD_PATIENCE: Duration = Duration::from_secs(2);

/// The result of a read. The outer error is a panic.
pub(super) type Loaded = Result<Result<Configuration, StartError>, JoinError>;

/// A read in progress, on a thread of its own: a dead disk, or a pipe in place of the file, blocks that thread
/// and not the loop that feeds the watchdog.
pub(super) struct FileReading {
    thread: JoinHandle<Result<Configuration, StartError>>,
    slow: Pin<Box<Sleep>>,
}

impl FileReading {
    /// Begins to read. If a file is in force, as `has_file` says, one that is gone is an error.
    pub(super) fn start(options: &ServiceOptions, has_file: bool) -> Self {
        let options = options.clone();
        Self {
            thread: tokio::task::spawn_blocking(move || {
                let (configuration, loaded) = load(&options, wall_clock().now(), has_file)?;
                if options.root == Path::new("/") {
                    let found = obstacles(&loaded.config, SYSTEMD_PATIENCE);
                    let found = tokio::runtime::Handle::current().block_on(found);
                    if !found.is_empty() {
                        return Err(StartError::Obstacles(found));
                    }
                }
                // As a start does: what no agent can start with is not kept.
                prepare(&configuration.config)?;
                let configuration = former_runtime::kept(configuration, &wall_clock())?;
                keep(&options.root, loaded);
                Ok(configuration)
            }),
            slow: Box::pin(sleep(SLOW_READ)),
        }
    }

    /// Waits for the result. Cancel-safe; must not be called again once it has returned.
    async fn end(&mut self) -> Loaded {
        tokio::select! {
            biased;
            loaded = &mut self.thread => return loaded,
            () = &mut self.slow, if !self.slow.is_elapsed() => tracing::warn!(
                "reload: the configuration file has not been read for {} s, as if its disk were \
                 dead; the configuration stays as it was until it is read",
                SLOW_READ.as_secs()
            ),
        }
        (&mut self.thread).await
    }
}

/// Waits for the result of the read and clears `reading`; pending for ever if there is none. Cancel-safe.
pub(super) async fn end_of(reading: &mut Option<FileReading>) -> Loaded {
    let Some(running) = reading else { return std::future::pending().await };
    let loaded = running.end().await;
    *reading = None;
    loaded
}
