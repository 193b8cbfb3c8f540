//! Builds the event object for the API. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::events::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use winddown_shared::display;

use super::queue::Queued;

/// The API's limits for a message and for shorter texts, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
const MAX_WORD_BYTES: usize = 128;
/// The API's limit for a name, less the suffix that makes it unique.
const MAX_NAME_BYTES: usize = 253 - 17;

/// The name of the event: the same for each attempt, so that an event is not written twice if an
/// answer was lost.
pub(super) fn name(queued: &Queued) -> String {
    let nanos = queued.at.as_nanosecond().wrapping_add(i128::from(queued.number));
    let nanos = u64::try_from(nanos).unwrap_or(queued.number);
    format!(
        "{}.{nanos:x}",
        display::truncated(queued.draft.about.name(), MAX_NAME_BYTES).trim_end_matches(['.', '-'])
    )
}

/// The object to create.
pub(super) fn body(
    queued: &Queued,
    name: &str,
    message: &str,
    reporter: &str,
    instance: &str,
) -> api::Event {
    let draft = &queued.draft;
    let annotations: BTreeMap<String, String> =
        draft.annotations.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let reason = display::truncated(&draft.reason, MAX_WORD_BYTES).to_owned();
    api::Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(draft.about.events_namespace().to_owned()),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(queued.at)),
        regarding: Some(draft.about.reference()),
        type_: Some(draft.kind.as_str().to_owned()),
        // The kubelet sets no action, but the API requires one.
        action: Some(reason.clone()),
        reason: Some(reason),
        note: Some(shortened(message)),
        reporting_controller: Some(display::truncated(reporter, MAX_WORD_BYTES).to_owned()),
        reporting_instance: Some(display::truncated(instance, MAX_WORD_BYTES).to_owned()),
        ..api::Event::default()
    }
}

/// The patch that turns the event into a series.
pub(super) fn series(queued: &Queued, count: i32) -> serde_json::Value {
    serde_json::json!({"series": {"count": count, "lastObservedTime": MicroTime(queued.at)}})
}

fn shortened(message: &str) -> String {
    if message.len() <= MAX_NOTE_BYTES {
        return message.to_owned();
    }
    format!("{}...", display::truncated(message, MAX_NOTE_BYTES - 3))
}
