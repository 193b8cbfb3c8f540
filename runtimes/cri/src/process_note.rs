//! A note about a container's first process, for an agent that gets no answer from the runtime. Written only if the
//! process may be signalled without the runtime.

use serde::{Deserialize, Serialize};
use winddown_engine::files;
use winddown_shared::{PodUid, error_chain};

use super::config::CriConfig;
use super::dirs;

/// What is recorded about a container's first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Note {
    /// The container's ID.
    pub(super) id: String,
    /// The ID of the container's sandbox.
    pub(super) sandbox: String,
    /// PID in the node's PID namespace.
    pub(super) pid: i32,
    /// The stop signal.
    pub(super) signal: Option<String>,
}

/// Records a container's first process in the background.
pub(super) fn write(config: &CriConfig, uid: &PodUid, (name, attempt): (&str, u32), note: &Note) {
    let path = dirs::process(config, uid, name, attempt);
    let Ok(json) = serde_json::to_vec(note) else { return };
    // The agent's own file, which waits for no files of pods.
    tokio::task::spawn_blocking(move || {
        // Without fsync: containers do not survive a crash of the machine either.
        if let Err(error) = files::write_note(&path, &json) {
            tracing::debug!(
                error = error_chain(&error), path = %path.display(),
                "cannot record a container's process"
            );
        }
    });
}
