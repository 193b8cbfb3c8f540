//! Libraries in C that are preloaded into a node's programs, which know nothing of them.

use std::path::Path;
use std::process::Command;

use crate::Node;
use crate::scenario::TestResult;

const LIBRARY: &str = "/usr/local/lib/winddown-agent.so";
/// What records have at which agents are killed: for each kill a line, how often and which text.
const KILL_AT: &str = "/run/kill-at";

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

/// Kills the agent that writes a record of a shutdown with the first of these texts so often, then the one that writes the
/// next, and so on. [`into_agent`] comes first.
///
/// # Errors
/// The list cannot be written.
pub async fn kill_at(node: &Node, records: impl Iterator<Item = (&str, usize)>) -> TestResult {
    let list: String = records.map(|(text, times)| format!("{times} {text}\n")).collect();
    // A node's `/run` is a file system of its own.
    node.run(&["sh", "-c", "printf %s \"$1\" >\"$2\"", "sh", &list, KILL_AT]).await?;
    Ok(())
}
