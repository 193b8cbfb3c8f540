//! Bounds what a pod takes from the API.
//!
//! A pod of a few kilobytes can name one large object ten thousand times, each time as another variable or file. All of
//! them would not fit into the node's memory, and the agent is the last process that the kernel ends to make room.

use super::problem::ReferenceProblem;

/// The most bytes that the variables of a pod which come from the API take in its record, beside what its own object takes.
/// All of them would not fit into the memory of a program: the kernel passes at most 6 MiB to one.
pub const MOST_BYTES_OF_VARIABLES: usize = 32 << 20;

/// What a pod may still take.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: usize,
    all: usize,
}

// === impl Allowance ===

impl Allowance {
    /// For all variables of a pod.
    pub(crate) fn of_variables() -> Self {
        Self::of(MOST_BYTES_OF_VARIABLES)
    }

    /// For the files of all volumes of a pod.
    pub(crate) fn of_volumes() -> Self {
        Self::of(64 << 20)
    }

    fn of(all: usize) -> Self {
        Self { left: all, all }
    }

    /// Counts what the pod has already.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
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
