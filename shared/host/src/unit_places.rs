//! Tells from `/proc/PID/cgroup` of which unit a process is.

use std::path::{Path, PathBuf};

use crate::kernel;

/// The place of a process among the units of systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitPlace {
    /// A service of the system.
    Service(String),
    /// A session, or a service of a user's own manager.
    OfUser,
    /// No service of the system: a scope, a container, or a machine without systemd.
    Elsewhere,
}

/// The units of the system's service manager, process 1 of a `/proc`. Those of containers, which the kernel shows as well,
/// are none of them.
#[derive(Clone, Debug)]
pub struct UnitPlaces {
    proc: PathBuf,
    /// The cgroups of the manager; in a container they have others above them.
    manager: String,
}

impl UnitPlaces {
    /// Those of the manager of this `/proc`. Blocks for no longer than /proc does.
    pub fn of(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), manager: cgroups(proc, "1") }
    }

    /// The place of the process `pid` (`self` for this one): [`UnitPlace::Elsewhere`] if it is gone. Blocks for no longer
    /// than /proc does.
    pub fn find(&self, pid: &str) -> UnitPlace {
        place(&cgroups(&self.proc, pid), &self.manager)
    }

    /// The system's service that the process `pid` is of.
    pub fn service(&self, pid: &str) -> Option<String> {
        match self.find(pid) {
            UnitPlace::Service(service) => Some(service),
            UnitPlace::OfUser | UnitPlace::Elsewhere => None,
        }
    }
}

/// A process may give a cgroup below its own a name that is no text.
fn cgroups(proc: &Path, pid: &str) -> String {
    let groups = kernel::read(proc.join(pid).join("cgroup")).unwrap_or_default();
    String::from_utf8_lossy(&groups).into_owned()
}

/// With control groups of version 1 two lines may name a unit, and either may be empty of it.
fn place(groups: &str, manager: &str) -> UnitPlace {
    let mut found = UnitPlace::Elsewhere;
    for of_systemd in [named as fn(&str) -> Option<&str>, unified] {
        let Some(path) = groups.lines().find_map(of_systemd) else { continue };
        let top = manager.lines().find_map(of_systemd).unwrap_or_default();
        let top = top.strip_suffix("/init.scope").unwrap_or(top).trim_end_matches('/');
        let Some(below) = path.strip_prefix(top).filter(|rest| rest.starts_with('/')) else {
            continue;
        };
        match of_path(below) {
            UnitPlace::OfUser => return UnitPlace::OfUser,
            UnitPlace::Service(unit) if found == UnitPlace::Elsewhere => {
                found = UnitPlace::Service(unit);
            }
            UnitPlace::Service(_) | UnitPlace::Elsewhere => {}
        }
    }
    found
}

fn named(line: &str) -> Option<&str> {
    line.split_once(":name=systemd:").map(|(_, path)| path)
}

fn unified(line: &str) -> Option<&str> {
    line.strip_prefix("0::")
}

/// Only slices lie above the system's services. What has a name like a service's in a container or in the tree that was
/// delegated to a user is none of the system's.
fn of_path(path: &str) -> UnitPlace {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    if parts.peek() == Some(&"user.slice") {
        return UnitPlace::OfUser;
    }
    match parts.find(|part| !part.ends_with(".slice")) {
        Some(unit) if unit.ends_with(".service") => UnitPlace::Service(unit.to_owned()),
        _ => UnitPlace::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_one_of_the_systems_manager() {
        let service = |unit: &str| UnitPlace::Service(unit.to_owned());
        for (groups, wanted) in [
            ("0::/system.slice/kubelet.service", service("kubelet.service")),
            ("0::/runtime.slice/kubelet.service/sub", service("kubelet.service")),
            ("1:name=systemd:/system.slice/k3s.service\n0::/", service("k3s.service")),
            // In a container of nspawn the other of the two lines has the unit.
            ("1:name=systemd:/\n0::/system.slice/k3s.service", service("k3s.service")),
            ("4:memory:/a.service\n0::/init.scope", UnitPlace::Elsewhere),
            // A user's own systemd, and a session.
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/kubelet.service",
                UnitPlace::OfUser,
            ),
            (
                "1:name=systemd:/user.slice/user-1000.slice/user@1000.service/kubelet.service\n0::/",
                UnitPlace::OfUser,
            ),
            (
                "1:name=systemd:/system.slice/kubelet.service\n0::/user.slice/user-0.slice/session-1.scope",
                UnitPlace::OfUser,
            ),
            // A container, in which another systemd may run.
            ("0::/kubepods.slice/cri-1.scope/system.slice/kubelet.service", UnitPlace::Elsewhere),
            ("0::/kubepods/burstable/pod1/kubelet.service", UnitPlace::Elsewhere),
            (
                "0::/machine.slice/systemd-nspawn@a.service/kubelet.service",
                service("systemd-nspawn@a.service"),
            ),
            ("", UnitPlace::Elsewhere),
        ] {
            assert_eq!(
                place(groups, "1:name=systemd:/init.scope\n0::/init.scope"),
                wanted,
                "{groups}"
            );
            assert_eq!(place(groups, ""), wanted, "{groups}");
        }
        // Without a namespace of its own for control groups, a container's systemd has others above it.
        let manager = "1:name=systemd:/docker/a\n0::/docker/a/init.scope";
        for (groups, wanted) in [
            ("0::/docker/a/system.slice/kubelet.service", service("kubelet.service")),
            ("0::/docker/ab/system.slice/kubelet.service", UnitPlace::Elsewhere),
            ("1:name=systemd:/docker/a/system.slice/k3s.service", service("k3s.service")),
            ("0::/docker/a/user.slice/x.service", UnitPlace::OfUser),
            ("0::/system.slice/kubelet.service", UnitPlace::Elsewhere),
        ] {
            assert_eq!(place(groups, manager), wanted, "{groups}");
        }
    }

    #[test]
    fn a_cgroup_whose_name_is_no_text_hides_no_service() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("7")).unwrap();
        let groups = b"0::/system.slice/a.service/\xff\n";
        std::fs::write(proc.path().join("7/cgroup"), groups).unwrap();
        let places = UnitPlaces::of(proc.path());
        assert_eq!(places.service("7").as_deref(), Some("a.service"));
        assert_eq!(places.find("8"), UnitPlace::Elsewhere, "it is gone");
    }
}
