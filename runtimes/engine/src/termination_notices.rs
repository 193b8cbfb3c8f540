//! Tells each pod in a file why and when it will be stopped.
//!
//! ```text
//! NOTICES/UID/notice.json        an TerminationNotice, while the pod is about to be stopped
//! ```
//!
//! A pod reads its directory and writes nothing there: both directories belong to this agent. A pod whose containers
//! were started without a directory (by an agent that had none yet) gets no notice.
//!
//! One task writes all files, in the order in which they became due, so an old notice never replaces a newer one. A
//! notice that could not be written (the disk is full) is tried again until a newer one is due.

mod content;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use winddown_host::{Durability, replace};
use winddown_shared::{
    Grace, Mutex, NodeEnding, PodUid, ShutdownKind, WallClock, critical, error_chain,
};

use crate::files;
use crate::pod::{EnginePodState, NoticeContent, PodEntry, RunScope};
use crate::pods::Pods;

pub use content::TerminationNotice;

/// The environment variable that gives the path of the file to containers and hooks.
pub const VARIABLE: &str = "WINDDOWN_NOTICE";
/// The name of the file in a pod's directory.
pub const FILE: &str = "notice.json";
/// How long the stop of a pod waits for its file: a thousand times what writing a file in memory takes.
const FILE_WRITE_TIMEOUT: Duration = Duration::from_millis(100);
/// Delay before jobs that failed are tried again.
const FAILED_JOBS_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The maximum number of jobs in a batch.
const MAX_BATCH_JOBS: usize = 256;

/// Writes the termination notices of pods.
#[derive(Debug)]
pub struct TerminationNotices {
    dir: Option<PathBuf>,
    wall: WallClock,
    /// The announced end of all pods, if any; none before this agent has received the first announcement.
    announced: Mutex<Option<Option<Arc<NodeEnding>>>>,
    queue: mpsc::UnboundedSender<Job>,
}

/// A change in a pod's directory.
#[derive(Debug)]
struct Job {
    dir: PathBuf,
    deed: Deed,
    /// Dropped when the job is done, or has failed for the first time.
    _done: Option<oneshot::Sender<Infallible>>,
}

#[derive(Debug)]
enum Deed {
    Write(Vec<u8>),
    /// Removes the file.
    Withdraw,
    /// Removes the directory.
    Remove,
}

// === impl TerminationNotices ===

impl TerminationNotices {
    /// Starts the writer. It writes below `dir`, which should be in memory; without it pods have no files, and only
    /// their hooks get the notice. Must be called inside a tokio runtime.
    pub fn start(dir: Option<PathBuf>, wall: WallClock) -> Self {
        let (queue, mut due) = mpsc::unbounded_channel();
        critical::spawn("writer of termination notices", async move {
            // Failed jobs first, then new ones.
            let mut jobs: Vec<Job> = Vec::new();
            loop {
                let has_failed = !jobs.is_empty();
                tokio::select! {
                    received = due.recv_many(&mut jobs, MAX_BATCH_JOBS) => if received == 0 { return },
                    () = sleep(FAILED_JOBS_RETRY_DELAY), if has_failed => {}
                }
                let work = move || carry_out(jobs);
                jobs = tokio::task::spawn_blocking(work).await.unwrap_or_default();
            }
        });
        Self { dir, wall, announced: Mutex::default(), queue }
    }

    /// The path of the pod's file, whether or not it exists now; none if the pod has none.
    pub fn file(&self, uid: &PodUid) -> Option<PathBuf> {
        Some(self.dir_of(uid)?.join(FILE))
    }

    /// Creates the pod's directory, which its containers are given. Returns none if there is none, which is logged: the
    /// pod runs without it. Blocks on the file system.
    pub fn make_room(&self, uid: &PodUid) -> Option<PathBuf> {
        let dir = self.dir_of(uid)?;
        let made = self.dir.as_deref().map_or(Ok(()), |all| make(all, 0o711));
        match made.and_then(|()| make(&dir, 0o755)) {
            Ok(()) => Some(dir),
            Err(error) => {
                let path = dir.display();
                tracing::warn!(error = error_chain(&error), %path, "cannot notify a pod of its termination");
                None
            }
        }
    }

    /// Removes the directory of a pod that has stopped.
    pub fn forget<B: RunScope>(&self, entry: &PodEntry<B>) {
        // Held until the job is queued, as in `refresh`.
        let mut state = entry.lock();
        state.notice = None;
        self.hand_over(entry.uid(), Deed::Remove);
    }

    /// Notifies all of `pods` that the node is about to stop them, or (`None`) that it is not any more.
    pub fn announce<B: RunScope>(&self, ending: Option<Arc<NodeEnding>>, pods: &Pods<B>) {
        let known = self.announced.lock().replace(ending.clone());
        if known != Some(ending) {
            for entry in pods.all() {
                self.refresh(&entry);
            }
        }
    }

    /// The environment variables for the hooks of a pod that is being stopped.
    pub fn variables<B: RunScope>(&self, state: &EnginePodState<B>) -> Vec<(String, String)> {
        let told = state.ending.is_some().then(|| self.due(state)).flatten().flatten();
        let notice = told.and_then(|told| self.render(&told));
        notice.map(|notice| notice.variables()).unwrap_or_default()
    }

    /// Queues an update of the pod's file, if it is out of date. The receiver resolves when the update is done or
    /// dropped.
    pub(crate) fn refresh<B: RunScope>(
        &self,
        entry: &PodEntry<B>,
    ) -> Option<oneshot::Receiver<Infallible>> {
        self.dir.as_ref()?;
        // Held until the job is queued, so that later updates are queued later.
        let mut state = entry.lock();
        let due = self.due(&state)?;
        if state.notice.as_ref() == Some(&due) {
            return None;
        }
        state.notice = Some(due.clone());
        let notice = due.and_then(|told| self.render(&told));
        let json = notice.and_then(|notice| serde_json::to_vec(&notice).ok());
        self.hand_over(entry.uid(), json.map_or(Deed::Withdraw, Deed::Write))
    }

    /// Like [`refresh`](Self::refresh), and waits a moment for the update.
    pub(crate) async fn tell<B: RunScope>(&self, entry: &PodEntry<B>) {
        if let Some(done) = self.refresh(entry)
            && timeout(FILE_WRITE_TIMEOUT, done).await.is_err()
        {
            let pod = crate::pod::title(entry);
            tracing::warn!(%pod, "the pod terminates before it can read why: its notice is not written yet");
        }
    }

    /// Keeps the file up to date while the grace period of a stop is shortened. Never resolves.
    pub(crate) async fn follow<B: RunScope>(
        &self,
        entry: &PodEntry<B>,
        mut grace: Grace,
    ) -> Infallible {
        loop {
            grace.changed().await;
            self.refresh(entry);
        }
    }

    /// The content that the pod's file should have. None if that is unknown, so the file stays as it is.
    fn due<B: RunScope>(&self, state: &EnginePodState<B>) -> Option<Option<NoticeContent>> {
        let announced = self.announced.lock().clone();
        let all = announced.clone().flatten();
        let stop = state.ending.as_ref();
        if let Some((stop, own)) = stop.and_then(|stop| Some((stop, stop.reason()?))) {
            return Some(Some(NoticeContent { own: Some(own), all, until: stop.kill_at() }));
        }
        // A pod that survives the soft-reboot does not stop; if it must stop after all, it gets a notice of its own.
        let softly = |all: &Arc<NodeEnding>| all.node_action == Some(ShutdownKind::SoftReboot);
        match all.filter(|all| !(softly(all) && state.survives_soft_reboot())) {
            Some(all) => {
                Some(Some(NoticeContent { own: None, until: all.deadline, all: Some(all) }))
            }
            None => (announced.is_some() || state.notice.is_some()).then_some(None),
        }
    }

    fn render(
        &self,
        NoticeContent { own, all, until }: &NoticeContent,
    ) -> Option<TerminationNotice> {
        let left = until.saturating_duration_since(Instant::now());
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
        let clocks = (self.wall.now(), monotonic.unwrap_or_default());
        TerminationNotice::new(*own, all.as_deref(), left, clocks)
    }

    /// Queues a job; none if the pod has no directory.
    fn hand_over(&self, uid: &PodUid, deed: Deed) -> Option<oneshot::Receiver<Infallible>> {
        let (done, is_done) = oneshot::channel();
        let job = Job { dir: self.dir_of(uid)?, deed, _done: Some(done) };
        // The task only ends with the tokio runtime.
        let _ = self.queue.send(job);
        Some(is_done)
    }

    fn dir_of(&self, uid: &PodUid) -> Option<PathBuf> {
        files::is_safe(uid.as_str()).then(|| Some(self.dir.as_ref()?.join(uid.as_str()))).flatten()
    }
}

// === impl Job ===

impl Job {
    /// Returns whether it has to be tried again. A directory that cannot be removed is left: its pod is gone.
    fn carry_out(&mut self) -> bool {
        let path = self.dir.join(FILE);
        let done = match &self.deed {
            Deed::Write(json) => write(&self.dir, &path, json),
            Deed::Withdraw => fs::remove_file(&path),
            Deed::Remove => fs::remove_dir_all(&self.dir),
        };
        match done {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = path.display();
                tracing::warn!(error = error_chain(&error), %path, "cannot update a pod's termination notice");
                self._done = None;
                !matches!(self.deed, Deed::Remove)
            }
            _ => false,
        }
    }
}

/// Carries out the jobs in their order. Returns those to try again: no later one changes the same directory.
fn carry_out(jobs: Vec<Job>) -> Vec<Job> {
    let mut failed: HashMap<PathBuf, Job> = HashMap::new();
    for mut job in jobs {
        failed.remove(&job.dir);
        if job.carry_out() {
            failed.insert(job.dir.clone(), job);
        }
    }
    failed.into_values().collect()
}

fn write(dir: &Path, path: &Path, json: &[u8]) -> io::Result<()> {
    // A pod that is root on the host may have replaced the directory.
    if !fs::symlink_metadata(dir)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    replace(path, 0o644, Durability::Process, json)
}

/// Creates a directory with this mode, regardless of the umask.
fn make(dir: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests;
