//! Amazon EC2: the instance metadata service, version 2.
//!
//! <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html>,
//! <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html>

use std::time::Duration;

use hyper::{Method, StatusCode};
use serde::Deserialize;
use tokio::time::Instant;
use winddown_shared::{WallClock, WallTime};

use super::http::{
    Endpoint, MetadataRequest, MetadataRequestError, MetadataResponse, REQUEST_TIMEOUT, date,
};
use super::poll::{Announced, Service, understood};
use super::seen::CloudEvent;
use crate::{Announcement, When};

#[cfg(test)]
mod tests;

const TOKEN: &str = "/latest/api/token";
const SPOT: &str = "/latest/meta-data/spot/instance-action";
const EVENTS: &str = "/latest/meta-data/events/maintenance/scheduled";

/// The lifetime that is requested for a token, and how long it is used: a little less.
const TOKEN_SECONDS: &str = "21600";
const TOKEN_USED: Duration = Duration::from_secs(21_000);

pub(super) struct Aws {
    endpoint: Endpoint,
    /// Used in place of the service's clock when a response has no date.
    wall: WallClock,
    token: Option<Token>,
}

struct Token {
    text: String,
    until: Instant,
}

/// The document at `spot/instance-action`.
#[derive(Deserialize)]
struct SpotAction {
    action: String,
    time: WallTime,
}

/// An element of `events/maintenance/scheduled`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Event {
    code: String,
    state: String,
    description: String,
    not_before: String,
    event_id: String,
}

// === impl Aws ===

impl Aws {
    pub(super) fn new(endpoint: Endpoint, wall: WallClock) -> Self {
        Self { endpoint, wall, token: None }
    }

    async fn token(&mut self) -> Result<String, MetadataRequestError> {
        if let Some(token) = self.token.as_ref().filter(|token| token.until > Instant::now()) {
            return Ok(token.text.clone());
        }
        let answer = self
            .endpoint
            .send(&MetadataRequest {
                method: Method::PUT,
                path: TOKEN,
                headers: &[("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS)],
                within: REQUEST_TIMEOUT,
            })
            .await?;
        if answer.status != StatusCode::OK {
            let hint = "; IMDSv2 must be enabled on this instance";
            return Err(MetadataRequestError::Status {
                path: TOKEN.to_owned(),
                status: answer.status,
                hint,
            });
        }
        let text = answer.word(TOKEN)?.to_owned();
        self.token = Some(Token { text: text.clone(), until: Instant::now() + TOKEN_USED });
        Ok(text)
    }

    /// Returns the body, or `None` on a 404, and the service's time.
    async fn get(
        &mut self,
        path: &str,
    ) -> Result<(Option<String>, Option<WallTime>), MetadataRequestError> {
        let token = self.token().await?;
        let headers = &[("x-aws-ec2-metadata-token", token.as_str())];
        let request =
            MetadataRequest { method: Method::GET, path, headers, within: REQUEST_TIMEOUT };
        let answer = self.endpoint.send(&request).await?;
        let time = answer.server_time();
        let MetadataResponse { status, body, .. } = answer;
        match status {
            StatusCode::OK => Ok((Some(body), time)),
            StatusCode::NOT_FOUND => Ok((None, time)),
            status => {
                if status == StatusCode::UNAUTHORIZED {
                    self.token = None;
                }
                Err(MetadataRequestError::Status { path: path.to_owned(), status, hint: "" })
            }
        }
    }
}

impl Service for Aws {
    async fn ask(&mut self) -> Result<Announced, MetadataRequestError> {
        let bad = |path: &str| {
            let path = path.to_owned();
            |why| MetadataRequestError::Content { path, why }
        };
        let (spot, server_time) = self.get(SPOT).await?;
        let spot = spot.map(|body| spot_action(&body)).transpose().map_err(bad(SPOT))?;
        // Do not spend any of the two minutes on another request. An action whose time has passed may
        // belong to an earlier boot.
        let now = server_time.unwrap_or_else(|| self.wall.now());
        if let Some(spot) = &spot
            && spot.not_before > Some(now)
        {
            return Ok(Announced { events: vec![spot.clone()], server_time });
        }
        let (events, later) = self.get(EVENTS).await?;
        let events = events.map(|body| scheduled(&body)).transpose().map_err(bad(EVENTS))?;
        let events = events.into_iter().flatten().chain(spot).collect();
        Ok(Announced { events, server_time: later.or(server_time) })
    }
}

/// Parses the interruption of a spot instance.
pub(super) fn spot_action(body: &str) -> Result<CloudEvent, String> {
    let SpotAction { action, time } = serde_json::from_str(body).map_err(|e| e.to_string())?;
    let done = match action.as_str() {
        "terminate" => "terminated",
        "stop" => "stopped",
        "hibernate" => "hibernated",
        _ => "reclaimed",
    };
    let announced = Announcement::new(When::At(time), &format!("the spot instance is {done}"));
    Ok(CloudEvent { id: format!("spot {action} {time}"), not_before: Some(time), announced })
}

/// Parses the scheduled events and returns those that end the instance.
pub(super) fn scheduled(body: &str) -> Result<Vec<CloudEvent>, String> {
    // On some instances the body is empty when nothing is scheduled.
    if body.trim().is_empty() {
        return Ok(Vec::new());
    }
    let events: Vec<Event> = serde_json::from_str(body).map_err(|e| e.to_string())?;
    let mut ending = Vec::new();
    for event in events {
        // AWS leaves completed and canceled events in the list, marked in the description.
        let over = matches!(event.state.as_str(), "completed" | "canceled")
            || event.description.starts_with("[Completed]")
            || event.description.starts_with("[Canceled]");
        if over || !ends_the_instance(&event.code) {
            continue;
        }
        let at = date(&event.not_before)
            .ok_or_else(|| format!("NotBefore {:?} is no date", event.not_before));
        ending.push(at.map(|at| {
            let text = format!("scheduled event {}: {}", event.code, event.description);
            let announced = Announcement::new(When::At(at), &text);
            CloudEvent { id: event.event_id, not_before: Some(at), announced }
        }));
    }
    understood(ending)
}

/// Whether an event ends the instance. `system-maintenance` (network, power) leaves it running.
fn ends_the_instance(code: &str) -> bool {
    matches!(code, "instance-stop" | "instance-retirement" | "instance-reboot" | "system-reboot")
}
