//! A pod with a network of its own: a real bridge and real addresses.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{SOON, Scenario, TestResult};
use winddown_node_tests::{IMAGE, TestPod};

const MANIFEST: &str = "/etc/winddown/pods/web.json";
const SEEN: &str = "/var/log/web";
/// Says which addresses it was told, and serves a page until it is asked to end.
const SERVE: &str = "echo \"$POD_IP $HOST_IP\" >>/seen/addresses
trap 'exit 0' TERM
/bin/busybox httpd -p 8080 -h /seen
while :; do sleep 3600 & wait $!; done";

/// A pod that is not on the host's network and is asked whether it is well by its address.
fn web() -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let get = json!({"httpGet": {"path": "/addresses", "port": "http"}, "periodSeconds": 1});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "command": ["/bin/sh", "-c", SERVE],
                "env": [field("POD_IP", "status.podIP"), field("HOST_IP", "status.hostIP")],
                "ports": [{"name": "http", "containerPort": 8080}],
                "readinessProbe": get,
                "livenessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
                "volumeMounts": [{"name": "seen", "mountPath": "/seen"}],
            }],
            "volumes": [{"name": "seen", "hostPath": {"path": SEEN, "type": "Directory"}}],
        },
    })
}

/// The pod's line of `status`, once it says that the pod is ready.
async fn ready(scenario: &Scenario) -> TestResult<Value> {
    let mut line = Value::Null;
    let is_ready = async || {
        let status = scenario.status().await.unwrap_or_default();
        let pods = status["pods"].as_array().cloned().unwrap_or_default();
        let web =
            pods.into_iter().find(|pod| pod["name"].as_str().unwrap_or("").starts_with("web"));
        line = web.unwrap_or_default();
        line["ready"] == true
    };
    let waited = scenario.node.wait_until("the pod to be ready", SOON, is_ready).await;
    if let Err(error) = waited {
        let journal = scenario.node.journal(&["--unit=winddown", "--unit=containerd"]).await?;
        return Err(format!("{error}\n{line}\n{journal}").into());
    }
    Ok(line)
}

#[tokio::test]
async fn a_pod_with_its_own_network_keeps_its_address_over_restarts_and_gives_it_back() -> TestResult
{
    let test = "a_pod_with_its_own_network_keeps_its_address_over_restarts_and_gives_it_back";
    let beside = TestPod::new("beside", 0, 100);
    let Some(mut scenario) = Scenario::with_containerd(test, vec![beside]).await? else {
        return Ok(());
    };
    let node = &scenario.node;
    node.configure_pod_network(7)?;
    node.write(&format!("{SEEN}/.keep"), "", 0o644)?;
    node.write(MANIFEST, web().to_string(), 0o644)?;
    scenario.start().await?;

    // Before there is a route, the node has no address: the pod waits, and does not fail.
    let node = &scenario.node;
    let waits = async || {
        let journal = node.journal(&["--unit=winddown"]).await.unwrap_or_default();
        journal.contains("cannot start container main of pod default/web")
            && journal.contains("status.hostIP is not known")
    };
    node.wait_until("the pod to wait for the node's address", SOON, waits).await?;
    // The node has no way out; its own address is the one it would leave by.
    node.run(&["ip", "link", "add", "way-out", "type", "bridge"]).await?;
    node.run(&["ip", "address", "add", "10.99.0.7/24", "dev", "way-out"]).await?;
    node.run(&["ip", "link", "set", "way-out", "up"]).await?;
    node.run(&["ip", "route", "add", "default", "via", "10.99.0.1"]).await?;
    let uid = ready(&scenario).await?["uid"].as_str().ok_or("it has a UID")?.to_owned();

    let node = &scenario.node;
    let addresses = node.pod_addresses().await?;
    assert_eq!(addresses.len(), 1, "{addresses:?}");
    let told = format!("{} 10.99.0.7\n", addresses[0]);
    assert_eq!(node.read(&format!("{SEEN}/addresses"))?, told, "what the pod was told");
    let ask = format!(
        "exec 3<>/dev/tcp/{}/8080; printf 'GET /addresses HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3",
        addresses[0]
    );
    let answer = node.run(&["bash", "-c", &ask]).await?;
    assert!(answer.ends_with(&told), "the node reaches the pod: {answer}");
    let before = node.containers().await?;

    let restart: &[&str] = &["systemctl", "restart", "winddown"];
    let kill = ["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "winddown"];
    for how in [restart, &kill] {
        let old = scenario.status().await?["node"]["pid"].clone();
        scenario.node.run(how).await?;
        scenario.another_agent_than(&old).await?;
        // Its probes go on, by its address.
        ready(&scenario).await?;
        assert_eq!(scenario.node.pod_addresses().await?, addresses);
        assert_eq!(scenario.node.containers().await?, before);
    }

    scenario.node.run(&["rm", MANIFEST]).await?;
    let node = &scenario.node;
    let is_free = async || node.pod_addresses().await.is_ok_and(|all| all.is_empty());
    let took = node.wait_until("the address to be free", SOON, is_free).await?;
    println!("network taken down {took:?} after the manifest");
    let links = node.run(&["ip", "-o", "link", "show", "type", "veth"]).await?;
    assert_eq!(links, "", "nothing is left of the pod's link");
    // Groups of the host's other tests come and go.
    let name = format!("pod{uid}");
    let find = format!("find /sys/fs/cgroup -ignore_readdir_race -name {name} 2>/dev/null || true");
    let find = ["sh", "-c", &find];
    let are_gone = async || node.run(&find).await.is_ok_and(|found| found.is_empty());
    let waited = node.wait_until("the pod's control groups to be gone", SOON, are_gone).await;
    if let Err(error) = waited {
        return Err(format!("{error}\n{}", node.run(&find).await?).into());
    }

    // At the machine's end nobody waits for a network longer than for pods.
    scenario.node.write(MANIFEST, web().to_string(), 0o644)?;
    ready(&scenario).await?;
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    scenario
        .assert_systemd_killed_nothing_but(&["on client request", "Failed with result 'signal'"])
        .await
}
