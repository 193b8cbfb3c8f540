//! Fields of a pod that a runtime does not support.

use winddown_shared::{Pod, RuntimeError, UnsupportedField};

/// What the pod goes on without, given everything of it that the runtime does not do.
///
/// Only a pod of which nothing was ever started can be refused: what a running one asks for by an
/// update, or since the agent is another one, is no reason to end it.
///
/// # Errors
/// [`RuntimeError::Unsupported`] with the first field.
pub fn refused_or_ignored(
    unsupported: Vec<UnsupportedField>,
    has_started: bool,
) -> Result<Vec<UnsupportedField>, RuntimeError> {
    if let (false, Some(first)) = (has_started, unsupported.first()) {
        return Err(first.clone().into());
    }
    Ok(unsupported)
}

/// What the pod goes on without where containers to look into it (`kubectl debug`) are not run. They can only come
/// later, so they refuse no pod.
pub fn ephemeral(pod: &Pod) -> Option<UnsupportedField> {
    let later = pod.spec.as_ref()?.ephemeral_containers.as_ref()?;
    let (field, why) = ("spec.ephemeralContainers".to_owned(), "they are not run".to_owned());
    (!later.is_empty()).then_some(UnsupportedField { field, why })
}
