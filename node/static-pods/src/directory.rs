//! The directory as a source of pods: waits for changes, scans, publishes.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_host::{OthersMayWrite, Trusted, beat, others_may_write_besides};
use winddown_shared::{Mutex, display::clean};
use winddown_shared::{WallClock, error_chain};

use super::file::EntryRole;
use super::problem_log::ProblemLog;
use super::scan::{SETTLE_TIME, Scanner};
use super::watch::{self as events, DirectoryWatch};
use super::{DesiredManifests, ManifestProblem};

/// Delay between an event and the scan, so that files written together are seen together.
const DEBOUNCE_DELAY: Duration = Duration::from_millis(50);
/// Minimum delay between two scans, however many events there are.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(200);
/// A file system that takes longer than this to answer is reported.
const SLOW_SCAN: Duration = Duration::from_secs(10);
/// The first state waits for files that have yet to settle, for at most this many scans. A file that is written to all
/// the time does not delay the others forever.
const FIRST_LOOKS: u32 = 4;

/// Watches a directory of manifests and publishes the pods that it defines.
///
/// Created together with its receiver by [`ManifestDirectory::new`]; works while [`ManifestDirectory::run`] is polled.
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
    /// Creates a source for the manifests in `directory`, which need not exist yet.
    ///
    /// `rescan` is the interval between scans without a reported change; unchanged files are not read again. The
    /// receiver starts with generation 0: nothing is known yet.
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

    /// Keeps in `file` which manifests have the name of another's pod, so that the next agent leaves the pod that runs as
    /// it is. The file is to be lost with the boot. Blocking.
    #[must_use]
    pub fn kept_in(self, file: PathBuf) -> Self {
        self.scanner.lock().keep_in(file);
        self
    }

    /// Scans at once, then whenever something changes, until `stop` is cancelled.
    ///
    /// Needs a tokio runtime with I/O and time. A file system that hangs blocks a thread of the blocking pool, not this
    /// future.
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
                    let next = tokio::select! {
                        () = stop.cancelled() => return,
                        next = self.look(&mut watch, std::mem::take(&mut closed), may_hold) => next,
                    };
                    let now = Instant::now();
                    earliest = now + MIN_SCAN_INTERVAL;
                    due = (now + next.min(self.rescan)).min(beat::due(now, self.rescan));
                }
                complete = watch.next(&self.directory) => {
                    closed.extend(complete);
                    due = due.min(earliest.max(Instant::now() + DEBOUNCE_DELAY));
                }
            }
        }
    }

    /// Scans once and publishes the result. Returns after what time another scan is due at the latest.
    ///
    /// With `may_hold`, nothing is published if this would be the first state and files have yet to settle: their pods
    /// may run already, and would seem unwanted.
    async fn look(
        &mut self,
        watch: &mut DirectoryWatch,
        closed: HashSet<OsString>,
        may_hold: bool,
    ) -> Duration {
        let (scanner, watcher) = (Arc::clone(&self.scanner), watch.watcher());
        let wall = self.wall.now();
        let now = Instant::now();
        let mut work = tokio::task::spawn_blocking(move || {
            // A scan that panicked leaves nothing half-done that the next one would not redo.
            let mut scanner = scanner.lock();
            let attached = watcher.map(|watcher| events::attach(watcher, scanner.directory()));
            let unsettled = scanner.scan(&closed, now, wall);
            let empty = scanner.until_empty(wall).unwrap_or(Duration::MAX);
            // A directory that cannot be listed is reported as a problem anyway.
            let others =
                others_may_write(&Trusted::default(), scanner.directory()).unwrap_or_default();
            (attached, unsettled, empty, scanner.desired(wall), others)
        });
        let done = match tokio::time::timeout(SLOW_SCAN, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                self.report_silence();
                work.await
            }
        };
        match done {
            Ok((attached, unsettled, empty, desired, others)) => {
                watch.attached(attached.unwrap_or_default());
                self.warn_of(others);
                let first = self.desired.borrow().generation == 0;
                if !(first && unsettled && may_hold) {
                    self.publish(desired);
                }
                if unsettled { SETTLE_TIME } else { empty }
            }
            Err(error) => {
                tracing::error!(error = error_chain(&error), "cannot read the manifests; retrying");
                Duration::MAX
            }
        }
    }

    /// Warns about other users who may write, when that has changed.
    fn warn_of(&mut self, others: Vec<OthersMayWrite>) {
        if let Some(first) = others.first()
            && others != self.others
        {
            let more = match others.len() {
                1 => String::new(),
                many => format!(", and {} more", many - 1),
            };
            let first = clean(&first.to_string()).into_owned();
            tracing::warn!(
                "{first}{more}: anyone who can write manifests can run programs as root; \
                 `winddown doctor` says what to do"
            );
        }
        self.others = others;
    }

    fn publish(&mut self, mut desired: DesiredManifests) {
        // There is no other writer, so the current value cannot change before it is replaced.
        let current = Arc::clone(&self.desired.borrow());
        self.problem_log.log(&current.errors, &desired.errors, Instant::now());
        if current.generation == 0 || !is_same(&current, &desired) {
            desired.generation = current.generation + 1;
            self.desired.send_replace(Arc::new(desired));
        }
    }

    /// Reports that the file system does not answer: everything stays as it was, but is no longer certain.
    fn report_silence(&mut self) {
        let current = Arc::clone(&self.desired.borrow());
        let mut desired = DesiredManifests { complete: false, awaited: true, ..(*current).clone() };
        let what = format!(
            "the file system has not answered for {} s: its pods are kept",
            SLOW_SCAN.as_secs()
        );
        let silence = ManifestProblem::of_file(&self.directory, &what, true, self.wall.now());
        desired.errors.insert(0, silence);
        self.publish(desired);
    }
}

/// Finds what users other than root, this process's own and `trusted` may write: the directory, what leads to it, and each
/// manifest in it. Blocking.
///
/// # Errors
/// The directory, or what leads to it, cannot be looked at.
pub fn others_may_write(trusted: &Trusted, directory: &Path) -> io::Result<Vec<OthersMayWrite>> {
    let look = |path: &Path| others_may_write_besides(trusted, Path::new("/"), path);
    let directory = std::path::absolute(directory)?;
    let mut found = look(&directory)?;
    let mut entries = std::fs::read_dir(&directory)?
        .map(|entry| entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?))))
        .collect::<io::Result<Vec<_>>>()?;
    entries.retain(|(name, _)| EntryRole::of(name) == EntryRole::Manifest);
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, kind) in entries {
        // The way to all but a link is the directory's.
        let others = match kind.is_symlink() {
            true => look(&directory.join(name)),
            false => others_may_write_besides(trusted, &directory, Path::new(&name)),
        };
        // What cannot be looked at cannot be read either, and that is reported.
        for one in others.unwrap_or_default() {
            if one.path != directory && !found.contains(&one) {
                found.push(one);
            }
        }
    }
    Ok(found)
}

fn is_same(a: &DesiredManifests, b: &DesiredManifests) -> bool {
    let same_pods = || a.pods.iter().zip(&b.pods).all(|(a, b)| a.is_same_object(b));
    let same_extent = (a.complete, a.awaited) == (b.complete, b.awaited);
    same_extent && a.pods.len() == b.pods.len() && a.errors == b.errors && same_pods()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn each_manifest_is_looked_at_with_the_directories_above_what_its_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (pods, real) = (dir.join("pods"), dir.join("real"));
        fs::create_dir(&pods).unwrap();
        fs::create_dir(&real).unwrap();
        for file in ["pods/a.yaml", "pods/.hidden", "real/b.yaml"] {
            fs::write(dir.join(file), "").unwrap();
            mode(&dir.join(file), 0o644);
        }
        symlink("loop.yaml", pods.join("loop.yaml")).unwrap();
        symlink("../real/b.yaml", pods.join("b.yaml")).unwrap();
        [&pods, &real].into_iter().for_each(|dir| mode(dir, 0o755));
        let said = || {
            let found = others_may_write(&Trusted::default(), &pods).unwrap();
            let line = |one: &OthersMayWrite| one.to_string().replace(dir.to_str().unwrap(), "");
            found.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(said(), [""; 0]);
        mode(&pods.join(".hidden"), 0o666);
        assert_eq!(said(), [""; 0], "no pod comes from it");
        mode(&real, 0o777);
        mode(&pods.join("a.yaml"), 0o666);
        mode(&pods, 0o777);
        let every = "every user may write to it";
        let wanted = ["/pods", "/pods/a.yaml", "/real"].map(|path| format!("{path}: {every}"));
        assert_eq!(said(), wanted);
        assert!(others_may_write(&Trusted::default(), &dir.join("none")).is_err());
    }
}
