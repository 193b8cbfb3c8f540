//! A program on the node that delays shutdowns, and never releases its lock.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::feature::INHIBITORS;
use crate::Node;
use crate::scenario::TestResult;
use crate::witness::At;
use crate::witness::now;

const INHIBIT: &str = "{\"apiVersion\": \"winddown.dev/v1alpha1\", \"kind\": \"Inhibit\", \
                       \"who\": \"keeper\", \"why\": \"never ends\", \"turn\": \"beforePods\"}\n";
/// The delay before it reconnects to an agent that went away.
const AGAIN: Duration = Duration::from_millis(50);

/// The program. Dropping it stops the program.
#[derive(Debug)]
pub(super) struct Peer {
    turns: Arc<Mutex<Vec<At>>>,
    task: JoinHandle<()>,
}

// === impl Peer ===

impl Peer {
    /// Requests a lock from now on, again and again if it is refused or lost.
    pub(super) fn start(node: &Node) -> Self {
        let socket = node.host_path(INHIBITORS);
        let turns: Arc<Mutex<Vec<At>>> = Arc::default();
        let told = Arc::clone(&turns);
        let task = tokio::spawn(async move {
            loop {
                // A missing agent or a refusal is part of the schedule.
                let _ = hold(&socket, &told).await;
                tokio::time::sleep(AGAIN).await;
            }
        });
        Self { turns, task }
    }

    /// When it was notified of its turn.
    pub(super) fn turns(&self) -> Vec<At> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn hold(socket: &PathBuf, turns: &Mutex<Vec<At>>) -> TestResult {
    let mut agent = BufReader::new(UnixStream::connect(socket).await?);
    agent.write_all(INHIBIT.as_bytes()).await?;
    let mut said = String::new();
    while agent.read_line(&mut said).await? > 0 {
        if said.contains("\"Turn\"") {
            turns.lock().unwrap_or_else(PoisonError::into_inner).push(now());
        }
        said.clear();
    }
    Ok(())
}
