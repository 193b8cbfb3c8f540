//! The directory as a source of pods: waits, looks, publishes.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_shared::{WallClock, error_chain};

use super::problem_log::ProblemLog;
use super::scan::{SETTLE, Scanner};
use super::watch::{self as events, DirectoryWatch};
use super::writers::{OthersMayWrite, others_may_write};
use super::{DesiredManifests, ManifestProblem};

/// Between an event and the look: what is written together is seen together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Between two looks, however many events there are.
const PAUSE: Duration = Duration::from_millis(200);
/// A file system that takes longer than this to answer is reported.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first state waits for files that have yet to settle, for at most this many looks. A file
/// that is written to all the time does not hold up the others for ever.
const FIRST_LOOKS: u32 = 4;

/// Watches a directory of manifests and publishes what it asks for.
///
/// Made with its receiver by [`ManifestDirectory::new`]; works while [`ManifestDirectory::run`] is
/// polled.
pub struct ManifestDirectory {
    directory: PathBuf,
    scanner: Arc<Mutex<Scanner>>,
    rescan: Duration,
    wall: WallClock,
    desired: watch::Sender<Arc<DesiredManifests>>,
    problem_log: ProblemLog,
    others: Vec<OthersMayWrite>,
}

impl ManifestDirectory {
    /// A source for the manifests in `directory`, which need not exist yet.
    ///
    /// `rescan` is how often it is looked through although nothing told that it changed; files that
    /// did not change are not read again. The receiver starts with generation 0: nothing known yet.
    pub fn new(
        directory: PathBuf,
        node_name: &str,
        rescan: Duration,
        wall: WallClock,
    ) -> (Self, watch::Receiver<Arc<DesiredManifests>>) {
        let (desired, receiver) = watch::channel(Arc::default());
        let scanner = Scanner::new(directory.clone(), node_name.to_owned());
        let scanner = Arc::new(Mutex::new(scanner));
        let problem_log = ProblemLog::default();
        (
            Self { directory, scanner, rescan, wall, desired, problem_log, others: Vec::new() },
            receiver,
        )
    }

    /// Looks at once, then whenever something changes, until `stop` is cancelled.
    ///
    /// Needs a tokio runtime with I/O and time. A file system that hangs holds up a thread of the
    /// blocking pool, not this future.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut watch = DirectoryWatch::open();
        let mut closed = HashSet::new();
        let (mut due, mut earliest) = (Instant::now(), Instant::now());
        let mut looks = 0_u32;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep_until(due) => {
                    looks = looks.saturating_add(1);
                    let may_hold = looks < FIRST_LOOKS;
                    let unsettled = tokio::select! {
                        () = stop.cancelled() => return,
                        unsettled = self.look(&mut watch, std::mem::take(&mut closed), may_hold) =>
                            unsettled,
                    };
                    let now = Instant::now();
                    earliest = now + PAUSE;
                    due = now + if unsettled { SETTLE } else { self.rescan };
                }
                complete = watch.next(&self.directory) => {
                    closed.extend(complete);
                    due = due.min(earliest.max(Instant::now() + DEBOUNCE));
                }
            }
        }
    }

    /// One look, and its publication. Says whether another one is due soon.
    ///
    /// `may_hold` allows to publish nothing yet, when this would be the first state and files have
    /// yet to settle: their pods may run already, and would seem unwanted.
    async fn look(
        &mut self,
        watch: &mut DirectoryWatch,
        closed: HashSet<OsString>,
        may_hold: bool,
    ) -> bool {
        let (scanner, watcher) = (Arc::clone(&self.scanner), watch.watcher());
        let wall = self.wall.now();
        let now = Instant::now();
        let mut work = tokio::task::spawn_blocking(move || {
            // A look that panicked leaves nothing half-done that the next one would not redo.
            let mut scanner = scanner.lock().unwrap_or_else(PoisonError::into_inner);
            let attached = watcher.map(|watcher| events::attach(watcher, scanner.directory()));
            let unsettled = scanner.scan(&closed, now, wall);
            // A directory that cannot be listed is among the problems.
            let others = others_may_write(scanner.directory()).unwrap_or_default();
            (attached, unsettled, scanner.desired(wall), others)
        });
        let done = match tokio::time::timeout(PATIENCE, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                self.report_silence();
                work.await
            }
        };
        match done {
            Ok((attached, unsettled, desired, others)) => {
                watch.attached(attached.unwrap_or_default());
                self.warn_of(others);
                let first = self.desired.borrow().generation == 0;
                if !(first && unsettled && may_hold) {
                    self.publish(desired);
                }
                unsettled
            }
            Err(error) => {
                tracing::error!(
                    error = error_chain(&error),
                    "looking through the manifests failed; it is tried again"
                );
                false
            }
        }
    }

    /// Says who else may write, when that has changed.
    fn warn_of(&mut self, others: Vec<OthersMayWrite>) {
        if let Some(first) = others.first()
            && others != self.others
        {
            let more = match others.len() {
                1 => String::new(),
                many => format!(", and {} more", many - 1),
            };
            tracing::warn!(
                "{first}{more}: who may write manifests runs programs as root; \
                 `winddown doctor` says what to do"
            );
        }
        self.others = others;
    }

    fn publish(&mut self, mut desired: DesiredManifests) {
        // There is no other writer: what is read here is still so when it is replaced.
        let current = Arc::clone(&self.desired.borrow());
        self.problem_log.log(&current.errors, &desired.errors, Instant::now());
        if current.generation == 0 || !is_same(&current, &desired) {
            desired.generation = current.generation + 1;
            self.desired.send_replace(Arc::new(desired));
        }
    }

    /// Everything stays as it was, but is no longer certain.
    fn report_silence(&mut self) {
        let current = Arc::clone(&self.desired.borrow());
        let mut desired = DesiredManifests { complete: false, ..(*current).clone() };
        let what = format!(
            "the file system has not answered for {} s: its pods are kept",
            PATIENCE.as_secs()
        );
        let silence = ManifestProblem::of_file(&self.directory, &what, true, self.wall.now());
        desired.errors.insert(0, silence);
        self.publish(desired);
    }
}

fn is_same(a: &DesiredManifests, b: &DesiredManifests) -> bool {
    let same_pods = || a.pods.iter().zip(&b.pods).all(|(a, b)| a.is_same_object(b));
    a.complete == b.complete
        && a.pods.len() == b.pods.len()
        && a.errors == b.errors
        && a.ignored == b.ignored
        && same_pods()
}
