//! Why the action of a hook or a probe failed.

use std::io;

use winddown_shared::display::quoted;
use winddown_shared::error_chain;

/// The most of a command's output that an error shows, in bytes: its beginning, about as much as an event holds.
const MAX_OUTPUT: usize = 1000;

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The command exited with a code other than 0.
    #[error("{command}: {how}")]
    Failed {
        /// The command.
        command: String,
        /// How it exited.
        how: String,
        /// Its output; may be empty.
        output: String,
    },
    /// The action took too long.
    #[error("no answer in time")]
    Timeout,
    /// The container does not answer, or not as expected.
    #[error("the container does not answer")]
    NoAnswer(#[from] io::Error),
    /// The action was not done, for a reason that says nothing about the container.
    #[error("{what}")]
    Unasked {
        /// What prevented it.
        what: String,
        /// The cause.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

// === impl ActionError ===

impl ActionError {
    /// Nothing was done, for this reason.
    pub fn unasked(why: impl Into<String>) -> Self {
        Self::Unasked { what: why.into(), source: None }
    }

    /// A command exited with `code`, which is not 0, after it had written `output`.
    pub fn exited(command: &[String], code: i32, output: &[u8]) -> Self {
        let output = &output[..output.len().min(MAX_OUTPUT)];
        let output = String::from_utf8_lossy(output).trim().to_owned();
        let how = match (code, &*output) {
            // The codes of a command that could not be started; the command may also have chosen them itself.
            (126..=128, "") => format!(
                "exit code {code}, without output: check that the container has this program and that it is \
                 executable"
            ),
            (_, "") => format!("exit code {code}"),
            (_, output) => format!("exit code {code}: {}", quoted(output)),
        };
        Self::Failed { command: command.join(" "), how, output }
    }

    /// The text of the event of a failed probe: the output of the command, or why there was no answer.
    pub fn output(&self) -> String {
        match self {
            Self::Failed { how, output, .. } if output.is_empty() => how.clone(),
            Self::Failed { output, .. } => output.clone(),
            Self::NoAnswer(error) => error.to_string(),
            other => error_chain(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_may_not_have_been_started_is_told_with_what_to_do() {
        let command = ["/bin/flush".to_owned(), "all".to_owned()];
        let told = |code, output: &[u8]| ActionError::exited(&command, code, output).to_string();
        assert_eq!(
            told(128, b""),
            "/bin/flush all: exit code 128, without output: check that the container has this program and \
             that it is executable"
        );
        assert_eq!(told(127, b"sh: no\n"), "/bin/flush all: exit code 127: \"sh: no\"");
        assert_eq!(told(1, b""), "/bin/flush all: exit code 1");
        // The verdict usually stands at the beginning.
        let long = [b"FAIL: replica 3 lags\n", "and more ".repeat(500).as_bytes()].concat();
        let told = told(1, &long);
        let begun = r#"/bin/flush all: exit code 1: "FAIL: replica 3 lags\nand more "#;
        assert!(told.len() < 1100 && told.starts_with(begun), "{told}");
    }
}
