//! Libraries in C that are preloaded into a node's programs, which know nothing of them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::io::Errno;

use crate::Node;
use crate::scenario::TestResult;

const LIBRARY: &str = "/usr/local/lib/winddown-agent.so";
/// The pipe that holds the agent up.
const GO_ON: &str = "/run/go-on";

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

/// Holds the agents of a running node up, after each record of a shutdown that they write. [`into_agent`] comes first.
#[derive(Debug)]
pub struct HeldAgents(PathBuf);

impl HeldAgents {
    /// From now on.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn of(node: &Node) -> io::Result<Self> {
        let pipe = node.host_path(GO_ON);
        mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600))?;
        Ok(Self(pipe))
    }

    /// The agent that waits at this moment, if there is one.
    ///
    /// # Errors
    /// An error of the operating system; also if the node is off.
    pub fn waiting(&self) -> io::Result<Option<HeldAgent>> {
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        match OpenOptions::new().write(true).custom_flags(flags).open(&self.0) {
            Ok(pipe) => Ok(Some(HeldAgent(pipe))),
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Holds up none any more.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn release(self) -> io::Result<()> {
        // Open for both, it wakes those that wait for it to be opened; then its end does.
        let both = OpenOptions::new().read(true).write(true).open(&self.0)?;
        fs::remove_file(&self.0)?;
        drop(both);
        Ok(())
    }
}

/// An agent that has written a record and waits. It goes on when this is dropped.
#[derive(Debug)]
pub struct HeldAgent(#[expect(dead_code, reason = "open is all that it is")] File);
