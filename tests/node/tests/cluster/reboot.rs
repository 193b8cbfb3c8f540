//! Reboots after which pods start again on the node, as the cluster hears of it.

use serde_json::{Value, json};
use winddown_node_tests::scenario::{SOON, Setup, TestResult};
use winddown_node_tests::{Suite, TestPod, on_each_release, read_pod_log};

use crate::cluster::bed::{Bed, is, setup};
use crate::cluster::power_off::DOWN;

on_each_release!(since 257, a_pod_that_may_stay_starts_again_after_a_reboot_under_its_uid: reboots);

async fn reboots(test: &str, suite: Suite) -> TestResult {
    let (db, web) = (TestPod::new("db", 0, 100), TestPod::new("web", 0, 100));
    let more = format!("{}rebootInPlace: [{{namespace: default}}]\n", setup().more);
    let setup = Setup { suite, more, ..setup() };
    let Some(mut bed) = Bed::joined_on(test, vec![db.clone(), web.clone()], setup).await? else {
        return Ok(());
    };
    bed.bind_as(&db, |pod| {
        pod["metadata"]["annotations"] = json!({"winddown.dev/on-reboot": "restart"});
    })?;
    bed.bind(&web)?;
    bed.pods_run(&[db.clone(), web.clone()]).await?;
    let uid = bed.pod("db")?["metadata"]["uid"].clone();

    bed.scenario.node.run(&["systemctl", "reboot"]).await?;
    bed.scenario.node.wait_off(DOWN).await?;
    assert_eq!(bed.pod("web")?["status"]["phase"], "Failed");
    let status = bed.pod("db")?["status"].clone();
    assert_eq!(status["phase"], "Running", "{status:#}");
    let ready = status["conditions"].as_array().into_iter().flatten();
    let ready = ready.filter(|condition| condition["type"] == "Ready").collect::<Vec<_>>();
    assert_eq!((&ready[0]["status"], &ready[0]["reason"]), (&json!("False"), &json!("NodeReboot")));
    assert!(status["containerStatuses"][0]["state"]["terminated"].is_object(), "{status:#}");
    let report = bed.scenario.newest_report()?;
    let pods = report["groups"].as_array().into_iter().flatten();
    let pods = pods.flat_map(|group| group["pods"].as_array().into_iter().flatten());
    let staying: Vec<&Value> =
        pods.filter(|pod| pod["stays"] == true).map(|pod| &pod["name"]).collect();
    assert_eq!(staying, [&json!("db")], "{report:#}");

    bed.scenario.node.start().await?;
    bed.scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    bed.connect().await?;
    let again = async || {
        read_pod_log(&bed.scenario.node, std::slice::from_ref(&db))["db"].starts.len() == 2
    };
    bed.scenario.node.wait_until("the pod to start again", SOON * 2, again).await?;
    let heard = bed.server.within(SOON * 2, "the pod to be ready", |all| {
        is(&*all.get("pods/default/db")?, "Ready", "True").then_some(())
    });
    heard.await?;
    assert_eq!(bed.pod("db")?["metadata"]["uid"], uid, "it is the same pod");
    assert_eq!(bed.pod("web")?["status"]["phase"], "Failed");
    assert_eq!(bed.scenario.logs()["web"].starts.len(), 1);
    println!("{}", bed.scenario.text(&["report"]).await?);
    Ok(())
}
