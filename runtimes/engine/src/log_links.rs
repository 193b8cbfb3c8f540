//! Links to the logs of containers, where log shippers look for them: the kubelet's are in `/var/log/containers`,
//! wherever the logs are.
//!
//! The directory is other programs' too, a kubelet's for one. Nothing but links is removed from it, and no link in it is
//! followed to open anything.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, fstat, readlinkat, symlinkat, unlinkat};
use rustix::io::Errno;
use tokio::time::timeout;
use winddown_host::{PodFiles, if_exists, regular};
use winddown_shared::{PodUid, error_chain};

use crate::driver::{Driver, Entry};
use crate::{files, pod};

/// How long a start waits for its link: the disk may hang.
const LINK_TIMEOUT: Duration = Duration::from_secs(2);
/// The end of a link's name.
const SUFFIX: &str = ".log";
/// The shortest part of an id by which a container runtime finds a container.
const SHORTEST_ID: usize = 6;

/// The link to a container's log.
struct LogLink {
    /// The directory of all links.
    links: PathBuf,
    /// What begins the names of all links of this container of the pod.
    prefix: String,
    /// The id in its name.
    id: String,
    /// Whether the container has had no other run.
    is_of_first_run: bool,
    log: PathBuf,
}

/// A link that leads to a file that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLink {
    name: String,
}

/// Makes the link to the log of a run of a container, unless there is one. Logs once for each pod that it cannot be made.
pub(crate) async fn make<D: Driver>(driver: &D, entry: &Entry<D>, (name, id): (&str, &str)) {
    let Some(link) = LogLink::of_run(driver, entry, (name, id)) else { return };
    let path = link.links.join(link.name());
    let work = entry.with_files(PodFiles::Make, move || Ok(link.make()));
    let made = match timeout(LINK_TIMEOUT, work).await {
        Ok(made) => made.unwrap_or_else(|failed| Err(io::Error::other(failed))),
        Err(_) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("not within {LINK_TIMEOUT:?}")))
        }
    };
    let Err(error) = made else { return };
    if !entry.lacks_log_links.swap(true, Ordering::Relaxed) {
        let (pod, advice) = (pod::title(entry), advice(error.kind(), &path));
        tracing::warn!(
            %pod, container = name, link = %path.display(), error = error_chain(&error),
            "log shippers do not find the logs of pod {pod}: {advice}"
        );
    }
}

/// What to do where the link at `path` cannot be made because of such an error.
fn advice(kind: io::ErrorKind, path: &Path) -> String {
    let links = path.parent().unwrap_or(path).display();
    match kind {
        io::ErrorKind::AlreadyExists => format!(
            "{} is another's, and longer names are cut to 255 bytes: shorten the name of the pod or of the container",
            path.display()
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("the disk of {links} is full")
        }
        io::ErrorKind::TimedOut => {
            format!("the disk of {links}, or of a pod's volume, does not answer")
        }
        _ => format!(
            "let {links} be a directory of root's that the agent's unit may write to (ReadWritePaths=), then restart \
             winddown"
        ),
    }
}

/// Removes the links that lead below `logs`, the directory of a pod's logs, which is about to be removed. Blocks.
pub fn remove_below(links: &Path, logs: &Path) {
    let removed = open(links).and_then(|directory| {
        for name in names(&directory)? {
            if target(&directory, &name).is_ok_and(|target| target.starts_with(logs)) {
                remove(&directory, &name)?;
            }
        }
        Ok(())
    });
    if let Err(error) = removed {
        let (links, logs) = (links.display(), logs.display());
        tracing::debug!(%links, %logs, error = error_chain(&error), "cannot remove the links to the logs of a pod");
    }
}

/// The links whose logs are gone, of all agents. Blocks.
///
/// # Errors
/// The directory of the links cannot be read.
pub fn dead(links: &Path) -> io::Result<Vec<DeadLink>> {
    let directory = open(links)?;
    let mut dead = Vec::new();
    for name in names(&directory)? {
        if is_dead(&directory, &name) {
            dead.push(DeadLink { name });
        }
    }
    Ok(dead)
}

/// The kubelet's name of a link, as far as it does not depend on the run.
fn prefix((namespace, pod): (&str, &str), container: &str) -> String {
    format!("{pod}_{namespace}_{container}-")
}

/// The kubelet's name of a link: too long ones are cut.
fn link_name(prefix: &str, id: &str) -> String {
    let mut name = format!("{prefix}{id}");
    let cut =
        (0..=files::MAX_NAME_BYTES - SUFFIX.len()).rev().find(|&end| name.is_char_boundary(end));
    name.truncate(cut.unwrap_or_default());
    name + SUFFIX
}

/// The id of a run in the name of its link. Log shippers know a container's by its 64 letters and digits, so a run whose
/// id is a path has one of its pod's UID and its number.
fn id_in_name(id: &str, uid: &PodUid, attempt: u32) -> String {
    if files::is_safe(id) {
        return id.to_owned();
    }
    let uid = uid.as_str().chars().filter(char::is_ascii_alphanumeric).take(32);
    format!("{:0>32}{attempt:032}", uid.collect::<String>().to_ascii_lowercase())
}

/// Opens the directory of all links.
fn open(links: &Path) -> io::Result<OwnedFd> {
    let directory = regular::open_directory_below(links, Path::new(""))?;
    let owner = fstat(&directory)?.st_uid;
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        let what = format!("{} belongs to user {owner}", links.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(directory)
}

/// What may be the names of links to logs.
fn names(directory: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_str().map(str::to_owned);
        names.extend(name.ok().filter(|name| name.ends_with(SUFFIX)));
    }
    Ok(names)
}

/// Where the link of this name leads.
fn target(directory: &OwnedFd, name: &str) -> rustix::io::Result<PathBuf> {
    let target = readlinkat(directory, name, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(target.as_bytes())))
}

/// Whether it is a link that leads to a file that does not exist.
fn is_dead(directory: &OwnedFd, name: &str) -> bool {
    let leads_nowhere = || rustix::fs::statat(directory, name, AtFlags::empty());
    target(directory, name).is_ok() && leads_nowhere().is_err_and(|error| error == Errno::NOENT)
}

/// Removes the link of this name, if it exists.
fn remove(directory: &OwnedFd, name: &str) -> io::Result<()> {
    if_exists(unlinkat(directory, name, AtFlags::empty()).map_err(io::Error::from)).map(drop)
}

// === impl LogLink ===

impl LogLink {
    /// None if no links are made, or the run is over.
    fn of_run<D: Driver>(driver: &D, entry: &Entry<D>, (name, id): (&str, &str)) -> Option<Self> {
        let links = driver.log_links()?.to_owned();
        let mut state = entry.lock();
        let attempt = state.run(name, id)?.attempt;
        let (namespace, pod) = &state.label;
        let logs = files::pod_logs(driver.pod_logs(), namespace, pod, entry.uid());
        Some(Self {
            links,
            prefix: prefix((namespace, pod), name),
            id: id_in_name(id, entry.uid(), attempt),
            is_of_first_run: attempt == 0,
            log: logs.join(files::run_log(name, attempt)),
        })
    }

    fn name(&self) -> String {
        link_name(&self.prefix, &self.id)
    }

    /// Makes it, in place of those of the container's earlier runs whose logs are gone, and of a dead one of its name. Blocks.
    fn make(&self) -> io::Result<()> {
        let (directory, own) = (open(&self.links)?, self.name());
        if target(&directory, &own).as_ref() == Ok(&self.log) {
            return Ok(());
        }
        // The links of all pods are in it: only one that is made for a container's restart is worth reading them.
        let all = if self.is_of_first_run { vec![own.clone()] } else { names(&directory)? };
        for name in all.iter().filter(|name| self.is_replaced(&directory, name)) {
            remove(&directory, name)?;
        }
        Ok(symlinkat(&self.log, &directory, own)?)
    }

    /// Whether it is the link of an earlier run of the container: without a log, or with the same name, because that is cut.
    /// A cut name may be a namesake's too, whose link goes when it is dead.
    fn is_replaced(&self, directory: &OwnedFd, name: &str) -> bool {
        let prefix = link_name(&self.prefix, "");
        if !name.starts_with(prefix.trim_end_matches(SUFFIX)) {
            return false;
        }
        let Ok(target) = target(directory, name) else { return false };
        let is_of_container = target != self.log && target.parent() == self.log.parent();
        match (is_of_container, name == self.name()) {
            (true, true) => true,
            (false, false) => false,
            (true, false) | (false, true) => is_dead(directory, name),
        }
    }
}

// === impl DeadLink ===

impl DeadLink {
    /// The id of its container, as far as it is in its name.
    pub fn id(&self) -> Option<&str> {
        let id = self.name.strip_suffix(SUFFIX)?.rsplit('-').next()?;
        (id.len() >= SHORTEST_ID).then_some(id)
    }

    /// Removes it from the directory of all links, unless there is a log again. Blocks.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, links: &Path) -> io::Result<()> {
        let directory = open(links)?;
        if is_dead(&directory, &self.name) { remove(&directory, &self.name) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
