//! Why a request about the node failed.

use std::time::Duration;

use winddown_api_client::refusal::{self, Refusal};

/// A request that failed, or whose result is unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
    #[error("{}", refusal::text(.0))]
    Api(kube::Error),
    #[error("without the labels {refused}: {cause}")]
    Labels { refused: String, cause: Box<Fault> },
}

impl Fault {
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Self::Timeout(_) => Refusal::NoAnswer,
            Self::Api(error) => Refusal::of(error),
            Self::Labels { cause, .. } => cause.refusal(),
        }
    }

    /// Whether the server refuses the request itself, so that another one may be accepted.
    pub(super) fn is_for_good(&self) -> bool {
        matches!(self.refusal(), Refusal::NotAllowed | Refusal::Denied | Refusal::Invalid)
    }
}
