//! Exit codes, and errors with a hint.

use std::path::Path;
use std::process::ExitCode;

use winddown_config::ConfigError;
use winddown_control::api::ErrorCode;
use winddown_control::{ApiError, ClientError};

/// The exit codes in every `--help`.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  the command line is wrong
  3  the configuration or a manifest is invalid
  4  the agent cannot be reached
  5  pods were left running or needed SIGKILL, or a drain was cancelled
  6  refused: no permission, or not possible now
  7  doctor found warnings
  8  doctor found problems
  10  the configuration that config check was to check is not there";

/// The exit code of the process. The numbers are a stable interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded.
    Success = 0,
    /// The command failed for a reason without a code of its own.
    Failure = 1,
    /// The command line is wrong; this is also clap's exit code.
    Usage = 2,
    /// The configuration or a manifest is invalid.
    ConfigInvalid = 3,
    /// The agent cannot be reached.
    AgentUnreachable = 4,
    /// Pods were left running or needed SIGKILL, or a drain was cancelled.
    PodsLeft = 5,
    /// The request was refused: no permission, or not possible now.
    Refused = 6,
    /// `doctor` found warnings, and nothing worse.
    Warnings = 7,
    /// `doctor` found problems.
    Problems = 8,
    /// The configuration that was to be checked is not there. 9 is the agent's.
    ConfigMissing = 10,
}

/// Why a command failed.
#[derive(Debug)]
pub struct CommandError {
    /// The exit code.
    pub exit: Exit,
    /// The error, with its sources.
    pub error: anyhow::Error,
    /// What to do next, as text for users; may be empty.
    pub hint: String,
}

// === impl Exit ===

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

// === impl CommandError ===

impl CommandError {
    /// Creates an error with this exit code.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into(), hint: String::new() }
    }

    /// Creates an error from a message.
    pub fn message(exit: Exit, message: impl std::fmt::Display) -> Self {
        Self::new(exit, anyhow::Error::msg(message.to_string()))
    }

    /// Creates an error with [`Exit::Failure`].
    pub(super) fn failure(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::Failure, error)
    }

    /// Creates the error for a `file` that cannot be read.
    pub(super) fn unreadable(file: &Path, error: std::io::Error) -> Self {
        let what = format!("{}: cannot be read", file.display());
        let hint = reading_hint(file, &error);
        Self::new(Exit::Failure, anyhow::Error::new(error).context(what)).with_hint(hint)
    }

    /// Adds a hint to the error.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Makes the error one of permission if a user other than root was not permitted something: the exit code says so, and
    /// the hint how to be permitted.
    #[must_use]
    pub(super) fn refused_if_unprivileged(mut self) -> Self {
        let mut causes =
            self.error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
        let denied = causes.any(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
        if !denied || rustix::process::geteuid().is_root() {
            return self;
        }
        self.exit = Exit::Refused;
        if !self.hint.contains(AS_ROOT) {
            self.hint = AS_ROOT.to_owned();
        }
        self
    }
}

/// The hint for what only root may do.
pub(super) const AS_ROOT: &str = "run it again with sudo";

/// Returns the hint for a file that cannot be read.
pub(super) fn reading_hint(file: &Path, error: &std::io::Error) -> String {
    use std::io::ErrorKind::{IsADirectory, NotFound, PermissionDenied};
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match error.kind() {
        NotFound => {
            let folder = folder.unwrap_or(Path::new(".")).display();
            format!("check the name: ls {folder}")
        }
        PermissionDenied => AS_ROOT.to_owned(),
        IsADirectory => "name a file in it".to_owned(),
        _ => String::new(),
    }
}

impl From<anyhow::Error> for CommandError {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failure, error)
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failure, error)
    }
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Missing { .. }
            | ClientError::NotListening { .. }
            | ClientError::NotASocket { .. }
            | ClientError::Silent { .. }
            | ClientError::Closed { .. } => Exit::AgentUnreachable,
            ClientError::Denied { .. } => Exit::Refused,
            ClientError::Agent { body, .. } => exit_of(body.code),
            _ => Exit::Failure,
        };
        let hint = error.hint();
        Self::new(exit, error).with_hint(hint)
    }
}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        let hint = error.hint();
        Self::new(Exit::ConfigInvalid, error).with_hint(hint)
    }
}

impl From<ApiError> for CommandError {
    fn from(error: ApiError) -> Self {
        let hint = error.hint.clone();
        Self::new(exit_of(error.code), error).with_hint(hint)
    }
}

/// The exit code for an answer of the agent, or for what would have been one.
const fn exit_of(code: ErrorCode) -> Exit {
    match code {
        ErrorCode::Forbidden | ErrorCode::Conflict => Exit::Refused,
        ErrorCode::Unavailable => Exit::AgentUnreachable,
        ErrorCode::BadRequest | ErrorCode::NotFound | ErrorCode::Internal => Exit::Failure,
    }
}
