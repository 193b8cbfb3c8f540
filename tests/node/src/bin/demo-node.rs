//! `make demo-node`: shuts a whole machine down and boots it again, with a real systemd and logind.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::error::Error;
use std::fs;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use winddown_node_tests::{
    Base, Flavour, JournalEntry, Node, error_chain, programs, unless_interrupted,
};

/// How long the pods may take to start. The slowest example has an init container.
const START: Duration = Duration::from_secs(60);
/// How long the node may take to power off: longer than any budget of the default configuration.
const POWER_OFF: Duration = Duration::from_secs(120);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match unless_interrupted(demo()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("demo-node: {}", error_chain(&*error)));
            ExitCode::FAILURE
        }
    }
}

async fn demo() -> Result<(), Box<dyn Error>> {
    say("This is a real systemd and a real logind, in a disposable node on this machine.");
    say("The node is powered off for real; this machine is not touched.\n");
    let base = Base::find(Flavour::Plain).await?;
    let programs = programs().await?;

    let mut node = Node::boot(&base).await?;
    step("The node is up. Installing winddown in it:");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let config = fs::read(examples.join("node-config.yaml"))?;
    node.write("/etc/winddown/config.yaml", config, 0o644)?;
    node.install_programs(&programs, "/opt/winddown")?;
    print(&node.run(&["/opt/winddown/winddown", "install", "--runtime", "process"]).await?);

    let pods = copy_pods(&node, &examples.join("node"))?;
    step(&format!("{pods} pods from docs/examples/node, and `systemctl start winddown`:"));
    node.run(&["systemctl", "start", "winddown"]).await?;
    node.wait_until("all pods to run", START, async || running(&node).await == Some(pods)).await?;
    print(&node.run(&["winddown", "status"]).await?);

    step("Now `systemctl poweroff`. What the node's journal says, in seconds since:");
    power_off(&mut node).await?;

    step("The node is off. Booting it again, and `winddown report`:");
    node.start().await?;
    print(&node.run(&["winddown", "report"]).await?);
    Ok(())
}

/// Copies the manifests in `examples` into the node and returns how many there are.
fn copy_pods(node: &Node, examples: &Path) -> Result<usize, Box<dyn Error>> {
    let mut pods = 0;
    for entry in fs::read_dir(examples)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "yaml") {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            node.write(&format!("/etc/winddown/pods/{name}"), fs::read(&path)?, 0o644)?;
            pods += 1;
        }
    }
    Ok(pods)
}

/// The number of pods that run with all containers ready, or have succeeded.
async fn running(node: &Node) -> Option<usize> {
    let status = node.run(&["winddown", "status", "--output", "json"]).await.ok()?;
    let status: Value = serde_json::from_str(&status).ok()?;
    let ready = |pod: &&Value| {
        pod["phase"] == "Succeeded"
            || pod["phase"] == "Running" && pod["readyContainers"] == pod["desiredContainers"]
    };
    Some(status["pods"].as_array()?.iter().filter(ready).count())
}

/// Powers the node off and shows the messages of logind and the agent as they appear.
async fn power_off(node: &mut Node) -> Result<(), Box<dyn Error>> {
    let mut journal = node.follow_journal(&["--unit=winddown", "--unit=systemd-logind"])?;
    let output = journal.stdout.take().ok_or("journalctl has no output")?;
    let mut lines = BufReader::new(output).lines();
    let started: u64 = node.run(&["date", "+%s%N"]).await?.trim().parse()?;
    node.shut_down(&["systemctl", "poweroff"]).await?;
    let mut off = pin!(node.wait_off(POWER_OFF));
    loop {
        tokio::select! {
            biased;
            line = lines.next_line() => match line? {
                Some(line) => show(&line, started),
                None => break,
            },
            ended = &mut off => {
                ended?;
                return Ok(());
            }
        }
    }
    off.await?;
    Ok(())
}

fn show(line: &str, started: u64) {
    if let Some(entry) = JournalEntry::parse(line) {
        let since = Duration::from_nanos(entry.at.saturating_sub(started)).as_secs_f64();
        say(&format!("  {since:7.3}  {:<15}  {}", entry.sender, entry.message));
    }
}

fn step(text: &str) {
    say(&format!("\n==> {text}"));
}

fn print(text: &str) {
    for line in text.trim_end().lines() {
        say(&format!("    {line}"));
    }
}

/// Prints a line. A reader that went away (`| head`) is no error.
fn say(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}
