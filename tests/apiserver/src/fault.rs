//! Faults: what goes wrong, and with which requests.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::request::{Right, matches};

/// A fault in the requests that it matches. If several match a request, the one that was set first acts; once its count
/// is used up, the next one does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    verb: String,
    resource: String,
    #[serde(default = "any")]
    namespace: String,
    #[serde(default = "any")]
    name: String,
    /// The number of matching requests to let pass first.
    #[serde(default)]
    skip: u32,
    /// The number of requests to affect; `None`: all.
    #[serde(default)]
    times: Option<u32>,
    #[serde(default)]
    then: Vec<Harm>,
}

/// A single thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Harm {
    /// The request is carried out this many milliseconds later.
    DelayMillis(u64),
    /// The request is carried out at once, but answered this many milliseconds later.
    DelayAnswerMillis(u64),
    /// The request is neither carried out nor answered, and the connection stays open.
    Hang,
    /// The request is carried out but never answered, and the connection stays open.
    HangAfter,
    /// The request is carried out only when the fault is lifted.
    Hold,
    /// The request is carried out, but answered only when the fault is lifted.
    HoldAnswer,
    /// The request is answered with this failure, and not carried out.
    #[serde(rename_all = "camelCase")]
    Answer {
        /// The HTTP status.
        code: u16,
        /// `reason` of the `Status` object; empty for the default of the code.
        #[serde(default)]
        reason: String,
        /// The value of `Retry-After`, in seconds.
        #[serde(default)]
        retry_after: Option<u32>,
    },
    /// The request alone is aborted, and not carried out.
    Reset,
    /// The whole connection is closed, and the request is not carried out.
    Close,
    /// The request is answered with the object as it is, and not carried out.
    Ignore,
    /// The request is carried out without this field of the status, which a server of that version does not have.
    Lack(String),
    /// The request is carried out, and the connection is closed instead of an answer.
    LoseAnswer,
    /// The request is carried out; its answer is not JSON.
    Garble,
    /// The request is carried out; its answer, or the next line of a watch, never ends.
    Endless,
    /// A list shows the objects as of this resource version.
    Stale(u64),
}

impl Fault {
    /// Creates a fault for requests with this verb (`patch`) on this resource (`pods/status`). `*` matches any;
    /// `get|list` matches either.
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

    /// Limits the fault to a namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Limits the fault to the object with this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Lets this many matching requests pass first.
    #[must_use]
    pub fn skip(mut self, requests: u32) -> Self {
        self.skip = requests;
        self
    }

    /// Affects this many requests only. By default, a fault acts until it is lifted.
    #[must_use]
    pub fn times(mut self, requests: u32) -> Self {
        self.times = Some(requests);
        self
    }

    /// Delays the request by this time, then continues.
    #[must_use]
    pub fn delay(self, time: Duration) -> Self {
        self.harm(Harm::DelayMillis(millis(time)))
    }

    /// Carries the request out, and delays the answer by this time.
    #[must_use]
    pub fn delay_answer(self, time: Duration) -> Self {
        self.harm(Harm::DelayAnswerMillis(millis(time)))
    }

    /// Neither carries the request out nor answers it.
    #[must_use]
    pub fn hang(self) -> Self {
        self.harm(Harm::Hang)
    }

    /// Carries the request out, but never answers it.
    #[must_use]
    pub fn hang_after(self) -> Self {
        self.harm(Harm::HangAfter)
    }

    /// Holds the request back until the fault is lifted, and then carries it out, so that the test decides what happens
    /// in between.
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

    /// Adds a `Retry-After` of this many seconds to the answer of [`status`](Self::status).
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        if let Some(Harm::Answer { retry_after, .. }) = self.then.last_mut() {
            *retry_after = Some(seconds);
        }
        self
    }

    /// Sets the reason in the answer of [`status`](Self::status), such as `Expired` or `Conflict`.
    #[must_use]
    pub fn reason(mut self, text: &str) -> Self {
        if let Some(Harm::Answer { reason, .. }) = self.then.last_mut() {
            text.clone_into(reason);
        }
        self
    }

    /// Aborts the request alone.
    #[must_use]
    pub fn reset(self) -> Self {
        self.harm(Harm::Reset)
    }

    /// Closes the connection before the request is carried out.
    #[must_use]
    pub fn close(self) -> Self {
        self.harm(Harm::Close)
    }

    /// Does not carry the request out, and answers with the object as it is.
    #[must_use]
    pub fn ignore(self) -> Self {
        self.harm(Harm::Ignore)
    }

    /// Carries the request out, and closes the connection instead of answering.
    #[must_use]
    pub fn lose_answer(self) -> Self {
        self.harm(Harm::LoseAnswer)
    }

    /// Carries the request out, but never comes to an end of the answer, as fast as the client takes it.
    #[must_use]
    pub fn endless(self) -> Self {
        self.harm(Harm::Endless)
    }

    /// Carries the request out, and answers with something that is not JSON.
    #[must_use]
    pub fn garble(self) -> Self {
        self.harm(Harm::Garble)
    }

    /// Answers lists as of this resource version.
    #[must_use]
    pub fn stale(self, version: u64) -> Self {
        self.harm(Harm::Stale(version))
    }

    /// Adds something that goes wrong; several happen in order (a delay, then a 500).
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
            Self::Ignore => f.write_str("ignored"),
            Self::Lack(field) => write!(f, "carried out without {field}"),
            Self::LoseAnswer => f.write_str("carried out, answer lost"),
            Self::Garble => f.write_str("garbled"),
            Self::Endless => f.write_str("endless"),
            Self::Stale(version) => write!(f, "stale, version {version}"),
        }
    }
}

/// The active faults.
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

    /// Lifts one fault, or all of them if `None`.
    pub(crate) fn lift(&mut self, number: Option<u64>) {
        self.set.retain(|(n, _)| number.is_some_and(|number| number != *n));
    }

    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }

    pub(crate) fn is_set(&self, number: u64) -> bool {
        self.set.iter().any(|(n, _)| *n == number)
    }

    /// The fault that affects this request, if any; counts the request.
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
