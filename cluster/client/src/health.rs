//! Whether the API server can be reached, as the results of all requests show.

use std::sync::Arc;

use http::{StatusCode, Uri};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use winddown_shared::Mutex;

use super::error::RequestError;

#[cfg(test)]
mod tests;

/// How long a request must have waited when its caller gave up for the API server to count as unreachable. Less than the
/// time that the renewal of any usual lease has, more than a loaded server needs.
const UNANSWERED_AFTER: Duration = Duration::from_secs(2);
/// How often the clocks are compared.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// The difference of the clocks from which on a warning is logged.
const SKEW_WORTH_SAYING: SignedDuration = SignedDuration::from_secs(60);

/// The health of the connection to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiHealth {
    /// The state that the last requests showed.
    pub state: ConnectionState,
    /// When this state began.
    pub since: Instant,
}

/// The state of the connection to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// No request has been made yet.
    Unknown,
    /// The API server answers.
    Connected,
    /// There are no credentials yet: a certificate has not been signed, or a command has not supplied them.
    Unsigned {
        /// What is missing, and what to do.
        why: Arc<str>,
    },
    /// The API server cannot be reached or does not answer, or something in front of it answers instead.
    Unreachable {
        /// Why the first failed request failed.
        why: Arc<str>,
    },
    /// TLS with the API server fails: one side does not accept the other's certificate.
    Untrusted {
        /// Which certificate, and what to do.
        why: Arc<str>,
    },
    /// The API server does not accept the credentials.
    Unauthorized {
        /// Which credentials, and what to do.
        why: Arc<str>,
    },
}

/// What an answer says about the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AnswerVerdict {
    Up,
    Unauthorized,
    Down(String),
}

#[derive(Debug)]
pub(super) struct ConnectionHealth {
    state: watch::Sender<ApiHealth>,
    contact: Mutex<Contact>,
}

#[derive(Debug, Default)]
struct Contact {
    last: Option<Instant>,
    /// When the clocks were last compared, and what the server's showed.
    compared: Option<(Instant, Timestamp)>,
    warned: bool,
}

/// Classifies an answer. `signed` is whether it has the header that only the API server sets.
pub(super) fn judge(status: StatusCode, signed: bool) -> AnswerVerdict {
    match status {
        StatusCode::UNAUTHORIZED => AnswerVerdict::Unauthorized,
        // A load balancer without a backend answers like this, too. The API server marks its own
        // answers, and one of its webhooks being down is no outage.
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
            if !signed =>
        {
            AnswerVerdict::Down(format!("the answer is {status}"))
        }
        _ => AnswerVerdict::Up,
    }
}

// === impl ApiHealth ===

impl ApiHealth {
    /// Whether the API server answers and accepts the credentials.
    pub fn is_connected(&self) -> bool {
        self.state == ConnectionState::Connected
    }
}

// === impl ConnectionState ===

impl ConnectionState {
    /// Why the API server cannot be used, as text for users; `None` if it can, or was not asked.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Unknown | Self::Connected => None,
            Self::Unsigned { why }
            | Self::Unreachable { why }
            | Self::Untrusted { why }
            | Self::Unauthorized { why } => Some(why),
        }
    }

    /// The error of a request that has no credentials to be sent with.
    pub(super) fn unsigned(&self) -> RequestError {
        let why = match self {
            Self::Unsigned { why } => why.to_string(),
            _ => "nothing has supplied them so far".into(),
        };
        RequestError::Unsigned { why }
    }
}

impl std::fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("not asked yet"),
            Self::Connected => f.write_str("connected"),
            Self::Unsigned { why } => write!(f, "no credentials yet: {why}"),
            Self::Unreachable { why } => write!(f, "unreachable: {why}"),
            Self::Untrusted { why } => write!(f, "TLS fails: {why}"),
            Self::Unauthorized { why } => write!(f, "not authorized: {why}"),
        }
    }
}

// === impl ConnectionHealth ===

impl ConnectionHealth {
    pub(super) fn new(now: Instant) -> Self {
        let unknown = ApiHealth { state: ConnectionState::Unknown, since: now };
        Self { state: watch::Sender::new(unknown), contact: Mutex::default() }
    }

    pub(super) fn watch(&self) -> watch::Receiver<ApiHealth> {
        self.state.subscribe()
    }

    /// When the API server last answered.
    pub(super) fn last_contact(&self) -> Option<Instant> {
        self.contact.lock().last
    }

    /// The API server's current time, once an answer has shown it. It does not depend on this node's
    /// wall clock: a step of that would end grace periods too early until the next comparison.
    pub(super) fn api_time(&self) -> Option<Timestamp> {
        let (at, theirs) = self.contact.lock().compared?;
        theirs.checked_add(at.elapsed()).ok()
    }

    /// A caller no longer waits for the answer to its request of `since`. A server that hangs still accepts connections,
    /// so this is all that shows it. Other answers meanwhile show that only this one is slow.
    pub(super) fn gave_up(&self, since: Instant, server: &Uri) {
        let after = Duration::from_secs(since.elapsed().as_secs());
        if after < UNANSWERED_AFTER || self.last_contact().is_some_and(|last| last >= since) {
            return;
        }
        let silent = RequestError::Silent { server: server.to_string(), after };
        self.set(ConnectionState::Unreachable { why: silent.to_string().into() });
    }

    /// Sets the state. Notifies watchers and logs when the kind of state changes.
    pub(super) fn set(&self, state: ConnectionState) {
        let now = Instant::now();
        if matches!(state, ConnectionState::Connected | ConnectionState::Unauthorized { .. }) {
            self.contact.lock().last = Some(now);
        }
        self.state.send_if_modified(|health| {
            if std::mem::discriminant(&health.state) == std::mem::discriminant(&state) {
                // Watchers want to know what a certificate is waiting for, but not each cause of
                // one outage.
                let news =
                    matches!(state, ConnectionState::Unsigned { .. }) && health.state != state;
                if news {
                    health.state = state;
                }
                return news;
            }
            let lasted = now.saturating_duration_since(health.since);
            let was = std::mem::replace(health, ApiHealth { state, since: now });
            log_change(&was.state, &health.state, lasted);
            true
        });
    }

    /// Compares the clocks by the `Date` of an answer that has just arrived, at most once a minute.
    pub(super) fn clock(&self, date: Option<&str>, wall: impl FnOnce() -> Timestamp) {
        let now = Instant::now();
        let mut contact = self.contact.lock();
        let due = contact.compared.is_none_or(|(at, _)| now.duration_since(at) >= COMPARE_EVERY);
        let Some(theirs) = date.filter(|_| due).and_then(read_date) else {
            return;
        };
        contact.compared = Some((now, theirs));
        let skew = theirs.duration_since(wall());
        let large = skew.abs() > SKEW_WORTH_SAYING;
        if large && !contact.warned {
            tracing::warn!(
                log_kind = "clockSkew",
                "this node's clock is {} seconds {} the API server's: correct one of them, or \
                 times in statuses and the lifetime of certificates are off",
                skew.abs().as_secs(),
                if skew.is_positive() { "behind" } else { "ahead of" },
            );
        }
        contact.warned = large;
    }
}

/// Parses a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn read_date(date: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()
}

fn log_change(was: &ConnectionState, state: &ConnectionState, lasted: Duration) {
    match (was, state) {
        (_, ConnectionState::Unknown) => {}
        (ConnectionState::Unknown, ConnectionState::Connected) => {
            tracing::info!(log_kind = "apiReachable", "the API server answers");
        }
        (_, ConnectionState::Connected) => {
            let seconds = lasted.as_secs();
            tracing::info!(
                log_kind = "apiReachable",
                "the API server answers again, after {seconds} s"
            );
        }
        (_, ConnectionState::Unsigned { why }) => tracing::warn!(
            log_kind = "apiUnreachable",
            "no credentials for the API server yet: {why}; running pods keep running"
        ),
        _ => tracing::warn!(
            log_kind = "apiUnreachable",
            "API server {state}; running pods keep running"
        ),
    }
}
