//! Commands from outside: lines on the standard input of the program, or bodies posted to `/faults`.

use std::time::Duration;

use hyper::Method;
use hyper::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ApiServer;
use crate::core::Shared;
use crate::fault::Fault;
use crate::serve::{Body, json as answer};

/// A command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Command {
    /// Sets a fault.
    Fault(Fault),
    /// Lifts all faults.
    LiftAll,
    /// Ends the open watches of a resource; `*` means all.
    DropWatches(String),
    /// Forgets all past changes.
    Compact,
    /// Pauses or resumes the events of watches.
    PauseWatches(bool),
    /// Denies a verb on a resource.
    Deny(String, String),
    /// Lifts all denials.
    AllowEverything,
    /// Sets the clock's skew in seconds.
    ClockSkew(i64),
    /// Creates or updates an object.
    Apply(Value),
    /// Refuses connections for this many seconds. Not available through `/faults`, which could not answer.
    CutOffSeconds(u64),
    /// Swallows all traffic for this many seconds. Not available through `/faults`.
    SilentSeconds(u64),
}

impl Command {
    /// Runs the command; commands with a duration return when it is over.
    ///
    /// # Errors
    /// A message about what went wrong.
    pub async fn run(self, server: &ApiServer) -> Result<(), String> {
        match self {
            Self::CutOffSeconds(seconds) => {
                server.cut_off().await.map_err(|e| e.to_string())?;
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                server.come_back().await.map_err(|e| e.to_string())
            }
            Self::SilentSeconds(seconds) => {
                server.set_silent(true);
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                server.set_silent(false);
                Ok(())
            }
            Self::Apply(object) => server.apply(object).map(|_| ()).map_err(|e| e.to_string()),
            other => over_state(&server.shared, other).map_err(str::to_owned),
        }
    }
}

/// Serves `/faults` (POST: a [`Command`]) and `/requests` (GET: the journal).
pub(crate) fn over_http(
    shared: &Shared,
    path: &str,
    method: &Method,
    body: &Value,
) -> Option<Response<Body>> {
    match (path, method.as_str()) {
        ("/faults", "POST") => {
            let done = serde_json::from_value(body.clone())
                .map_err(|e| e.to_string())
                .and_then(|command| over_state(shared, command).map_err(str::to_owned));
            Some(match done {
                Ok(()) => answer(shared, 200, &json!({"status": "Success"})),
                Err(why) => answer(shared, 400, &json!({"status": "Failure", "message": why})),
            })
        }
        ("/requests", "GET") => {
            let lines: Vec<String> =
                shared.with(|core| core.journal().iter().map(ToString::to_string).collect());
            Some(answer(shared, 200, &json!(lines)))
        }
        _ => None,
    }
}

fn over_state(shared: &Shared, command: Command) -> Result<(), &'static str> {
    shared.with(|core| {
        match command {
            Command::Fault(fault) => {
                core.faults.set(fault);
            }
            Command::LiftAll => core.faults.lift(None),
            Command::DropWatches(resource) => core.watches.cut(&resource, None),
            Command::Compact => core.store.compact(),
            Command::PauseWatches(paused) => core.watches.paused = paused,
            Command::Deny(verb, resource) => core.access.deny(&verb, &resource, "*"),
            Command::AllowEverything => core.access.allow_everything(),
            Command::ClockSkew(seconds) => {
                core.clock.set_skew(jiff::SignedDuration::from_secs(seconds));
            }
            Command::Apply(_) | Command::CutOffSeconds(_) | Command::SilentSeconds(_) => {
                return Err("this command is for the standard input");
            }
        }
        Ok(())
    })
}
