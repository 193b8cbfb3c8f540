//! Google Compute Engine: two values of the metadata server, each long-polled until it changes.
//!
//! <https://cloud.google.com/compute/docs/instances/create-use-preemptible#detecting_if_an_instance_was_preempted>,
//! <https://cloud.google.com/compute/docs/metadata/getting-live-migration-notice>,
//! <https://cloud.google.com/compute/docs/gpus/gpu-host-maintenance>

use std::time::Duration;

use hyper::{Method, StatusCode};

use super::http::{Endpoint, MetadataRequest, MetadataRequestError, REQUEST_TIMEOUT};
use super::poll::{Announced, Service};
use super::seen::CloudEvent;
use crate::{Announcement, When};

#[cfg(test)]
mod tests;

/// How long Google gives a preempted machine.
const PREEMPTION_NOTICE: Duration = Duration::from_secs(30);

/// How long in advance Google announces that it stops a machine with GPUs, as those cannot be migrated. Others have
/// 60 s, which the stop itself shortens the run to.
const MAINTENANCE_NOTICE: Duration = Duration::from_secs(3600);

/// How long the server may hold a response, and the timeout of a request that waits for that.
const HELD_SECONDS: u32 = 60;
const HELD_REQUEST_TIMEOUT: Duration = Duration::from_secs(75);

const FLAVOR: &str = "metadata-flavor";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataValue {
    /// Whether the machine is being preempted.
    Preempted,
    /// Whether maintenance of its host is about to stop it.
    Maintenance,
}

pub(super) struct Gcp {
    endpoint: Endpoint,
    value: MetadataValue,
    /// The ETag of the value that was read last.
    seen: Option<String>,
}

// === impl Gcp ===

impl Gcp {
    pub(super) fn new(endpoint: Endpoint, value: MetadataValue) -> Self {
        Self { endpoint, value, seen: None }
    }
}

impl Service for Gcp {
    async fn ask(&mut self) -> Result<Announced, MetadataRequestError> {
        let path = self.value.path();
        // Taken, so that after a failure the value is requested again without waiting for a change.
        let (asked, within) = match self.seen.take() {
            None => (path.to_owned(), REQUEST_TIMEOUT),
            Some(seen) => (
                format!("{path}?wait_for_change=true&timeout_sec={HELD_SECONDS}&last_etag={seen}"),
                HELD_REQUEST_TIMEOUT,
            ),
        };
        let headers = &[(FLAVOR, "Google")];
        let request = MetadataRequest { method: Method::GET, path: &asked, headers, within };
        let answer = self.endpoint.send(&request).await?;
        if answer.status != StatusCode::OK {
            let status = answer.status;
            return Err(MetadataRequestError::Status { path: path.to_owned(), status, hint: "" });
        }
        let bad = |why: String| MetadataRequestError::Content { path: path.to_owned(), why };
        if answer.headers.get(FLAVOR).is_none_or(|flavor| flavor != "Google") {
            return Err(bad("it is not from Google's metadata server".to_owned()));
        }
        let announced = self.value.read(&answer.body).map_err(bad)?;
        // The event has neither an id nor a time. It counts as one event for as long as it lasts.
        let event = |announced| CloudEvent { id: path.to_owned(), not_before: None, announced };
        let events = announced.map(event).into_iter().collect();
        self.seen = answer.etag().filter(|etag| is_plain(etag)).map(str::to_owned);
        Ok(Announced { events, server_time: answer.server_time() })
    }
}

// === impl MetadataValue ===

impl MetadataValue {
    fn path(self) -> &'static str {
        match self {
            Self::Preempted => "/computeMetadata/v1/instance/preempted",
            Self::Maintenance => "/computeMetadata/v1/instance/maintenance-event",
        }
    }

    pub(super) fn read(self, body: &str) -> Result<Option<Announcement>, String> {
        let told = |after, text| Some(Announcement::new(When::In(after), text));
        Ok(match (self, body.trim()) {
            (Self::Preempted, "TRUE") => told(PREEMPTION_NOTICE, "the machine is preempted"),
            (Self::Preempted, "FALSE") => None,
            (Self::Maintenance, "TERMINATE_ON_HOST_MAINTENANCE") => {
                told(MAINTENANCE_NOTICE, "the machine is stopped for its host's maintenance")
            }
            // Live migration does not end the machine.
            (Self::Maintenance, "NONE" | "MIGRATE_ON_HOST_MAINTENANCE") => None,
            (_, other) => {
                let start: String = other.chars().take(40).collect();
                return Err(format!("{start:?} is not one of its values"));
            }
        })
    }
}

/// Whether the ETag can be put into a query without escaping.
fn is_plain(etag: &str) -> bool {
    !etag.is_empty() && etag.len() <= 64 && etag.bytes().all(|b| b.is_ascii_alphanumeric())
}
