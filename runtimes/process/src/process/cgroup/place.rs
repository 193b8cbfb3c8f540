//! Finds the places for pods' cgroups: below the unit that the agent runs as, in each hierarchy that was delegated to
//! it.
//!
//! Only reads.

use std::io;
use std::path::{Path, PathBuf};

use winddown_host::{cgroup_of_process, kernel};

/// Where systemd puts the agent itself (`DelegateSubgroup=`).
pub(super) const OWN: &str = "agent";
/// The parent cgroup of all pods.
const PODS: &str = "pods";

/// A cgroup controller that enforces a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    Cpu,
    Memory,
    Pids,
}

/// A hierarchy in which pods can have cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// The parent cgroup of all pods; it may not exist yet.
    pub(crate) root: PathBuf,
    /// The same, relative to the root of the hierarchy.
    pub(crate) path: String,
    pub(crate) is_v2: bool,
    /// The controllers that are available in it.
    pub(crate) controllers: Vec<Controller>,
}

/// The usable hierarchies, and the reasons for what is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsableHierarchies {
    pub(crate) hierarchies: Vec<Hierarchy>,
    /// Controllers that no hierarchy offers, each with the reason.
    pub(crate) missing: Vec<(Controller, String)>,
}

/// The unit's own cgroup in one hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Unit<'a> {
    path: &'a str,
    /// Whether the agent is in a cgroup below it, so that controllers can be enabled for its siblings.
    is_free: bool,
}

/// Finds what was delegated to the unit of the process `pid` (`self` for this one).
pub(crate) fn discover((proc_root, mount): (&Path, &Path), pid: &str) -> UsableHierarchies {
    let own = match kernel::read(proc_root.join(pid).join("cgroup")) {
        Ok(own) => own,
        Err(error) => {
            return UsableHierarchies::none(&format!(
                "the agent's own cgroup is not known: {error}"
            ));
        }
    };
    let mut places = UsableHierarchies::default();
    let v2 = v2_mount(mount);
    let mut unified = v2.as_deref().and_then(|mount| unified(&own, mount));
    for controller in Controller::ALL {
        let name = controller.name();
        match cgroup_of_process(&own, name) {
            Some((path, false)) => match unit_v1(&own, path) {
                Ok(unit) => {
                    let hierarchy = hierarchy(&mount.join(name), unit.path, false, controller);
                    places.add(hierarchy);
                }
                Err(why) => places.missing.push((controller, why)),
            },
            Some((_, true)) => match &mut unified {
                Some((hierarchy, Ok(available))) if available.contains(&controller) => {
                    hierarchy.controllers.push(controller);
                }
                Some((_, Ok(_))) => {
                    places
                        .missing
                        .push((controller, format!("{name} is not delegated to the unit")));
                }
                Some((_, Err(why))) => places.missing.push((controller, why.clone())),
                None => places.missing.push((controller, not_a_unit(&own))),
            },
            None => {
                let why = format!("the agent's cgroup for {name} is not visible here");
                places.missing.push((controller, why));
            }
        }
    }
    places.hierarchies.extend(unified.map(|(hierarchy, _)| hierarchy));
    places
}

/// Returns the unified hierarchy, and the controllers that are available there, or why there are none.
fn unified(own: &[u8], mount: &Path) -> Option<(Hierarchy, Result<Vec<Controller>, String>)> {
    let unit = unit(unified_path(own)?).ok()?;
    let root = mount.join(unit.path.trim_start_matches('/'));
    let available = match unit.is_free {
        true => available(&root).map_err(|e| format!("{}: {e}", root.display())),
        false => Err(
            "the agent runs in its unit's own cgroup, below which nothing can be limited: set DelegateSubgroup=agent \
             in the unit, for systemd 254 or later"
                .to_owned(),
        ),
    };
    let hierarchy = Hierarchy {
        root: root.join(PODS),
        path: format!("{}/{PODS}", unit.path),
        is_v2: true,
        controllers: Vec::new(),
    };
    Some((hierarchy, available))
}

fn hierarchy(mount: &Path, unit: &str, is_v2: bool, controller: Controller) -> Hierarchy {
    Hierarchy {
        root: mount.join(unit.trim_start_matches('/')).join(PODS),
        path: format!("{unit}/{PODS}"),
        is_v2,
        controllers: vec![controller],
    }
}

/// Like [`unit`], for a v1 controller. In a hierarchy that systemd does not manage (in a container, say), the unit gets
/// the path that it has in systemd's own hierarchy.
fn unit_v1<'a>(own: &'a [u8], path: &'a str) -> Result<Unit<'a>, String> {
    let named = || cgroup_of_process(own, "name=systemd").filter(|(_, is_v2)| !is_v2);
    unit(path).or_else(|why| match named() {
        Some((named, _)) if path == "/" => unit(named).map_err(|_| why),
        _ => Err(why),
    })
}

/// Returns the unit that a cgroup belongs to. Any other cgroup is shared with programs that are not ours: nothing may
/// be created there.
fn unit(path: &str) -> Result<Unit<'_>, String> {
    let is_service = |path: &str| path.rsplit('/').next().is_some_and(|n| n.ends_with(".service"));
    match path.strip_suffix(OWN).and_then(|path| path.strip_suffix('/')) {
        Some(above) if is_service(above) => Ok(Unit { path: above, is_free: true }),
        _ if is_service(path) => Ok(Unit { path, is_free: false }),
        _ => Err(format!("the agent runs in the cgroup {path}, which is not a unit's own")),
    }
}

fn unified_path(own: &[u8]) -> Option<&str> {
    std::str::from_utf8(own).ok()?.lines().find_map(|line| line.strip_prefix("0::"))
}

fn not_a_unit(own: &[u8]) -> String {
    let why = unified_path(own).and_then(|path| unit(path).err());
    why.unwrap_or_else(|| "no cgroup of version 2 is mounted".to_owned())
}

pub(super) fn v2_mount(mount: &Path) -> Option<PathBuf> {
    let beside = mount.join("unified");
    let is_v2 = |dir: &Path| dir.join("cgroup.controllers").exists();
    if is_v2(mount) {
        return Some(mount.to_owned());
    }
    is_v2(&beside).then_some(beside)
}

/// The controllers that a cgroup v2 can enable for its children.
pub(crate) fn available(dir: &Path) -> io::Result<Vec<Controller>> {
    let text = kernel::read_to_string(dir.join("cgroup.controllers"))?;
    let named = |controller: &Controller| text.split_whitespace().any(|n| n == controller.name());
    Ok(Controller::ALL.into_iter().filter(named).collect())
}

// === impl Controller ===

impl Controller {
    pub(crate) const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];

    /// The kernel's name of the controller.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

// === impl UsableHierarchies ===

impl UsableHierarchies {
    /// No hierarchies at all, all for the same reason.
    pub(crate) fn none(why: &str) -> Self {
        let missing = Controller::ALL.map(|controller| (controller, why.to_owned()));
        Self { hierarchies: Vec::new(), missing: missing.to_vec() }
    }

    /// Adds a hierarchy. Two v1 controllers may be mounted together.
    fn add(&mut self, new: Hierarchy) {
        let real = |path: &Path| path.parent().and_then(|dir| dir.canonicalize().ok());
        let same = |one: &&mut Hierarchy| {
            one.root == new.root
                || (real(&one.root).is_some() && real(&one.root) == real(&new.root))
        };
        match self.hierarchies.iter_mut().find(same) {
            Some(there) => there.controllers.extend(new.controllers),
            None => self.hierarchies.push(new),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use Controller::{Cpu, Memory, Pids};

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(own: &str, files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (path, text) in [("proc/self/cgroup", own)].iter().chain(files) {
                let path = tree.0.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            tree
        }

        fn discover(&self) -> UsableHierarchies {
            discover((&self.0.path().join("proc"), &self.0.path().join("cg")), "self")
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join("cg").join(path)
        }
    }

    #[test]
    fn on_version_2_the_unit_hands_on_what_it_was_given_where_the_agent_is_below_it() {
        let unit = "cg/system.slice/winddown.service/cgroup.controllers";
        let tree = Tree::new(
            "0::/system.slice/winddown.service/agent\n",
            &[("cg/cgroup.controllers", "cpu memory pids\n"), (unit, "cpuset cpu memory\n")],
        );
        let found = tree.discover();
        let expected = Hierarchy {
            root: tree.at("system.slice/winddown.service/pods"),
            path: "/system.slice/winddown.service/pods".to_owned(),
            is_v2: true,
            controllers: vec![Cpu, Memory],
        };
        assert_eq!(found.hierarchies, [expected]);
        assert_eq!(found.missing, [(Pids, "pids is not delegated to the unit".to_owned())]);
    }

    #[test]
    fn an_agent_in_the_units_own_cgroup_has_cgroups_without_limits_and_is_told_what_the_unit_lacks()
    {
        let tree = Tree::new(
            "0::/system.slice/winddown.service\n",
            &[("cg/cgroup.controllers", "cpu memory pids\n")],
        );
        let found = tree.discover();
        assert_eq!((found.hierarchies.len(), found.missing.len()), (1, 3));
        assert!(found.hierarchies[0].controllers.is_empty());
        assert!(found.missing[0].1.contains("set DelegateSubgroup=agent"), "{:?}", found.missing);
    }

    #[test]
    fn on_version_1_each_controller_has_its_hierarchy_and_the_unified_one_ends_processes() {
        let unit = "/system.slice/winddown.service";
        let own = format!(
            "9:memory:{unit}\n5:cpu,cpuacct:/\n4:pids:/user.slice\n1:name=systemd:{unit}\n0::{unit}\n"
        );
        let tree = Tree::new(&own, &[("cg/unified/cgroup.controllers", "")]);
        let found = tree.discover();
        let roots: Vec<_> = found.hierarchies.iter().map(|h| (h.root.clone(), h.is_v2)).collect();
        let expected = [("cpu", false), ("memory", false), ("unified", true)];
        let below = |mount: &str| tree.at(&format!("{mount}{unit}/pods"));
        assert_eq!(roots, expected.map(|(mount, is_v2)| (below(mount), is_v2)));
        let [(Pids, why)] = &found.missing[..] else { panic!("{:?}", found.missing) };
        assert_eq!(why, "the agent runs in the cgroup /user.slice, which is not a unit's own");
    }

    #[test]
    fn an_agent_that_is_started_by_hand_makes_no_cgroup_among_those_of_others() {
        for own in ["0::/\n", "0::/user.slice/user-0.slice/session-1.scope\n", "0::/agent\n", ""] {
            let found =
                Tree::new(own, &[("cg/cgroup.controllers", "cpu memory pids\n")]).discover();
            assert_eq!((found.hierarchies.len(), found.missing.len()), (0, 3), "{own:?}");
        }
    }
}
