//! What a reload changes, and what has to wait for a restart.

use super::{Config, reference};

/// The difference between the running configuration and a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Takes effect at once.
    pub applied: Vec<Change>,
    /// Is kept as it was until the agent is restarted.
    pub needs_restart: Vec<Change>,
}

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Change {
    /// The field.
    pub field: String,
    /// Its value so far, as JSON; none when it was not set.
    pub from: Option<String>,
    /// Its new value, as JSON; none when it is not set any more.
    pub to: Option<String>,
}

impl Config {
    /// What differs between `old`, which runs, and `new`.
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
                let change = Change { field: field.name.to_owned(), from, to };
                let list =
                    if field.live { &mut changes.applied } else { &mut changes.needs_restart };
                list.push(change);
            }
        }
        changes
    }

    /// What runs after a reload: `new` in all that [`Config::changes`] calls applied, this one in the rest.
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

// === impl Change ===

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".to_owned());
        write!(f, "{}: {} to {}", self.field, text(&self.from), text(&self.to))
    }
}
