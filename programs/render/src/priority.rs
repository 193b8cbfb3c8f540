//! A pod's priority, the same wherever it is shown.

use winddown_control::api::PodStatus;

/// The priority; "-" of a pod that has none, or whose priority is unknown.
pub fn priority(priority: Option<i32>) -> String {
    priority.map_or_else(|| "-".to_owned(), |priority| priority.to_string())
}

/// The priority of a pod in a status; unknown for pods that only the runtime knows.
pub fn priority_of(pod: &PodStatus) -> String {
    let is_unknown = pod.source.is_empty() || pod.has_no_priority;
    priority((!is_unknown).then_some(pod.priority))
}
