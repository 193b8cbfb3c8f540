//! Finds processes by name in `/proc`. Blocks.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use winddown_host::{
    Outsider, UnitPlace, UnitPlaces, is_in_other_namespace, kernel, outsider, regular,
};

use super::distributions::{DISTRIBUTIONS, Distribution, KUBELET, of_process, of_program, of_unit};
use super::edited::is_edited_since;
use super::unit;

/// Maximum number of bytes read from a command line.
const MAX_PROC_FILE_BYTES: u64 = 64 * 1024;
/// More than a kubelet's process has.
const MAX_ANCESTORS: usize = 32;

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
    /// It is a user's or in a container.
    Outsider(Outsider),
    /// It runs in a session, or in a service of a user's own systemd.
    InSession,
    /// It belongs to no service that is known, although systemd runs this machine. It may be the kubelet all the same.
    InNoService,
}

/// For people: the end of a sentence about the process.
impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outsider(why) => why.fmt(f),
            Self::InSession => f.write_str("it runs in a user's session"),
            Self::InNoService => f.write_str("it belongs to no service of systemd"),
        }
    }
}

/// The processes that have the name of a kubelet, sorted by PID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedKubelets {
    /// The running kubelets of this node.
    pub kubelets: Vec<KubeletProcess>,
    /// Those that are not the kubelet of this node, and why not.
    pub strangers: Vec<(KubeletProcess, Stranger)>,
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

/// The processes that have the name of a kubelet, each judged once.
///
/// # Errors
/// As [`named`].
pub fn kubelets(root: &Path) -> io::Result<NamedKubelets> {
    let mut found = NamedKubelets::default();
    for KubeletCandidate { process, unit } in candidates(root)? {
        match unit {
            Ok(_) => found.kubelets.push(process),
            Err(why) => found.strangers.push((process, why)),
        }
    }
    Ok(found)
}

/// The service of the running kubelet, if that is its main process: systemd started it. In a service of the usual name, it
/// may have been started by way of a script.
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
    let names: Vec<&str> = DISTRIBUTIONS.iter().flat_map(|one| one.processes).copied().collect();
    let found = named(root, &names)?.into_iter();
    // Whoever is gone since, or cannot be looked at, is left out.
    Ok(found
        .filter_map(|process| {
            let unit = judge(root, &process).ok()?;
            let own = unit.as_ref().ok().and_then(Option::as_ref);
            let is_kubelet = own.is_none_or(|unit| contains_kubelet(root, &process, unit));
            is_kubelet.then_some(KubeletCandidate { process, unit })
        })
        .collect())
}

/// Whether a process of the unit is a kubelet, or of a program that was not told to contain none: what changed since its
/// start counts for the next one.
fn contains_kubelet(root: &Path, process: &KubeletProcess, unit: &str) -> bool {
    let program = of_process(&process.name).filter(|one| **one != KUBELET);
    program.is_none_or(|program| {
        let start = unit::start(root, unit).ok().flatten();
        !start.is_some_and(|start| {
            let (_, ticks) = parent_and_start(root, process.pid);
            program.is_without_kubelet(root, &start)
                && !is_edited_since(root, ticks, &program.sources(root, &start))
        })
    })
}

/// Finds the service of a process, if it is the kubelet of this node: a program that root started on the machine itself, in a
/// service of the system. In a container that root's own docker or podman runs here, it may be the kubelet all the same.
fn judge(root: &Path, found: &KubeletProcess) -> io::Result<Result<Option<String>, Stranger>> {
    match outsider(&root.join("proc"), found.pid)? {
        Some(Outsider::InContainer) if is_in_roots_container(root, found.pid) => {
            return Ok(Err(Stranger::InNoService));
        }
        Some(why) => return Ok(Err(Stranger::Outsider(why))),
        None => {}
    }
    Ok(match place_of(root, found.pid) {
        UnitPlace::OfUser => Err(Stranger::InSession),
        UnitPlace::Elsewhere if !root.join("run/systemd/system").is_dir() => Ok(None),
        group => service_of(root, found, group).map(Some).ok_or(Stranger::InNoService),
    })
}

/// Whether the control group is one of docker's or podman's, and of no pod, and the process is in this PID namespace: in
/// another, it is the kubelet of another node (kind).
fn is_in_roots_container(root: &Path, pid: u32) -> bool {
    if is_in_other_namespace(&root.join("proc"), pid, "pid") {
        return false;
    }
    let groups = kernel::read(root.join(format!("proc/{pid}/cgroup"))).unwrap_or_default();
    let has = |prefix: &str| {
        let mut names = groups.split(|byte| b"/\n".contains(byte));
        names.any(|name| name.starts_with(prefix.as_bytes()))
    };
    (has("docker-") || has("libpod-")) && !has("kubepods")
}

/// The service in which systemd started a process. Its control group is no more than a hint: a kubelet moves itself to
/// where `kubeletCgroups:` says, and k0s moves its own into another program's service. `None` if nobody can say.
fn service_of(root: &Path, found: &KubeletProcess, group: UnitPlace) -> Option<String> {
    let first = started_by_systemd(root, found.pid);
    if let Some(first) = first.filter(|first| *first != found.pid)
        && let UnitPlace::Service(unit) = place_of(root, first)
        && started_by(root, &unit).is_some()
    {
        return Some(unit);
    }
    match group {
        UnitPlace::Service(unit) => Some(unit),
        UnitPlace::OfUser | UnitPlace::Elsewhere => {
            let is_its = |one: &Distribution| one.processes.contains(&&*found.name);
            if first != Some(found.pid) {
                return None;
            }
            let units = unit::services(root).map(|(unit, _)| unit);
            let mut units = units.filter(|unit| started_by(root, unit).is_some_and(is_its));
            units.next().filter(|_| units.next().is_none())
        }
    }
}

/// The distribution whose kubelet a service starts, if it starts one.
fn started_by(root: &Path, unit: &str) -> Option<&'static Distribution> {
    let start = unit::start(root, unit).transpose()?;
    of_unit(unit).or_else(|| of_program(&start.ok()?.program))
}

/// Of a process and its ancestors, the one that process 1 started; `None` if one of them is gone.
fn started_by_systemd(root: &Path, mut pid: u32) -> Option<u32> {
    for _ in 0..MAX_ANCESTORS {
        match parent_and_start(root, pid).0 {
            0 => return None,
            1 => return Some(pid),
            parent => pid = parent,
        }
    }
    None
}

fn place_of(root: &Path, pid: u32) -> UnitPlace {
    UnitPlaces::of(&root.join("proc")).find(&pid.to_string())
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
    // An empty one is the value of an option before it.
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|&byte| byte == 0);
    words.skip(1).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
