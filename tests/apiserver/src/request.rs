//! Requests in the journal, and the rights that they need.

use std::fmt;

use serde_json::Value;
use tokio::time::Instant;

/// A right, as an RBAC rule grants it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the lower-case method for a
    /// path that is not a resource.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name, such as `pods`; the path if it is not a resource.
    pub resource: String,
    /// The subresource, such as `status`; empty for the resource itself.
    pub subresource: String,
    /// The namespace; empty for all namespaces, and for kinds without one.
    pub namespace: String,
    /// The name of the object. For a create, the name in its body; for a list, the `metadata.name` that it selects;
    /// else empty.
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

    /// The same right for any namespace and name, as in a rule of a `ClusterRole`.
    #[must_use]
    pub fn of_any_object(&self) -> Self {
        Self { namespace: String::new(), name: String::new(), ..self.clone() }
    }
}

/// Formats the right like `patch pods/status in default named web`.
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

/// A request that reached the server.
#[derive(Clone, Debug)]
pub struct Request {
    /// When its head was read.
    pub at: Instant,
    /// The user; `system:anonymous` without credentials.
    pub user: String,
    /// What the request did, and to which object.
    pub right: Right,
    /// The path and query as sent.
    pub path: String,
    /// `Content-Type`, which distinguishes the kinds of patches.
    pub content_type: String,
    /// `User-Agent`.
    pub user_agent: String,
    /// The body, if it was JSON; otherwise `Null`.
    pub body: Value,
    /// The HTTP status of the answer; `None` if there is none yet, or never will be.
    pub code: Option<u16>,
    /// The effect of a [`Fault`](crate::Fault) on the request, if any.
    pub fault: Option<String>,
    pub(crate) number: u64,
}

impl Request {
    /// Whether the request has this verb and resource (`pods/status`); `*` matches any.
    #[must_use]
    pub fn is(&self, verb: &str, resource: &str) -> bool {
        matches(verb, &self.right.verb) && matches(resource, &self.right.resource_and_sub())
    }
}

/// Formats the request like `patch pods/status in default named web -> 200`.
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

/// Whether a pattern (`*`, a word, or words separated by `|`) matches a word.
pub(crate) fn matches(pattern: &str, word: &str) -> bool {
    pattern == "*" || pattern.split('|').any(|choice| choice == word)
}
