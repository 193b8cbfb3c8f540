//! Authentication and authorization of clients.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::request::{Right, matches};

/// An authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

impl User {
    pub(crate) fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
        }
    }

    pub(crate) fn new(name: &str, groups: &[&str]) -> Self {
        Self { name: name.to_owned(), groups: groups.iter().map(|&g| g.to_owned()).collect() }
    }

    pub(crate) fn info(&self) -> Value {
        json!({"username": self.name, "groups": self.groups})
    }
}

/// An allow or deny rule; every field may be `*`.
#[derive(Clone, Debug)]
struct Rule {
    verb: String,
    resource: String,
    namespace: String,
}

impl Rule {
    fn covers(&self, right: &Right) -> bool {
        matches(&self.verb, &right.verb)
            && matches(&self.resource, &right.resource_and_sub())
            && matches(&self.namespace, &right.namespace)
    }
}

/// Tokens, certificates and rules.
#[derive(Debug, Default)]
pub(crate) struct Access {
    pub(crate) anonymous_allowed: bool,
    certificates: HashMap<Vec<u8>, User>,
    tokens: HashMap<String, (User, Option<Timestamp>)>,
    denied: Vec<Rule>,
    /// `None`: everything that is not denied is allowed.
    allowed: Option<Vec<Rule>>,
    drawn: u64,
}

impl Access {
    /// The user of this certificate and this bearer token. `None` if the credentials are invalid.
    pub(crate) fn user(
        &self,
        certificate: Option<&[u8]>,
        token: Option<&str>,
        now: Timestamp,
    ) -> Option<User> {
        if let Some(user) = certificate.and_then(|der| self.certificates.get(der)) {
            return Some(user.clone());
        }
        match token {
            Some(token) => {
                let (user, until) = self.tokens.get(token)?;
                until.is_none_or(|until| now < until).then(|| user.clone())
            }
            None if self.anonymous_allowed => Some(User::anonymous()),
            None => None,
        }
    }

    pub(crate) fn know_certificate(&mut self, der: Vec<u8>, user: User) {
        self.certificates.insert(der, user);
    }

    /// Forgets every certificate and token of a user.
    pub(crate) fn revoke(&mut self, name: &str) {
        self.certificates.retain(|_, user| user.name != name);
        self.tokens.retain(|_, (user, _)| user.name != name);
    }

    pub(crate) fn new_token(&mut self, user: User, until: Option<Timestamp>) -> String {
        self.drawn += 1;
        let token = format!("token-{}-{}", self.drawn, user.name.replace(':', "-"));
        self.tokens.insert(token.clone(), (user, until));
        token
    }

    pub(crate) fn revoke_token(&mut self, token: &str) {
        self.tokens.remove(token);
    }

    pub(crate) fn deny(&mut self, verb: &str, resource: &str, namespace: &str) {
        self.denied.push(rule(verb, resource, namespace));
    }

    pub(crate) fn allow_only(&mut self, rules: &[(&str, &str)]) {
        self.allowed =
            Some(rules.iter().map(|(verb, resource)| rule(verb, resource, "*")).collect());
    }

    pub(crate) fn allow_everything(&mut self) {
        self.denied.clear();
        self.allowed = None;
    }

    pub(crate) fn may(&self, right: &Right) -> bool {
        let listed = |rules: &[Rule]| rules.iter().any(|rule| rule.covers(right));
        !listed(&self.denied) && self.allowed.as_ref().is_none_or(|rules| listed(rules))
    }
}

fn rule(verb: &str, resource: &str, namespace: &str) -> Rule {
    Rule { verb: verb.to_owned(), resource: resource.to_owned(), namespace: namespace.to_owned() }
}
