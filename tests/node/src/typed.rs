//! Types the commands of documentation pages into a node, and checks that the output is what the page shows.

use std::time::Duration;

use crate::Node;
use crate::scenario::TestResult;

mod shown;

use shown::shows;

/// The timeout of a command: a drill takes longest.
pub const COMMAND: Duration = Duration::from_secs(60);
/// The directory in which commands are typed.
pub const HOME: &str = "/root";
/// How long a node may take until the output is as shown. A reader is slower than a script.
const READER: Duration = Duration::from_secs(20);
const POWER_OFF: Duration = Duration::from_secs(60);
/// A plain node has no sudo, and no user but root.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// A command on a page, with the output that the page shows.
#[derive(Debug)]
pub struct Typed {
    /// The page and line.
    pub at: String,
    /// The command line.
    pub line: String,
    /// The output shown below it: lines, or `…` for any number of them.
    pub shown: Vec<String>,
}

/// Installs what pages expect of any machine into the node: `sudo`.
///
/// # Errors
/// The file cannot be written.
pub fn prepare(node: &Node) -> TestResult {
    Ok(node.write("/usr/local/bin/sudo", SUDO, 0o755)?)
}

/// The commands in a block of the page that starts at `line`.
#[must_use]
pub fn commands(page: &str, line: usize, lines: &[String]) -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    for (n, text) in lines.iter().enumerate() {
        match (text.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push(Typed {
                at: format!("{page}:{}", line + n + 1),
                line: command.to_owned(),
                shown: Vec::new(),
            }),
            (None, Some(last)) => last.shown.push(text.clone()),
            (None, None) => {}
        }
    }
    all
}

/// Types commands, one after the other, and repeats each until its output is as shown, as a reader would. After a
/// command that reboots the node, the node is started again.
///
/// # Errors
/// The first command that failed or had other output, with its position.
pub async fn enter_all<'a>(
    node: &mut Node,
    all: impl IntoIterator<Item = &'a Typed>,
) -> TestResult {
    for command in all {
        println!("{} $ {}", command.at, command.line);
        enter(node, command).await.map_err(|error| format!("{}: {error}", command.at))?;
    }
    Ok(())
}

/// Types one command; see [`enter_all`].
///
/// # Errors
/// The command failed or had other output.
pub async fn enter(node: &mut Node, command: &Typed) -> TestResult {
    let in_home = format!("cd {HOME} && {}", command.line);
    let (mut said, mut last, mut succeeded) = (String::new(), String::new(), false);
    let asked = async || match node.exec(&["sh", "-c", &in_home], COMMAND).await {
        Ok(output) => {
            succeeded = output.status.success();
            // A page shows what a terminal shows. Failing commands explain themselves on standard error.
            let shown = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
            let verdict = command.judge(output.status.code(), shown);
            last =
                verdict.as_ref().err().map(|e| format!("{e}{}", output.stderr)).unwrap_or_default();
            said = output.stdout;
            verdict.is_ok() || command.shown.is_empty()
        }
        Err(error) => {
            last = error.to_string();
            false
        }
    };
    let waited = node.wait_until("the answer on the page", READER, asked).await;
    println!("{said}");
    if !last.is_empty() || waited.is_err() {
        return Err(last.into());
    }
    if succeeded && command.line.contains("reboot") {
        let off = node.wait_off(POWER_OFF).await?;
        if off.code() != Some(Node::REBOOTED) {
            return Err(format!("the node went down with {off}: {}", node.console()).into());
        }
        node.start().await?;
    }
    Ok(())
}

// === impl Typed ===

impl Typed {
    /// Checks that exit code and output are as the page shows. A command may fail only if its comment names the exit
    /// code.
    ///
    /// # Errors
    /// The difference.
    pub fn judge(&self, code: Option<i32>, said: &str) -> Result<(), String> {
        let comment = self.line.split_once("# ").map_or("", |(_, comment)| comment);
        let named = comment.split_once("exit code ").map(|(_, rest)| rest);
        let named =
            named.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
        if code != Some(named.unwrap_or(0)) {
            return Err(format!("`{}` ended with {code:?}:\n{said}", self.line));
        }
        if self.shown.is_empty() {
            return Ok(());
        }
        let shown: Vec<&str> = self.shown.iter().map(String::as_str).collect();
        shows(&shown, said)
            .map_err(|line| format!("`{}` does not say\n{line}\nbut\n{said}", self.line))
    }
}
