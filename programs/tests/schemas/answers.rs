//! An agent whose answers cover every schema.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::agent::{Bed, LIMIT, manifest};

/// A configuration in which a threshold is met, but no pod is evicted for it.
const CONFIG: &str = "shutdownGracePeriod: 20s\nstartGroupTimeout: 5s\n\
                      shutdownGuard: [{namespace: default, timeout: 1h}]\nrebootInPlace: [{namespace: default}]\nevictionShadow: true\n\
                      evictionHard: {memory.available: 1Ki, nodefs.available: 99.9999%}\n\
                      shutdownNotices: {file: /run/winddown/notice}\n";

const KEEPS: &str = "lifecycle: {preStop: {exec: {command: [sh, -c, \
    'cp $WINDDOWN_NOTICE ${WINDDOWN_NOTICE%/*}/../../told-of-$WINDDOWN_REASON']}}}";

/// Returns the termination notices that a pod received for this reason.
pub(crate) fn termination_notice(bed: &Bed, reason: &str) -> Vec<Value> {
    let path = bed.root().join("run/winddown").join(format!("told-of-{reason}"));
    let text = std::fs::read_to_string(path).expect("a pod kept it");
    vec![serde_json::from_str(&text).expect("JSON")]
}

/// Runs a command and returns the JSON values that it prints.
pub(crate) fn answers(command: &mut Command) -> Vec<Value> {
    let output = command.output().expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let values: Result<Vec<Value>, _> = values.collect();
    let values = values.expect("JSON");
    assert!(!values.is_empty(), "{command:?} said nothing: {error}");
    values
}

/// Starts an agent with two running pods, one that has finished, and one with an invalid manifest.
///
/// The first two save their termination notices in the directory of the control socket.
pub(crate) fn start() -> Bed {
    let fields = "priority: 10\nrestartPolicy: Never\nterminationGracePeriodSeconds: 10";
    let pod = |name, command: &str| (name, manifest(name, fields, &format!("command: {command}")));
    let label = "namespace: default, labels: {winddown.dev/shutdown-guard: 'true'}";
    let asking = |(name, text): (_, String)| (name, text.replace("namespace: default", label));
    let bed = Bed::start(
        CONFIG,
        &[
            asking(pod("web", &format!("[sleep, '3600']\n{KEEPS}"))),
            pod("dns", &format!("[sleep, '3600']\n{KEEPS}")),
            pod("job", "['true']"),
            ("broken", "kind: Pod\n".to_owned()),
        ],
    );
    wait(&bed);
    bed
}

/// Waits until both pods run and eviction has measured the node.
fn wait(bed: &Bed) {
    let since = tokio::time::Instant::now();
    loop {
        let output = bed.ask(&["status", "-o", "json"]).output().expect("the program runs");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let pods = status["pods"].as_array().map(Vec::as_slice).unwrap_or_default();
        let running = pods.iter().filter(|pod| pod["phase"] == "Running").count();
        let plan = bed.ask(&["plan", "eviction", "-o", "json"]).output().expect("it runs");
        let plan: Value = serde_json::from_slice(&plan.stdout).unwrap_or_default();
        let looked = plan["history"].as_array().is_some_and(|history| !history.is_empty());
        if running == 2 && looked {
            return;
        }
        assert!(since.elapsed() < LIMIT, "{status:#}\n{plan:#}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}
