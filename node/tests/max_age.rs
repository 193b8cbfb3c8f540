//! A third-party controller, as described in node/README.md: runs the example program with real pods.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

#[path = "example/program.rs"]
mod program;

use std::time::Duration;

use program::{Agent, LIMIT, NO_BUS};
use winddown_control::api::{NoticeBody, Phase, PodState, PodStatus, Status};

/// Starts the example.
fn start(pods: &[(&str, i32)], oldest: &str) -> Agent {
    Agent::start("max_age", pods, &[oldest], NO_BUS)
}

#[tokio::test]
async fn a_third_partys_controller_ends_pods_and_is_seen_where_ours_are() {
    let mut agent = start(&[("critical", 1_000_000), ("batch", 0), ("web", 1000)], "3600");
    let old = |status: &Status| {
        let age = |pod: &PodStatus| Some(status.time.duration_since(pod.started_at?).as_secs());
        status.pods.len() == 3 && status.pods.iter().all(|pod| age(pod) > Some(1))
    };
    agent.until("all pods older than a second", old).await;
    // The pods keep running. For the next agent all of them are too old.
    agent.restart(&["1"]);
    let ended = |status: &Status| {
        status.pods.len() == 3
            && status
                .pods
                .iter()
                .all(|pod| pod.state == PodState::Finished && pod.reason == "TooOld")
    };
    let status = agent.until("all pods terminated", ended).await;

    let chosen = status.decisions.iter().filter(|decision| decision.kind == "pluginChose");
    let chosen: Vec<&str> = chosen.map(|decision| &*decision.pod).collect();
    let node = chosen[0].strip_prefix("default/batch").expect("the lowest priority first");
    let wanted = ["batch", "web", "critical"].map(|name| format!("default/{name}{node}"));
    assert_eq!(chosen, wanted, "one after the other, by priority");
    let why = status.decisions.iter().find(|decision| decision.kind == "killRequested").unwrap();
    assert!(why.text.contains("(chosen by the plug-in max-age)"), "{}", why.text);

    let said = |status: &Status| status.plugins.iter().any(|p| p.text == "no pod grows too old");
    let status = agent.until("told of by the plug-in", said).await;
    assert_eq!(status.plugins[0].name, "max-age");
    let metrics = agent.metrics();
    assert!(
        metrics.contains("winddown_plugin_terminations_total{plugin=\"max-age\"} 3"),
        "{metrics}"
    );
    assert!(looks(&agent) >= 3, "{metrics}");
}

fn looks(agent: &Agent) -> u64 {
    let metrics = agent.metrics();
    let looks = metrics.lines().find_map(|line| line.strip_prefix("max_age_looks_total "));
    looks.unwrap().parse().unwrap()
}

#[tokio::test]
async fn while_the_node_goes_down_it_does_not_look_again_and_again() {
    let agent = start(&[("slow", 0), ("critical", 2_000_000_000)], "3");
    let run = |status: &Status| status.pods.iter().filter(|pod| pod.ready).count() == 2;
    agent.until("the pods running", run).await;
    let notice = NoticeBody { in_seconds: Some(120), ..NoticeBody::default() };
    let _lines = agent.client().give_notice(&notice).await.unwrap();
    let over = |status: &Status| status.shutdown.phase == Phase::Done;
    agent.until("over", over).await;
    let looks = looks(&agent);
    assert!(looks < 50, "{looks}");
}

#[tokio::test]
async fn what_it_does_at_a_shutdown_is_in_the_plan_and_in_the_report() {
    let agent = start(&[("web", 0)], "3600");
    let runs = |status: &Status| status.pods.iter().any(|pod| pod.ready);
    let web = agent.until("the pod running", runs).await.pods.remove(0).name;
    let plan = agent.client().shutdown_plan(None).await.unwrap();
    let work = &plan.work[0];
    assert_eq!((&*work.plugin, &*work.point), ("max-age", "before the pods"));
    assert_eq!((&*work.what, work.seconds), ("write down the ages of the pods", Some(2.0)));

    let notice = NoticeBody { in_seconds: Some(120), ..NoticeBody::default() };
    let _lines = agent.client().give_notice(&notice).await.unwrap();
    let worked = |status: &Status| status.decisions.iter().any(|told| told.kind == "pluginWorked");
    let status = agent.until("told of the work", worked).await;
    let told = status.decisions.iter().find(|told| told.kind == "pluginWorked").unwrap();
    let done = "plug-in max-age: write down the ages of the pods: done in";
    assert!(told.text.starts_with(done), "{}", told.text);
    let over = |status: &Status| status.shutdown.phase == Phase::Done;
    agent.until("over", over).await;
    let ages = std::fs::read_to_string(agent.directory.path().join("ages")).unwrap();
    assert!(ages.starts_with(&format!("default/{web} ")) && ages.lines().count() == 1, "{ages}");
    let report = tokio::time::timeout(LIMIT, async {
        loop {
            match agent.client().report("latest").await {
                Ok(report) => return report,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let report = report.await.expect("there is a report");
    assert_eq!(report["work"][0]["outcome"], "done", "{report:#}");
    assert_eq!(report["work"][0]["plugin"], "max-age");
    assert_eq!(report["groups"][0]["pods"][0]["outcome"], "exited", "{report:#}");
}
