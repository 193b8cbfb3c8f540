//! Tells pods why they end and until when, in a file each.
//!
//! ```text
//! NOTICES/UID/notice.json        an EndNotice, while the pod is about to end
//! ```
//!
//! A pod reads its directory and writes nothing there: both directories belong to this agent. One whose containers were
//! started without a directory (by an agent that had none yet) is told nothing.
//!
//! One task writes all files, in the order in which they became due, so what is old never replaces what is new.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use winddown_files::{Survives, replace};
use winddown_shared::{
    EndNotice, Grace, NodeEnding, PodUid, ShutdownKind, WallClock, critical, error_chain,
};

use crate::files;
use crate::pod::{Boundary, PodEntry, PodState, Told};
use crate::pods::Pods;

/// The variable that names the file to containers and hooks.
pub const VARIABLE: &str = "WINDDOWN_NOTICE";
/// The file in a pod's directory.
pub const FILE: &str = "notice.json";
/// How long the end of a pod waits for its file: a thousand times what one in memory needs.
const PATIENCE: Duration = Duration::from_millis(100);
/// Files written in one go.
const BATCH: usize = 256;

/// Tells pods of their end.
#[derive(Debug)]
pub struct EndNotices {
    dir: Option<PathBuf>,
    wall: WallClock,
    /// What is known of the end of all pods; none before this agent has been told how that stands.
    announced: Mutex<Option<Option<Arc<NodeEnding>>>>,
    queue: mpsc::UnboundedSender<Job>,
}

/// What is to be done in a pod's directory.
#[derive(Debug)]
struct Job {
    dir: PathBuf,
    deed: Deed,
    /// Dropped when it is done.
    _done: oneshot::Sender<Infallible>,
}

#[derive(Debug)]
enum Deed {
    Write(Vec<u8>),
    /// The file goes.
    Withdraw,
    /// The directory goes.
    Remove,
}

// === impl EndNotices ===

impl EndNotices {
    /// Writes below `dir`, which should be in memory; without it pods have no files, and only their hooks get the notice.
    /// Must be called inside a tokio runtime.
    pub fn start(dir: Option<PathBuf>, wall: WallClock) -> Self {
        let (queue, mut due) = mpsc::unbounded_channel();
        critical::spawn("writer of end notices", async move {
            let mut batch: Vec<Job> = Vec::new();
            while due.recv_many(&mut batch, BATCH).await > 0 {
                let jobs = std::mem::take(&mut batch);
                let work = move || jobs.into_iter().for_each(Job::carry_out);
                let _ = tokio::task::spawn_blocking(work).await;
            }
        });
        Self { dir, wall, announced: Mutex::default(), queue }
    }

    /// Where the pod's file is while there is one; none if it has none.
    pub fn file(&self, uid: &PodUid) -> Option<PathBuf> {
        Some(self.dir_of(uid)?.join(FILE))
    }

    /// Makes the pod's directory, which its containers are given. None if there is none, which is logged: a pod runs
    /// without. Blocks on the file system.
    pub fn make_room(&self, uid: &PodUid) -> Option<PathBuf> {
        let dir = self.dir_of(uid)?;
        let made = self.dir.as_deref().map_or(Ok(()), |all| make(all, 0o711));
        match made.and_then(|()| make(&dir, 0o755)) {
            Ok(()) => Some(dir),
            Err(error) => {
                let path = dir.display();
                tracing::warn!(error = error_chain(&error), %path, "cannot notify a pod of its end");
                None
            }
        }
    }

    /// Removes what there is of the pod, of which nothing runs any more.
    pub fn forget<B: Boundary>(&self, entry: &PodEntry<B>) {
        entry.lock().told = None;
        self.hand_over(entry.uid(), Deed::Remove);
    }

    /// Tells all of `pods` that all are about to end, or (`None`) that they are not any more.
    pub fn announce<B: Boundary>(&self, ending: Option<Arc<NodeEnding>>, pods: &Pods<B>) {
        let known = self.lock().replace(ending.clone());
        if known != Some(ending) {
            for entry in pods.all() {
                self.look(&entry);
            }
        }
    }

    /// What the hook of a pod that is being stopped has in its environment.
    pub fn variables<B: Boundary>(&self, state: &PodState<B>) -> Vec<(String, String)> {
        let told = state.ending.is_some().then(|| self.due(state)).flatten().flatten();
        let notice = told.and_then(|told| self.render(&told));
        notice.map(|notice| notice.variables()).unwrap_or_default()
    }

    /// Has the pod's file tell what is known now. Resolves when it does, or is broken off.
    pub(crate) fn look<B: Boundary>(
        &self,
        entry: &PodEntry<B>,
    ) -> Option<oneshot::Receiver<Infallible>> {
        self.dir.as_ref()?;
        // Held until the job is in the queue, so that what becomes due later comes later.
        let mut state = entry.lock();
        let due = self.due(&state)?;
        if state.told.as_ref() == Some(&due) {
            return None;
        }
        state.told = Some(due.clone());
        let notice = due.and_then(|told| self.render(&told));
        let json = notice.and_then(|notice| serde_json::to_vec(&notice).ok());
        self.hand_over(entry.uid(), json.map_or(Deed::Withdraw, Deed::Write))
    }

    /// The same, and waits a moment for it.
    pub(crate) async fn tell<B: Boundary>(&self, entry: &PodEntry<B>) {
        if let Some(done) = self.look(entry)
            && timeout(PATIENCE, done).await.is_err()
        {
            let pod = crate::pod::title(entry);
            tracing::warn!(%pod, "the pod ends before it can read why: its notice is not written yet");
        }
    }

    /// Keeps the file up to date while the grace of a stop shrinks. Does not end.
    pub(crate) async fn follow<B: Boundary>(
        &self,
        entry: &PodEntry<B>,
        mut grace: Grace,
    ) -> Infallible {
        loop {
            grace.changed().await;
            self.look(entry);
        }
    }

    /// What the pod's file should tell. None: as long as it is not known how things stand, it stays as it is.
    fn due<B: Boundary>(&self, state: &PodState<B>) -> Option<Option<Told>> {
        let announced = self.lock().clone();
        let all = announced.clone().flatten();
        let stop = state.ending.as_ref();
        if let Some((stop, own)) = stop.and_then(|stop| Some((stop, stop.reason()?))) {
            return Some(Some(Told { own: Some(own), all, until: stop.kill_at() }));
        }
        // One that runs on through the soft-reboot does not end; should it have to, it is told with its own end.
        let softly = |all: &Arc<NodeEnding>| all.node_action == Some(ShutdownKind::SoftReboot);
        match all.filter(|all| !(softly(all) && state.survives_soft_reboot())) {
            Some(all) => Some(Some(Told { own: None, until: all.deadline, all: Some(all) })),
            None => (announced.is_some() || state.told.is_some()).then_some(None),
        }
    }

    fn render(&self, Told { own, all, until }: &Told) -> Option<EndNotice> {
        let left = until.saturating_duration_since(Instant::now());
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
        let clocks = (self.wall.now(), monotonic.unwrap_or_default());
        EndNotice::new(*own, all.as_deref(), left, clocks)
    }

    /// None without a directory.
    fn hand_over(&self, uid: &PodUid, deed: Deed) -> Option<oneshot::Receiver<Infallible>> {
        let (done, is_done) = oneshot::channel();
        let job = Job { dir: self.dir_of(uid)?, deed, _done: done };
        // The task ends with the runtime only.
        let _ = self.queue.send(job);
        Some(is_done)
    }

    fn dir_of(&self, uid: &PodUid) -> Option<PathBuf> {
        files::is_safe(uid.as_str()).then(|| Some(self.dir.as_ref()?.join(uid.as_str()))).flatten()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Option<Arc<NodeEnding>>>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Job ===

impl Job {
    fn carry_out(self) {
        let path = self.dir.join(FILE);
        let done = match &self.deed {
            Deed::Write(json) => write(&self.dir, &path, json),
            Deed::Withdraw => fs::remove_file(&path),
            Deed::Remove => fs::remove_dir_all(&self.dir),
        };
        match done {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = path.display();
                tracing::warn!(error = error_chain(&error), %path, "cannot update a pod's end notice");
            }
            _ => {}
        }
    }
}

fn write(dir: &Path, path: &Path, json: &[u8]) -> io::Result<()> {
    // A pod that is root on the host may have put anything in its place.
    if !fs::symlink_metadata(dir)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    replace(path, 0o644, Survives::Process, json)
}

/// Makes a directory with this mode, whatever the umask is.
fn make(dir: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests;
