//! Why a pod cannot be resolved, and what it waits for.

use std::sync::Arc;
use std::time::Duration;

use super::object::Key;
use winddown_cluster::pods::PrepareError;

/// The reason that a pod cannot be resolved.
#[derive(Clone, Debug)]
pub(crate) enum Problem {
    /// An object or a key does not exist.
    Missing {
        key: Key,
        /// The version of the object that lacks the key; `None` if the object does not exist.
        version: Option<Arc<str>>,
        /// Whether a volume needs it; otherwise a variable does.
        is_for_volume: bool,
        message: String,
    },
    Unreadable {
        message: String,
        after: Option<Duration>,
    },
    Invalid {
        field: String,
        why: String,
    },
}

impl From<Problem> for PrepareError {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Missing { key, is_for_volume, message, .. } => {
                let (kind, name) = (key.kind.as_str(), key.name.to_string());
                Self::Missing { kind, name, is_for_volume, message }
            }
            Problem::Unreadable { message, after } => Self::Unavailable { what: message, after },
            Problem::Invalid { field, why } => Self::Invalid { field, why },
        }
    }
}
