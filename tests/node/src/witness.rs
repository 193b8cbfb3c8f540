//! Witnesses that watch while the faults strike. The kernel notifies them, so they depend on no other program.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::pods::SCRIPT;
use crate::scenario::TestResult;
use crate::{Node, TestPod};

/// Nanoseconds since 1970, on the clock that node and host share.
pub(crate) type At = u64;

/// A process of a pod.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) pod: String,
    /// When the kernel reported its exit.
    pub(crate) ended: Option<At>,
}

/// The directory with a file for each lock that logind has granted.
const LOCKS: &str = "/run/systemd/inhibit";

/// The current time, on the clock that node and host share.
pub(crate) fn now() -> At {
    let now = clock_gettime(ClockId::Realtime);
    let nanoseconds = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    At::try_from(nanoseconds).unwrap_or(0)
}

/// A thread blocked in poll(2): it records events when they happen, however busy the test is otherwise. Dropping it
/// stops the thread.
#[derive(Debug)]
struct PollThread {
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

// === impl PollThread ===

impl PollThread {
    /// Calls `told` with the number of each descriptor that becomes readable, until it returns false for that
    /// descriptor.
    fn open(
        fds: Vec<OwnedFd>,
        mut told: impl FnMut(usize, &OwnedFd) -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let ended = Arc::clone(&end);
        let listen = move || {
            go_first();
            let mut open: BTreeSet<usize> = (0..fds.len()).collect();
            loop {
                let numbers: Vec<usize> = open.iter().copied().collect();
                let all = std::iter::once(&*ended).chain(numbers.iter().map(|n| &fds[*n]));
                let mut polled: Vec<PollFd<'_>> =
                    all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
                match poll(&mut polled, None) {
                    // The test's children exit all the time, each with a signal.
                    Err(Errno::INTR) => continue,
                    Ok(_) => {}
                    Err(_) => return,
                }
                let is_stopped = !polled[0].revents().is_empty();
                let ready =
                    numbers.iter().zip(&polled[1..]).filter(|(_, p)| !p.revents().is_empty());
                for (number, _) in ready {
                    if !told(*number, &fds[*number]) {
                        open.remove(number);
                    }
                }
                // Only now: what happened before has to be recorded.
                if is_stopped {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("poll".to_owned()).spawn(listen)?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for PollThread {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Has this thread run before all others, those of nodes too, whose control groups have more shares than its own: on a busy
/// machine it noted an exit 0.2 s too late.
fn go_first() {
    let thread = rustix::thread::gettid().to_string();
    // Not where this is refused: events are then noted as soon as they can be.
    let _ = Command::new("chrt").args(["--fifo", "--pid", "1", &thread]).output();
}

/// Watches whether logind lists winddown's lock.
#[derive(Debug)]
pub(crate) struct LockWatch {
    seen: Arc<Mutex<Vec<(At, bool)>>>,
    _thread: PollThread,
}

// === impl LockWatch ===

impl LockWatch {
    /// Starts watching, on a running node.
    pub(crate) async fn start(node: &Node) -> TestResult<Self> {
        node.run(&["mkdir", "-p", "-m", "0755", LOCKS]).await?;
        let folder = node.host_path(LOCKS);
        let inotify = inotify::init(CreateFlags::CLOEXEC)?;
        let changes = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CLOSE_WRITE;
        inotify::add_watch(&inotify, &folder, changes)?;
        let seen = Arc::new(Mutex::new(vec![(now(), is_held(&folder))]));
        let told = Arc::clone(&seen);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let thread = PollThread::open(vec![inotify], move |_, inotify| {
            // The state is read from the folder; the events only say when to read it.
            let drained = inotify::Reader::new(inotify, &mut buffer).next().is_ok();
            let held = is_held(&folder);
            let mut seen = locked(&told);
            if seen.last().is_none_or(|(_, before)| *before != held) {
                seen.push((now(), held));
            }
            drained
        })?;
        Ok(Self { seen, _thread: thread })
    }

    /// Since when the lock has been held, if it is held.
    pub(crate) fn held_since(&self) -> Option<At> {
        locked(&self.seen).last().filter(|(_, held)| *held).map(|(at, _)| *at)
    }

    /// All changes so far.
    pub(crate) fn seen(&self) -> Vec<(At, bool)> {
        locked(&self.seen).clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether one of the files is for a lock of winddown.
fn is_held(folder: &Path) -> bool {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A lock's file has a number as its name. Other files are still being written, or are pipes, whose reads would
    // block until the lock is released.
    let is_number = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let whole = files.filter(|file| is_number(&file.file_name()));
    let mut texts = whole.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    texts.any(|text| {
        let has = |line: &str| text.lines().any(|other| other == line);
        has("WHO=winddown") && has("MODE=delay")
    })
}

/// Watches the processes of pods exit.
#[derive(Debug, Default)]
pub(crate) struct PodWatch {
    lives: Arc<Mutex<Vec<Life>>>,
    threads: Vec<PollThread>,
}

// === impl PodWatch ===

impl PodWatch {
    /// Watches the first processes of all current pods.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn add(&mut self, node: &Node, pods: &[TestPod]) -> std::io::Result<()> {
        // Processes that are already watched are found again. One that exits meanwhile is watched twice rather than not
        // at all.
        let processes = node.processes_with(SCRIPT);
        self.threads.clear();
        let mut lives = locked(&self.lives);
        lives.retain(|life| life.ended.is_some());
        let first = lives.len();
        let (mut known, mut fds) = (BTreeSet::new(), Vec::new());
        for (process, arguments) in processes {
            let Some(pod) = pod_of(&arguments, pods) else { continue };
            // Only the oldest one counts; a shell that is about to exec looks like its parent.
            if known.insert(&pod.name) {
                lives.push(Life { pod: pod.name.clone(), ended: None });
                fds.push(OwnedFd::from(process));
            }
        }
        drop(lives);
        let lives = Arc::clone(&self.lives);
        self.threads.push(PollThread::open(fds, move |number, _| {
            locked(&lives)[first + number].ended = Some(now());
            false
        })?);
        Ok(())
    }

    /// The processes so far.
    pub(crate) fn seen(&self) -> Vec<Life> {
        locked(&self.lives).clone()
    }
}

/// The number of first processes of each pod.
pub(crate) fn processes(node: &Node, pods: &[TestPod]) -> BTreeMap<String, usize> {
    let mut count: BTreeMap<String, usize> = pods.iter().map(|pod| (pod.name.clone(), 0)).collect();
    for (_, arguments) in node.processes_with(SCRIPT) {
        if let Some(pod) = pod_of(&arguments, pods) {
            *count.entry(pod.name.clone()).or_default() += 1;
        }
    }
    count
}

/// The pod whose first process has these arguments. A shim has the command among its arguments too, but not at the
/// start.
fn pod_of<'a>(arguments: &[String], pods: &'a [TestPod]) -> Option<&'a TestPod> {
    pods.iter().find(|pod| arguments.starts_with(&pod.command()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_happened_before_a_watch_ends_is_recorded() {
        let first = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        let later = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let trigger = later.try_clone().unwrap();
        let (entered, has_entered) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let watch = PollThread::open(vec![first, later], move |number, _| {
            locked(&told).push(number);
            if number == 0 {
                entered.send(()).unwrap();
                may_go_on.recv().unwrap();
            }
            false
        });
        // The thread is busy when the second event comes, and then the end.
        let watch = watch.unwrap();
        has_entered.recv().unwrap();
        let one = 1_u64.to_ne_bytes();
        rustix::io::write(&trigger, &one).unwrap();
        rustix::io::write(&watch.end, &one).unwrap();
        go_on.send(()).unwrap();
        drop(watch);
        assert_eq!(*locked(&seen), [0, 1]);
    }
}
