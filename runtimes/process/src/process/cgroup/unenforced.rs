//! The limits that cannot be enforced, for want of a controller.

use std::path::Path;

use rustix::fs::{Access, access};
use winddown_host::{cgroup_of_process, kernel};
use winddown_shared::{Pod, UnsupportedField};
use winddown_shim::members::PROCS;

use super::amounts;
use super::place::{self, Controller};

/// Where systemd itself is, below the group in which it makes others.
const INIT: &str = "/init.scope";

/// The controllers that are not available, each with the reason.
#[derive(Debug, Default)]
pub(crate) struct Unenforced {
    pub(super) missing: Vec<(Controller, String)>,
    /// What to do instead of writing such a limit.
    pub(super) advice: &'static str,
}

impl Unenforced {
    /// What no service of this machine can be limited in: systemd takes the limit and enforces nothing. With version 1
    /// systemd uses a controller if it can write its own group there; in a container it may have none.
    pub(crate) fn by_systemd(proc_root: &Path, mount: &Path) -> Self {
        let init = kernel::read(proc_root.join("1/cgroup")).unwrap_or_default();
        let own = cgroup_of_process(&init, "name=systemd").map(|(path, _)| path);
        let root = own.map(|path| path.strip_suffix(INIT).unwrap_or(path).trim_matches('/'));
        let unified = place::v2_mount(mount).and_then(|mount| place::available(&mount).ok());
        let has = |controller: &Controller| match cgroup_of_process(&init, controller.name()) {
            Some((_, false)) => root.is_some_and(|root| {
                let processes = mount.join(controller.name()).join(root).join(PROCS);
                access(processes, Access::WRITE_OK).is_ok()
            }),
            _ => unified.as_ref().is_some_and(|available| available.contains(controller)),
        };
        let missing = Controller::ALL.into_iter().filter(|controller| !has(controller));
        let why = "the kernel does not offer systemd this controller";
        let missing = missing.map(|one| (one, why.to_owned())).collect();
        Self { missing, advice: "leave it out" }
    }

    /// Describes each missing controller and its reason, for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line =
            |(controller, why): &(Controller, String)| format!("{}: {why}", controller.name());
        self.missing.iter().map(line).collect()
    }

    /// Returns the first limit of the pod that would not be enforced.
    pub(crate) fn field(&self, pod: &Pod) -> Option<UnsupportedField> {
        let spec = pod.spec.as_ref()?;
        let init = spec.init_containers.iter().flatten().enumerate();
        let init = init.map(|(i, container)| (format!("spec.initContainers[{i}]"), container));
        let regular = spec.containers.iter().enumerate();
        let regular = regular.map(|(i, container)| (format!("spec.containers[{i}]"), container));
        init.chain(regular).find_map(|(path, container)| {
            amounts::limits(container).find_map(|(name, controller)| {
                let (_, why) = self.missing.iter().find(|(missing, _)| *missing == controller)?;
                Some(UnsupportedField::new(
                    format!("{path}.resources.limits.{name}"),
                    format!("cannot be enforced ({why}): {}", self.advice),
                ))
            })
        })
    }
}
