//! What is to be changed in the pods' directories.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::oneshot;
use winddown_host::{Durability, if_exists, replace};
use winddown_shared::{Mutex, PodUid, error_chain};

use super::FILE;

/// The newest job of each pod. A node with many pods has one of each when it goes down, and then those of the pods that
/// are stopped first: these are carried out first, and once. A pod may stand in both lines, and more than once.
#[derive(Debug, Default)]
pub(super) struct NoticeQueue {
    newest: HashMap<PodUid, NoticeJob>,
    awaited: VecDeque<PodUid>,
    others: VecDeque<PodUid>,
}

/// A change in a pod's directory.
#[derive(Debug)]
pub(super) struct NoticeJob {
    dir: PathBuf,
    deed: Deed,
    /// Dropped when the job is done, or has failed for the first time.
    done: Vec<oneshot::Sender<Infallible>>,
}

#[derive(Debug)]
pub(super) enum Deed {
    Write(Vec<u8>),
    /// Removes the file.
    Withdraw,
    /// Removes the directory. Nothing that is due later takes its place.
    Remove,
}

/// Whether a stop waits for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Awaited,
    Other,
}

// === impl NoticeQueue ===

impl NoticeQueue {
    /// Adds a job, in the place of an older one of the pod. The receiver resolves when it is done, or a newer one in its
    /// place, or if it fails.
    pub(super) fn add(
        &mut self,
        uid: &PodUid,
        dir: PathBuf,
        deed: Deed,
        turn: Turn,
    ) -> oneshot::Receiver<Infallible> {
        let (done, is_done) = oneshot::channel();
        let job = match self.newest.entry(uid.clone()) {
            Entry::Occupied(older) => {
                let job = older.into_mut();
                if !matches!(job.deed, Deed::Remove) {
                    job.deed = deed;
                }
                job
            }
            Entry::Vacant(none) => {
                self.others.push_back(uid.clone());
                none.insert(NoticeJob { dir, deed, done: Vec::new() })
            }
        };
        job.done.push(done);
        if turn == Turn::Awaited {
            self.awaited.push_back(uid.clone());
        }
        is_done
    }

    /// Adds jobs that failed, unless a newer one of the same pod is due.
    pub(super) fn add_again(&mut self, failed: HashMap<PodUid, NoticeJob>) {
        for (uid, job) in failed {
            if let Entry::Vacant(none) = self.newest.entry(uid) {
                self.others.push_back(none.key().clone());
                none.insert(job);
            }
        }
    }

    fn next(&mut self) -> Option<(PodUid, NoticeJob)> {
        loop {
            let uid = self.awaited.pop_front().or_else(|| self.others.pop_front())?;
            if let Some(job) = self.newest.remove(&uid) {
                return Some((uid, job));
            }
        }
    }
}

/// Carries out all jobs, and those that are added meanwhile. Returns those to try again.
pub(super) fn carry_out(jobs: &Mutex<NoticeQueue>) -> HashMap<PodUid, NoticeJob> {
    let mut failed: HashMap<PodUid, NoticeJob> = HashMap::new();
    let next = || jobs.lock().next();
    while let Some((uid, mut job)) = next() {
        failed.remove(&uid);
        if job.carry_out() {
            failed.insert(uid, job);
        }
    }
    failed
}

// === impl NoticeJob ===

impl NoticeJob {
    /// Returns whether it has to be tried again. A directory that cannot be removed is left: its pod is gone.
    fn carry_out(&mut self) -> bool {
        let path = self.dir.join(FILE);
        let done = match &self.deed {
            Deed::Write(json) => write(&self.dir, &path, json),
            Deed::Withdraw => fs::remove_file(&path),
            Deed::Remove => fs::remove_dir_all(&self.dir),
        };
        match if_exists(done) {
            Err(error) => {
                let path = path.display();
                tracing::warn!(error = error_chain(&error), %path, "cannot update a pod's termination notice");
                self.done.clear();
                !matches!(self.deed, Deed::Remove)
            }
            Ok(_) => false,
        }
    }
}

fn write(dir: &Path, path: &Path, json: &[u8]) -> io::Result<()> {
    // A pod that is root on the host may have replaced the directory.
    if !fs::symlink_metadata(dir)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    replace(path, 0o644, Durability::Process, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(mut jobs: NoticeQueue) -> Vec<(String, String)> {
        let shown = |(uid, job): (PodUid, NoticeJob)| {
            let deed = match job.deed {
                Deed::Write(json) => String::from_utf8(json).unwrap(),
                deed => format!("{deed:?}"),
            };
            (uid.to_string(), deed)
        };
        std::iter::from_fn(|| jobs.next()).map(shown).collect()
    }

    /// Adds a job that writes `text`.
    fn add(
        jobs: &mut NoticeQueue,
        uid: &str,
        text: &str,
        turn: Turn,
    ) -> oneshot::Receiver<Infallible> {
        jobs.add(&PodUid::new(uid), PathBuf::from(uid), Deed::Write(text.into()), turn)
    }

    #[test]
    fn a_stop_waits_for_its_own_notice_and_not_for_those_of_all_pods() {
        let mut jobs = NoticeQueue::default();
        for uid in ["a", "b", "c"] {
            drop(add(&mut jobs, uid, "node", Turn::Other));
        }
        for uid in ["c", "b"] {
            drop(add(&mut jobs, uid, "own", Turn::Awaited));
        }
        let expected = [("c", "own"), ("b", "own"), ("a", "node")];
        assert_eq!(order(jobs), expected.map(|(uid, text)| (uid.to_owned(), text.to_owned())));
    }

    #[test]
    fn who_waits_for_an_older_notice_waits_for_the_one_in_its_place() {
        let mut jobs = NoticeQueue::default();
        let mut older = add(&mut jobs, "a", "30 s", Turn::Awaited);
        let mut newer = add(&mut jobs, "a", "5 s", Turn::Other);
        let empty = Err(oneshot::error::TryRecvError::Empty);
        assert_eq!((older.try_recv(), newer.try_recv()), (empty.clone(), empty));
        assert_eq!(order(jobs), [("a".to_owned(), "5 s".to_owned())]);
        let closed = Err(oneshot::error::TryRecvError::Closed);
        assert_eq!((older.try_recv(), newer.try_recv()), (closed.clone(), closed));
    }

    #[test]
    fn nothing_is_written_for_a_pod_that_is_gone_and_a_failed_job_makes_way_for_a_newer_one() {
        let mut jobs = NoticeQueue::default();
        let gone = PodUid::new("gone");
        drop(jobs.add(&gone, PathBuf::new(), Deed::Remove, Turn::Other));
        drop(add(&mut jobs, "gone", "late", Turn::Other));
        drop(add(&mut jobs, "a", "older", Turn::Other));
        let failed: HashMap<_, _> = std::iter::from_fn(|| jobs.next()).skip(1).collect();
        drop(jobs.add(&gone, PathBuf::new(), Deed::Remove, Turn::Other));
        drop(add(&mut jobs, "a", "newer", Turn::Other));
        jobs.add_again(failed);
        let expected = [("gone", "Remove"), ("a", "newer")];
        assert_eq!(order(jobs), expected.map(|(uid, text)| (uid.to_owned(), text.to_owned())));
    }

    #[test]
    fn a_stop_does_not_wait_longer_because_an_earlier_notice_failed() {
        let mut jobs = NoticeQueue::default();
        drop(add(&mut jobs, "a", "30 s", Turn::Awaited));
        let failed: HashMap<_, _> = std::iter::from_fn(|| jobs.next()).collect();
        drop(add(&mut jobs, "b", "node", Turn::Other));
        jobs.add_again(failed);
        drop(add(&mut jobs, "a", "5 s", Turn::Awaited));
        let expected = [("a", "5 s"), ("b", "node")];
        assert_eq!(order(jobs), expected.map(|(uid, text)| (uid.to_owned(), text.to_owned())));
    }
}
