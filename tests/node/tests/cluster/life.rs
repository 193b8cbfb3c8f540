//! Pods of the API while the node stays up.

use serde_json::json;
use winddown_apiserver::{Fault, Request};
use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{SOON, TestResult};

use crate::cluster::bed::{Bed, is};

#[tokio::test]
async fn a_pod_of_the_api_runs_on_the_node_and_is_gone_when_it_is_deleted() -> TestResult {
    let test = "a_pod_of_the_api_runs_on_the_node_and_is_gone_when_it_is_deleted";
    let pods = vec![TestPod::new("web-0", 0, 200)];
    let Some(bed) = Bed::joined(test, pods.clone()).await? else { return Ok(()) };
    bed.bind_all()?;
    bed.pods_run(&pods).await?;
    bed.scenario.untouched_pids().await?;

    bed.server.delete("pods/default/web-0", None)?;
    bed.pod_is_gone("web-0").await?;
    let log = &bed.scenario.logs()["web-0"];
    assert_eq!((log.starts.len(), log.terms.len(), log.exits.len()), (1, 1, 1), "{log:?}");
    let forgotten = async || {
        let status = bed.scenario.status().await.unwrap_or_default();
        status["pods"].as_array().is_some_and(Vec::is_empty)
    };
    bed.scenario.node.wait_until("the agent to forget it", SOON, forgotten).await?;
    Ok(())
}

#[tokio::test]
async fn pods_are_started_once_whenever_the_agent_is_killed_after_their_creation() -> TestResult {
    let test = "pods_are_started_once_whenever_the_agent_is_killed_after_their_creation";
    let names = ["at-once", "at-a-start", "when-told"];
    let groups = names.map(|group| [0, 1, 2].map(|n| TestPod::new(format!("{group}-{n}"), 0, 100)));
    let Some(bed) = Bed::joined(test, groups.concat()).await? else { return Ok(()) };
    for (group, name) in groups.iter().zip(names) {
        group.iter().try_for_each(|pod| bed.bind(pod))?;
        match name {
            "at-a-start" => {
                let started = async || {
                    group.iter().any(|pod| !bed.scenario.logs()[&pod.name].starts.is_empty())
                };
                bed.scenario.node.wait_until("the first start", SOON, started).await?;
            }
            "when-told" => bed.pods_run(&group[..1]).await?,
            _ => {}
        }
        bed.kill_agent().await?;
        bed.pods_run(group).await?;
    }
    bed.node_is("ready again", |node| is(node, "Ready", "True")).await?;
    bed.scenario.untouched_pids().await?;
    for pod in &bed.scenario.pods {
        let object = bed.pod(&pod.name)?;
        let container = &object["status"]["containerStatuses"][0];
        assert_eq!(container["restartCount"], 0, "{}: {container:#}", pod.name);
        assert!(is(&object, "Ready", "True"), "{object:#}");
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_killed_while_it_tells_statuses_leaves_none_untold_and_starts_nothing_again()
-> TestResult {
    let test =
        "an_agent_killed_while_it_tells_statuses_leaves_none_untold_and_starts_nothing_again";
    let ways = ["lost", "unheard"];
    let kinds = ["done", "gone", "new"];
    let named = |way: &str| kinds.map(|kind| TestPod::new(format!("{way}-{kind}"), 0, 100));
    let pods = ways.map(named).concat();
    let Some(bed) = Bed::joined(test, pods).await? else { return Ok(()) };
    for way in ways {
        let [done, gone, new] = named(way);
        bed.bind_with(&done, &json!({"restartPolicy": "Never"}))?;
        bed.bind(&gone)?;
        bed.pods_run(&[done.clone(), gone.clone()]).await?;

        // One pod ends by itself, one is deleted, one begins; of none is the word through.
        let writes = Fault::on("patch", "pods/status");
        let held =
            bed.server.fault(if way == "lost" { writes.hold() } else { writes.hold_answer() });
        bed.server.forget_requests();
        let (_, pid) = bed.scenario.logs()[&done.name].starts[0];
        bed.scenario.node.run(&["sh", "-c", &format!("kill {pid}")]).await?;
        bed.server.delete(&format!("pods/default/{}", gone.name), None)?;
        bed.bind(&new)?;
        for pod in [&done, &gone, &new] {
            let what = format!("a word of {}", pod.name);
            let is_its = |request: &Request| {
                request.is("patch", "pods/status") && request.right.name == pod.name
            };
            bed.server.within(SOON, &what, |all| all.requests().any(is_its).then_some(())).await?;
        }
        bed.kill_agent().await?;
        bed.server.lift(held);

        bed.pods_are(&[done], "Succeeded").await?;
        bed.pods_run(&[new]).await?;
        bed.pod_is_gone(&gone.name).await?;
    }
    bed.assert_started_once();
    Ok(())
}

#[tokio::test]
async fn a_pod_with_a_token_that_the_runtime_cannot_mount_is_told_what_to_write() -> TestResult {
    let test = "a_pod_with_a_token_that_the_runtime_cannot_mount_is_told_what_to_write";
    let pod = TestPod::new("with-a-token", 0, 100);
    let Some(bed) = Bed::joined(test, vec![pod.clone()]).await? else { return Ok(()) };
    // As the API server's own admission adds it to every pod that does not say no.
    let token = json!({"path": "token"});
    let volume = json!({"name": "kube-api-access-x7k2p", "projected": {"sources": [{"serviceAccountToken": token}]}});
    bed.server.apply(json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"},
    }))?;
    bed.bind_with(&pod, &json!({"serviceAccountName": "default", "volumes": [volume]}))?;
    let advice = "write `automountServiceAccountToken: false`";
    let told = bed.server.within(SOON, "the pod to wait and say why", |all| {
        let status = &all.get("pods/default/with-a-token")?["status"];
        let waits = &status["containerStatuses"][0]["state"]["waiting"];
        let is_said = waits["message"].as_str().is_some_and(|message| message.contains(advice));
        (is_said && status["phase"] == "Pending").then_some(())
    });
    told.await?;
    let shown = bed.scenario.text(&["status"]).await?;
    assert!(shown.contains(advice), "{shown}");
    Ok(())
}
