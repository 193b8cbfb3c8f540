//! What can go wrong with a node.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why something with a node went wrong. `Debug`, which is how a test prints its error, has lines like `Display`.
#[derive(thiserror::Error)]
pub enum NodeError {
    /// A file of the node could not be read or written.
    #[error("{}", path.display())]
    File {
        /// The file, as the host sees it.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A program could not be started on the host.
    #[error("{program} could not be started")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The node is not running, and the call needs it to.
    #[error("the node is not running")]
    Off,
    /// The node has a kernel of its own, and the call needs the host's.
    #[error("{what} cannot be had of a node with a kernel of its own")]
    OwnKernel {
        /// What was wanted.
        what: &'static str,
    },
    /// The node ended while it booted.
    #[error("the node ended while it booted ({status}); its console said: {console}")]
    Died {
        /// How `systemd-nspawn` ended.
        status: ExitStatus,
        /// The end of the console output.
        console: String,
    },
    /// A condition did not come true in time.
    #[error("{what}: not within {limit:?}\n{seen}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// What was seen last, as the end of the journal; may be empty.
        seen: String,
    },
    /// A command in the node failed.
    #[error("`{command}` failed ({status}): {stderr}{stdout}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// Its standard output.
        stdout: String,
        /// Its standard error.
        stderr: String,
    },
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
