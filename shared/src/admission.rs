//! Who may run on this node: a chain of handlers, the first refusal wins.

use std::sync::Arc;

use crate::Pod;

/// One question a new pod is asked. Must answer at once.
pub trait AdmitHandler: Send + Sync + 'static {
    /// Lets the pod in, or says why not.
    ///
    /// `others` lists the pods that hold a place on the node now; a handler that does not need them
    /// does not pay for the list.
    ///
    /// # Errors
    /// The reason and message that go into the pod's status.
    fn admit(&self, pod: &Pod, others: &dyn Fn() -> Vec<Pod>) -> Result<(), Rejection>;
}

/// Why a pod is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Rejection {
    /// `status.reason`, for example `NodeShutdown`.
    pub reason: Arc<str>,
    /// For people. The status carries it behind [`Rejection::STATUS_PREFIX`].
    pub message: Arc<str>,
    /// Whether the same pod may be let in later on this node without anybody changing it.
    pub passing: bool,
}

impl Rejection {
    /// What the kubelet puts before the message in a rejected pod's status.
    pub const STATUS_PREFIX: &'static str = "Pod was rejected: ";

    /// The message as the status carries it.
    pub fn status_message(&self) -> String {
        format!("{}{}", Self::STATUS_PREFIX, self.message)
    }
}

/// Handlers in the order in which they are asked.
#[derive(Default)]
pub struct Admission(Vec<Box<dyn AdmitHandler>>);

impl Admission {
    /// Adds a handler behind those there are.
    #[must_use]
    pub fn then(mut self, handler: impl AdmitHandler) -> Self {
        self.0.push(Box::new(handler));
        self
    }

    /// Asks every handler; the first refusal wins.
    ///
    /// # Errors
    /// The first refusal.
    pub fn admit(&self, pod: &Pod, others: &dyn Fn() -> Vec<Pod>) -> Result<(), Rejection> {
        self.0.iter().try_for_each(|handler| handler.admit(pod, others))
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Admission({} handlers)", self.0.len())
    }
}
