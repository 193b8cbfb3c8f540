//! `make demo-node`: a whole machine goes down and comes back, with a real systemd and logind.

use std::error::Error;
use std::fs;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;
use winddown_node_tests::{Base, JournalEntry, Node, agent_binary};

/// How long the pods may take to start. The slowest of the examples has an init container.
const START: Duration = Duration::from_secs(60);
/// How long the node may take to go down: more than any budget of the default configuration.
const POWER_OFF: Duration = Duration::from_secs(120);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match demo().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(inner) = source {
                text = format!("{text}: {inner}");
                source = inner.source();
            }
            say(&format!("demo-node: {text}"));
            ExitCode::FAILURE
        }
    }
}

async fn demo() -> Result<(), Box<dyn Error>> {
    say("This is a real systemd and a real logind, in a disposable node on this machine.");
    say("The node is powered off for real; this machine is not touched.\n");
    let base = Base::find().await?;
    let agent = agent_binary().await?;

    let mut node = Node::boot(&base).await?;
    step("The node is up. Installing winddown in it:");
    node.install(&agent, "/opt/winddown")?;
    print(&node.run(&["/opt/winddown", "install", "--runtime", "process"]).await?);

    let pods = copy_examples(&node)?;
    step(&format!("{pods} pods from examples/node, and `systemctl start winddown`:"));
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

/// Copies the example pods into the node and returns how many there are.
fn copy_examples(node: &Node) -> Result<usize, Box<dyn Error>> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/node");
    let mut pods = 0;
    for entry in fs::read_dir(&examples)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "yaml") {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            node.write(&format!("/etc/winddown/pods/{name}"), fs::read(&path)?, 0o644)?;
            pods += 1;
        }
    }
    Ok(pods)
}

/// How many pods run with all their containers ready.
async fn running(node: &Node) -> Option<usize> {
    let status = node.run(&["winddown", "status", "--output", "json"]).await.ok()?;
    let status: Value = serde_json::from_str(&status).ok()?;
    let ready = |pod: &&Value| {
        pod["phase"] == "Running" && pod["readyContainers"] == pod["wantedContainers"]
    };
    Some(status["pods"].as_array()?.iter().filter(ready).count())
}

/// Powers the node off and shows what logind and the agent say about it, as they say it.
async fn power_off(node: &mut Node) -> Result<(), Box<dyn Error>> {
    let mut journal = node
        .command(&[
            "journalctl",
            "--follow",
            "--lines=0",
            "--output=json",
            "--unit=winddown",
            "--unit=systemd-logind",
        ])?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let output = journal.stdout.take().ok_or("journalctl has no output")?;
    let started: u64 = node.run(&["date", "+%s%N"]).await?.trim().parse()?;
    node.run(&["systemctl", "poweroff"]).await?;

    // The pipe ends when the node's power-off ends journalctl.
    let mut lines = BufReader::new(output).lines();
    let shown = timeout(POWER_OFF, async {
        while let Some(line) = lines.next_line().await? {
            if let Some(entry) = JournalEntry::parse(&line) {
                let since = Duration::from_nanos(entry.at.saturating_sub(started)).as_secs_f64();
                say(&format!("  {since:7.3}  {:<15}  {}", entry.sender, entry.message));
            }
        }
        std::io::Result::Ok(())
    });
    shown.await.map_err(|_| format!("the node was still up after {POWER_OFF:?}"))??;
    node.wait_off(POWER_OFF).await?;
    Ok(())
}

fn step(text: &str) {
    say(&format!("\n==> {text}"));
}

fn print(text: &str) {
    for line in text.trim_end().lines() {
        say(&format!("    {line}"));
    }
}

/// A reader who has gone away (`| head`) is no reason to fail.
fn say(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}
