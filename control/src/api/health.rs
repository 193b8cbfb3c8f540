//! Whether the agent is alive and ready.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The checks behind `/healthz` and `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The checks, in the order they are shown.
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// One lower-case word, for example `lock`.
    pub name: String,
    /// It passed.
    pub ok: bool,
    /// What is wrong, for people; empty when it passed.
    #[serde(default)]
    pub message: String,
}

impl Health {
    /// Whether every check passed. No checks at all is healthy.
    pub fn ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// The checks as Kubernetes components print them: `ok`, or with `verbose` or a failure one
    /// `[+]` or `[-]` line per check and `check passed` or `check failed` at the end.
    pub fn text(&self, endpoint: &str, verbose: bool) -> String {
        if self.ok() && !verbose {
            return "ok".to_owned();
        }
        let mut text = String::new();
        for Check { name, ok, message } in &self.checks {
            text.push_str(if *ok { "[+]" } else { "[-]" });
            text.push_str(name);
            text.push_str(if *ok { " ok" } else { " failed" });
            if !message.is_empty() {
                text.push_str(": ");
                text.push_str(message);
            }
            text.push('\n');
        }
        text.push_str(endpoint);
        text.push_str(if self.ok() { " check passed\n" } else { " check failed\n" });
        text
    }
}

impl Check {
    /// A check that passed.
    pub fn passed(name: impl Into<String>) -> Self {
        Self { name: name.into(), ok: true, message: String::new() }
    }

    /// A check that failed, and why.
    pub fn failed(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name: name.into(), ok: false, message: message.into() }
    }
}
