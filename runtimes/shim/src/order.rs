//! What the agent orders a supervisor to run. An order is sent through a pipe and never written to disk, because it
//! holds the container's environment.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything that a supervisor needs. It is complete or ignored: if the pipe ends early, nothing runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// The program and leading arguments of the launcher (a hidden subcommand of this binary).
    pub launcher: Vec<String>,
    /// What to run.
    pub command: ExecCommand,
    /// Where its output goes; with `None` it inherits the supervisor's.
    pub log: Option<LogTarget>,
    /// The source of the termination message; with `None` there is no message.
    pub message: Option<MessageSource>,
    /// The path of `/proc`.
    pub proc_root: PathBuf,
}

/// The program to execute, and the attributes of its process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecCommand {
    /// Program and arguments; never empty.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory; `/` if none.
    pub cwd: Option<PathBuf>,
    /// The user to switch to; `None` keeps the agent's.
    pub uid: Option<u32>,
    /// The group to switch to; `None` means the user's primary group, or without a user the agent's.
    pub gid: Option<u32>,
    /// Supplemental groups.
    pub groups: Vec<u32>,
    /// Whether set-user-ID programs are kept from gaining privileges.
    pub no_new_privs: bool,
    /// From -1000 to 1000; `None` leaves it unchanged.
    pub oom_score_adj: Option<i16>,
    /// Its standard input; `None` means `/dev/null`.
    pub input: Option<StandardInput>,
    /// The directories of the cgroups to enter, one in each hierarchy.
    pub cgroups: Vec<PathBuf>,
    /// The file where the launcher reports why it could not start the program.
    pub error_file: Option<PathBuf>,
}

/// The standard input of a command, as a path that the launcher can open before it switches to another user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StandardInput {
    /// A pipe.
    Pipe(PathBuf),
    /// A terminal, which also gets the output and becomes the controlling terminal.
    Terminal(PathBuf),
}

/// A log file and its rotation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogTarget {
    /// The current file.
    pub path: PathBuf,
    /// The size in bytes at which a new file is started.
    pub max_bytes: u64,
    /// The number of files kept, including the current one; at least 1.
    pub max_files: u32,
}

/// The source of the termination message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageSource {
    /// The file that the container writes.
    pub file: PathBuf,
    /// `FallbackToLogsOnError`: the end of the log replaces an empty file.
    pub fall_back_to_log: bool,
}
