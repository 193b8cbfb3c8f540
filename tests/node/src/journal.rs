//! The entries of a node's journal.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{Node, NodeError};

/// An entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// When it was sent, in nanoseconds since 1970.
    pub at: u64,
    /// The unit of the sender, or the unit that systemd's message is about.
    pub unit: String,
    /// The identifier of the sender.
    pub sender: String,
    /// The message.
    pub message: String,
}

impl Node {
    /// Returns the output of `journalctl` for the node's journal, with further arguments. The node may be on or off.
    ///
    /// # Errors
    /// [`NodeError::Start`] or [`NodeError::Command`] if the journal cannot be read.
    pub async fn journal(&self, args: &[&str]) -> Result<String, NodeError> {
        if self.has_own_kernel() && self.is_booted() {
            // The journal on the disk is some minutes old.
            return self.run(&[&["journalctl", "--no-pager", "--quiet"], args].concat()).await;
        }
        let output = Command::from(self.journalctl())
            .args(args)
            .output()
            .await
            .map_err(|source| NodeError::Start { program: "journalctl".to_owned(), source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(NodeError::Command {
            command: format!("journalctl {}", args.join(" ")),
            status: output.status,
            stdout: String::new(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Prints the end of the journal on the disk, for a failed test.
    pub(crate) fn print_journal(&self) {
        let output = self.journalctl().args(["--lines=60"]).output();
        println!("{}", String::from_utf8_lossy(&output.map(|out| out.stdout).unwrap_or_default()));
    }

    /// A `journalctl` command that reads the journal on the disk.
    fn journalctl(&self) -> std::process::Command {
        let mut command = std::process::Command::new("journalctl");
        command
            .arg("--directory")
            .arg(self.host_path("/var/log/journal"))
            .args(["--no-pager", "--quiet"]);
        command
    }

    /// Follows the journal from now on, as JSON lines on the standard output of a process that runs until it is
    /// dropped. The node must be on.
    ///
    /// # Errors
    /// [`NodeError::Start`], [`NodeError::OwnKernel`].
    pub fn follow_journal(&self, args: &[&str]) -> Result<Child, NodeError> {
        self.shares_kernel("its journal as it is written")?;
        Command::new("journalctl")
            .arg("--directory")
            .arg(self.host_path("/var/log/journal"))
            .args(["--quiet", "--follow", "--lines=0", "--output=json"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| NodeError::Start { program: "journalctl".to_owned(), source })
    }

    /// The journal's entries, oldest first, with further arguments for `journalctl`. The node may be on or off.
    ///
    /// # Errors
    /// Same as for [`Node::journal`].
    pub async fn journal_entries(&self, args: &[&str]) -> Result<Vec<JournalEntry>, NodeError> {
        let args = [&["--output=json"], args].concat();
        Ok(self.journal(&args).await?.lines().filter_map(JournalEntry::parse).collect())
    }
}

impl JournalEntry {
    /// Parses a line of `journalctl --output=json`; none if it is not an entry.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let entry: Value = serde_json::from_str(line).ok()?;
        let field = |names: &[&str]| {
            names.iter().find_map(|name| entry[name].as_str()).unwrap_or_default().to_owned()
        };
        let at = field(&["_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP"]);
        Some(Self {
            at: at.parse::<u64>().ok()? * 1000,
            unit: field(&["UNIT", "_SYSTEMD_UNIT"]),
            sender: field(&["SYSLOG_IDENTIFIER", "_COMM"]),
            message: field(&["MESSAGE"]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::JournalEntry;

    #[test]
    fn an_entry_has_the_senders_time_and_the_unit_that_systemd_speaks_about() {
        let line = r#"{"__REALTIME_TIMESTAMP":"9","_SOURCE_REALTIME_TIMESTAMP":"7","_PID":"1",
            "_SYSTEMD_UNIT":"init.scope","UNIT":"dbus.service","SYSLOG_IDENTIFIER":"systemd",
            "MESSAGE":"Started"}"#;
        let expected = JournalEntry {
            at: 7000,
            unit: "dbus.service".into(),
            sender: "systemd".into(),
            message: "Started".into(),
        };
        assert_eq!(JournalEntry::parse(line), Some(expected));
    }
}
