//! What an error of the API server means for its caller.

use std::error::Error;
use std::time::Duration;

use kube::runtime::watcher;
use winddown_shared::error_chain;

use super::error::RequestError;

#[cfg(test)]
mod tests;

/// Why the API server did not carry out a request, as far as the next step depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 404: there is no such object.
    NotFound,
    /// 409: an object with this name already exists.
    AlreadyExists,
    /// 409: the object does not have the UID that the request named; that object is gone.
    OtherUid,
    /// 409: another client changed the object in the meantime.
    Conflict,
    /// 410: the requested version is too old.
    Expired,
    /// 403.
    NotAllowed,
    /// An admission webhook or policy denied the request, with whatever code, and may agree later.
    Denied,
    /// 400, 422 and the like: the request itself is wrong; repeating it will not help.
    Invalid,
    /// 429 or 5xx: the server cannot handle the request now.
    Busy {
        /// How long the server asks clients to wait.
        after: Option<Duration>,
    },
    /// There was no answer, or none about the request: the credentials were not accepted (401), or something in
    /// front of the API server answered. The request may have been carried out.
    NoAnswer,
}

/// Returns the error on one line, for logs and states: what the server said, or why it could not be
/// asked. The client's own texts repeat their causes; here each occurs once.
pub fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answered {} {}", status.code, status.reason)
        }
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(cause) => error_chain(cause.as_ref()),
        other => error_chain(other),
    }
}

/// Returns the same for an error of a watch.
pub fn watch_text(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => text(error),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// What an error of a watch means; `None` if the API server refused nothing.
pub fn of_watch(error: &watcher::Error) -> Option<Refusal> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(Refusal::of(error)),
        // Told in the stream, as a real API server tells that a version has expired.
        watcher::Error::WatchError(status) => Some(Refusal::of_status(status)),
        watcher::Error::NoResourceVersion => None,
    }
}

/// Returns the error and its causes on one line, like [`error_chain`], but with the texts of
/// [`text`] for the client's errors, whose own are written for programmers.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let client =
            error.downcast_ref().map(text).or_else(|| error.downcast_ref().map(watch_text));
        next = if client.is_some() { None } else { error.source() };
        let words = client.unwrap_or_else(|| error.to_string());
        if said.is_empty() {
            said = words;
        } else if !said.contains(&words) {
            said = format!("{said}: {words}");
        }
    }
    said
}

impl Refusal {
    /// Classifies an error.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            _ => Self::NoAnswer,
        }
    }

    fn of_status(status: &kube::core::Status) -> Self {
        match status.code {
            _ if says_admission(status) => Self::Denied,
            404 if status.reason == "NotFound" => Self::NotFound,
            409 if status.reason == "AlreadyExists" => Self::AlreadyExists,
            409 if names_uid(status) => Self::OtherUid,
            409 => Self::Conflict,
            410 => Self::Expired,
            403 => Self::NotAllowed,
            401 | 404 => Self::NoAnswer,
            // Some servers compare UIDs when they validate the result of a patch.
            422 if names_uid(status) => Self::OtherUid,
            400 | 405 | 406 | 413 | 415 | 422 => Self::Invalid,
            // An eviction's, with no reason and no detail.
            500 if has_several_budgets(status) => Self::Invalid,
            _ => Self::Busy { after: retry_after(status) },
        }
    }

    /// Whether the object that the request named no longer exists.
    pub fn is_gone(self) -> bool {
        matches!(self, Self::NotFound | Self::OtherUid)
    }

    /// How long the server asks clients to wait.
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Busy { after } => after,
            _ => None,
        }
    }
}

/// Whether an eviction was refused for good because more than one disruption budget selects the pod.
pub fn has_several_budgets(status: &kube::core::Status) -> bool {
    status.message.contains("more than one PodDisruptionBudget")
}

/// Whether a webhook or a policy answered. Its words are the only sign: the code and the reason are of its own choice.
fn says_admission(status: &kube::core::Status) -> bool {
    // The last are a mutating policy's, and a validating one's too.
    let words = ["admission webhook \"", "ValidatingAdmissionPolicy '", " denied request: "];
    words.iter().any(|words| status.message.contains(words))
}

/// Whether the API server could not ask a webhook without which it admits nothing.
pub(crate) fn misses_webhook(status: &kube::core::Status) -> bool {
    status.message.contains("failed calling webhook")
}

/// Whether an admission plug-in of the API server answered with this 403, and may agree later. What is refused for want of
/// a right, or because the namespace is being deleted, is refused for good.
pub(crate) fn is_of_plugin(status: &kube::core::Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    !status.message.contains(" is forbidden: User \"")
        && !causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether this says that the API server does not serve the path. Any program in Go may say it, such as one in front of the
/// API server that does not know that: of an object it says nothing.
pub fn is_unserved(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && status.message == "404 page not found")
        || Refusal::of(error) == Refusal::NotFound
}

/// Whether there were no credentials to send the request with.
pub fn is_unsigned(error: &kube::Error) -> bool {
    let kube::Error::Service(cause) = error else { return false };
    matches!(cause.downcast_ref(), Some(RequestError::Unsigned { .. }))
}

fn names_uid(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    // The storage layer and the deletion use different words.
    let words = ["UID in precondition", "UID in the precondition"];
    words.iter().any(|words| status.message.contains(words))
        || causes.into_iter().any(|cause| cause.field == "metadata.uid")
}

fn retry_after(status: &kube::core::Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}
