//! Bounds what a pod takes from the API.
//!
//! A pod of a few kilobytes can name one large object ten thousand times, each time as another variable or file. All of
//! them would not fit into the node's memory, and the agent is the last process that the kernel ends to make room.

use super::problem::ReferenceProblem;

/// What a pod may still take.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: usize,
    all: usize,
}

// === impl Allowance ===

impl Allowance {
    /// For the names and values of all variables of a pod, in the bytes that they take in its record in memory. The kernel
    /// passes at most 6 MiB to a program.
    pub(crate) fn of_variables() -> Self {
        Self::of(32 << 20)
    }

    /// For the files of all volumes of a pod.
    pub(crate) fn of_volumes() -> Self {
        Self::of(64 << 20)
    }

    fn of(all: usize) -> Self {
        Self { left: all, all }
    }

    /// Takes this many bytes for what `field` names.
    ///
    /// # Errors
    /// Fewer are left.
    pub(crate) fn take(&mut self, field: &str, bytes: usize) -> Result<(), ReferenceProblem> {
        let Some(left) = self.left.checked_sub(bytes) else {
            let most = self.all >> 20;
            let why = format!(
                "the pod takes more than {most} MiB from the API: shorten the values of the ConfigMaps and Secrets that it \
                 names, or replace it with a pod that names fewer of their keys"
            );
            return Err(ReferenceProblem::Unfit { field: field.to_owned(), why });
        };
        self.left = left;
        Ok(())
    }
}
