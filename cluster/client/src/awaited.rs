//! Waits for credentials that are not there yet, or cannot be used yet.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;
use winddown_host::{Hint, Watch, Watched};

use super::error::CredentialsError;
use super::health::ConnectionState;
use super::reloading::ConnectionShared;

#[cfg(test)]
mod tests;

/// Files that belong together are written one after the other: all that change within this time are read once.
const GATHER_TIME: Duration = Duration::from_millis(100);

/// A watched directory, and the entry in it on the way to an awaited file.
type Place = (Option<Watched>, OsString);

impl ConnectionShared {
    /// Shows what is missing. Logged once per cause.
    pub(super) fn not_yet(&self, error: &CredentialsError) {
        let why = error.as_missing();
        let before = self.health.watch().borrow().state.clone();
        // Another state than before is logged by `health`.
        if matches!(before, ConnectionState::Unsigned { why: was } if *was != *why) {
            tracing::warn!("no credentials for the API server yet: {why}");
        }
        self.health.set(ConnectionState::Unsigned { why: why.into() });
    }

    /// Reads the credentials again whenever one of their files may have changed, until they can be used. Returns at
    /// once if there are some, or a command that supplies them. Cancel-safe.
    pub(super) async fn await_credentials(&self) {
        if self.has_begun() {
            return;
        }
        // Without inotify, the files are read again as rarely as those in use are looked at.
        let (mut watch, _) = Watch::open();
        loop {
            // Watched before they are read, so that no change is missed.
            let places = self.watch_files(&mut watch).await;
            match self.begin().await {
                Ok(_) => return tracing::info!("credentials for the API server are there now"),
                Err(error) => self.not_yet(&error),
            }
            tokio::select! {
                () = sleep(self.look_every()) => {}
                () = has_changed(&mut watch, &places) => sleep(GATHER_TIME).await,
            }
        }
    }

    /// Watches the directories on the way to each file, from the root on: whichever of them is made first is noticed.
    async fn watch_files(&self, watch: &mut Watch) -> Vec<Place> {
        let Some(mut watcher) = watch.watcher() else { return Vec::new() };
        let source = self.source().clone();
        let watched = tokio::task::spawn_blocking(move || {
            let files = source.files();
            let places = files.iter().flat_map(|file| places(file));
            places.map(|(directory, entry)| (watcher.add(&directory), entry)).collect::<Vec<_>>()
        });
        // Fails only if this agent is ending.
        let places = watched.await.unwrap_or_default();
        watch.follow(places.iter().map(|(directory, _)| directory.clone()).collect());
        places
    }
}

/// Resolves when an entry on the way to an awaited file has changed. Cancel-safe.
async fn has_changed(watch: &mut Watch, places: &[Place]) {
    loop {
        match watch.next().await {
            Hint::Lost => return,
            Hint::Change(change) => {
                // A directory on the way to several files is watched once, for the first of them.
                let Some((directory, _)) = places.get(change.at) else { return };
                let mut entries = places.iter().filter(|(other, _)| other == directory);
                if entries.any(|(_, entry)| change.is_of(Some(entry))) {
                    return;
                }
            }
        }
    }
}

/// The directories on the way to the file, from the root on, each with the entry that leads there.
fn places(file: &Path) -> Vec<(PathBuf, OsString)> {
    let on_the_way = file.ancestors();
    let places =
        on_the_way.filter_map(|path| Some((path.parent()?.into(), path.file_name()?.into())));
    let mut places: Vec<_> = places.collect();
    places.reverse();
    places
}
