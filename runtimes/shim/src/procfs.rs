//! Inspects and signals other processes through `/proc` and pidfds.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use winddown_host::{ProcStat, Users, is_setuid, kernel, outsider};

use super::record::ProcessIdentity;

/// Environment variable that marks every process of a pod.
pub const POD_MARK: &str = "WINDDOWN_POD_UID";
/// Environment variable that marks every process of a container.
pub const CONTAINER_MARK: &str = "WINDDOWN_CONTAINER";

/// A process, held by a pidfd, so that a process with a reused pid is never mistaken for it.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    fd: OwnedFd,
}

/// The fields of `/proc/PID/stat` that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `D`, `Z`, …
    pub state: char,
    /// The parent's pid.
    pub parent: i32,
    /// The number of threads that have not exited; the first one counts even if it has.
    pub threads: u64,
    /// The start time in clock ticks since boot. Together with the pid it identifies one process of a boot.
    pub start_time: u64,
    /// Whether it is just loading a program: for that moment it has no environment.
    pub is_loading: bool,
}

/// Flag of a kernel thread, which never has an environment.
const PF_KTHREAD: u64 = 0x0020_0000;

/// How many times a process that is loading a program is checked again, 1 ms apart.
const LOADING_ROUNDS: usize = 200;

/// How long reading of one process may take before it is passed over. Halved with each that was, down to the other one:
/// a server may have many clients.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
const LOOK_PATIENCE_AT_LAST: Duration = Duration::from_millis(30);

/// How many times processes are listed again to find new ones: on a machine that starts processes all the time, the
/// search must still end.
const NEWCOMER_ROUNDS: usize = 16;

impl Process {
    /// Opens the process that was seen; none if it is gone, even if its pid was reused.
    ///
    /// # Errors
    /// The kernel refuses for another reason than that the process does not exist.
    pub fn open(proc_root: &Path, seen: ProcessIdentity) -> io::Result<Option<Self>> {
        let Some(process) = Self::open_any(seen.pid)? else { return Ok(None) };
        // Read after opening: the pidfd pins the process whose start time this is.
        let stat = stat(proc_root, seen.pid)?;
        Ok(stat.filter(|stat| stat.start_time == seen.start_time).map(|_| process))
    }

    /// Opens whatever process has this pid now.
    ///
    /// # Errors
    /// The kernel refuses for another reason than that the process does not exist.
    pub fn open_any(pid: i32) -> io::Result<Option<Self>> {
        let Some(raw) = Pid::from_raw(pid) else { return Ok(None) };
        match pidfd_open(raw, PidfdFlags::NONBLOCK) {
            Ok(fd) => Ok(Some(Self { pid, fd })),
            // The last two (from newer and older kernels) mean that the number now belongs to a thread: the process is
            // gone.
            Err(Errno::SRCH | Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Its pid, for people.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Duplicates the file descriptor, to wait on it.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Sends `signal`; false if the process is gone.
    ///
    /// # Errors
    /// The kernel refuses for another reason.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reaps a child of ours that has exited, so that no zombie remains.
    pub fn reap(&self) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // ECHILD: not our child (adopted after a restart); its parent reaps it.
        let _ = waitid(WaitId::PidFd(self.fd.as_fd()), options);
    }

    /// Blocks until the process has exited, for at most `for_ms` milliseconds. Returns false if it still runs.
    pub fn ended_within(&self, for_ms: u16) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let timeout = Timespec {
            tv_sec: i64::from(for_ms / 1000),
            tv_nsec: i64::from(for_ms % 1000) * 1_000_000,
        };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&timeout)), Ok(n) if n > 0)
    }
}

impl Stat {
    /// Whether no thread of the process runs. A process whose first thread alone has exited looks like a zombie but
    /// still runs.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads < 2
    }
}

/// Reads `/proc/PID/stat`; none if there is no such process.
///
/// # Errors
/// The file exists but cannot be read.
pub fn stat(proc_root: &Path, pid: i32) -> io::Result<Option<Stat>> {
    match kernel::read_to_string(proc_root.join(pid.to_string()).join("stat")) {
        Ok(text) => Ok(parse_stat(&text)),
        Err(e) if is_gone(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The kernel's id of this boot; empty if it has none. In a container, a service with a `/proc` of its own sees the host's.
pub fn boot_id(proc_root: &Path) -> String {
    kernel::read_to_string(proc_root.join("sys/kernel/random/boot_id"))
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// Finds all running processes whose environment carries the container's marks.
///
/// Only for use when the supervisor is gone: a process that cleared its environment is not found here, whereas the
/// supervisor, as its subreaper, finds it.
///
/// Every user can read the names in the marks and give them to processes. If the container has `cgroups`, only root can
/// have taken a process out of them, so processes of other users than this program's do not count. Without any, all do.
///
/// # Errors
/// The processes cannot be listed, or it is unknown whether one of them carries the marks.
pub fn marked(
    proc_root: &Path,
    (pod_uid, container): (&str, &str),
    cgroups: &[PathBuf],
) -> io::Result<Vec<ProcessIdentity>> {
    let pod = format!("{POD_MARK}={pod_uid}");
    let container = format!("{CONTAINER_MARK}={container}");
    let root = proc_root.to_owned();
    let look = move |pid: i32| {
        let environ = environ(&root, pid)?;
        let has = |wanted: &str| environ.split(|&b| b == 0).any(|v| v == wanted.as_bytes());
        (has(&pod) && has(&container)).then_some(pid)
    };
    let look: Look<i32> = Arc::new(look);
    let may_be_ours =
        |pid: &i32| cgroups.is_empty() || users_are_own(&proc_root.join(pid.to_string()));
    let is_ours = |pid: &i32| cgroups.is_empty() || !is_setuid(&proc_root.join(pid.to_string()));
    let (mut looked_at, mut found) = (BTreeSet::new(), Vec::new());
    // Includes processes that started during the search: one of them may be the child of a process that was gone before
    // it was checked.
    for _ in 0..NEWCOMER_ROUNDS {
        let new: Vec<i32> = pids(proc_root)?.filter(|pid| looked_at.insert(*pid)).collect();
        if new.is_empty() {
            break;
        }
        let seen = look_at(new.into_iter().filter(may_be_ours).collect(), &look)?;
        if !seen.unseen.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let marked = seen.found.into_iter().filter(is_ours);
        found.extend(marked.filter_map(|pid| Some(living(proc_root, pid)?.0)));
    }
    Ok(found)
}

/// Finds the supervisors that run, each with the directory of its attempt: the processes that this program's user started
/// on the machine itself and whose last arguments are `run DIR`. Other users can start such processes too, even setuid ones
/// (`su root run DIR`), and so can containers.
/// A process whose arguments cannot be read in time is none: a supervisor opens no files of others.
///
/// # Errors
/// The processes cannot be listed.
pub fn supervisors(proc_root: &Path) -> io::Result<Vec<(ProcessIdentity, PathBuf)>> {
    let root = proc_root.to_owned();
    let of = move |pid: i32| {
        let dir = root.join(pid.to_string());
        if !users_are_own(&dir) {
            return None;
        }
        let line = kernel::read(dir.join("cmdline")).ok()?;
        let mut words = line.strip_suffix(b"\0")?.rsplit(|&byte| byte == 0);
        let attempt = PathBuf::from(OsStr::from_bytes(words.next()?));
        let is_one =
            words.next()? == b"run" && outsider(&root, pid.try_into().ok()?).ok()?.is_none();
        is_one.then_some((living(&root, pid)?.0, attempt))
    };
    let of: Look<_> = Arc::new(of);
    Ok(look_at(pids(proc_root)?.collect(), &of)?.found)
}

/// Whether the process has this program's user in all roles. If its program is not setuid, that user started it.
fn users_are_own(process: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    Users::of(process).is_ok_and(|users| users.are_all(user))
}

/// What is read of a process.
type Look<T> = Arc<dyn Fn(i32) -> Option<T> + Send + Sync>;

struct SeenProcesses<T> {
    found: Vec<T>,
    /// The processes of which nothing could be read in time.
    unseen: Vec<i32>,
}

/// Reads of these processes what may have to be waited for. For arguments and environment the kernel needs a lock, which a
/// process that maps a file keeps until the file's server answers: then `ps` hangs, and no agent may.
///
/// # Errors
/// No thread is left to read with.
fn look_at<T: Send + 'static>(pids: VecDeque<i32>, look: &Look<T>) -> io::Result<SeenProcesses<T>> {
    let (mut left, mut patience) = (pids, LOOK_PATIENCE);
    let mut seen = SeenProcesses { found: Vec::new(), unseen: Vec::new() };
    while !left.is_empty() {
        let (tell, told) = mpsc::channel();
        let (pids, look) = (left.clone(), Arc::clone(look));
        // Reads on alone if it has to wait, and ends then.
        let read = move || pids.into_iter().try_for_each(|pid| tell.send(look(pid)));
        std::thread::Builder::new().spawn(read)?;
        while let Ok(found) = told.recv_timeout(patience) {
            left.pop_front();
            seen.found.extend(found);
        }
        seen.unseen.extend(left.pop_front());
        patience = (patience / 2).max(LOOK_PATIENCE_AT_LAST);
    }
    Ok(seen)
}

/// The oldest child of a process: a supervisor's is its container's main process.
///
/// # Errors
/// The processes cannot be listed.
pub fn oldest_child(proc_root: &Path, parent: i32) -> io::Result<Option<ProcessIdentity>> {
    let children = pids(proc_root)?.filter_map(|pid| living(proc_root, pid));
    let children = children.filter(|&(_, of)| of == parent).map(|(child, _)| child);
    Ok(children.min_by_key(|child| (child.start_time, child.pid)))
}

/// Finds all running descendants of `root`, without `root` itself.
///
/// # Errors
/// The processes cannot be listed.
pub fn descendants(proc_root: &Path, root: i32) -> io::Result<Vec<ProcessIdentity>> {
    let living = pids(proc_root)?.filter_map(|pid| living(proc_root, pid));
    let mut all: Vec<(i32, ProcessIdentity)> =
        living.map(|(seen, parent)| (parent, seen)).collect();
    all.sort_unstable();
    let mut parents = vec![root];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        let from = all.partition_point(|&(p, _)| p < parent);
        let children = all[from..].iter().take_while(|&&(p, _)| p == parent);
        for (_, child) in children {
            parents.push(child.pid);
            found.push(*child);
        }
    }
    Ok(found)
}

/// Returns a process and its parent, unless it is a zombie.
fn living(proc_root: &Path, pid: i32) -> Option<(ProcessIdentity, i32)> {
    let stat = stat(proc_root, pid).ok()??;
    let seen = ProcessIdentity { pid, start_time: stat.start_time };
    (!stat.has_ended()).then_some((seen, stat.parent))
}

/// Lists the pids of all processes.
///
/// # Errors
/// The processes cannot be listed, which does not mean that there are none.
pub fn pids(proc_root: &Path) -> io::Result<impl Iterator<Item = i32>> {
    let entries = std::fs::read_dir(proc_root)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// Reads the environment of a process, once it has loaded its program; if its first thread has exited, from another
/// thread. May block for as long as a program takes to load.
fn environ(proc_root: &Path, pid: i32) -> Option<Vec<u8>> {
    let dir = proc_root.join(pid.to_string());
    for _ in 0..LOADING_ROUNDS {
        // Before the environment: if the program is loaded by now, the environment read next is its own.
        let before = stat(proc_root, pid).ok()??;
        let environ = kernel::read(dir.join("environ"));
        if environ.as_ref().is_ok_and(|environ| !environ.is_empty()) {
            return environ.ok();
        }
        if before.threads > 1 {
            let threads = std::fs::read_dir(dir.join("task")).ok()?.flatten();
            let mut environs = threads.filter_map(|t| kernel::read(t.path().join("environ")).ok());
            return environs.find(|environ| !environ.is_empty());
        }
        environ.ok()?;
        let after = stat(proc_root, pid).ok()??;
        if !before.is_loading && !after.is_loading {
            return None;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "/proc is searched where blocking is allowed"
        )]
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Parses the content of `/proc/PID/stat`.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let stat = ProcStat::new(text)?;
    let (state, flags) = (stat.field(3)?, stat.field::<u64>(9)?);
    let has_no_environ = stat.field::<u64>(51) == Some(0);
    let is_loading = has_no_environ && flags & PF_KTHREAD == 0 && !matches!(state, 'Z' | 'X');
    Some(Stat {
        state,
        parent: stat.field(4)?,
        threads: stat.field(20)?,
        start_time: stat.field(22)?,
        is_loading,
    })
}

fn is_gone(error: &io::Error) -> bool {
    // ESRCH: the process exited between opening and reading the file.
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_command_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "42 (a) b (c)) S 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 123456 1 1\n";
        let expected =
            Stat { state: 'S', parent: 7, threads: 3, start_time: 123_456, is_loading: false };
        assert_eq!(parse_stat(text), Some(expected));
    }

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        for (state, threads, expected) in
            [('S', 1, false), ('Z', 1, true), ('X', 0, true), ('Z', 2, false), ('R', 9, false)]
        {
            let stat = Stat { state, parent: 1, threads, start_time: 1, is_loading: false };
            assert_eq!(stat.has_ended(), expected, "{state} {threads}");
        }
    }

    /// The environment of a process of the container.
    const MARKS: &str = "WINDDOWN_POD_UID=u\0WINDDOWN_CONTAINER=main\0";

    /// Creates process 42 in a hand-made `/proc`. `end_of_environ` is 0 while a program is being loaded.
    fn enter(proc_root: &Path, environ: &str, state: char, flags: u64, end_of_environ: u64) {
        let dir = proc_root.join("42");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("environ"), environ).unwrap();
        // Replaced atomically, as in the kernel.
        let zeros = "0 ".repeat(28);
        let text = format!(
            "42 (sh) {state} 1 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 7 {zeros}{end_of_environ} 0\n"
        );
        std::fs::write(dir.join("stat.new"), text).unwrap();
        std::fs::rename(dir.join("stat.new"), dir.join("stat")).unwrap();
    }

    #[test]
    fn a_supervisor_is_a_process_that_its_user_started_and_no_setuid_program() {
        let own = rustix::process::geteuid().as_raw();
        let other = own + 1;
        for (real, mode, arguments, expected) in [
            (own, 0o755, "winddown-shim\0run\0/s/u/main/0\0", true),
            (own, 0o755, "winddown-shim\0log\0/s/u/main/0\0", false),
            (other, 0o4755, "su\0root\0run\0/s/u/main/0\0", false),
            // As sudo has them while it asks for a password.
            (own, 0o4755, "sudo\0run\0/s/u/main/0\0", false),
        ] {
            let proc_root = tempfile::tempdir().unwrap();
            enter(proc_root.path(), "", 'S', 0, 99);
            of_user(proc_root.path(), (real, own), mode);
            std::fs::write(proc_root.path().join("42/cmdline"), arguments).unwrap();
            let found = supervisors(proc_root.path()).unwrap();
            assert_eq!(!found.is_empty(), expected, "{arguments}");
        }
    }

    #[test]
    fn a_container_with_the_arguments_of_a_supervisor_is_none() {
        let own = rustix::process::geteuid().as_raw();
        for (namespace, expected) in [("pid:[1]", true), ("pid:[2]", false)] {
            let proc_root = tempfile::tempdir().unwrap();
            enter(proc_root.path(), "", 'S', 0, 99);
            of_user(proc_root.path(), (own, own), 0o755);
            std::fs::write(proc_root.path().join("42/cmdline"), "sh\0run\0/s/u/main/0\0").unwrap();
            for (process, namespace) in [("42", namespace), ("self", "pid:[1]")] {
                let dir = proc_root.path().join(process).join("ns");
                std::fs::create_dir_all(&dir).unwrap();
                std::os::unix::fs::symlink(namespace, dir.join("pid")).unwrap();
            }
            let found = supervisors(proc_root.path()).unwrap();
            assert_eq!(!found.is_empty(), expected, "{namespace}");
        }
    }

    /// The kernel lets such a process' memory be read when the file server answers.
    #[test]
    fn a_process_that_waits_for_a_file_server_keeps_no_search_from_the_others() {
        let proc_root = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        for waits in [true, false] {
            enter(proc_root.path(), MARKS, 'S', 0, 99);
            of_user(proc_root.path(), (own, own), 0o755);
            let process = proc_root.path().join("42");
            std::fs::write(process.join("cmdline"), "shim\0run\0/s/u/main/0\0").unwrap();
            if waits {
                for file in ["cmdline", "environ"] {
                    std::fs::remove_file(process.join(file)).unwrap();
                    let mode = nix::sys::stat::Mode::S_IRWXU;
                    nix::unistd::mkfifo(&process.join(file), mode).unwrap();
                }
                std::fs::rename(&process, proc_root.path().join("41")).unwrap();
            }
        }
        let (tell, told) = std::sync::mpsc::channel();
        let root = proc_root.path().to_owned();
        std::thread::spawn(move || {
            let marked = marked(&root, ("u", "main"), &[]);
            tell.send((supervisors(&root).unwrap(), marked.map_err(|error| error.kind())))
        });
        let (supervisors, marked) = told.recv_timeout(Duration::from_secs(20)).unwrap();
        let seen = ProcessIdentity { pid: 42, start_time: 7 };
        assert_eq!(supervisors, [(seen, PathBuf::from("/s/u/main/0"))]);
        assert_eq!(marked, Err(io::ErrorKind::TimedOut), "it may be one of the container");
    }

    #[test]
    fn another_users_process_with_the_marks_is_none_of_a_container_with_cgroups() {
        let own = rustix::process::geteuid().as_raw();
        let cgroups = [PathBuf::from("/sys/fs/cgroup/pod-u/main.0")];
        for (user, mode, cgroups, expected) in [
            (own, 0o755, &cgroups[..], true),
            (own + 1, 0o755, &cgroups[..], false),
            (own, 0o4755, &cgroups[..], false),
            // A container that runs as root may have children of any user, and there is nothing else to know them by.
            (own + 1, 0o755, &[], true),
        ] {
            let proc_root = tempfile::tempdir().unwrap();
            enter(proc_root.path(), MARKS, 'S', 0, 99);
            of_user(proc_root.path(), (user, user), mode);
            let found = marked(proc_root.path(), ("u", "main"), cgroups).unwrap();
            assert_eq!(!found.is_empty(), expected, "{user} {mode:o} {cgroups:?}");
        }
    }

    /// Gives process 42 its real and its other users, and its program's mode.
    fn of_user(proc_root: &Path, (real, other): (u32, u32), mode: u32) {
        let dir = proc_root.join("42");
        let ids = format!("Uid:\t{real}\t{other}\t{other}\t{other}\n");
        std::fs::write(dir.join("status"), ids).unwrap();
        std::fs::write(dir.join("exe"), "").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(dir.join("exe"), mode).unwrap();
    }

    #[test]
    fn a_process_that_is_loading_its_program_is_not_overlooked() {
        let proc_root = tempfile::tempdir().unwrap();
        enter(proc_root.path(), "", 'R', 0, 0);
        let marked = std::thread::scope(|scope| {
            let search = scope.spawn(|| marked(proc_root.path(), ("u", "main"), &[]).unwrap());
            enter(proc_root.path(), "", 'R', 0, 0);
            enter(proc_root.path(), MARKS, 'S', 0, 99);
            search.join().unwrap()
        });
        assert_eq!(marked, [ProcessIdentity { pid: 42, start_time: 7 }]);
    }

    #[test]
    fn a_child_that_came_after_the_list_of_a_parent_that_went_before_its_turn_is_found() {
        let proc_root = tempfile::tempdir().unwrap();
        let (parent, child) = (proc_root.path().join("41"), proc_root.path().join("42"));
        enter(proc_root.path(), "", 'S', 0, 99);
        std::fs::rename(&child, &parent).unwrap();
        let environ = parent.join("environ");
        std::fs::remove_file(&environ).unwrap();
        nix::unistd::mkfifo(&environ, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let marked = std::thread::scope(|scope| {
            let search = scope.spawn(|| marked(proc_root.path(), ("u", "main"), &[]).unwrap());
            // Blocks until the search reads it, which is after it listed the processes.
            let turn = std::fs::File::options().write(true).open(&environ).unwrap();
            enter(proc_root.path(), MARKS, 'S', 0, 99);
            std::fs::remove_dir_all(&parent).unwrap();
            drop(turn);
            search.join().unwrap()
        });
        assert_eq!(marked, [ProcessIdentity { pid: 42, start_time: 7 }]);
    }

    #[test]
    fn only_a_process_that_will_have_an_environment_is_waited_for() {
        let proc_root = tempfile::tempdir().unwrap();
        for (state, flags, end_of_environ) in
            [('S', 0, 99), ('I', PF_KTHREAD, 0), ('Z', 0, 0), ('X', 0, 0)]
        {
            enter(proc_root.path(), "", state, flags, end_of_environ);
            let stat = stat(proc_root.path(), 42).unwrap().unwrap();
            assert!(!stat.is_loading, "{state} {flags} {end_of_environ}");
            assert_eq!(environ(proc_root.path(), 42), None);
        }
        enter(proc_root.path(), "", 'R', 0, 0);
        assert!(stat(proc_root.path(), 42).unwrap().unwrap().is_loading);
    }

    #[test]
    fn a_number_that_is_a_threads_by_now_is_no_process() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = ended.recv();
        });
        assert!(Process::open_any(told.recv().unwrap()).unwrap().is_none());
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_cut_off_stat_line_is_no_stat() {
        for text in ["", "42 (a", "42 (a) S", "42 (a) S 1 2 3"] {
            assert_eq!(parse_stat(text), None, "{text:?}");
        }
    }

    #[test]
    fn our_own_process_is_found_by_pid_and_start_time_and_not_with_another_start_time() {
        let proc_root = Path::new("/proc");
        let pid = i32::try_from(std::process::id()).unwrap();
        let start = stat(proc_root, pid).unwrap().unwrap().start_time;
        let open =
            |start_time| Process::open(proc_root, ProcessIdentity { pid, start_time }).unwrap();
        assert!(open(start).is_some());
        assert!(open(start + 1).is_none());
    }
}
