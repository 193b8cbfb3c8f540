//! Reboots after which pods start again on the node, as the cluster hears of it.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{SOON, Setup, TestResult};
use winddown_node_tests::{Node, PodBehavior, Suite, TestPod, on_each_release, read_pod_log};

use crate::cluster::bed::{Bed, is, setup};
use crate::cluster::power_off::DOWN;
use winddown_shared::ShutdownKind;
use winddown_systemd::stand_in::{OnBus, StandIn};

on_each_release!(since 257, a_pod_that_may_stay_starts_again_after_a_reboot_under_its_uid: reboots);
on_each_release!(since 257, a_pod_that_may_stay_starts_again_after_a_soft_reboot_under_its_uid: reboots_softly);

async fn reboots(test: &str, suite: Suite) -> TestResult {
    goes_and_comes_back(test, suite, Way::Reboot).await
}

async fn reboots_softly(test: &str, suite: Suite) -> TestResult {
    goes_and_comes_back(test, suite, Way::SoftReboot).await
}

/// How the node goes down and comes up again.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Reboot,
    /// With the same kernel and the same `/run`, from which the next agent knows its pods before anything else.
    SoftReboot,
}

async fn goes_and_comes_back(test: &str, suite: Suite, way: Way) -> TestResult {
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

    if way == Way::SoftReboot {
        bed.scenario.node.run(&["systemctl", "enable", "winddown"]).await?;
        bed.scenario.node.shut_down(&["systemctl", "soft-reboot"]).await?;
        let failed = bed.server.within(DOWN, "the other pod to fail", |all| {
            (all.get("pods/default/web")?["status"]["phase"] == "Failed").then_some(())
        });
        failed.await?;
        // The way to the API server went with user space.
        bed.cut_off().await;
        starts_again(&bed, &db).await?;
        bed.connect().await?;
        return is_back(&bed, &uid).await;
    }
    bed.scenario.node.shut_down(&["systemctl", "reboot"]).await?;
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
        pods.filter(|pod| pod["staysOnReboot"] == true).map(|pod| &pod["name"]).collect();
    assert_eq!(staying, [&json!("db")], "{report:#}");

    bed.scenario.node.start().await?;
    bed.scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    bed.connect().await?;
    starts_again(&bed, &db).await?;
    is_back(&bed, &uid).await
}

async fn starts_again(bed: &Bed, db: &TestPod) -> TestResult {
    let again =
        async || read_pod_log(&bed.scenario.node, std::slice::from_ref(db))["db"].starts.len() == 2;
    bed.scenario.node.wait_until("the pod to start again", SOON * 2, again).await?;
    Ok(())
}

/// The pod is ready on the node under its UID, and the pod that may not stay has failed.
async fn is_back(bed: &Bed, uid: &Value) -> TestResult {
    let heard = bed.server.within(SOON * 2, "the pod to be ready", |all| {
        is(&*all.get("pods/default/db")?, "Ready", "True").then_some(())
    });
    heard.await?;
    assert_eq!(&bed.pod("db")?["metadata"]["uid"], uid, "it is the same pod");
    assert_eq!(bed.pod("web")?["status"]["phase"], "Failed");
    assert_eq!(bed.scenario.logs()["web"].starts.len(), 1);
    println!("{}", bed.scenario.text(&["report"]).await?);
    Ok(())
}

/// systemd 252, on the node with containerd, does not say that it reboots; a stand-in for its logind does.
#[tokio::test]
async fn a_container_that_may_stay_has_its_uid_and_its_volume_again_after_a_reboot() -> TestResult {
    let test = "a_container_that_may_stay_has_its_uid_and_its_volume_again_after_a_reboot";
    let staying = TestPod { behavior: PodBehavior::Staying, ..TestPod::new("staying", 0, 100) };
    let pods = vec![staying.in_container(), TestPod::new("going", 0, 100).in_container()];
    let Some(mut bed) = Bed::joined_with_containerd(test, pods.clone()).await? else {
        return Ok(());
    };
    let add = "echo 'rebootInPlace: [{namespace: default}]' >>/etc/winddown/config.yaml";
    bed.scenario.node.run(&["sh", "-c", add]).await?;
    let (logind, _on_bus) = in_place_of_logind(&bed.scenario.node).await?;
    bed.scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    holds_its_lock(&bed, &logind).await?;
    for pod in &pods {
        bed.bind_as(pod, |object| keep_starts(pod, object))?;
    }
    bed.pods_run(&pods).await?;
    let uid = bed.pod("staying")?["metadata"]["uid"].clone();
    assert_eq!(starts(&bed.scenario.node, "staying").await?, "1");

    let outcome = logind.shutdown(ShutdownKind::Reboot).await;
    assert!(outcome.late.is_empty(), "{outcome:?}");
    assert_eq!(bed.pod("going")?["status"]["phase"], "Failed");
    assert_eq!(bed.pod("staying")?["status"]["phase"], "Running");
    // It asks logind, which is masked, and then systemd; the machine's end may reach the command itself.
    let _ = bed.scenario.node.exec(&["systemctl", "reboot"], SOON).await?;
    bed.scenario.node.wait_off(DOWN).await?;

    bed.scenario.node.start().await?;
    let (logind, _on_bus) = in_place_of_logind(&bed.scenario.node).await?;
    bed.scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    bed.connect().await?;
    let again = async || bed.scenario.logs()["staying"].starts.len() == 2;
    bed.scenario.node.wait_until("the pod to start again", SOON * 2, again).await?;
    holds_its_lock(&bed, &logind).await?;
    let heard = bed.server.within(SOON * 2, "the pod to be ready", |all| {
        is(&*all.get("pods/default/staying")?, "Ready", "True").then_some(())
    });
    heard.await?;
    assert_eq!(bed.pod("staying")?["metadata"]["uid"], uid, "it is the same pod");
    assert_eq!(starts(&bed.scenario.node, "staying").await?, "2", "its volume has what it wrote");
    assert_eq!(bed.scenario.logs()["going"].starts.len(), 1);
    Ok(())
}

/// Masks the node's logind and takes its place on the bus.
async fn in_place_of_logind(node: &Node) -> TestResult<(StandIn, OnBus)> {
    node.run(&["systemctl", "mask", "--now", "systemd-logind.service"]).await?;
    let logind = StandIn::new(Duration::from_secs(60)).with_metadata();
    let address = format!("unix:path={}", node.host_path("/run/dbus/system_bus_socket").display());
    let on_bus = logind.serve_beside_systemd(&address).await?;
    Ok((logind, on_bus))
}

/// Waits until the agent that runs holds the only lock.
async fn holds_its_lock(bed: &Bed, logind: &StandIn) -> TestResult {
    let held = async || {
        let status = bed.scenario.status_from_outside().await;
        status.is_ok_and(|status| status["lock"]["state"] == "held") && logind.held() == 1
    };
    bed.scenario.node.wait_until("the lock to be held", SOON, held).await?;
    Ok(())
}

/// Gives the pod a volume in which each start leaves a line.
fn keep_starts(pod: &TestPod, object: &mut Value) {
    let notes = format!("echo start >>/data/{}; exec \"$@\"", pod.name);
    let mut command = ["/bin/sh", "-c", &notes, "sh"].map(str::to_owned).to_vec();
    command.extend(pod.command());
    let spec = &mut object["spec"];
    spec["containers"][0]["command"] = json!(command);
    let lists = [
        ("/containers/0/volumeMounts", json!({"name": "data", "mountPath": "/data"})),
        ("/volumes", json!({"name": "data", "emptyDir": {}})),
    ];
    for (list, one) in lists {
        spec.pointer_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .for_each(|l| l.push(one.clone()));
    }
}

/// How many starts the pod's volume knows.
async fn starts(node: &Node, pod: &str) -> TestResult<String> {
    let count = format!("find /var/lib/winddown -name {pod} -type f -exec cat {{}} + | wc -l");
    Ok(node.run(&["sh", "-c", &count]).await?.trim().to_owned())
}
