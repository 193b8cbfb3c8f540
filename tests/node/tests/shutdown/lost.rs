//! The agent has lost its records while pods run: a disk was replaced or restored. What runs is the truth.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::scenario::{GROUPS, SOON, Scenario, Setup, TestResult};
use winddown_node_tests::{PodBehavior, TestPod};

/// The records that outlast the machine, and all of them.
const ON_DISK: &str = "/var/lib/winddown/*";
const ALL: &str = "/var/lib/winddown/* /run/winddown/*";

macro_rules! with_each_runtime {
    ($($runtime:ident)*) => {
        mod pods_without_manifests_and_records_are_named_and_get_their_own_grace {
            use super::*;

            $(
                #[tokio::test]
                async fn $runtime() -> TestResult {
                    let test = concat!("own_grace::", stringify!($runtime));
                    ends_what_runs(test, stringify!($runtime)).await
                }
            )*
        }

        mod no_second_copy_of_a_pod_is_started_when_all_records_are_lost {
            use super::*;

            $(
                #[tokio::test]
                async fn $runtime() -> TestResult {
                    let test = concat!("second_copy::", stringify!($runtime));
                    starts_no_second_copy(test, stringify!($runtime)).await
                }
            )*
        }
    };
}

with_each_runtime!(process systemd cri);

async fn node(test: &str, pods: Vec<TestPod>, runtime: &str) -> TestResult<Option<Scenario>> {
    let setup = Setup { seconds: [10, 10, 10], ..Setup::default() };
    match runtime {
        "process" => Scenario::installed_as(test, pods, &setup).await,
        "systemd" => Scenario::with_services_as(test, pods, &setup).await,
        _ => Scenario::with_containerd_as(test, pods, &setup).await,
    }
}

/// Starts the agent again without these files. What runs goes on meanwhile.
async fn restart_without(scenario: &Scenario, lost: &str) -> TestResult {
    let script = format!("systemctl stop winddown && rm -rf {lost} && systemctl start winddown");
    scenario.node.run(&["sh", "-c", &script]).await?;
    Ok(())
}

fn pods_of(report: &Value) -> impl Iterator<Item = &Value> {
    let groups = report["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["pods"].as_array().into_iter().flatten())
}

async fn ends_what_runs(test: &str, runtime: &str) -> TestResult {
    let slow = TestPod { grace_seconds: 20, ..TestPod::new("slow", 0, 5000) };
    let deaf = TestPod {
        grace_seconds: 7,
        behavior: PodBehavior::Deaf,
        ..TestPod::new("deaf", 2_000_000_000, 0)
    };
    let Some(mut scenario) = node(test, vec![slow, deaf], runtime).await? else { return Ok(()) };
    scenario.start().await?;
    restart_without(&scenario, &format!("/etc/winddown/pods/* {ON_DISK}")).await?;
    scenario.someone_is_asked().await?;
    let asked = scenario.power_off().await?;
    scenario.node.wait_off(SOON * 3).await?;
    let heard = scenario.said_after(asked, "the node goes down").await?;
    for (name, log) in scenario.logs() {
        assert_eq!((log.starts.len(), log.terms.len()), (1, 1), "{name}: {log:?}");
        assert_eq!(log.exits.len(), usize::from(name == "slow"), "{name}: {log:?}");
    }
    let report = scenario.newest_report()?;
    let names: BTreeSet<&str> = pods_of(&report).filter_map(|pod| pod["name"].as_str()).collect();
    let is_named = |name: &str| names.iter().any(|named| named.starts_with(name));
    assert!(names.len() == 2 && is_named("slow") && is_named("deaf"), "{report}");
    assert_eq!(report["outcome"], "forced", "{report}");
    let killed =
        pods_of(&report).find(|pod| pod["outcome"] == "killed").ok_or("none was killed")?;
    assert!(killed["name"].as_str().is_some_and(|name| name.starts_with("deaf")), "{report}");
    let killed = heard + killed["exitMs"].as_u64().ok_or("its end is not known")? * 1_000_000;
    let grace = Duration::from_nanos(killed - scenario.logs()["deaf"].terms[0]);
    assert!((6.5..8.5).contains(&grace.as_secs_f64()), "it had {grace:?}: {report}");
    Ok(())
}

async fn starts_no_second_copy(test: &str, runtime: &str) -> TestResult {
    let [first, then, last] = GROUPS;
    let pods = [("db", first, 2000), ("queue", then, 300), ("net", last, 300)];
    let pods = pods.map(|(name, priority, stop)| TestPod::new(name, priority, stop)).to_vec();
    let Some(mut scenario) = node(test, pods, runtime).await? else { return Ok(()) };
    scenario.start().await?;
    restart_without(&scenario, ALL).await?;
    scenario.lock_is_back().await?;
    scenario.all_pods_are("Running").await?;
    let asked = scenario.power_off().await?;
    scenario.node.wait_off(SOON * 3).await?;
    for (name, log) in scenario.logs() {
        let once = (log.starts.len(), log.terms.len(), log.exits.len());
        assert_eq!(once, (1, 1, 1), "{name}: {log:?}");
        assert!(log.terms[0] > asked, "{name} was asked before the shutdown: {log:?}");
    }
    scenario.assert_ended_in_order()?;
    let report = scenario.newest_report()?;
    assert_eq!((pods_of(&report).count(), &report["outcome"]), (3, &"clean".into()), "{report}");
    Ok(())
}
