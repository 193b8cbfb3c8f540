//! Reading a node: how its pods are, what its journal says, which reports it kept.

use std::path::Path;

use serde_json::Value;

use super::witness::processes;
use crate::scenario::{Scenario, TestResult};
use crate::{Manner, Node, PodLog, TestPod};

/// What systemd says of each process that a unit leaves behind.
pub(super) const REMAINS: &str = "remains running";

/// What the journal says.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) gave_up: Vec<u64>,
    pub(super) complaints: Vec<(u64, String)>,
    pub(super) lost_patience: bool,
    pub(super) excuses: Vec<u64>,
}

impl Said {
    pub(super) async fn read(scenario: &Scenario) -> TestResult<Self> {
        let mut said = Self::default();
        for entry in scenario.node.journal_entries(&["--boot"]).await? {
            let has = |words: &[&str]| words.iter().any(|word| entry.message.contains(word));
            match entry.sender.as_str() {
                "systemd" if has(&["Killing process", "SIGKILL", "timed out", REMAINS]) => {
                    // What was done on request was a fault of ours.
                    if has(&["on client request"]) {
                        continue;
                    }
                    said.complaints.push((entry.at, format!("{}: {}", entry.unit, entry.message)));
                }
                "systemd-logind" if has(&["timeout is reached"]) => said.lost_patience = true,
                "systemd-logind" if has(&["is masked", "shutdown has been cancelled"]) => {
                    said.gave_up.push(entry.at);
                }
                "winddown" if has(&["the shutdown report is lost"]) => {
                    said.excuses.push(entry.at);
                }
                _ => {}
            }
        }
        Ok(said)
    }
}

/// Whether every pod is as it should be: one process where it runs, none where it was ended, and the
/// agent says the same.
///
/// `stray` runs and is in no manifest: the agent need not show it among its pods.
pub(super) fn is_at_rest(
    scenario: &Scenario,
    status: &Value,
    victims: &[String],
    stray: Option<&str>,
) -> bool {
    let logs = scenario.logs();
    let processes = processes(&scenario.node, &scenario.pods);
    scenario.pods.iter().all(|pod| {
        let running = processes.get(&pod.name).copied().unwrap_or(0);
        match (victims.contains(&pod.name), pod.manner) {
            // It comes back when there is memory again, as one that is not hungry.
            (true, Manner::Hog) => has_been_ended(&logs[&pod.name]) || was_evicted(status, pod),
            (true, _) => running == 0 && !says_running(status, pod),
            _ if stray == Some(&pod.name) => running == 1 && has_begun(&logs[&pod.name]),
            _ => running == 1 && says_running(status, pod) && has_begun(&logs[&pod.name]),
        }
    })
}

/// Whether it has written down its start, of as many as there were ends.
fn has_begun(log: &PodLog) -> bool {
    log.starts.len() > log.exits.len()
}

fn has_been_ended(log: &PodLog) -> bool {
    !log.terms.is_empty() || log.starts.len() > 1
}

fn was_evicted(status: &Value, pod: &TestPod) -> bool {
    of(status, pod).is_some_and(|told| told["reason"] == "Evicted" && told["phase"] == "Failed")
}

fn says_running(status: &Value, pod: &TestPod) -> bool {
    of(status, pod).is_some_and(|told| told["phase"] == "Running")
}

/// What the agent says of a pod. Static pods have the node's name behind their own.
fn of<'a>(status: &'a Value, pod: &TestPod) -> Option<&'a Value> {
    let pods = status["pods"].as_array()?;
    pods.iter().find(|told| told["name"].as_str().is_some_and(|name| is_called(name, &pod.name)))
}

/// Whether a static pod of this name belongs to the manifest of that one.
pub(super) fn is_called(name: &str, manifest: &str) -> bool {
    name.strip_prefix(manifest) == Some("-winddown-node")
}

/// The pods that have an end notice and are not being ended: those read why the node ends.
pub(super) fn end_notices(node: &Node) -> TestResult<Vec<String>> {
    let all = node.host_path("/run/winddown/end-notices");
    let mut told = Vec::new();
    for pod in std::fs::read_dir(all).into_iter().flatten() {
        let pod = pod?;
        // It may go meanwhile.
        let notice = std::fs::read(pod.path().join("notice.json")).unwrap_or_default();
        let notice: Value = serde_json::from_slice(&notice).unwrap_or_default();
        if notice["stopping"] == false {
            told.push(pod.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(told)
}

/// The reports in a folder, the oldest first by the file system's own clock, which never jumped.
pub(super) fn reports(folder: &Path) -> TestResult<Vec<Value>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "json") {
            found.push((entry.metadata()?.modified()?, std::fs::read(entry.path())?));
        }
    }
    found.sort_by_key(|(at, _)| *at);
    // One that cannot be read counts: it was promised to be whole or absent.
    Ok(found
        .into_iter()
        .map(|(_, text)| serde_json::from_slice(&text).unwrap_or(Value::Null))
        .collect())
}
