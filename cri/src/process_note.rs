//! A note about a container's first process, for an agent that finds the runtime silent.

use std::fs;

use serde::{Deserialize, Serialize};
use winddown_shared::{PodUid, error_chain};

use super::config::CriConfig;
use super::dirs;

/// What is written down of a container's first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Note {
    /// The container's id.
    pub(super) id: String,
    /// The id of the sandbox that it is in.
    pub(super) sandbox: String,
    /// In the node's pid namespace.
    pub(super) pid: i32,
    /// As the runtime names it.
    pub(super) runtime_type: String,
    /// The signal that asks it to end.
    pub(super) signal: Option<String>,
}

/// Writes down a container's first process; nothing waits for that.
pub(super) fn write(config: &CriConfig, uid: &PodUid, (name, attempt): (&str, u32), note: &Note) {
    let path = dirs::process(config, uid, name, attempt);
    let Ok(json) = serde_json::to_vec(note) else { return };
    tokio::task::spawn_blocking(move || {
        // Without a sync: containers do not outlive the machine either.
        if let Err(error) = fs::write(&path, json) {
            tracing::debug!(error = error_chain(&error), path = %path.display(), "a container's process is not noted");
        }
    });
}
