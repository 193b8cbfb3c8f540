//! Determines which changes a reload applies, and which need a restart.

use super::{Config, reference};

/// The difference between the running configuration and a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The changes that a reload applies.
    pub applied: Vec<FieldChange>,
    /// The changes that take effect when the agent is restarted.
    pub needs_restart: Vec<FieldChange>,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FieldChange {
    /// The name of the field.
    pub field: String,
    /// Its old value as JSON; `None` if it was not set.
    pub from: Option<String>,
    /// Its new value as JSON; `None` if it is no longer set.
    pub to: Option<String>,
}

impl Config {
    /// Compares the running configuration `old` with `new`.
    pub fn changes(old: &Self, new: &Self) -> Changes {
        let (before, after) = (reference::entries(old), reference::entries(new));
        let mut changes = Changes::default();
        for field in reference::fields() {
            let text = |entries: &[(&str, serde_json::Value)]| {
                let entry = entries.iter().find(|(key, _)| *key == field.name);
                entry.map(|(_, value)| value.to_string())
            };
            let (from, to) = (text(&before), text(&after));
            if from != to {
                let change = FieldChange { field: field.name.to_owned(), from, to };
                let list =
                    if field.live { &mut changes.applied } else { &mut changes.needs_restart };
                list.push(change);
            }
        }
        changes
    }

    /// Returns the configuration after a reload: this one, with the changes to `new` that [`Config::changes`] lists as
    /// applied.
    #[must_use]
    pub fn reloaded(&self, new: &Self) -> Self {
        reference::reloaded(self, new)
    }
}

// === impl Changes ===

impl Changes {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.needs_restart.is_empty()
    }
}

// === impl FieldChange ===

impl std::fmt::Display for FieldChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".to_owned());
        write!(f, "{}: {} to {}", self.field, text(&self.from), text(&self.to))
    }
}
