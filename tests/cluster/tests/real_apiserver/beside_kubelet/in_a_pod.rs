//! winddown as the pod of its own DaemonSet, `programs/packaging/kubernetes/companion.yaml`.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::packages::{repository, text_of};
use winddown_node_tests::programs;
use winddown_node_tests::scenario::TestResult;

use super::machine::{Ends, Machine};
use super::{DOWN, LOST, say};
use crate::RealApi;
use crate::rights::daemon_set;

/// Where the image lies on the node.
const IMAGE: &str = "/var/lib/winddown-image.tar";

impl Machine {
    /// Makes the image of programs that need the node's libraries, and gives it to containerd.
    async fn import_own_image(&self) -> TestResult {
        let folder = tempfile::tempdir()?;
        let mut script = Command::new(repository().join("programs/packaging/image.sh"));
        script.arg("--shared").arg("--programs").arg(programs().await?);
        script.arg("--out").arg(folder.path());
        let made =
            tokio::task::spawn_blocking(move || text_of(&mut script).map_err(|e| e.to_string()));
        let node = &self.scenario.node;
        node.install(made.await??.trim().as_ref(), IMAGE)?;
        node.run(&["ctr", "--namespace=k8s.io", "images", "import", IMAGE]).await?;
        Ok(())
    }

    /// The DaemonSet as it is shipped, for this node alone: no scheduler binds its pod, and no network leads to the
    /// API server.
    fn own_daemon_set(&self) -> TestResult<Vec<Value>> {
        let mut objects = daemon_set();
        // A controller hands them out; the second where the API server is OpenShift's. A kubelet that finds none when
        // the pod comes tries again minutes later.
        for name in ["kube-root-ca.crt", "openshift-service-ca.crt"] {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "kube-system"},
                "data": {"ca.crt": self.api.authority.pem(), "service-ca.crt": ""},
            });
            objects.insert(0, map);
        }
        let set = objects.iter_mut().find(|object| object["kind"] == "DaemonSet");
        let pod = &mut set.ok_or("no DaemonSet")?["spec"]["template"]["spec"];
        pod["nodeName"] = json!(self.node);
        let list = |value: &mut Value, more: Vec<Value>| {
            value.as_array_mut().map(|all| all.extend(more)).ok_or("no list")
        };
        let libraries = ["lib", "lib64"];
        let volume = |name| json!({"name": name, "hostPath": {"path": format!("/usr/{name}")}});
        list(&mut pod["volumes"], libraries.map(volume).into())?;
        let container = &mut pod["containers"][0];
        let mount = |name| json!({"name": name, "mountPath": format!("/{name}"), "readOnly": true});
        list(&mut container["volumeMounts"], libraries.map(mount).into())?;
        let address = self.api_address()?;
        let way = [("HOST", address.ip().to_string()), ("PORT", address.port().to_string())];
        let variable =
            |(what, value)| json!({"name": format!("KUBERNETES_SERVICE_{what}"), "value": value});
        list(&mut container["env"], way.map(variable).into())?;
        Ok(objects)
    }
}

#[tokio::test]
async fn the_pod_of_its_daemon_set_ends_the_others_of_a_node_that_goes_down() -> TestResult {
    let test = "the_pod_of_its_daemon_set_ends_the_others_of_a_node_that_goes_down";
    if RealApi::with_controllers(test).await.is_none() {
        return Ok(());
    }
    // No agent is installed on this machine.
    let Some(mut machine) = Machine::set(test, Ends::Requests).await? else { return Ok(()) };
    machine.import_own_image().await?;
    machine.api.apply(&machine.own_daemon_set()?).await;
    let runs = async || machine.scenario.lock_is_listed().await;
    machine.eventually("the DaemonSet's pod to hold the lock", runs).await?;
    machine.agent_knows_all().await?;
    machine.scenario.untouched_pids().await?;
    let asked = machine.scenario.power_off().await?;
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, &machine);
    // Its configuration has two groups: the critical pod, and all others.
    let mut logs = machine.scenario.logs();
    for (name, log) in &logs {
        assert_eq!((log.starts.len(), log.exits.len()), (1, 1), "{name}: {log:?}");
    }
    let critical = logs.remove("agent-0").ok_or("no critical pod")?.terms[0];
    let others = logs.values().flat_map(|log| &log.exits).max().ok_or("no other pod")?;
    let gap = critical.checked_sub(*others).map(Duration::from_nanos);
    assert!(gap.is_some_and(|gap| gap < LOST), "between the groups: {gap:?}");
    machine.assert_static_pod_was_last()?;
    let report = machine.scenario.newest_report()?;
    let said = (&report["outcome"], &report["node"]);
    assert_eq!(said, (&json!("clean"), &json!(machine.node)), "{report:#}");
    Ok(())
}
