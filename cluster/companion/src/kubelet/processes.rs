//! Finds processes by name in `/proc`. Blocks.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use winddown_host::{Users, is_setuid, regular};

use super::control_group::{UnitPlace, place};
use super::distributions::KUBELET;

/// Names of kubelets, and of programs that contain one, as the kernel shows them.
pub const KUBELETS: [&str; 6] =
    ["kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "microshift"];

/// Maximum number of bytes read from a command line.
const MAX_PROC_FILE_BYTES: u64 = 64 * 1024;

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletProcess {
    /// The PID.
    pub pid: u32,
    /// The name, as the kernel shows it.
    pub name: String,
}

/// Why a process that has the name of a kubelet is not the kubelet of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// A user started it, if only a setuid program by another name.
    OfUser(u32),
    /// Its program is a setuid program: whoever started it chose its name and arguments.
    Setuid,
    /// It is in another PID namespace: a container, whose kubelet is that of another node.
    InContainer,
    /// It runs in a session, or in a service of a user's own systemd.
    InSession,
    /// It belongs to no service, although systemd runs this machine.
    InNoService,
}

/// For people: the end of a sentence about the process.
impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfUser(uid) => write!(f, "user {uid} started it"),
            Self::Setuid => f.write_str("it is a setuid program, which any user can start"),
            Self::InContainer => f.write_str("it runs in a container"),
            Self::InSession => f.write_str("it runs in a user's session"),
            Self::InNoService => f.write_str("it belongs to no service of systemd"),
        }
    }
}

/// A process that has the name of a kubelet, with the service that it belongs to (`None` on a machine without systemd).
pub(super) struct KubeletCandidate {
    pub(super) process: KubeletProcess,
    pub(super) unit: Result<Option<String>, Stranger>,
}

/// The processes with these names, sorted by PID.
///
/// # Errors
/// `/proc` cannot be read.
pub fn named(root: &Path, names: &[&str]) -> io::Result<Vec<KubeletProcess>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join("proc"))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have exited since.
        let comm = entry.path().join("comm");
        let Ok(name) = regular::read_to_string(&comm, MAX_PROC_FILE_BYTES) else { continue };
        if names.contains(&name.trim_end()) {
            found.push(KubeletProcess { pid, name: name.trim_end().to_owned() });
        }
    }
    found.sort_by_key(|process| process.pid);
    Ok(found)
}

/// The running kubelets of this node.
///
/// # Errors
/// As [`named`].
pub fn kubelets(root: &Path) -> io::Result<Vec<KubeletProcess>> {
    let found = candidates(root)?.into_iter().filter(|found| found.unit.is_ok());
    Ok(found.map(|found| found.process).collect())
}

/// Processes that have the name of a kubelet and are not the kubelet of this node, and why not.
///
/// # Errors
/// As [`named`].
pub fn strangers(root: &Path) -> io::Result<Vec<(KubeletProcess, Stranger)>> {
    let found = candidates(root)?.into_iter();
    Ok(found.filter_map(|found| found.unit.err().map(|why| (found.process, why))).collect())
}

/// The service of the running kubelet, if that is its main process: systemd started it. In a service of the usual name, it
/// may have been started by way of a script.
///
/// # Errors
/// As [`named`].
pub(super) fn own_service(root: &Path) -> io::Result<Option<String>> {
    let is_own = |found: &KubeletCandidate, unit: &str| {
        let parent = parent_and_start(root, found.process.pid).0;
        let is_kubelet = KUBELET.processes.contains(&&*found.process.name);
        is_kubelet && (parent == 1 || KUBELET.units.contains(&unit))
    };
    let mut found = candidates(root)?.into_iter();
    Ok(found.find_map(|found| {
        let unit = found.unit.clone().ok()??;
        is_own(&found, &unit).then_some(unit)
    }))
}

pub(super) fn candidates(root: &Path) -> io::Result<Vec<KubeletCandidate>> {
    let found = named(root, &KUBELETS)?.into_iter();
    // Whoever is gone since, or cannot be looked at, is left out.
    Ok(found
        .filter_map(|process| {
            let unit = judge(&root.join("proc"), process.pid).ok()?;
            Some(KubeletCandidate { process, unit })
        })
        .collect())
}

/// Finds the service of a process, if it is the kubelet of this node: a program of root's that root started, in a
/// service of the system. Any user can start any program by any name and with any arguments; among them setuid programs,
/// which belong to root from then on, and some of which (sudo) take all of root's IDs before they ask for a password.
fn judge(proc: &Path, pid: u32) -> io::Result<Result<Option<String>, Stranger>> {
    let process = proc.join(pid.to_string());
    let users = Users::of(&process)?;
    let own = rustix::process::geteuid().as_raw();
    if !users.are_all(0) && !users.are_all(own) {
        let ids = [users.real, users.effective, users.saved, users.filesystem];
        let user = ids.into_iter().find(|id| *id != 0).unwrap_or_default();
        return Ok(Err(Stranger::OfUser(user)));
    }
    if !is_of_here(proc, &process) {
        return Ok(Err(Stranger::InContainer));
    }
    if is_setuid(&process) {
        return Ok(Err(Stranger::Setuid));
    }
    let groups =
        |process: &Path| regular::read_to_string(&process.join("cgroup"), MAX_PROC_FILE_BYTES);
    let manager = groups(&proc.join("1")).unwrap_or_default();
    Ok(match place(&groups(&process).unwrap_or_default(), &manager) {
        UnitPlace::Service(unit) => Ok(Some(unit)),
        UnitPlace::OfUser => Err(Stranger::InSession),
        UnitPlace::Elsewhere if proc.join("../run/systemd/system").is_dir() => {
            Err(Stranger::InNoService)
        }
        UnitPlace::Elsewhere => Ok(None),
    })
}

/// Whether the process is in this PID namespace: a kubelet in a container belongs to another node. If its
/// namespace cannot be read, it counts as this node's.
fn is_of_here(proc: &Path, process: &Path) -> bool {
    let namespace = |process: &Path| fs::read_link(process.join("ns/pid")).ok();
    match (namespace(&proc.join("self")), namespace(process)) {
        (Some(here), Some(there)) => here == there,
        _ => true,
    }
}

/// The parent of a process and the time at which it started, in ticks since the boot; zeros if it is gone.
pub(super) fn parent_and_start(root: &Path, pid: u32) -> (u32, u64) {
    let stat = root.join(format!("proc/{pid}/stat"));
    let text = regular::read_to_string(&stat, MAX_PROC_FILE_BYTES).unwrap_or_default();
    // The name, in parentheses, may contain anything.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let parent = fields.get(1).and_then(|field| field.parse().ok());
    let start = fields.get(19).and_then(|field| field.parse().ok());
    (parent.unwrap_or_default(), start.unwrap_or_default())
}

/// The arguments of a process, without its name; empty if it is gone or cannot be read.
pub(super) fn arguments(root: &Path, pid: u32) -> Vec<String> {
    let file = root.join(format!("proc/{pid}/cmdline"));
    let Ok(bytes) = regular::read_first(&file, MAX_PROC_FILE_BYTES) else { return Vec::new() };
    bytes
        .split(|&byte| byte == 0)
        .skip(1)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}
