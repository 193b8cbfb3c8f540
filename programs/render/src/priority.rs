//! A pod's priority, the same wherever it is shown.

use winddown_control::api::PodStatus;

/// The priority; "-" of a pod that has none, or whose priority is unknown.
pub fn priority(priority: Option<i32>) -> String {
    priority.map_or_else(|| "-".to_owned(), |priority| priority.to_string())
}

/// The same of a pod whose `priority` is 0 if it has none.
pub fn priority_unless_unset(priority: i32, has_no_priority: bool) -> String {
    self::priority((!has_no_priority).then_some(priority))
}

/// The priority of a pod in a status; unknown for pods that only the runtime knows.
pub fn priority_of(pod: &PodStatus) -> String {
    priority_unless_unset(pod.priority, pod.source.is_empty() || pod.has_no_priority)
}
