//! Turns decisions into Kubernetes Events.

use winddown_shared::{Event, KillReason};

use super::of_pod::{self, in_words};
use super::{EventDraft, NodeRef, Subject};

/// Returns the Kubernetes Events of one decision: those that the kubelet has, in its words.
///
/// What the kubelet does not report becomes no event; it is in the log and in the report. Nor does a
/// change of the node's pressure: the [node controller](crate::node) reports that with the condition.
// Over the limit because it is a table: one row per decision that is an event, in the words of the kubelet.
pub fn events_of(event: &Event, node: &NodeRef) -> Vec<EventDraft> {
    let of_node = |reason: &'static str, message: String| {
        EventDraft::normal(Subject::node(node), reason, message).decided()
    };
    match event {
        Event::PodRejected { pod, reason, message } => {
            let about = Subject::pod(pod);
            vec![EventDraft::warning(about, reason.to_string(), message.clone()).decided()]
        }
        Event::PreemptionStarted { victims, .. } => {
            let one = |victim| {
                let message = "Preempted in order to admit critical pod";
                EventDraft::warning(Subject::pod(victim), "Preempting", message).decided()
            };
            victims.iter().map(one).collect()
        }
        Event::EvictionThresholdMet { resource, .. } => {
            let message = format!("Attempting to reclaim {resource}");
            let about = Subject::node(node);
            vec![EventDraft::warning(about, "EvictionThresholdMet", message).decided()]
        }
        Event::EvictionStarted { pod, message, annotations, .. } => {
            let draft = EventDraft::warning(Subject::pod(pod), "Evicted", message.clone());
            vec![EventDraft { annotations: annotations.clone(), ..draft.decided() }]
        }
        Event::PluginChose { pod, reason, message, .. } => {
            let about = Subject::pod(pod);
            vec![EventDraft::warning(about, reason.to_string(), message.clone()).decided()]
        }
        Event::Pod(event) => vec![of_pod::draft(event)],
        Event::KillRequested { pod, by, grace, .. } => {
            // The events of the containers say enough.
            if *by == KillReason::Removed {
                return Vec::new();
            }
            let message = format!("Stopping pod: {}, within {}", by.text(), in_words(*grace));
            vec![EventDraft::normal(Subject::pod(pod), "Killing", message)]
        }
        Event::PodStopped { pod, remark: Some(remark), .. } => {
            let message = format!("Pod has terminated: {remark}");
            vec![EventDraft::warning(Subject::pod(pod), "Killed", message)]
        }
        Event::SyncFailed { pod, of_stop, error, .. } => {
            let reason = if *of_stop { "FailedKillPod" } else { "FailedSync" };
            vec![EventDraft::warning(Subject::pod(pod), reason, error.clone())]
        }
        Event::FieldsIgnored { pod, message } => {
            let message = format!("Continuing without {message}");
            vec![EventDraft::warning(Subject::pod(pod), "PodFeatureUnsupported", message)]
        }
        Event::DeadlineExceeded { pod } => {
            let message = "Pod was active on the node longer than the specified deadline";
            vec![EventDraft::normal(Subject::pod(pod), "DeadlineExceeded", message).decided()]
        }
        Event::ExceededGracePeriod { pod } => {
            let message = "Container runtime did not kill the pod within specified grace period.";
            let about = Subject::pod(pod);
            vec![EventDraft::warning(about, "ExceededGracePeriod", message).decided()]
        }
        Event::ShutdownStarted { .. } => {
            vec![of_node("Shutdown", "Shutdown manager detected shutdown event".to_owned())]
        }
        Event::ShutdownCancelled { .. } => {
            vec![of_node("Shutdown", "Shutdown manager detected shutdown cancellation".to_owned())]
        }
        _ => Vec::new(),
    }
}
