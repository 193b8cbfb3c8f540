//! Errors of nodes.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// An error of a node. `Debug`, with which tests print their errors, has the same output as `Display`.
#[derive(thiserror::Error)]
pub enum NodeError {
    /// A file of the node could not be read or written.
    #[error("{}", path.display())]
    File {
        /// The path on the host.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: io::Error,
    },
    /// A program could not be started on the host.
    #[error("{program} could not be started")]
    Start {
        /// The program.
        program: String,
        /// The underlying error.
        #[source]
        source: io::Error,
    },
    /// The node is not running, and the call needs it to.
    #[error("the node is not running")]
    Off,
    /// The node has its own kernel, and the call needs the host's.
    #[error("{what} cannot be had of a node with a kernel of its own")]
    OwnKernel {
        /// What the call needs.
        what: &'static str,
    },
    /// The node went off while it booted.
    #[error("the node ended while it booted ({status}); its console said: {console}")]
    Died {
        /// The exit status of `systemd-nspawn`.
        status: ExitStatus,
        /// The end of the console output.
        console: String,
    },
    /// A condition was not met in time.
    #[error("{what}: not within {limit:?}\n{seen}")]
    TimedOut {
        /// The condition.
        what: String,
        /// The timeout.
        limit: Duration,
        /// The last state, for example the end of the journal; may be empty.
        seen: String,
    },
    /// A command in the node failed.
    #[error("`{command}` failed ({status}): {stderr}{stdout}")]
    Command {
        /// The command line.
        command: String,
        /// The exit status.
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

/// The error and its causes, on one line.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
