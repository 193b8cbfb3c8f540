//! Requests as the journal keeps them, and the rights that each needs.

use std::fmt;

use serde_json::Value;
use tokio::time::Instant;

/// One right, as an RBAC rule grants it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the method
    /// in small letters for a path that is no resource.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name, as `pods`; the path for what is no resource.
    pub resource: String,
    /// As `status`; empty for the resource itself.
    pub subresource: String,
    /// Namespace; empty across all of them and for what has none.
    pub namespace: String,
    /// Name of the object; of a create the one in its body; of a list the one it is limited to by
    /// `metadata.name`; else empty.
    pub name: String,
}

impl Right {
    /// `pods` or `pods/status`.
    #[must_use]
    pub fn resource_and_sub(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// The same right for whatever namespace and name: what a `ClusterRole` rule says.
    #[must_use]
    pub fn of_any_object(&self) -> Self {
        Self { namespace: String::new(), name: String::new(), ..self.clone() }
    }
}

/// `patch pods/status in default named web`.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource_and_sub())?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        if !self.name.is_empty() {
            write!(f, " named {}", self.name)?;
        }
        Ok(())
    }
}

/// One request that reached the server.
#[derive(Clone, Debug)]
pub struct Request {
    /// When its head had been read.
    pub at: Instant,
    /// Who sent it; `system:anonymous` where nobody said.
    pub user: String,
    /// What it did and to what.
    pub right: Right,
    /// Path and query as sent.
    pub path: String,
    /// `Content-Type`; tells the kinds of patch apart.
    pub content_type: String,
    /// `User-Agent`.
    pub user_agent: String,
    /// The body, if it was JSON; `Null` otherwise.
    pub body: Value,
    /// HTTP status of the answer; `None` while there is none, and where there never will be.
    pub code: Option<u16>,
    /// What the request was met with by a [`Fault`](crate::Fault).
    pub fault: Option<String>,
    pub(crate) number: u64,
}

impl Request {
    /// Whether verb and resource (`pods/status`) are these; `*` is any.
    #[must_use]
    pub fn is(&self, verb: &str, resource: &str) -> bool {
        matches(verb, &self.right.verb) && matches(resource, &self.right.resource_and_sub())
    }
}

/// `patch pods/status in default named web -> 200`.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> ", self.right)?;
        match self.code {
            Some(code) => write!(f, "{code}")?,
            None => f.write_str("no answer")?,
        }
        match &self.fault {
            Some(fault) => write!(f, " ({fault})"),
            None => Ok(()),
        }
    }
}

/// Whether a pattern (`*`, a word, or words with `|` between them) takes in a word.
pub(crate) fn matches(pattern: &str, word: &str) -> bool {
    pattern == "*" || pattern.split('|').any(|choice| choice == word)
}
