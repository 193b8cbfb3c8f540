//! Fields of a pod that a runtime does not support.

use winddown_shared::{Pod, RuntimeError, UnsupportedField};

/// Returns the fields that are ignored for a pod, given all fields that the runtime does not support.
///
/// Only a pod that was never started can be refused: unsupported fields from an update, or under a new agent, are no
/// reason to stop a running pod.
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

/// Returns the field of ephemeral containers (`kubectl debug`), for runtimes that do not run them. They are only added
/// to a running pod, so they never cause a refusal.
pub fn ephemeral(pod: &Pod) -> Option<UnsupportedField> {
    let later = pod.spec.as_ref()?.ephemeral_containers.as_ref()?;
    let (field, why) = ("spec.ephemeralContainers".to_owned(), "they are not run".to_owned());
    (!later.is_empty()).then_some(UnsupportedField::new(field, why))
}
