//! Tells what root started on this machine itself from the processes of users and containers.
//!
//! A name, arguments and user 0 prove nothing: any user can start any program by any name, setuid programs among them, and
//! in most containers user 0 is the machine's root.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::kernel;
use super::proc_stat::ProcStat;
use super::process::{Users, is_setuid};
use super::unit_places::{UnitPlace, UnitPlaces};

/// How the kernel shows the names of the processes that hold containers, which it cuts after 15 bytes:
/// containerd-shim-runc-v2, containerd-shim-kata-v2; conmon, conmonrs.
const HOLDERS: [&str; 2] = ["containerd-shim", "conmon"];
/// More than a process has.
const MAX_ANCESTORS: usize = 32;

/// Why nobody may believe what a process is called and was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outsider {
    /// A user started it, if only a setuid program by another name.
    OfUser(u32),
    /// Its program is a setuid program: whoever started it chose its name and arguments.
    Setuid,
    /// It runs in a container.
    InContainer,
}

/// For people: the end of a sentence about the process.
impl fmt::Display for Outsider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfUser(uid) => write!(f, "user {uid} started it"),
            Self::Setuid => f.write_str("it is a setuid program, which any user can start"),
            Self::InContainer => f.write_str("it runs in a container"),
        }
    }
}

/// Why a process is none that root, or this process's user, started on this machine itself; `None` if it is one. What
/// cannot be read of it says nothing against it. Blocks for no longer than `/proc` does.
///
/// # Errors
/// The process is gone, or `/proc` cannot be read.
pub fn outsider(proc: &Path, pid: u32) -> io::Result<Option<Outsider>> {
    let process = &proc.join(pid.to_string());
    let users = Users::of(process)?;
    let own = rustix::process::geteuid().as_raw();
    if !users.are_all(0) && !users.are_all(own) {
        let ids = [users.real, users.effective, users.saved, users.filesystem];
        let user = ids.into_iter().find(|id| *id != 0).unwrap_or_default();
        return Ok(Some(Outsider::OfUser(user)));
    }
    if is_in_container(proc, pid) {
        return Ok(Some(Outsider::InContainer));
    }
    Ok(is_setuid(process).then_some(Outsider::Setuid))
}

/// Whether processes of this name hold containers.
pub fn holds_containers(name: &[u8]) -> bool {
    HOLDERS.iter().any(|holder| name.starts_with(holder.as_bytes()))
}

/// Each sign alone misses some: a pod may have the machine's PID namespace, and kill the process that holds it. A service of
/// the system may have a file tree of its own (snaps) or be a container (Quadlet).
fn is_in_container(proc: &Path, pid: u32) -> bool {
    if is_in_other_namespace(proc, pid, "pid") || is_in_other_namespace(proc, pid, "user") {
        return true;
    }
    let process = &proc.join(pid.to_string());
    if matches!(UnitPlaces::of(proc).find(&pid.to_string()), UnitPlace::Service(_))
        && !is_below_pods(process)
    {
        return false;
    }
    // This process may be in a container of its own, which shares the machine's PID namespace.
    let known: Vec<_> = ["self", "1"].into_iter().filter_map(|one| tree(&proc.join(one))).collect();
    let is_elsewhere = |tree| !known.is_empty() && !known.contains(&tree);
    let held_here = holder(proc, "self");
    let is_held = holder(proc, &pid.to_string()).is_some_and(|by| held_here != Some(by));
    tree(process).is_some_and(is_elsewhere) || is_held
}

/// Whether a process is in another namespace than this one, of the kind that `/proc/PID/ns` calls `kind`. What cannot be read
/// is no other.
pub fn is_in_other_namespace(proc: &Path, pid: u32, kind: &str) -> bool {
    let namespace = |process: &str| std::fs::read_link(proc.join(process).join("ns").join(kind));
    let both = namespace("self").ok().zip(namespace(&pid.to_string()).ok());
    both.is_some_and(|(here, there)| here != there)
}

/// Whether one of its cgroups has the name of the kubelet's for pods, or of a container of any parent where containerd and
/// runc have different drivers of cgroups: `PARENT:cri:ID`, below containerd's service.
fn is_below_pods(process: &Path) -> bool {
    let groups = kernel::read(process.join("cgroup")).unwrap_or_default();
    let is_pods =
        |name: &[u8]| name.starts_with(b"kubepods") || name.windows(5).any(|part| part == b":cri:");
    groups.split(|byte| b"/\n".contains(byte)).any(is_pods)
}

/// What identifies the root directory of a process. A sandbox of a unit leaves it the same, as opposed to the mount
/// namespace. A server of files is not asked: it may be the container's own, and never answer.
fn tree(process: &Path) -> Option<(u32, u32, u64)> {
    let found = statx(CWD, process.join("root"), AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

/// The nearest ancestor that holds containers.
fn holder(proc: &Path, process: &str) -> Option<u32> {
    let mut process = process.to_owned();
    for _ in 0..MAX_ANCESTORS {
        let stat = kernel::read(proc.join(&process).join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        let pid: u32 =
            ProcStat::new(&stat).and_then(|stat| stat.field(4)).filter(|pid| *pid > 1)?;
        process = pid.to_string();
        let name = kernel::read(proc.join(&process).join("comm"));
        if name.is_ok_and(|name| holds_containers(&name)) {
            return Some(pid);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Process 9 of root's, of a service, among processes 1 and `self`.
    fn machine() -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir_all(proc.path().join("machine")).unwrap();
        for process in ["1", "9", "self"] {
            put(&proc, &format!("{process}/status"), &format!("Uid:{}", "\t0".repeat(4)));
            fs::create_dir(proc.path().join(process).join("ns")).unwrap();
            link(&proc, &format!("{process}/ns/pid"), "pid:[1]");
            link(&proc, &format!("{process}/ns/user"), "user:[1]");
            link(&proc, &format!("{process}/root"), "../machine");
        }
        put(&proc, "1/cgroup", "0::/init.scope\n");
        put(&proc, "9/cgroup", "0::/system.slice\n");
        put(&proc, "9/stat", "9 (kubelet) S 1 0");
        proc
    }

    fn put(proc: &tempfile::TempDir, file: &str, text: &str) {
        let path = proc.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(proc: &tempfile::TempDir, file: &str, to: &str) {
        let path = proc.path().join(file);
        let _ = fs::remove_file(&path);
        symlink(to, path).unwrap();
    }

    fn said(proc: &tempfile::TempDir) -> Option<Outsider> {
        outsider(proc.path(), 9).unwrap()
    }

    #[test]
    fn root_of_a_container_is_not_the_machines_whatever_it_shares() {
        let in_container = Some(Outsider::InContainer);
        let proc = machine();
        assert_eq!(said(&proc), None);
        for (namespace, other) in [("9/ns/pid", "pid:[2]"), ("9/ns/user", "user:[2]")] {
            let proc = machine();
            link(&proc, namespace, other);
            assert_eq!(said(&proc), in_container, "{namespace}");
        }
        // In the machine's PID namespace, below a shim that k3s started.
        put(&proc, "9/stat", "9 (kubelet) S 8 0");
        put(&proc, "8/stat", "8 (sh) S 7 0");
        put(&proc, "7/stat", "7 (a) b) S 6 0");
        put(&proc, "7/comm", "containerd-shim\n");
        assert_eq!(said(&proc), in_container);
        // This process is in the same container.
        put(&proc, "self/stat", "5 (winddownd) S 7 0");
        assert_eq!(said(&proc), None);
        fs::remove_file(proc.path().join("self/stat")).unwrap();
        // It has killed its shim, and process 1 is its parent.
        put(&proc, "9/stat", "9 (kubelet) S 1 0");
        assert_eq!(said(&proc), None);
        fs::create_dir(proc.path().join("image")).unwrap();
        link(&proc, "9/root", "../image");
        assert_eq!(said(&proc), in_container);
        // This process is in a container as well: in another one, in the same one.
        link(&proc, "self/root", "../9");
        assert_eq!(said(&proc), in_container);
        link(&proc, "self/root", "../image");
        assert_eq!(said(&proc), None);
    }

    #[test]
    fn a_service_with_a_file_tree_of_its_own_and_an_unseen_process_are_the_machines() {
        let proc = machine();
        put(&proc, "image/x", "");
        link(&proc, "9/root", "../image");
        put(&proc, "9/cgroup", "0::/system.slice/snap.microk8s.daemon-kubelite.service\n");
        assert_eq!(said(&proc), None);
        put(&proc, "9/cgroup", "0::/system.slice/containerd.service/kubepods-pod1.slice:cri:1\n");
        assert_eq!(said(&proc), Some(Outsider::InContainer));
        put(&proc, "9/cgroup", "0::/system.slice/containerd.service/winddown-pod1:cri:1\n");
        assert_eq!(said(&proc), Some(Outsider::InContainer));
        let proc = machine();
        for unseen in ["9/root", "9/ns/pid", "9/ns/user", "9/cgroup"] {
            fs::remove_file(proc.path().join(unseen)).unwrap();
        }
        assert_eq!(said(&proc), None);
        assert!(outsider(proc.path(), 10).is_err(), "it is gone");
    }

    #[test]
    fn this_process_is_its_own_users() {
        assert_eq!(outsider(Path::new("/proc"), std::process::id()).unwrap(), None);
    }
}
