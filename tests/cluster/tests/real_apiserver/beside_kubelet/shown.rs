//! What `kubectl get pod` shows of the pods of a node that has gone down, as `docs/companion.md` says.

use std::collections::BTreeMap;

use serde_json::Value;
use winddown_node_tests::PodBehavior;
use winddown_node_tests::scenario::TestResult;

use super::DOWN;
use super::machine::{Ends, Machine, STATIC, Wanted};

impl Machine {
    /// The columns of `kubectl get pod` in a namespace, by the pod's name: the API server makes them.
    async fn shown(&self, namespace: &str) -> TestResult<BTreeMap<String, String>> {
        let request = http::Request::get(format!("/api/v1/namespaces/{namespace}/pods"))
            .header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
            .body(Vec::new())?;
        let table: Value =
            serde_json::from_str(&self.api.admin().await.request_text(request).await?)?;
        let columns = table["columnDefinitions"].as_array().ok_or("no columns")?;
        let status = columns.iter().position(|column| column["name"] == "Status");
        let status = status.ok_or("no status")?;
        let rows = table["rows"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(rows.map(|row| (text(&row["cells"][0]), text(&row["cells"][status]))).collect())
    }
}

#[tokio::test]
async fn pods_are_shown_after_a_shutdown_as_the_page_says() -> TestResult {
    let test = "pods_are_shown_after_a_shutdown_as_the_page_says";
    for is_away in [false, true] {
        let mut wanted = Wanted::by(Ends::Winddown);
        (wanted.pods[0].behavior, wanted.pods[0].grace_seconds) = (PodBehavior::Lasting, 3);
        let Some(mut machine) = Machine::set_with(test, wanted).await? else { return Ok(()) };
        let mirror = format!("{STATIC}-{}", machine.node);
        machine.scenario.power_off().await?;
        if is_away {
            machine.scenario.someone_is_asked().await?;
            machine.cut_off().await;
        }
        machine.scenario.node.wait_off(DOWN).await?;
        let (pods, manifests) =
            (machine.shown(&machine.node).await?, machine.shown("default").await?);
        println!("away {is_away}: {pods:?} {manifests:?}");
        assert_eq!(manifests.get(&mirror).map(String::as_str), Some("Running"), "{manifests:?}");
        // The kubelet reports an end within a second or two, unless it is stopped before.
        let reported = ["Completed", "Error", "Terminating"];
        if is_away {
            assert_eq!(pods.get("agent-0").map(String::as_str), Some("Running"), "{pods:?}");
            let is_known = |status: &str| reported.contains(&status) || status == "Running";
            assert!(pods.values().all(|status| is_known(status)), "{pods:?}");
        } else {
            let is_early = |pod: &String| pod.starts_with("web-") && pod != "web-0";
            assert!(!pods.keys().any(is_early), "{pods:?}");
            assert!(pods.values().all(|status| reported.contains(&&**status)), "{pods:?}");
        }
    }
    Ok(())
}
