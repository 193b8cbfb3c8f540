//! Tells each pod in a file why and when it will be stopped.
//!
//! ```text
//! NOTICES/UID/notice.json        an TerminationNotice, while the pod is about to be stopped
//! ```
//!
//! A pod reads its directory and writes nothing there: both directories belong to this agent. A pod whose containers
//! were started without a directory (by an agent that had none yet) gets no notice.
//!
//! One task writes all files, first those that a stop waits for, and of each pod the newest notice only. A notice that
//! could not be written (the disk is full) is tried again until a newer one is due.

mod content;
mod queue;

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
use winddown_shared::{
    Grace, Mutex, NodeEnding, PodUid, ShutdownKind, WallClock, WallTime, critical, error_chain,
};

use crate::files;
use crate::pod::{EnginePodState, NoticeContent, PodEntry, RunScope};
use crate::pods::Pods;
use crate::termination_notices::queue::{Deed, NoticeQueue, Turn};

pub use content::TerminationNotice;

/// The environment variable that gives the path of the file to containers and hooks.
pub const VARIABLE: &str = "WINDDOWN_NOTICE";
/// The name of the file in a pod's directory.
pub const FILE: &str = "notice.json";
/// How long the stop of a pod waits for its file: a thousand times what writing a file in memory takes.
const FILE_WRITE_TIMEOUT: Duration = Duration::from_millis(100);
/// Delay before jobs that failed are tried again.
const FAILED_JOBS_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Writes the termination notices of pods.
#[derive(Debug)]
pub struct TerminationNotices {
    dir: Option<PathBuf>,
    wall: WallClock,
    /// The announced end of all pods, if any; none before this agent has received the first announcement.
    announced: Mutex<Option<Option<Arc<NodeEnding>>>>,
    jobs: Arc<Mutex<NoticeQueue>>,
    /// Wakes the writer.
    due: mpsc::Sender<()>,
}

// === impl TerminationNotices ===

impl TerminationNotices {
    /// Starts the writer. It writes below `dir`, which should be in memory; without it pods have no files, and only
    /// their hooks get the notice. Must be called inside a tokio runtime.
    pub fn start(dir: Option<PathBuf>, wall: WallClock) -> Self {
        let (due, mut is_due) = mpsc::channel(1);
        let jobs = Arc::new(Mutex::new(NoticeQueue::default()));
        let of_writer = Arc::clone(&jobs);
        critical::spawn("writer of termination notices", async move {
            let mut failed = HashMap::new();
            loop {
                tokio::select! {
                    woken = is_due.recv() => if woken.is_none() { return },
                    () = sleep(FAILED_JOBS_RETRY_DELAY), if !failed.is_empty() => {}
                }
                of_writer.lock().add_again(std::mem::take(&mut failed));
                let jobs = Arc::clone(&of_writer);
                let work = move || queue::carry_out(&jobs);
                failed = tokio::task::spawn_blocking(work).await.unwrap_or_default();
            }
        });
        Self { dir, wall, announced: Mutex::default(), jobs, due }
    }

    /// The time of the clock that notices are written with.
    pub(crate) fn now(&self) -> WallTime {
        self.wall.now()
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
        self.hand_over(entry.uid(), Deed::Remove, Turn::Other);
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

    /// Queues an update of the pod's file, if it is out of date.
    pub(crate) fn refresh<B: RunScope>(&self, entry: &PodEntry<B>) {
        self.update(entry, Turn::Other);
    }

    /// The receiver resolves when the update is done, or fails.
    fn update<B: RunScope>(
        &self,
        entry: &PodEntry<B>,
        turn: Turn,
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
        self.hand_over(entry.uid(), json.map_or(Deed::Withdraw, Deed::Write), turn)
    }

    /// Like [`refresh`](Self::refresh), and waits a moment for the update.
    pub(crate) async fn tell<B: RunScope>(&self, entry: &PodEntry<B>) {
        if let Some(done) = self.update(entry, Turn::Awaited)
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
    fn hand_over(
        &self,
        uid: &PodUid,
        deed: Deed,
        turn: Turn,
    ) -> Option<oneshot::Receiver<Infallible>> {
        let done = self.jobs.lock().add(uid, self.dir_of(uid)?, deed, turn);
        // If the writer is woken already, it finds this job too.
        let _ = self.due.try_send(());
        Some(done)
    }

    fn dir_of(&self, uid: &PodUid) -> Option<PathBuf> {
        files::is_safe(uid.as_str()).then(|| Some(self.dir.as_ref()?.join(uid.as_str()))).flatten()
    }
}

/// Creates a directory with this mode, regardless of the umask.
fn make(dir: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests;
