//! Pods that record when they are started, asked to stop, and exit.

use std::collections::BTreeMap;

use crate::{IMAGE, Node, NodeError};

/// The folder on the node's disk with one log file per pod.
const LOGS: &str = "/var/log/pods-under-test";
/// The program of every pod.
pub(crate) const SCRIPT: &str = "/usr/local/bin/pod-under-test";

/// While this file exists, no pod exits.
const HOLD: &str = "/var/log/pods-under-test/.hold";

/// The script of every pod: it takes a while to stop, and records when it was asked to and when it exits. Each line is
/// written to the file at once, so a kill loses nothing.
const POD: &str = r#"#!/bin/sh
logs=/var/log/pods-under-test
log=$logs/$1 stop=$2
# The path matters: the shell of busybox would take its own date, which counts seconds.
say() { echo "$1 $(/bin/date +%s%N) $$" >>"$log"; }
read_its_notice() { [ ! -e "$WINDDOWN_NOTICE" ] || say TOLD; }
until_it_may() { while [ -e $logs/.hold ]; do sleep 0.05; done; }
trap 'say TERM; kill $child $hog; sleep "$stop"; until_it_may; read_its_notice; say EXIT; exit 0' TERM
[ "$3" != hog ] || trap 'dd if=/dev/zero bs=250M count=1 | sleep 3600 & hog=$!; kill $child' USR1
[ "$3" != deaf ] || trap 'say TERM' TERM
[ "$3" != lasting ] || trap 'say TERM; while :; do sleep 0.05; say LASTS; done' TERM
[ "$3" != hook ] || { say HOOK; exec sleep "$stop"; }
say START
[ "$3" != stuck ] || kill -STOP $$
while :; do
    sleep 3600 &
    child=$!
    wait $child
done
"#;

/// A pod for a test.
#[derive(Debug, Clone)]
pub struct TestPod {
    /// The name, also of the manifest and the log.
    pub name: String,
    /// `spec.priority`.
    pub priority: i32,
    /// How long it takes to stop after SIGTERM, in milliseconds.
    pub stop_ms: u32,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: u32,
    /// The image; none for a pod that runs directly on the host.
    pub image: Option<String>,
    /// `spec.securityContext.runAsUser`; none for root.
    pub user: Option<u32>,
    /// The pod's behaviour.
    pub behavior: PodBehavior,
    /// The CPU request as a quantity; none for no request.
    pub cpu: Option<String>,
    /// Whether its containers have a preStop hook, which takes `HOOK_MS`.
    pub has_hook: bool,
    /// Whether it has a sidecar, which writes a log of its own ([`TestPod::sidecar`]).
    pub has_sidecar: bool,
}

/// How long a preStop hook takes, in milliseconds.
const HOOK_MS: u32 = 300;

/// The behaviour of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodBehavior {
    /// It stops after SIGTERM, within its time.
    #[default]
    Willing,
    /// It records SIGTERM but keeps running: it has to be killed.
    Deaf,
    /// It records SIGTERM, and from then on every 50 ms that it still runs.
    Lasting,
    /// It suspends itself at its start, so it does not even notice SIGTERM.
    Stuck,
    /// It stops after SIGTERM. Before that, SIGUSR1 makes it allocate 250 MiB.
    Hog,
    /// It stops after SIGTERM, and is never ready.
    NeverReady,
    /// It stops after SIGTERM, and blocks shutdowns where this is allowed.
    Holding,
    /// It stops after SIGTERM, and stays on the node over a reboot where this is allowed.
    Staying,
}

/// The log of a pod. Times are nanoseconds since 1970, on the clock that node and host share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodLog {
    /// The starts: time and PID in the node.
    pub starts: Vec<(u64, u32)>,
    /// Each SIGTERM.
    pub terms: Vec<u64>,
    /// The voluntary exits with an termination notice.
    pub told: Vec<u64>,
    /// The voluntary exits. A pod that was killed has fewer exits than starts.
    pub exits: Vec<u64>,
    /// The runs of its preStop hook.
    pub hooks: Vec<u64>,
    /// When it still ran after SIGTERM, if it is [`PodBehavior::Lasting`].
    pub lasts: Vec<u64>,
}

// === impl TestPod ===

impl TestPod {
    /// Creates a pod that stops in `stop_ms`, well within its grace period of 30 s.
    #[must_use]
    pub fn new(name: impl Into<String>, priority: i32, stop_ms: u32) -> Self {
        Self {
            name: name.into(),
            priority,
            stop_ms,
            grace_seconds: 30,
            image: None,
            user: None,
            behavior: PodBehavior::Willing,
            cpu: None,
            has_hook: false,
            has_sidecar: false,
        }
    }

    /// The sidecar of this pod, as far as its log is concerned.
    #[must_use]
    pub fn sidecar(&self) -> Self {
        Self { name: format!("{}.sidecar", self.name), has_sidecar: false, ..self.clone() }
    }

    /// The same pod in a container with its image, or else the default image.
    #[must_use]
    pub fn in_container(self) -> Self {
        Self { image: self.image.or_else(|| Some(IMAGE.to_owned())), ..self }
    }

    /// The pod's command.
    #[must_use]
    pub fn command(&self) -> [String; 5] {
        let seconds = f64::from(self.stop_ms) / 1000.0;
        let behavior = match self.behavior {
            PodBehavior::Willing
            | PodBehavior::NeverReady
            | PodBehavior::Holding
            | PodBehavior::Staying => "willing",
            PodBehavior::Deaf => "deaf",
            PodBehavior::Lasting => "lasting",
            PodBehavior::Stuck => "stuck",
            PodBehavior::Hog => "hog",
        };
        ["/bin/sh", SCRIPT, &self.name, &seconds.to_string(), behavior].map(str::to_owned)
    }

    /// The pod's manifest, as JSON, which is YAML too.
    #[must_use]
    pub fn manifest(&self) -> String {
        let mut container = self.container("main");
        let mut spec = serde_json::json!({
            "hostNetwork": true,
            "priority": self.priority,
            "terminationGracePeriodSeconds": self.grace_seconds,
        });
        if let Some(cpu) = &self.cpu {
            container["resources"] = serde_json::json!({ "requests": { "cpu": cpu } });
        }
        if self.behavior == PodBehavior::NeverReady {
            let command = ["sh", "-c", "exit 1"];
            container["readinessProbe"] = serde_json::json!({ "exec": { "command": command } });
        }
        if self.has_sidecar {
            let mut sidecar = self.sidecar().container("sidecar");
            sidecar["restartPolicy"] = serde_json::json!("Always");
            spec["initContainers"] = serde_json::json!([sidecar]);
        }
        if self.image.is_some() {
            spec["volumes"] = serde_json::json!([
                { "name": "script", "hostPath": { "path": SCRIPT, "type": "File" } },
                { "name": "logs", "hostPath": { "path": LOGS, "type": "Directory" } },
            ]);
        }
        if let Some(user) = self.user {
            spec["securityContext"] = serde_json::json!({ "runAsUser": user });
        }
        spec["containers"] = serde_json::json!([container]);
        let mut metadata = serde_json::json!({ "name": self.name });
        if self.behavior == PodBehavior::Holding {
            metadata["labels"] = serde_json::json!({ "winddown.dev/shutdown-guard": "true" });
        }
        if self.behavior == PodBehavior::Staying {
            metadata["annotations"] = serde_json::json!({ "winddown.dev/on-reboot": "restart" });
        }
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec,
        })
        .to_string()
    }
}

impl TestPod {
    fn container(&self, name: &str) -> serde_json::Value {
        let mut container = serde_json::json!({
            "name": name,
            "image": self.image.as_deref().unwrap_or("host"),
            "command": self.command(),
        });
        if self.image.is_some() {
            container["volumeMounts"] = serde_json::json!([
                { "name": "script", "mountPath": SCRIPT, "readOnly": true },
                { "name": "logs", "mountPath": LOGS },
            ]);
        }
        if self.has_hook {
            let [shell, script, name, ..] = self.command();
            let seconds = (f64::from(HOOK_MS) / 1000.0).to_string();
            let command = [shell, script, name, seconds, "hook".to_owned()];
            container["lifecycle"] = serde_json::json!({"preStop": {"exec": {"command": command}}});
        }
        container
    }
}

// === impl PodLog ===

impl PodLog {
    fn parse(text: &str) -> Self {
        let mut log = Self::default();
        for line in text.lines() {
            let mut fields = line.split(' ');
            let (Some(what), Some(Ok(at))) = (fields.next(), fields.next().map(str::parse)) else {
                continue;
            };
            match what {
                "START" => {
                    let pid = fields.next().and_then(|pid| pid.parse().ok()).unwrap_or(0);
                    log.starts.push((at, pid));
                }
                "TERM" => log.terms.push(at),
                "TOLD" => log.told.push(at),
                "EXIT" => log.exits.push(at),
                "HOOK" => log.hooks.push(at),
                "LASTS" => log.lasts.push(at),
                _ => {}
            }
        }
        log
    }
}

/// Removes all pods and their logs from a node that is off.
///
/// # Errors
/// [`NodeError::File`].
pub fn remove_pods(node: &Node) -> Result<(), NodeError> {
    for path in ["/etc/winddown/pods", LOGS] {
        let path = node.host_path(path);
        std::fs::remove_dir_all(&path).map_err(|source| NodeError::File { path, source })?;
    }
    Ok(())
}

/// Writes the pods' script into the node, and a manifest for each pod into its manifests folder.
///
/// # Errors
/// [`NodeError::File`].
pub fn install_pods(node: &Node, pods: &[TestPod]) -> Result<(), NodeError> {
    node.write(SCRIPT, POD, 0o755)?;
    node.write(&format!("{LOGS}/.keep"), "", 0o644)?;
    for pod in pods {
        // The pod may run as any user.
        node.write(&format!("{LOGS}/{}", pod.name), "", 0o666)?;
        let path = format!("/etc/winddown/pods/{}.json", pod.name);
        node.write(&path, pod.manifest(), 0o644)?;
    }
    Ok(())
}

/// Keeps all pods of the node from exiting, however long ago they were asked to stop, until [`let_pods_end`].
///
/// # Errors
/// [`NodeError::File`].
pub fn hold_pods(node: &Node) -> Result<(), NodeError> {
    node.write(HOLD, "", 0o644)
}

/// Lets the pods exit that were held back.
///
/// # Errors
/// Same as for [`Node::run`].
pub async fn let_pods_end(node: &Node) -> Result<(), NodeError> {
    node.run(&["rm", HOLD]).await.map(drop)
}

/// The log of each pod so far, by name. A pod that never started has an empty log.
#[must_use]
pub fn read_pod_log(node: &Node, pods: &[TestPod]) -> BTreeMap<String, PodLog> {
    let read = |pod: &TestPod| {
        let text = node.read(&format!("{LOGS}/{}", pod.name)).unwrap_or_default();
        (pod.name.clone(), PodLog::parse(&text))
    };
    pods.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::{PodLog, TestPod};

    #[test]
    fn a_log_is_read_and_a_torn_line_is_passed_over() {
        let log = PodLog::parse("START 5 17\nTERM 7 17\nTOLD 8 17\nSTART 9 18\nEXIT 10 18\nEXI");
        assert_eq!(
            log,
            PodLog {
                starts: vec![(5, 17), (9, 18)],
                terms: vec![7],
                told: vec![8],
                exits: vec![10],
                ..PodLog::default()
            }
        );
    }

    #[test]
    fn a_manifest_holds_the_priority_and_the_time_to_stop() {
        let manifest: serde_json::Value =
            serde_json::from_str(&TestPod::new("web", 1000, 1500).manifest()).unwrap();
        assert_eq!(manifest["spec"]["priority"], 1000);
        assert_eq!(manifest["spec"]["containers"][0]["command"][3], "1.5");
    }
}
