//! The health and readiness of the agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The checks behind `/healthz` and `/readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The checks, in display order.
    pub checks: Vec<Check>,
}

/// A health check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The name of the check: one lower-case word, for example `lock`.
    pub name: String,
    /// Whether the check passed.
    pub ok: bool,
    /// What is wrong, human-readable; empty if the check passed.
    #[serde(default)]
    pub message: String,
}

impl Health {
    /// Whether every check passed; true if there are none.
    pub fn ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// The checks as Kubernetes components print them: `ok`, or, if `verbose` or after a failure, one `[+]` or `[-]`
    /// line per check and a final `check passed` or `check failed`.
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
    /// Creates a check that passed.
    pub fn passed(name: impl Into<String>) -> Self {
        Self { name: name.into(), ok: true, message: String::new() }
    }

    /// Creates a check that failed for the given reason.
    pub fn failed(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { name: name.into(), ok: false, message: message.into() }
    }
}
