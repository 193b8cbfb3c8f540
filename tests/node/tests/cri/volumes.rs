//! Volumes under the shipped unit: its sandbox hides the host's files and may not mount.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::cgroup::is_version_2;
use winddown_node_tests::scenario::{SOON, Scenario, TestResult};
use winddown_node_tests::{IMAGE, Node, NodeError};

/// Where the pods write what they see; made by the agent.
const SEEN: &str = "/var/log/seen/by/pods";
/// As a ConfigMap's volume is: the newest version is what a link says.
const CONFIG: &str = "/srv/config";
/// Writes down what it finds in its volumes, and starts anew when it is told to.
const LOOK: &str =
    "cat /key >>/seen/keys && echo scratch >/scratch/file && echo host >/host/file || exit 1
echo shared >/memory/file || exit 1
trap 'exit 0' TERM
until [ -e /seen/again ]; do sleep 0.1 & wait $!; done
rm /seen/again";

fn pod(name: &str, main: &Value, volumes: &Value) -> Value {
    let spec = json!({"hostNetwork": true, "terminationGracePeriodSeconds": 5,
        "containers": [main], "volumes": volumes});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn host(name: &str, path: &str, kind: &str) -> Value {
    json!({"name": name, "hostPath": {"path": path, "type": kind}})
}

fn part(name: &str, path: &str, sub: &str) -> Value {
    json!({"name": name, "mountPath": path, "subPath": sub})
}

/// The group of the pod's volumes, which no process of its container is in at first.
const GROUP: u32 = 3000;

fn all_kinds() -> String {
    let volumes = json!([
        host("seen", SEEN, "DirectoryOrCreate"),
        host("config", CONFIG, "Directory"),
        host("host", "/home/made/for/pods", "DirectoryOrCreate"),
        host("tmp", "/tmp/made-for-pods", "DirectoryOrCreate"),
        host("lock", "/run/made-for-pods.lock", "FileOrCreate"),
        host("link", "/var/run/made-for-pods.lock", "File"),
        host("device", "/dev/made-for-pods", "CharDevice"),
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]);
    let main = json!({
        "name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", LOOK],
        "volumeMounts": [
            {"name": "seen", "mountPath": "/seen"},
            part("config", "/key", "key"),
            part("scratch", "/scratch", "deep/part"),
            part("host", "/host", "part"),
            {"name": "lock", "mountPath": "/lock"},
            {"name": "memory", "mountPath": "/memory"},
        ],
    });
    let mut pod: Value = pod("volumes", &main, &volumes);
    pod["spec"]["securityContext"] = json!({"fsGroup": GROUP});
    pod.to_string()
}

/// A volume in which a container has left a link to the node's secrets.
fn attack() -> String {
    let main = json!({
        "name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", "sleep 3600"],
        "volumeMounts": [part("evil", "/etc-of-the-node", "out")],
    });
    pod("attack", &main, &json!([host("evil", "/srv/evil", "Directory")])).to_string()
}

async fn sh(node: &Node, script: &str) -> Result<String, NodeError> {
    node.run(&["sh", "-ec", script]).await
}

async fn wait_for(scenario: &Scenario, what: &str, script: &str) -> TestResult {
    let holds = async || sh(&scenario.node, script).await.is_ok();
    match scenario.node.wait_until(what, SOON, holds).await {
        Ok(_) => Ok(()),
        Err(error) => {
            let status = scenario.text(&["status"]).await.unwrap_or_default();
            let journal = scenario.node.journal(&["--unit=winddown"]).await?;
            Err(format!("{error}\n{status}\n{journal}").into())
        }
    }
}

#[tokio::test]
async fn volumes_and_parts_of_them_are_the_hosts_under_the_shipped_unit() -> TestResult {
    let test = "volumes_and_parts_of_them_are_the_hosts_under_the_shipped_unit";
    let Some(scenario) = Scenario::with_containerd(test, Vec::new()).await? else { return Ok(()) };
    let node = &scenario.node;
    let prepare = format!(
        "mkdir -p {CONFIG}/..1 {CONFIG}/..2 /srv/evil; echo one >{CONFIG}/..1/key; echo two >{CONFIG}/..2/key
         ln -s ..1 {CONFIG}/..data; ln -s ..data/key {CONFIG}/key; ln -s /etc /srv/evil/out
         mknod /dev/made-for-pods c 1 3"
    );
    sh(node, &prepare).await?;
    node.write("/etc/winddown/pods/volumes.json", all_kinds(), 0o644)?;
    node.write("/etc/winddown/pods/attack.json", attack(), 0o644)?;
    scenario.start().await?;
    wait_for(&scenario, "the pod to look", &format!("grep -qx one {SEEN}/keys")).await?;
    wait_for(&scenario, "the last part", "test -f /home/made/for/pods/part/file").await?;
    let found = sh(
        node,
        "stat -c '%a %F' /home/made /tmp/made-for-pods /run/made-for-pods.lock
         cat /var/lib/winddown/cri/pods/*/volumes/scratch/deep/part/file",
    )
    .await?;
    let expected = ["755 directory", "755 directory", "644 regular empty file", "scratch"];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    // What one container writes, the others may read: its files belong to the volumes' group.
    let found = sh(
        node,
        "cd /var/lib/winddown/cri/pods/*/volumes
         stat -c '%a %g %n' scratch scratch/deep scratch/deep/part memory
         stat -c '%g %n' scratch/deep/part/file memory/file",
    )
    .await?;
    let directories = ["scratch", "scratch/deep", "scratch/deep/part", "memory"];
    let expected = directories.map(|name| format!("2777 {GROUP} {name}"));
    let files = ["scratch/deep/part/file", "memory/file"].map(|name| format!("{GROUP} {name}"));
    assert_eq!(found.lines().collect::<Vec<_>>(), [&expected[..], &files[..]].concat());

    // The object has changed since, and the container starts anew.
    sh(node, &format!("ln -sfn ..2 {CONFIG}/..data; touch {SEEN}/again")).await?;
    wait_for(&scenario, "the new key", &format!("grep -qx two {SEEN}/keys")).await?;

    // Nothing of the node was bound for the other pod, and it says why.
    let refused = "winddown status -o json | grep -q 'it leads out of the volume'";
    wait_for(&scenario, "the refusal to be told", refused).await?;
    assert!(sh(node, "grep -q ' /var/lib/winddown/cri/.*/etc' /proc/1/mountinfo").await.is_err());

    sh(node, "rm /etc/winddown/pods/*.json").await?;
    let gone = "! grep -q /subpaths/ /proc/1/mountinfo; test ! -e /var/lib/winddown/cri/pods/*";
    wait_for(&scenario, "the mounts to be released", gone).await?;
    assert_eq!(sh(node, "cat /home/made/for/pods/part/file").await?.trim(), "host");
    let score = sh(node, "systemd-analyze security winddown --no-pager | tail -1").await?;
    println!("{score}");
    Ok(())
}

#[tokio::test]
async fn a_deadline_counts_from_the_pods_start_over_a_restart_of_the_agent() -> TestResult {
    let test = "a_deadline_counts_from_the_pods_start_over_a_restart_of_the_agent";
    let Some(scenario) = Scenario::with_containerd(test, Vec::new()).await? else { return Ok(()) };
    let node = &scenario.node;
    let run = "trap 'date +%s >/seen/ended; exit 0' TERM; date +%s >/seen/began
               while :; do sleep 3600 & wait $!; done";
    let main = json!({"name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", run],
        "volumeMounts": [{"name": "seen", "mountPath": "/seen"}]});
    let volumes = json!([host("seen", SEEN, "DirectoryOrCreate")]);
    let mut manifest = pod("short", &main, &volumes);
    manifest["spec"]["activeDeadlineSeconds"] = json!(12);
    manifest["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "250m"}});
    node.write("/etc/winddown/pods/short.json", manifest.to_string(), 0o644)?;
    scenario.start().await?;
    wait_for(&scenario, "the pod to begin", &format!("test -s {SEEN}/began")).await?;
    // A quarter of a processor, in the words of each version of control groups.
    let (file, weight) = match is_version_2() {
        true => ("winddown/burstable/$pod/cpu.weight", "10\n10\n"),
        false => ("cpu/winddown/burstable/$pod/cpu.shares", "256\n256\n"),
    };
    let show = format!("cd /sys/fs/cgroup; for pod in . 'pod*'; do cat {file}; done");
    assert_eq!(sh(node, &show).await?, weight);
    tokio::time::sleep(Duration::from_secs(5)).await;
    node.run(&["systemctl", "restart", "winddown"]).await?;
    wait_for(&scenario, "the pod to be terminated", &format!("test -s {SEEN}/ended")).await?;
    let read = async |file: &str| -> TestResult<u64> {
        Ok(sh(node, &format!("cat {SEEN}/{file}")).await?.trim().parse()?)
    };
    let active = read("ended").await? - read("began").await?;
    assert!((10..=14).contains(&active), "active for {active} s");
    let told = "winddown status -o json | grep -q DeadlineExceeded";
    wait_for(&scenario, "the reason to be told", told).await
}
