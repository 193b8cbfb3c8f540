//! The lines of the protocol.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::ShutdownKind;

use super::super::session::Listed;

const VERSION: &str = "winddown.dev/v1alpha1";

/// The first line of a connection, and the only one of this side.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind")]
enum What<'a> {
    Watch,
    Inhibit { who: &'a str, why: &'a str },
}

/// A line of the other side. Fields of later versions are passed over.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind")]
pub(super) enum Answer {
    /// How things stand: the first line to who watches, and another at each change.
    Shutdown(Shutdown),
    /// The connection is a lock from now on.
    Granted { id: u64 },
    /// There is no lock to be had.
    Refused { reason: String },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shutdown {
    /// A shutdown is under way.
    pub(super) preparing: bool,
    /// The longest time that the other side waits for a lock, once a shutdown has begun.
    delay_seconds: f64,
    /// As reports have it: `powerOff`, `reboot`.
    r#type: Option<String>,
    /// What people are told.
    pub(super) message: Option<String>,
    /// The locks that are held; left out, it is not told.
    inhibitors: Option<Vec<Inhibitor>>,
}

#[derive(Debug, Deserialize)]
struct Inhibitor {
    id: u64,
    who: String,
}

/// What every line has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Versioned {
    api_version: String,
}

// === impl Request ===

impl<'a> Request<'a> {
    pub(super) const fn watch() -> Self {
        Self { api_version: VERSION, what: What::Watch }
    }

    pub(super) const fn inhibit(who: &'a str, why: &'a str) -> Self {
        Self { api_version: VERSION, what: What::Inhibit { who, why } }
    }
}

// === impl Answer ===

impl Answer {
    /// # Errors
    /// What is wrong with the line, for people.
    pub(super) fn read(line: &[u8]) -> Result<Self, String> {
        let versioned: Versioned = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        if versioned.api_version != VERSION {
            return Err(format!("apiVersion {:?} is not {VERSION}", versioned.api_version));
        }
        let answer = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        if let Self::Shutdown(Shutdown { delay_seconds, .. }) = &answer {
            Duration::try_from_secs_f64(*delay_seconds)
                .map_err(|error| format!("delaySeconds {delay_seconds:?}: {error}"))?;
        }
        Ok(answer)
    }
}

// === impl Shutdown ===

impl Shutdown {
    pub(super) fn delay(&self) -> Duration {
        Duration::try_from_secs_f64(self.delay_seconds).unwrap_or_default()
    }

    pub(super) fn kind(&self) -> ShutdownKind {
        use ShutdownKind::{Halt, Kexec, PowerOff, Reboot, SoftReboot, Unknown};
        let named = |kind: &ShutdownKind| Some(kind.as_str()) == self.r#type.as_deref();
        [PowerOff, Halt, Reboot, Kexec, SoftReboot].into_iter().find(named).unwrap_or(Unknown)
    }

    /// Whether the lock with this id, or one that an earlier process of `who` took, is held.
    pub(super) fn lists(&self, who: &str, id: u64) -> Listed {
        let Some(inhibitors) = &self.inhibitors else { return Listed::Unknown };
        let ours: Vec<_> = inhibitors.iter().filter(|one| one.who == who).collect();
        match ours.iter().any(|one| one.id == id) {
            true => Listed::Ours,
            false if ours.is_empty() => Listed::No,
            false => Listed::UnderAnotherPid,
        }
    }
}
