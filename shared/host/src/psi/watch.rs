//! Waits for a trigger.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use crate::ready::Ready;

use super::arm::{self, Armed, PsiTrigger, Unarmed};
use crate::usage::CgroupTree;

/// The scope whose pressure is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PsiPlace {
    /// The whole machine: `/proc/pressure/memory`.
    Node,
    /// A cgroup with all its descendants, by its path from the root of the unified hierarchy.
    Cgroup(String),
}

/// Shows `the whole machine` or, for example, `cgroup /edge`.
impl fmt::Display for PsiPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("the whole machine"),
            Self::Cgroup(path) => write!(f, "cgroup {path}"),
        }
    }
}

/// A trigger that is set. Dropping it removes it.
#[derive(Debug)]
pub struct PsiWatch(Ready);

impl PsiWatch {
    /// Sets a trigger. Does a little file I/O, and does not block for long. Must be called inside a tokio runtime with
    /// I/O enabled.
    ///
    /// # Errors
    /// The kernel does not report pressure for the place, or not to this process.
    pub fn start(
        proc: &Path,
        cgroup: &Path,
        place: &PsiPlace,
        trigger: PsiTrigger,
    ) -> Result<(Self, Armed), Unarmed> {
        let path = match place {
            PsiPlace::Node => Some(proc.join("pressure/memory")),
            PsiPlace::Cgroup(path) => CgroupTree::find(cgroup).memory_pressure(path),
        };
        let path = path.ok_or_else(|| Unarmed::Missing { path: cgroup.to_owned() })?;
        let (file, armed) = arm::arm(&path, trigger)?;
        Ok((Self::of(file.into())?, armed))
    }

    pub(super) fn of(trigger: OwnedFd) -> Result<Self, Unarmed> {
        Ready::for_urgent(trigger).map(Self).map_err(|source| Unarmed::NoWaiting { source })
    }

    /// Waits until the trigger fires. Returns false if the trigger is gone with its cgroup; set it again if the cgroup
    /// comes back. Several alarms since the last call may be merged. Cancel-safe.
    pub async fn stalled(&self) -> bool {
        self.0.urgent().await
    }
}

/// The trigger for a node that wants to act before it runs out of memory: 70 ms lost by any task within half a second.
impl Default for PsiTrigger {
    fn default() -> Self {
        Self { stall: Duration::from_millis(70), window: Duration::from_millis(500) }
    }
}
