//! Why a request about the node failed.

use std::sync::Arc;

use winddown_api_client::refusal::{self, Refusal};

/// A request that failed, or whose result is unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("{}", refusal::text(.0))]
    Api(kube::Error),
    #[error("without the labels {refused}: {cause}")]
    Labels { refused: String, cause: Box<Fault> },
}

impl Fault {
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Self::Api(error) => Refusal::of(error),
            Self::Labels { cause, .. } => cause.refusal(),
        }
    }

    /// The text of a node whose request this is. None for want of credentials, which the connection's state shows.
    pub(super) fn problem(&self) -> Option<Arc<str>> {
        let is_told = matches!(self, Self::Api(error) if refusal::is_unsigned(error));
        (!is_told).then(|| self.to_string().into())
    }

    /// Whether the server refuses the request itself, so that another one may be accepted.
    pub(super) fn is_for_good(&self) -> bool {
        matches!(self.refusal(), Refusal::NotAllowed | Refusal::Denied | Refusal::Invalid)
    }
}
