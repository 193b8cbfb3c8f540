//! Fields of a pod that a runtime does not support.

use winddown_shared::{Pod, RuntimeError, UnsupportedField};

/// What the pod goes on without, given everything of it that the runtime does not do.
///
/// Only a pod of which nothing was ever started can be refused: what a running one asks for by an
/// update, or since the agent is another one, is no reason to end it. Containers to look into a pod
/// with (`kubectl debug`) can only come later, so they refuse no pod.
///
/// # Errors
/// [`RuntimeError::Unsupported`] with the first field.
pub fn refused_or_ignored(
    pod: &Pod,
    mut unsupported: Vec<UnsupportedField>,
    has_started: bool,
) -> Result<Vec<UnsupportedField>, RuntimeError> {
    if let (false, Some(first)) = (has_started, unsupported.first()) {
        return Err(first.clone().into());
    }
    let spec = pod.spec.as_ref();
    let later = spec.and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default();
    if !later.is_empty() {
        let (field, why) = ("spec.ephemeralContainers".to_owned(), "they are not run".to_owned());
        unsupported.push(UnsupportedField { field, why });
    }
    Ok(unsupported)
}
