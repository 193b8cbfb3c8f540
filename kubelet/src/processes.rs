//! Finds processes by name in `/proc`. Blocks.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Names of kubelets, and of programs that contain one, as the kernel shows them.
pub const KUBELETS: [&str; 5] = ["kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent"];

/// Maximum number of bytes read from a command line.
const LONGEST: u64 = 64 * 1024;

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The PID.
    pub pid: u32,
    /// The name, as the kernel shows it.
    pub name: String,
}

/// The processes with these names, sorted by PID.
///
/// # Errors
/// `/proc` cannot be read.
pub fn named(root: &Path, names: &[&str]) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join("proc"))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have exited since.
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        if names.contains(&name.trim_end()) {
            found.push(Process { pid, name: name.trim_end().to_owned() });
        }
    }
    found.sort_by_key(|process| process.pid);
    Ok(found)
}

/// The running kubelets of this node.
///
/// # Errors
/// As [`named`].
pub fn kubelets(root: &Path) -> io::Result<Vec<Process>> {
    let proc = root.join("proc");
    let mut found = named(root, &KUBELETS)?;
    found.retain(|process| {
        let process = proc.join(process.pid.to_string());
        is_roots(&process) && is_of_here(&proc, &process)
    });
    Ok(found)
}

/// Whether the process belongs to root or to the calling user. Other users' processes are not this node's kubelet, and
/// such a user chooses their names and arguments, which must not decide what files root reads.
fn is_roots(process: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::metadata(process).is_ok_and(|facts| facts.uid() == 0 || facts.uid() == own)
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

/// The arguments of a process, without its name; empty if it is gone or cannot be read.
pub(super) fn arguments(root: &Path, pid: u32) -> Vec<String> {
    let mut bytes = Vec::new();
    let Ok(file) = File::open(root.join(format!("proc/{pid}/cmdline"))) else { return Vec::new() };
    if file.take(LONGEST).read_to_end(&mut bytes).is_err() {
        return Vec::new();
    }
    bytes
        .split(|&byte| byte == 0)
        .skip(1)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}
