//! Processes of interest, from `/proc`. Blocks.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::unseen;
use crate::facts::{Fact, KILLERS, KUBELETS, Process};

/// More are of no use.
const MOST: usize = 32;
/// A command line is read up to this many bytes.
const LONGEST: u64 = 64 * 1024;

/// The processes of interest that run.
pub(super) fn interesting(root: &Path) -> Fact<Vec<Process>> {
    let proc = root.join("proc");
    let entries = match fs::read_dir(&proc) {
        Ok(entries) => entries,
        Err(error) => return unseen(&error, &proc),
    };
    let (mut kubelets, mut killers) = (Vec::new(), Vec::new());
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended since.
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        let name = name.trim_end();
        let process = || Process { pid, name: name.to_owned() };
        if KUBELETS.contains(&name) && is_roots(&entry.path()) && is_of_here(&proc, &entry.path()) {
            kubelets.push(process());
        } else if KILLERS.contains(&name) {
            killers.push(process());
        }
    }
    // One kind does not crowd out the other, and every user may start what is called a killer.
    let mut found = Vec::new();
    for mut kind in [kubelets, killers] {
        kind.sort_by_key(|process| process.pid);
        found.extend(kind.into_iter().take(MOST));
    }
    found.sort_by_key(|process| process.pid);
    Fact::Known(found)
}

/// Whether the process is root's, or of who asks. A kubelet of another user runs nothing of this node, and its
/// name and arguments are what that user likes: they must not decide which files root reads.
fn is_roots(process: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::metadata(process).is_ok_and(|facts| facts.uid() == 0 || facts.uid() == own)
}

/// Whether the process counts processes as this one does: a kubelet in a container is that of another node. One whose
/// namespace may not be seen is taken for this node's.
fn is_of_here(proc: &Path, process: &Path) -> bool {
    let namespace = |process: &Path| fs::read_link(process.join("ns/pid")).ok();
    match (namespace(&proc.join("self")), namespace(process)) {
        (Some(here), Some(there)) => here == there,
        _ => true,
    }
}

/// The arguments of a process, without its own name; none when it is gone or may not be seen.
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
