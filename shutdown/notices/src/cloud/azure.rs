//! Microsoft Azure: scheduled events.
//!
//! <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events>

use std::time::Duration;

use hyper::{Method, StatusCode};
use serde::Deserialize;

use super::http::{
    Endpoint, MetadataRequest, MetadataRequestError, MetadataResponse, REQUEST_TIMEOUT, date,
};
use super::poll::{Announced, Service, understood};
use super::seen::CloudEvent;
use crate::{Announcement, When};

#[cfg(test)]
mod tests;

const EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
const NAME: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";

/// The timeout of the first request, which enables the service for this machine: that takes up to two minutes.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(150);

/// The time assumed to be left once an event has started. The service does not say how much is left.
const STARTED_EVENT_TIME: Duration = Duration::from_secs(5);

pub(super) struct Azure {
    endpoint: Endpoint,
    /// This machine's name, to find it among an event's resources: the service lists the events of a
    /// whole availability set or scale set.
    name: Option<String>,
    answered: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    events: Vec<Event>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Event {
    event_id: String,
    event_type: String,
    event_status: String,
    resources: Vec<String>,
    not_before: Option<String>,
    description: Option<String>,
}

// === impl Azure ===

impl Azure {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, name: None, answered: false }
    }

    async fn get(
        &self,
        path: &str,
        within: Duration,
    ) -> Result<MetadataResponse, MetadataRequestError> {
        let headers = &[("metadata", "true")];
        let request = MetadataRequest { method: Method::GET, path, headers, within };
        let answer = self.endpoint.send(&request).await?;
        match answer.status {
            StatusCode::OK => Ok(answer),
            status => Err(MetadataRequestError::Status { path: path.to_owned(), status, hint: "" }),
        }
    }
}

impl Service for Azure {
    async fn ask(&mut self) -> Result<Announced, MetadataRequestError> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let name = self.get(NAME, REQUEST_TIMEOUT).await?.word(NAME)?.to_owned();
                self.name.insert(name).clone()
            }
        };
        let within = if self.answered { REQUEST_TIMEOUT } else { FIRST_REQUEST_TIMEOUT };
        let answer = self.get(EVENTS, within).await?;
        self.answered = true;
        let events = scheduled(&answer.body, &name)
            .map_err(|why| MetadataRequestError::Content { path: EVENTS.to_owned(), why })?;
        Ok(Announced { events, server_time: answer.server_time() })
    }
}

/// Parses the events and returns those that end the machine `name`.
pub(super) fn scheduled(body: &str, name: &str) -> Result<Vec<CloudEvent>, String> {
    let Document { events } = serde_json::from_str(body).map_err(|e| e.to_string())?;
    let mut ending = Vec::new();
    for event in events {
        let ours = event.resources.iter().any(|resource| resource.eq_ignore_ascii_case(name));
        let Some(what) = what_ends(&event.event_type).filter(|_| ours) else { continue };
        let not_before = event.not_before.as_deref().map(str::trim).unwrap_or_default();
        // An event that has started has no time any more, and sorts before all others.
        let not_before = match (event.event_status.as_str(), not_before) {
            ("Started", _) | (_, "") => Ok(None),
            (_, text) => {
                let at = date(text).or_else(|| text.parse().ok());
                at.map(Some).ok_or_else(|| format!("NotBefore {text:?} is no date"))
            }
        };
        ending.push(not_before.map(|not_before| {
            let when = not_before.map_or(When::In(STARTED_EVENT_TIME), When::At);
            let text = match event.description.as_deref().map(str::trim) {
                None | Some("") => format!("the machine is {what}"),
                Some(description) => format!("the machine is {what}: {description}"),
            };
            let announced = Announcement::new(when, &text);
            CloudEvent { id: event.event_id, not_before, announced }
        }));
    }
    understood(ending)
}

/// Describes what an event does to the machine, if it ends it. `Freeze` only pauses it.
fn what_ends(event_type: &str) -> Option<&'static str> {
    Some(match event_type {
        "Preempt" => "preempted",
        "Terminate" => "deleted",
        "Reboot" => "rebooted",
        "Redeploy" => "moved to another host",
        _ => return None,
    })
}
