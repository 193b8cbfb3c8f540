//! Why a pod cannot be resolved, and what it waits for.

use std::sync::Arc;
use std::time::Duration;

use super::object::ObjectKey;
use winddown_cluster::pods::PrepareError;

/// The reason that a pod cannot be resolved.
#[derive(Clone, Debug)]
pub(crate) enum ReferenceProblem {
    /// An object or a key does not exist.
    Missing {
        key: ObjectKey,
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
    /// What the objects hold does not suit the pod: that can change without the pod.
    Unfit {
        field: String,
        why: String,
    },
}

impl From<ReferenceProblem> for PrepareError {
    fn from(problem: ReferenceProblem) -> Self {
        match problem {
            ReferenceProblem::Missing { key, is_for_volume, message, .. } => {
                let (kind, name) = (key.kind.as_str(), key.name.to_string());
                Self::Missing { kind, name, is_for_volume, message }
            }
            ReferenceProblem::Unreadable { message, after } => {
                Self::Unavailable { what: message, after }
            }
            ReferenceProblem::Invalid { field, why } => Self::Invalid { field, why },
            ReferenceProblem::Unfit { field, why } => {
                Self::Unavailable { what: format!("{field}: {why}"), after: None }
            }
        }
    }
}
