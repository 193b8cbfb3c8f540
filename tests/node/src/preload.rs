//! Libraries in C that are preloaded into a node's programs, which know nothing of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Node;
use crate::scenario::TestResult;

const LIBRARY: &str = "/usr/local/lib/winddown-agent.so";
/// What the record has at which the agent stops.
const HOLD_AT: &str = "/run/hold-at";
/// There once it has stopped.
const HELD: &str = "/run/held";

/// Compiles a library.
///
/// # Errors
/// There is no C compiler, or it rejects the source.
pub(crate) fn compile(source: &str, into: &Path) -> TestResult {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(source);
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .args([into, &source])
        .output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// Lets SIGUSR2 end the agent, from its next start, with the exit code of one that has lost a task.
///
/// # Errors
/// There is no C compiler, it rejects the source, or a file cannot be written.
pub async fn into_agent(node: &Node) -> TestResult {
    let folder = tempfile::tempdir()?;
    let library = folder.path().join("agent.so");
    compile("preload/agent.c", &library)?;
    node.install(&library, LIBRARY)?;
    let drop_in = format!("[Service]\nEnvironment=LD_PRELOAD={LIBRARY}\n");
    node.write("/etc/systemd/system/winddown.service.d/99-preload.conf", drop_in, 0o644)?;
    node.run(&["systemctl", "daemon-reload"]).await?;
    Ok(())
}

/// Stops the agents of a running node at a record of a shutdown that they write. [`into_agent`] comes first.
#[derive(Debug)]
pub struct HeldAgents {
    hold_at: PathBuf,
    held: PathBuf,
}

impl HeldAgents {
    /// Stops none yet.
    pub fn of(node: &Node) -> Self {
        Self { hold_at: node.host_path(HOLD_AT), held: node.host_path(HELD) }
    }

    /// Stops the next agent whose record has this text so often; with none, no more.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn hold_at(&self, mark: Option<(&str, usize)>) -> io::Result<()> {
        match mark {
            Some((text, times)) => fs::write(&self.hold_at, format!("{times} {text}"))?,
            None => fs::remove_file(&self.hold_at)?,
        }
        match fs::remove_file(&self.held) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether an agent is stopped there.
    pub fn is_there(&self) -> bool {
        self.held.exists()
    }
}
