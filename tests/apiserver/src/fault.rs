//! What is to go wrong, and with which requests.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::request::{Right, matches};

/// Something that goes wrong with the requests it matches. Of several that match one request, the
/// one that was set first acts; when its count is used up the next one does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    verb: String,
    resource: String,
    #[serde(default = "any")]
    namespace: String,
    #[serde(default = "any")]
    name: String,
    /// Requests to let pass first.
    #[serde(default)]
    skip: u32,
    /// Requests to meet; `None`: all that come.
    #[serde(default)]
    times: Option<u32>,
    #[serde(default)]
    then: Vec<Harm>,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Harm {
    /// Nothing happens for so many milliseconds; then the request is carried out.
    DelayMillis(u64),
    /// The request is carried out at once, and answered so many milliseconds later.
    DelayAnswerMillis(u64),
    /// Neither carried out nor answered, on a connection that stays open.
    Hang,
    /// Carried out, and never answered, on a connection that stays open.
    HangAfter,
    /// Waits until the fault is lifted, and is carried out then.
    Hold,
    /// Carried out, and answered when the fault is lifted.
    HoldAnswer,
    /// Answered with this failure, and not carried out.
    #[serde(rename_all = "camelCase")]
    Answer {
        /// HTTP status.
        code: u16,
        /// `reason` of the `Status` object; empty for the usual one of that code.
        #[serde(default)]
        reason: String,
        /// Seconds for `Retry-After`.
        #[serde(default)]
        retry_after: Option<u32>,
    },
    /// The request alone is broken off, and not carried out.
    Reset,
    /// The whole connection is closed, and the request not carried out.
    Close,
    /// The request is carried out, and the connection closed in place of an answer.
    LoseAnswer,
    /// The request is carried out; its answer is not JSON.
    Garble,
    /// A list is answered as it was at this resource version.
    Stale(u64),
}

impl Fault {
    /// With requests of this verb (`patch`) for this resource (`pods/status`); `*` is any, and
    /// `get|list` either.
    #[must_use]
    pub fn on(verb: &str, resource: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: any(),
            name: any(),
            skip: 0,
            times: None,
            then: Vec::new(),
        }
    }

    /// Only in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Only for the object of this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Lets so many matching requests pass first.
    #[must_use]
    pub fn skip(mut self, requests: u32) -> Self {
        self.skip = requests;
        self
    }

    /// Meets so many requests and is then over. Without this: all, until it is lifted.
    #[must_use]
    pub fn times(mut self, requests: u32) -> Self {
        self.times = Some(requests);
        self
    }

    /// Does nothing for so long, then goes on.
    #[must_use]
    pub fn delay(self, time: Duration) -> Self {
        self.harm(Harm::DelayMillis(millis(time)))
    }

    /// Carries the request out, and answers so much later.
    #[must_use]
    pub fn delay_answer(self, time: Duration) -> Self {
        self.harm(Harm::DelayAnswerMillis(millis(time)))
    }

    /// Neither carries it out nor answers.
    #[must_use]
    pub fn hang(self) -> Self {
        self.harm(Harm::Hang)
    }

    /// Carries it out, and never answers.
    #[must_use]
    pub fn hang_after(self) -> Self {
        self.harm(Harm::HangAfter)
    }

    /// Holds the request back until the fault is lifted, and carries it out then: what happens in
    /// between is the test's to say.
    #[must_use]
    pub fn hold(self) -> Self {
        self.harm(Harm::Hold)
    }

    /// Carries the request out, and holds its answer back until the fault is lifted.
    #[must_use]
    pub fn hold_answer(self) -> Self {
        self.harm(Harm::HoldAnswer)
    }

    /// Answers with this HTTP status and the usual reason for it.
    #[must_use]
    pub fn status(self, code: u16) -> Self {
        self.harm(Harm::Answer { code, reason: String::new(), retry_after: None })
    }

    /// Gives the answer of [`status`](Self::status) a `Retry-After` of so many seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        if let Some(Harm::Answer { retry_after, .. }) = self.then.last_mut() {
            *retry_after = Some(seconds);
        }
        self
    }

    /// Gives the answer of [`status`](Self::status) another reason, as `Expired` or `Conflict`.
    #[must_use]
    pub fn reason(mut self, text: &str) -> Self {
        if let Some(Harm::Answer { reason, .. }) = self.then.last_mut() {
            text.clone_into(reason);
        }
        self
    }

    /// Breaks off the request alone.
    #[must_use]
    pub fn reset(self) -> Self {
        self.harm(Harm::Reset)
    }

    /// Closes the connection before the request is carried out.
    #[must_use]
    pub fn close(self) -> Self {
        self.harm(Harm::Close)
    }

    /// Carries the request out and closes the connection in place of an answer.
    #[must_use]
    pub fn lose_answer(self) -> Self {
        self.harm(Harm::LoseAnswer)
    }

    /// Carries the request out and answers what is not JSON.
    #[must_use]
    pub fn garble(self) -> Self {
        self.harm(Harm::Garble)
    }

    /// Answers lists as they were at this resource version.
    #[must_use]
    pub fn stale(self, version: u64) -> Self {
        self.harm(Harm::Stale(version))
    }

    /// Adds one thing that goes wrong; several happen in order (a delay, then a 500).
    #[must_use]
    pub fn harm(mut self, harm: Harm) -> Self {
        self.then.push(harm);
        self
    }

    fn matches(&self, right: &Right) -> bool {
        matches(&self.verb, &right.verb)
            && matches(&self.resource, &right.resource_and_sub())
            && matches(&self.namespace, &right.namespace)
            && matches(&self.name, &right.name)
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DelayMillis(millis) => write!(f, "delayed by {millis} ms"),
            Self::DelayAnswerMillis(millis) => write!(f, "answered {millis} ms late"),
            Self::Hang => f.write_str("left hanging"),
            Self::Hold => f.write_str("held back"),
            Self::HoldAnswer => f.write_str("carried out, answer held back"),
            Self::HangAfter => f.write_str("carried out and left hanging"),
            Self::Answer { code, .. } => write!(f, "answered {code}"),
            Self::Reset => f.write_str("broken off"),
            Self::Close => f.write_str("connection closed"),
            Self::LoseAnswer => f.write_str("carried out, answer lost"),
            Self::Garble => f.write_str("garbled"),
            Self::Stale(version) => write!(f, "stale, version {version}"),
        }
    }
}

/// The faults that are set.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    set: Vec<(u64, Fault)>,
    next: u64,
}

impl Faults {
    pub(crate) fn set(&mut self, fault: Fault) -> u64 {
        self.next += 1;
        self.set.push((self.next, fault));
        self.next
    }

    /// `None`: all of them.
    pub(crate) fn lift(&mut self, number: Option<u64>) {
        self.set.retain(|(n, _)| number.is_some_and(|number| number != *n));
    }

    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }

    pub(crate) fn is_set(&self, number: u64) -> bool {
        self.set.iter().any(|(n, _)| *n == number)
    }

    /// What goes wrong with this request; counts it.
    pub(crate) fn met_by(&mut self, right: &Right) -> Option<(u64, Vec<Harm>)> {
        for (number, fault) in &mut self.set {
            if fault.times == Some(0) || !fault.matches(right) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            if let Some(times) = &mut fault.times {
                *times -= 1;
            }
            return Some((*number, fault.then.clone()));
        }
        None
    }
}

fn any() -> String {
    "*".to_owned()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
