//! Reads the state of a node: its pods, its journal, and its reports.

use std::path::Path;
use std::time::SystemTime;

use serde_json::Value;

use crate::scenario::{Scenario, TestResult};
use crate::witness::processes;
use crate::{Node, PodBehavior, PodLog, TestPod};

/// systemd's message for each process that a unit leaves behind.
pub(super) const REMAINS: &str = "remains running";

/// The relevant messages in the journal.
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
                    // Kills on request are our own faults.
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

/// Whether every pod is as it should be: one process if it runs, none if it was stopped, and the agent reports the
/// same.
///
/// `stray` runs but is in no manifest: the agent need not list it among its pods.
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
        match (victims.contains(&pod.name), pod.behavior) {
            // It comes back when there is memory again, without taking any.
            (true, PodBehavior::Hog) => {
                has_been_ended(&logs[&pod.name]) || was_evicted(status, pod)
            }
            (true, _) => running == 0 && !says_running(status, pod),
            _ if stray == Some(&pod.name) => running == 1 && has_begun(&logs[&pod.name]),
            _ => running == 1 && says_running(status, pod) && has_begun(&logs[&pod.name]),
        }
    })
}

/// Whether the pod has recorded its current start.
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

/// The agent's status of a pod.
fn of<'a>(status: &'a Value, pod: &TestPod) -> Option<&'a Value> {
    let pods = status["pods"].as_array()?;
    pods.iter().find(|told| told["name"].as_str().is_some_and(|name| is_called(name, &pod.name)))
}

/// Whether a pod with this name is of that manifest. The names of static pods end in the node's name.
pub(super) fn is_called(name: &str, manifest: &str) -> bool {
    name.strip_prefix(manifest).is_some_and(|rest| rest.is_empty() || rest == "-winddown-node")
}

/// The pods that have an termination notice but are not being stopped.
pub(super) fn termination_notices(node: &Node) -> TestResult<Vec<String>> {
    let all = node.host_path("/run/winddown/termination-notices");
    let mut told = Vec::new();
    for pod in std::fs::read_dir(all).into_iter().flatten() {
        let pod = pod?;
        // The file may disappear meanwhile.
        let notice = std::fs::read(pod.path().join("notice.json")).unwrap_or_default();
        let notice: Value = serde_json::from_slice(&notice).unwrap_or_default();
        if notice["stopping"] == false {
            told.push(pod.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(told)
}

/// The reports in a folder since the node booted, oldest first by file time, which never jumped.
pub(super) fn reports(folder: &Path, booted: SystemTime) -> TestResult<Vec<Value>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "json") {
            found.push((entry.metadata()?.modified()?, std::fs::read(entry.path())?));
        }
    }
    found.retain(|(at, _)| *at > booted);
    found.sort_by_key(|(at, _)| *at);
    // Unreadable reports count: reports are promised to be complete or absent.
    Ok(found
        .into_iter()
        .map(|(_, text)| serde_json::from_slice(&text).unwrap_or(Value::Null))
        .collect())
}
