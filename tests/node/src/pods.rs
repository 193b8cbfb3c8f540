//! Pods that write down when they were started, asked to stop, and gone.

use std::collections::BTreeMap;

use crate::{IMAGE, Node, NodeError};

/// The folder in the node, on its disk, that holds one file of times per pod.
const LOGS: &str = "/var/log/pods-under-test";
/// What every pod runs.
pub(crate) const SCRIPT: &str = "/usr/local/bin/pod-under-test";

/// While this is there, no pod ends.
const HOLD: &str = "/var/log/pods-under-test/.hold";

/// What runs in every pod: it needs a while to stop, and says when it was asked and when it went.
/// Each line is flushed to the file at once, so a kill loses nothing.
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
say START
[ "$3" != stuck ] || kill -STOP $$
while :; do
    sleep 3600 &
    child=$!
    wait $child
done
"#;

/// One pod for a test.
#[derive(Debug, Clone)]
pub struct TestPod {
    /// Its name; also the manifest's and the log's.
    pub name: String,
    /// `spec.priority`.
    pub priority: i32,
    /// How long it takes to stop once asked, in milliseconds.
    pub stop_ms: u32,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: u32,
    /// The image; none for a pod that runs on the host itself.
    pub image: Option<String>,
    /// `spec.securityContext.runAsUser`, for a pod that is not root.
    pub user: Option<u32>,
    /// What it does about signals.
    pub manner: Manner,
    /// How many processors it asks for, as a quantity; none for a pod that asks for nothing.
    pub cpu: Option<String>,
}

/// What a pod does about signals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Manner {
    /// It ends, when it has taken its time.
    #[default]
    Willing,
    /// It writes it down and goes on: SIGKILL has to come.
    Deaf,
    /// It hangs from its start, and so does not even hear it.
    Stuck,
    /// It ends, and until then SIGUSR1 makes it hold 250 MiB.
    Hog,
    /// It ends, and is never ready.
    NeverReady,
    /// It ends, and holds shutdowns where it may.
    Holding,
    /// It ends, and stays on the node over a reboot where it may.
    Staying,
}

/// What a pod wrote down. Times are nanoseconds since 1970, by the clock that node and host share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodLog {
    /// Each start: time and process id as the node counts.
    pub starts: Vec<(u64, u32)>,
    /// Each SIGTERM.
    pub terms: Vec<u64>,
    /// Each end of its own accord at which there was an end notice.
    pub told: Vec<u64>,
    /// Each exit of its own accord; a pod that was killed has fewer of these than of the others.
    pub exits: Vec<u64>,
}

// === impl TestPod ===

impl TestPod {
    /// A pod that stops in `stop_ms`, well inside its own grace of 30 s.
    #[must_use]
    pub fn new(name: impl Into<String>, priority: i32, stop_ms: u32) -> Self {
        Self {
            name: name.into(),
            priority,
            stop_ms,
            grace_seconds: 30,
            image: None,
            user: None,
            manner: Manner::Willing,
            cpu: None,
        }
    }

    /// The same pod in a container: of its image, or else of the one for all.
    #[must_use]
    pub fn in_container(self) -> Self {
        Self { image: self.image.or_else(|| Some(IMAGE.to_owned())), ..self }
    }

    /// What it runs.
    #[must_use]
    pub fn command(&self) -> [String; 5] {
        let seconds = f64::from(self.stop_ms) / 1000.0;
        let manner = match self.manner {
            Manner::Willing | Manner::NeverReady | Manner::Holding | Manner::Staying => "willing",
            Manner::Deaf => "deaf",
            Manner::Stuck => "stuck",
            Manner::Hog => "hog",
        };
        ["/bin/sh", SCRIPT, &self.name, &seconds.to_string(), manner].map(str::to_owned)
    }

    /// Its manifest, as JSON, which is YAML too.
    #[must_use]
    pub fn manifest(&self) -> String {
        let mut container = serde_json::json!({
            "name": "main",
            "image": self.image.as_deref().unwrap_or("host"),
            "command": self.command(),
        });
        let mut spec = serde_json::json!({
            "hostNetwork": true,
            "priority": self.priority,
            "terminationGracePeriodSeconds": self.grace_seconds,
        });
        if let Some(cpu) = &self.cpu {
            container["resources"] = serde_json::json!({ "requests": { "cpu": cpu } });
        }
        if self.manner == Manner::NeverReady {
            let command = ["sh", "-c", "exit 1"];
            container["readinessProbe"] = serde_json::json!({ "exec": { "command": command } });
        }
        if self.image.is_some() {
            container["volumeMounts"] = serde_json::json!([
                { "name": "script", "mountPath": SCRIPT, "readOnly": true },
                { "name": "logs", "mountPath": LOGS },
            ]);
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
        if self.manner == Manner::Holding {
            metadata["labels"] = serde_json::json!({ "winddown.dev/shutdown-guard": "true" });
        }
        if self.manner == Manner::Staying {
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
                _ => {}
            }
        }
        log
    }
}

/// Takes all pods and what they wrote down out of a node that is off.
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

/// Puts the pods' script into the node and a manifest for each into its manifests folder.
///
/// # Errors
/// [`NodeError::File`].
pub fn install_pods(node: &Node, pods: &[TestPod]) -> Result<(), NodeError> {
    node.write(SCRIPT, POD, 0o755)?;
    node.write(&format!("{LOGS}/.keep"), "", 0o644)?;
    for pod in pods {
        // Any user may be the pod's.
        node.write(&format!("{LOGS}/{}", pod.name), "", 0o666)?;
        let path = format!("/etc/winddown/pods/{}.json", pod.name);
        node.write(&path, pod.manifest(), 0o644)?;
    }
    Ok(())
}

/// Lets no pod of the node end, however long ago it was asked, until [`let_pods_end`].
///
/// # Errors
/// [`NodeError::File`].
pub fn hold_pods(node: &Node) -> Result<(), NodeError> {
    node.write(HOLD, "", 0o644)
}

/// Lets pods that were held end.
///
/// # Errors
/// As [`Node::run`].
pub async fn let_pods_end(node: &Node) -> Result<(), NodeError> {
    node.run(&["rm", HOLD]).await.map(drop)
}

/// What each pod has written down so far, by name. A pod that never started has an empty log.
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
                exits: vec![10]
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
