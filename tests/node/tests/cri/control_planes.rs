//! A power-off of control planes: the pods of each distribution with its names, labels, images and commands, as
//! containers of containerd. Their images are this suite's, and a stand-in has the place of each program.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::packages::repository;
use winddown_node_tests::scenario::{Scenario, TestResult};
use winddown_node_tests::{IMAGE, PodLog, TestPod};

/// How long the node may take to be off.
const DOWN: Duration = Duration::from_secs(60);
const STAND_IN: &str = "/usr/local/bin/stand-in";
/// It runs the pods' script under the name that its container gives it.
const PROGRAM: &str =
    "#!/bin/sh\nexec /bin/sh /usr/local/bin/pod-under-test \"$UNDER_TEST\" 0.3 willing\n";
const CONFIGURATION: &str = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: cri\n\
                             evictionHard: {memory.available: 100Mi}\n\
                             shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 15s\n\
                             shutdownOrder: role\n";
/// What the shells of these pods execute in the end.
const BEHIND_SHELLS: [&str; 3] = ["/usr/local/bin/etcd", "/etcd-manager", "/bin/nice"];

/// The pods of a control plane.
struct Layout {
    pods: Vec<Value>,
    /// A log for each container, by the names of pod and container.
    logs: Vec<TestPod>,
    images: Vec<String>,
}

impl Layout {
    /// Reads the layout that `winddown plan` is tested with.
    fn read(name: &str) -> TestResult<Self> {
        let file = repository().join(format!("programs/src/tests/control_planes/{name}.yaml"));
        let text = std::fs::read_to_string(file)?;
        let mut layout = Self {
            pods: serde_saphyr::from_multiple(&text)?,
            logs: Vec::new(),
            images: Vec::new(),
        };
        for pod in &mut layout.pods {
            let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let spec = pod["spec"].as_object_mut().ok_or("a pod without a spec")?;
            spec.remove("initContainers");
            let from = |name: &str, path: &str| json!({"name": name, "hostPath": {"path": path}});
            let script = TestPod::new("", 0, 0).in_container();
            let script: Value = serde_json::from_str(&script.manifest())?;
            let mut volumes = script["spec"]["volumes"].as_array().cloned().unwrap_or_default();
            volumes.push(from("stand-in", STAND_IN));
            spec.insert("volumes".to_owned(), volumes.into());
            let mounts = &script["spec"]["containers"][0]["volumeMounts"];
            for container in spec["containers"].as_array_mut().into_iter().flatten() {
                let log = format!("{pod_name}.{}", container["name"].as_str().unwrap_or_default());
                layout.images.push(stand_in(container, &log, mounts));
                layout.logs.push(TestPod::new(log, 0, 300));
            }
        }
        layout.images.sort();
        layout.images.dedup();
        Ok(layout)
    }
}

/// Puts the stand-in in the place of the container's program, and returns the name of its image. A digest would have to
/// be the image's own.
fn stand_in(container: &mut Value, log: &str, mounts: &Value) -> String {
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    if container["command"].is_null() {
        container["command"] = json!([format!("/{name}")]);
    }
    let first = container["command"][0].as_str().unwrap_or_default().to_owned();
    let places = match &*first {
        "/bin/sh" => BEHIND_SHELLS.map(str::to_owned).to_vec(),
        first if first.starts_with('/') => vec![first.to_owned()],
        first => vec![format!("/bin/{first}")],
    };
    let mut all = mounts.as_array().cloned().unwrap_or_default();
    let at = |place: &String| json!({"name": "stand-in", "mountPath": place, "readOnly": true});
    all.extend(places.iter().map(at));
    container["volumeMounts"] = all.into();
    container["env"] = json!([{"name": "UNDER_TEST", "value": log}]);
    container["imagePullPolicy"] = json!("Never");
    let image = container["image"].as_str().unwrap_or_default().replace("@sha256:", ":");
    container["image"] = json!(image);
    image
}

/// The logs of the pods whose name begins so.
fn of<'a>(logs: &'a [(String, PodLog)], names: &[&str]) -> Vec<&'a PodLog> {
    let is_one = |log: &str| names.iter().any(|name| log.starts_with(name));
    let found: Vec<_> = logs.iter().filter(|(log, _)| is_one(log)).map(|(_, log)| log).collect();
    assert!(!found.is_empty(), "{names:?} of {logs:?}");
    found
}

fn first_term(logs: &[&PodLog]) -> u64 {
    logs.iter().flat_map(|log| &log.terms).min().copied().unwrap_or_default()
}

fn last_exit(logs: &[&PodLog]) -> u64 {
    logs.iter().flat_map(|log| &log.exits).max().copied().unwrap_or_default()
}

#[tokio::test]
async fn of_every_distributions_control_plane_the_api_server_ends_before_etcd_and_after_the_rest()
-> TestResult {
    let test =
        "of_every_distributions_control_plane_the_api_server_ends_before_etcd_and_after_the_rest";
    for (name, datastore, node) in [
        ("kubeadm", &["etcd."][..], &[][..]),
        ("gce", &["etcd-server.", "etcd-server-events."], &["kube-addon-manager."]),
        ("kops", &["etcd-manager-main.", "etcd-manager-events."], &["kube-proxy."]),
        ("openshift", &["etcd."], &["keepalived."]),
    ] {
        let layout = Layout::read(name)?;
        let Some(mut scenario) = Scenario::with_containerd(test, layout.logs.clone()).await? else {
            return Ok(());
        };
        begin(&scenario, &layout).await.map_err(|error| format!("{name}: {error}"))?;
        scenario.power_off().await?;
        scenario.node.wait_off(DOWN).await?;
        let logs: Vec<(String, PodLog)> = scenario.logs().into_iter().collect();
        for (container, log) in &logs {
            let counts = (log.starts.len(), log.terms.len(), log.exits.len());
            assert_eq!(counts, (1, 1, 1), "{name}: {container}: {log:?}");
        }
        let is_rest = |log: &str| !datastore.iter().any(|one| log.starts_with(one));
        let rest: Vec<_> =
            logs.iter().filter(|(log, _)| is_rest(log)).map(|(_, log)| log).collect();
        let waited = |later: &[&PodLog], earlier: &[&PodLog]| {
            let (asked, ended) = (first_term(later), last_exit(earlier));
            assert!(
                asked >= ended && ended > 0,
                "{name}: asked at {asked}, {ended} was to come first"
            );
            Duration::from_nanos(asked - ended)
        };
        let etcd = waited(&of(&logs, datastore), &rest);
        println!("{name}: etcd was asked {etcd:?} after the last of the others had terminated");
        if !node.is_empty() {
            let api_server = waited(&of(&logs, &["kube-apiserver."]), &of(&logs, node));
            println!("{name}: the API server was asked {api_server:?} after {node:?}");
        }
        scenario.assert_systemd_killed_nothing().await?;
    }
    Ok(())
}

/// Gives the node the layout's pods in place of the suite's, and starts the agent.
async fn begin(scenario: &Scenario, layout: &Layout) -> TestResult {
    let node = &scenario.node;
    node.write(STAND_IN, PROGRAM, 0o755)?;
    node.write("/etc/winddown/config.yaml", CONFIGURATION, 0o644)?;
    node.run(&["sh", "-c", "rm /etc/winddown/pods/*.json"]).await?;
    for image in &layout.images {
        node.run(&["ctr", "--namespace=k8s.io", "images", "tag", IMAGE, image]).await?;
    }
    for (number, pod) in layout.pods.iter().enumerate() {
        node.write(&format!("/etc/winddown/pods/{number}.json"), pod.to_string(), 0o600)?;
    }
    scenario.start().await
}
