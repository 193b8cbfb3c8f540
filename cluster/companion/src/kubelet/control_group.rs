//! Tells from `/proc/PID/cgroup` whose unit a process belongs to.

/// The place of a process among the units of systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnitPlace {
    /// A service of the system.
    Service(String),
    /// A session, or a service of a user's own manager.
    OfUser,
    /// No service of the system: a scope, a container, or a machine without systemd.
    Elsewhere,
}

/// Finds the place of a process from the text of its `/proc/PID/cgroup`. `manager`: the text of `/proc/1/cgroup`, whose
/// group is that of the system's manager; in a container it has others above it.
///
/// With control groups of version 1 two lines may name a unit, and either may be empty of it.
pub(super) fn place(groups: &str, manager: &str) -> UnitPlace {
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
