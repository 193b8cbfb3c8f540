//! What the agent tells a supervisor to run. It travels over a pipe and is never written to disk:
//! it holds the container's environment.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything a supervisor needs, complete or not at all: a pipe that ends early runs nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// Program and leading arguments of the launcher (this binary's hidden subcommand).
    pub launcher: Vec<String>,
    /// What to run.
    pub command: Command,
    /// Where its output goes; with none it has the supervisor's own.
    pub log: Option<LogTarget>,
    /// Where the termination message comes from; none takes none.
    pub message: Option<MessageSource>,
    /// Where `/proc` is.
    pub proc_root: PathBuf,
}

/// The process to become.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Command {
    /// Program and arguments; never empty.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory; `/` if none.
    pub cwd: Option<PathBuf>,
    /// User to become; none stays the agent's.
    pub uid: Option<u32>,
    /// Group to become; none is the user's own, and without a user the agent's.
    pub gid: Option<u32>,
    /// Supplemental groups.
    pub groups: Vec<u32>,
    /// Whether a set-user-ID program may still gain rights.
    pub no_new_privs: bool,
    /// `-1000..=1000`; none leaves it.
    pub oom_score_adj: Option<i16>,
    /// What it reads; none reads nothing.
    pub input: Option<Input>,
    /// Directories of cgroups to enter first, one in each hierarchy.
    pub cgroups: Vec<PathBuf>,
    /// Where the launcher says why it could not start the program.
    pub error_file: Option<PathBuf>,
}

/// What a command reads, by a path that its launcher can open before it becomes another user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Input {
    /// A pipe.
    Pipe(PathBuf),
    /// A terminal, which also gets its output, and controls it.
    Terminal(PathBuf),
}

/// A log file and its rotation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogTarget {
    /// The current file.
    pub path: PathBuf,
    /// Bytes after which a new file is begun.
    pub max_bytes: u64,
    /// Files kept, the current one included; at least 1.
    pub max_files: u32,
}

/// Where the termination message comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageSource {
    /// The file the container writes.
    pub file: PathBuf,
    /// `FallbackToLogsOnError`: the end of the log stands in for an empty file.
    pub fall_back_to_log: bool,
}
