//! DaemonSets, whose real controller makes a new pod for each that ends.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::{TestPod, read_pod_log};

use super::machine::{Ends, Machine};
use super::{DOWN, LOST, say};
use crate::RealApi;

/// An ordinary DaemonSet, and one as that of a network: critical, and on each node whatever becomes of that.
fn sets() -> [(&'static str, Value, Option<&'static str>); 2] {
    // Nothing takes away the taint that a node begins with.
    let begins_with = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists"});
    let everything = json!({"operator": "Exists"});
    [("ordinary-set", begins_with, None), ("network", everything, Some("system-node-critical"))]
}

impl Machine {
    /// Makes a DaemonSet for this node alone, and waits until its pod runs.
    async fn make_daemon_set(
        &self,
        name: &str,
        tolerates: &Value,
        class: Option<&str>,
    ) -> TestResult {
        let mut pod: Value = serde_json::from_str(&daemon(name).manifest())?;
        let spec = pod["spec"].as_object_mut().ok_or("a pod without a spec")?;
        spec.remove("priority");
        // There is no scheduler.
        spec.insert("nodeName".into(), json!(self.node));
        spec.insert("tolerations".into(), json!([tolerates]));
        spec.insert("priorityClassName".into(), json!(class));
        spec.insert("automountServiceAccountToken".into(), json!(false));
        let set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": self.node},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            },
        });
        self.api.apply(&[set]).await;
        let pods: Api<Pod> = Api::namespaced(self.api.admin().await, &self.node);
        let of_set = ListParams::default().labels(&format!("app={name}"));
        self.eventually("the DaemonSet's pod runs", async || {
            pods.list(&of_set).await.is_ok_and(|found| {
                let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
                found.items.iter().any(|pod| phase(pod).as_deref() == Some("Running"))
            })
        })
        .await
    }
}

/// Its pods write down under its name what happens to them.
fn daemon(name: &str) -> TestPod {
    TestPod::new(name, 0, 300).in_container()
}

#[tokio::test]
async fn the_pod_of_a_daemon_set_comes_back_once_at_most_and_none_outlives_the_lock() -> TestResult
{
    let test = "the_pod_of_a_daemon_set_comes_back_once_at_most_and_none_outlives_the_lock";
    if RealApi::with_controllers(test).await.is_none() {
        return Ok(());
    }
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    machine.give_agent_its_rights().await?;
    for (name, tolerates, class) in sets() {
        machine.make_daemon_set(name, &tolerates, class).await?;
    }
    let asked = machine.scenario.power_off().await?;
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, &machine);
    let released = machine.scenario.lock_released_at().await?;
    let daemons = sets().map(|(name, ..)| daemon(name));
    for (name, log) in read_pod_log(&machine.scenario.node, &daemons) {
        println!("{name}: {} starts", log.starts.len());
        assert!((1..=2).contains(&log.starts.len()), "{name}: {log:?}");
        assert!(log.terms.iter().all(|term| *term <= released), "{name}: {log:?} after {released}");
    }
    machine.scenario.assert_ended_within(LOST)?;
    machine.assert_static_pod_was_last()
}
