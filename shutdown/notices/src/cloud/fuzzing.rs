//! Parses arbitrary text as responses of the metadata services.

use super::{aws, azure, gcp, http};
use crate::Announcement;

/// Returns what the text announces when it is read as the response to each kind of request.
pub(crate) fn answers(text: &str) -> Vec<Announcement> {
    let _ = http::date(text);
    let _ = text.parse::<http::Endpoint>();
    let values = [gcp::MetadataValue::Preempted, gcp::MetadataValue::Maintenance];
    let told = values.into_iter().filter_map(|value| value.read(text).ok().flatten());
    let events = aws::spot_action(text).into_iter();
    let events = events.chain(aws::scheduled(text).into_iter().flatten());
    let events = events.chain(azure::scheduled(text, "vm-1").into_iter().flatten());
    told.chain(events.map(|event| event.announced)).collect()
}
