//! A cgroup for each container, below the cgroups that were delegated to the agent.
//!
//! ```text
//! UNIT/agent                          the agent (cgroup v2)
//! UNIT/pods                           all pods
//! UNIT/pods/pod-UID/NAME.ATTEMPT      a container's attempt: its limits
//! UNIT/pods/besteffort/pod-UID/…      the same for BestEffort pods
//! ```
//!
//! `UNIT` is the cgroup of the agent's own unit, with cgroup v1 in each hierarchy that was delegated. A pod's weight is
//! its CPU request; all BestEffort pods together have the lowest possible weight. Burstable pods need no group of their
//! own: its weight would be the sum of their requests, which they have without it.
//!
//! systemd removes empty cgroups of a unit that stops, so each start of a container creates the missing ones.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use winddown_host::{cgroup_number, kernel};
use winddown_shared::{Pod, PodUid, QosClass, RuntimeError, UnsupportedField};
use winddown_shim::members::{self, PROCS};

use crate::programs::config::{CgroupParent, ProcessConfig};
use crate::programs::{caused, failed};

mod amounts;
mod place;
mod unenforced;

use amounts::CgroupWrite;
use place::{Controller, Hierarchy, UsableHierarchies};
pub(crate) use unenforced::Unenforced;

/// The magic number of cgroup v2 in statfs.
const CGROUP2: i64 = 0x6367_7270;
/// What to do about a limit that only a service of its own can have.
const BY_SYSTEMD: &str = "use `runtime: systemd`, or leave it out";
const BEST_EFFORT: &str = "besteffort";
const POD: &str = "pod-";

/// A container's attempt: its pod, its name, its number.
pub(super) type AttemptId = (PodUid, Arc<str>, u32);

#[derive(Debug)]
pub(crate) struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    unenforced: Unenforced,
    /// The maximum number of tasks on the node.
    node_tasks: Option<u64>,
}

/// Describes what the process runtime of the agent `pid` cannot enforce, or without one, what no service of systemd can be
/// limited in. For people: one line for each of CPU, memory and tasks. Only reads.
pub fn unenforced(proc_root: &Path, cgroup_mount: &Path, pid: Option<u32>) -> Vec<String> {
    unenforced_by((proc_root, cgroup_mount), pid).lines()
}

/// The first limit for which that agent refuses the pod. Only reads.
pub fn refused_limit(
    proc_root: &Path,
    cgroup_mount: &Path,
    pid: Option<u32>,
    pod: &Pod,
) -> Option<UnsupportedField> {
    unenforced_by((proc_root, cgroup_mount), pid).field(pod)
}

fn unenforced_by((proc_root, mount): (&Path, &Path), pid: Option<u32>) -> Unenforced {
    let Some(pid) = pid else { return Unenforced::by_systemd(proc_root, mount) };
    let missing = place::discover((proc_root, mount), &pid.to_string()).missing;
    Unenforced { missing, advice: BY_SYSTEMD }
}

impl Cgroups {
    /// Finds out what was delegated, and creates the parent cgroup of all pods.
    pub(crate) fn new(config: &ProcessConfig) -> Self {
        let places = match &config.cgroups {
            CgroupParent::None => UsableHierarchies::none("the runtime was given no cgroups"),
            CgroupParent::Rehearsal => {
                UsableHierarchies { hierarchies: Vec::new(), missing: Vec::new() }
            }
            CgroupParent::OwnUnit { mount } => place::discover((&config.proc_root, mount), "self"),
            CgroupParent::Directory(root) => given(root),
        };
        let mut cgroups = Self {
            hierarchies: Vec::new(),
            unenforced: Unenforced {
                missing: places.missing,
                advice: match config.cgroups {
                    CgroupParent::None => "set `ProcessConfig::cgroups`, or leave it out",
                    _ => BY_SYSTEMD,
                },
            },
            node_tasks: node_tasks(&config.proc_root),
        };
        for hierarchy in places.hierarchies {
            match cgroups.make_root(&hierarchy) {
                Ok(()) => cgroups.hierarchies.push(hierarchy),
                Err(error) => {
                    let why = format!("{}: {error}", hierarchy.root.display());
                    let lost = hierarchy.controllers.into_iter().map(|one| (one, why.clone()));
                    cgroups.unenforced.missing.extend(lost);
                }
            }
        }
        cgroups
    }

    /// The limits that it does not enforce.
    pub(crate) fn unenforced(&self) -> &Unenforced {
        &self.unenforced
    }

    /// The parent of all pods' cgroups; none without cgroups.
    pub(super) fn root(&self) -> Option<&Path> {
        self.hierarchies.first().map(|one| &*one.root)
    }

    /// The cgroup that counts the memory of all pods, relative to the root of its hierarchy; none without cgroups.
    pub(crate) fn path(&self) -> Option<String> {
        let has_memory = |one: &&Hierarchy| one.controllers.contains(&Controller::Memory);
        let with_memory = self.hierarchies.iter().find(has_memory);
        with_memory.or(self.hierarchies.first()).map(|one| one.path.clone())
    }

    /// Creates the cgroups of one attempt, one in each hierarchy, and sets its limits.
    pub(crate) fn make(
        &self,
        pod: &Pod,
        container: &api::Container,
        attempt: u32,
    ) -> Result<Vec<PathBuf>, RuntimeError> {
        let made = self.hierarchies.iter().map(|hierarchy| {
            let of_pod = pod_dir(&hierarchy.root, pod);
            // One for each attempt: the kernel never resets its count of out-of-memory kills.
            let dir = of_pod.join(format!("{}.{attempt}", container.name));
            self.make_in(hierarchy, pod, container, (&of_pod, &dir))
                .map_err(|e| caused(format!("cannot make cgroup {}", dir.display()), e))?;
            Ok(dir)
        });
        made.collect()
    }

    /// The cgroups of the container's newest attempt.
    pub(crate) fn newest(&self, pod: &Pod, container: &str) -> Vec<PathBuf> {
        let newest = |hierarchy: &Hierarchy| {
            let entries = fs::read_dir(pod_dir(&hierarchy.root, pod)).ok()?.flatten();
            let attempt = |path: PathBuf| {
                let (name, number) = attempt(&path)?;
                (name == container).then_some((number, path.clone()))
            };
            entries.filter_map(|entry| attempt(entry.path())).max().map(|(_, path)| path)
        };
        self.hierarchies.iter().filter_map(newest).collect()
    }

    /// The attempts in whose cgroups processes run.
    ///
    /// # Errors
    /// That cannot be listed, which does not mean that there are none.
    pub(super) fn populated(&self) -> io::Result<HashSet<AttemptId>> {
        let mut found = HashSet::new();
        for root in self.hierarchies.iter().map(|hierarchy| &hierarchy.root) {
            let best_effort = root.join(BEST_EFFORT);
            for pod in [members::below(root)?, members::below(&best_effort)?].concat() {
                let name = pod.file_name().and_then(OsStr::to_str);
                let Some(uid) = name.and_then(|name| name.strip_prefix(POD)) else { continue };
                for dir in members::below(&pod)? {
                    let Some((name, number)) = attempt(&dir) else { continue };
                    let id = (PodUid::new(uid), name.into(), number);
                    if !found.contains(&id) && !members::pids(&[dir])?.is_empty() {
                        found.insert(id);
                    }
                }
            }
        }
        Ok(found)
    }

    pub(super) fn of_attempt(&self, (uid, name, number): &AttemptId) -> Vec<PathBuf> {
        let own = Path::new(&pod_name(uid)).join(format!("{name}.{number}"));
        let places = self.hierarchies.iter().flat_map(|hierarchy| {
            [hierarchy.root.join(&own), hierarchy.root.join(BEST_EFFORT).join(&own)]
        });
        places.filter(|dir| dir.exists()).collect()
    }

    /// Kills the processes in the pod's cgroups, and removes the cgroups. Blocks.
    ///
    /// # Errors
    /// A process survives SIGKILL, or a cgroup cannot be removed.
    pub(crate) fn remove_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let name = pod_name(uid);
        let places = self.hierarchies.iter().flat_map(|hierarchy| {
            [hierarchy.root.join(&name), hierarchy.root.join(BEST_EFFORT).join(&name)]
        });
        let places: Vec<PathBuf> = places.filter(|dir| dir.exists()).collect();
        if !members::end(&places) {
            return Err(failed(format!("processes of pod {uid} survive SIGKILL")));
        }
        places.iter().try_for_each(|dir| {
            members::remove(dir)
                .map_err(|e| caused(format!("cannot remove cgroup {}", dir.display()), e))
        })
    }

    fn make_root(&self, hierarchy: &Hierarchy) -> io::Result<()> {
        if let Some(unit) = hierarchy.root.parent() {
            enable(hierarchy, unit).or_else(|error| make_way(hierarchy, unit, error))?;
            // What the agent keeps in memory counts there, the values of Secrets too: it is not swapped out.
            let _ = put(&unit.join(place::OWN).join("memory.swap.max"), "0");
        }
        // systemd has created the unit's cgroup, except in a v1 hierarchy that it does not manage.
        fs::create_dir_all(&hierarchy.root)?;
        for controller in &hierarchy.controllers {
            write(&hierarchy.root, &amounts::of_all(*controller, self.node_tasks))?;
        }
        enable(hierarchy, &hierarchy.root)
    }

    fn make_in(
        &self,
        hierarchy: &Hierarchy,
        pod: &Pod,
        container: &api::Container,
        (of_pod, dir): (&Path, &Path),
    ) -> io::Result<()> {
        let entries = |of: &dyn Fn(Controller) -> Vec<CgroupWrite>| {
            hierarchy.controllers.iter().flat_map(|controller| of(*controller)).collect::<Vec<_>>()
        };
        let is_v2 = hierarchy.is_v2;
        self.make_root(hierarchy)?;
        if pod.qos() == QosClass::BestEffort {
            let class = hierarchy.root.join(BEST_EFFORT);
            make_dir(&class)?;
            write(&class, &entries(&|controller| amounts::of_best_effort(controller, is_v2)))?;
            enable(hierarchy, &class)?;
        }
        make_dir(of_pod)?;
        write(of_pod, &entries(&|controller| amounts::of_pod(pod, controller, is_v2)))?;
        enable(hierarchy, of_pod)?;
        make_dir(dir)?;
        write(dir, &entries(&|controller| amounts::of_container(container, controller, is_v2)))
    }
}

fn pod_name(uid: &PodUid) -> String {
    format!("{POD}{uid}")
}

/// The container and the number that the cgroup of an attempt is named after.
fn attempt(dir: &Path) -> Option<(&str, u32)> {
    let (name, number) = dir.file_name()?.to_str()?.rsplit_once('.')?;
    Some((name, number.parse().ok()?))
}

fn pod_dir(root: &Path, pod: &Pod) -> PathBuf {
    let name = pod_name(pod.uid());
    match pod.qos() {
        QosClass::BestEffort => root.join(BEST_EFFORT).join(name),
        QosClass::Burstable | QosClass::Guaranteed => root.join(name),
    }
}

/// Returns the place of a cgroup v2 directory that the embedder provides.
fn given(root: &Path) -> UsableHierarchies {
    let is_cgroup = |dir: &&Path| fs::metadata(dir).is_ok() && is_v2(dir);
    let parent = root.parent().unwrap_or(root);
    let Some(mount) = parent.ancestors().take_while(is_cgroup).last() else {
        return UsableHierarchies::none(&format!("{}: not a cgroup v2 directory", root.display()));
    };
    let path = root.strip_prefix(mount).unwrap_or(root);
    let controllers = place::available(parent).unwrap_or_default();
    let missing = Controller::ALL.into_iter().filter(|one| !controllers.contains(one));
    let why = || format!("{}: not delegated", root.display());
    let missing = missing.map(|one| (one, why())).collect();
    let hierarchy = Hierarchy {
        root: root.to_owned(),
        path: format!("/{}", path.display()),
        is_v2: true,
        controllers,
    };
    UsableHierarchies { hierarchies: vec![hierarchy], missing }
}

fn is_v2(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|found| found.f_type == CGROUP2)
}

fn node_tasks(proc_root: &Path) -> Option<u64> {
    let number =
        |name: &str| cgroup_number(&kernel::read(proc_root.join("sys/kernel").join(name)).ok()?);
    number("pid_max").into_iter().chain(number("threads-max")).min()
}

/// Enables the controllers for the cgroups below `dir`.
fn enable(hierarchy: &Hierarchy, dir: &Path) -> io::Result<()> {
    if !hierarchy.is_v2 || hierarchy.controllers.is_empty() {
        return Ok(());
    }
    let names = hierarchy.controllers.iter().map(|controller| format!("+{}", controller.name()));
    let line = names.collect::<Vec<_>>().join(" ");
    put(&dir.join("cgroup.subtree_control"), &line)
}

/// Enables the controllers below a unit that contains processes itself, which the kernel refuses: pods and supervisors
/// of a version that had no cgroup of its own. They are moved to the agent's cgroup first.
fn make_way(hierarchy: &Hierarchy, unit: &Path, error: io::Error) -> io::Result<()> {
    let own = unit.join(place::OWN).join(PROCS);
    if error.kind() != io::ErrorKind::ResourceBusy || !own.exists() {
        return Err(error);
    }
    // A process may fork while it is moved; on a slow machine this can happen many times.
    for _ in 0..100 {
        for pid in kernel::read_to_string(unit.join(PROCS))?.lines() {
            // A process that cannot be moved has exited.
            let _ = put(&own, pid);
        }
        if enable(hierarchy, unit).is_ok() {
            return Ok(());
        }
    }
    enable(hierarchy, unit)
}

fn write(dir: &Path, entries: &[CgroupWrite]) -> io::Result<()> {
    entries.iter().try_for_each(|entry| match put(&dir.join(entry.file), &entry.text) {
        Err(_) if entry.optional => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", entry.file))),
        Ok(()) => Ok(()),
    })
}

/// Writes to a kernel file. Never creates one.
fn put(path: &Path, text: &str) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all(text.as_bytes())
}

fn make_dir(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
