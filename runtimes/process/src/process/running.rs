//! What runs, according to the kernel. The records may be lost while containers run: the disk was replaced or restored.
//! Then supervisors and cgroups tell which containers they hold, and neither is started a second time nor forgotten.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path};

use winddown_shared::PodUid;
use winddown_shim::procfs;
use winddown_shim::record::ProcessIdentity;

use super::cgroup::{AttemptId, Cgroups};
use crate::programs::config::ProcessConfig;
use crate::programs::paths;

/// The attempts that run, each with its supervisor; none if that was killed and has left processes behind.
pub(super) type Running = HashMap<AttemptId, Option<ProcessIdentity>>;

/// Finds the attempts of this agent's state directory and those in its cgroups.
///
/// # Errors
/// What runs cannot be listed, which does not mean that nothing does.
pub(super) fn find(config: &ProcessConfig, cgroups: &Cgroups) -> io::Result<Running> {
    let own = paths::pods(config);
    let mut found: Running = cgroups.populated()?.into_iter().map(|id| (id, None)).collect();
    for (supervisor, dir) in procfs::supervisors(&config.proc_root)? {
        let Some(id) = attempt(&dir) else { continue };
        if dir.starts_with(&own) || found.contains_key(&id) {
            found.entry(id).or_default().get_or_insert(supervisor);
        }
    }
    Ok(found)
}

/// The attempt of this directory, `…/UID/NAME/NUMBER`.
fn attempt(dir: &Path) -> Option<AttemptId> {
    let mut names = dir.components().rev().map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let number = names.next()??.parse().ok()?;
    let name = names.next()??.into();
    Some((PodUid::new(names.next()??), name, number))
}
