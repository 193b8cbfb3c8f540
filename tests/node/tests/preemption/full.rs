//! The kubelet's scenario of a critical pod that asks for the whole node, and a node that is full by
//! the number of its pods.

use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult};

use super::room::{Asks, CRITICAL, Level, decisions, put, told, wait_phase};

/// How long each pod takes to end once asked.
const STOP_MS: u32 = 800;

#[tokio::test]
async fn a_critical_pod_takes_the_node_from_pods_that_ask_for_some_of_it() -> TestResult {
    let test = "a_critical_pod_takes_the_node_from_pods_that_ask_for_some_of_it";
    let Some(scenario) = Scenario::installed_with(test, three_classes()).await? else {
        return Ok(());
    };
    ends_those_that_ask(&scenario, Level::Container).await
}

#[tokio::test]
async fn a_critical_pod_takes_the_node_from_pods_that_ask_for_it_as_a_whole() -> TestResult {
    let test = "a_critical_pod_takes_the_node_from_pods_that_ask_for_it_as_a_whole";
    let Some(scenario) = Scenario::installed_with(test, three_classes()).await? else {
        return Ok(());
    };
    ends_those_that_ask(&scenario, Level::Pod).await
}

#[tokio::test]
async fn a_critical_pod_takes_the_node_from_pods_in_containers() -> TestResult {
    let test = "a_critical_pod_takes_the_node_from_pods_in_containers";
    let Some(scenario) = Scenario::with_containerd(test, three_classes()).await? else {
        return Ok(());
    };
    ends_those_that_ask(&scenario, Level::Container).await
}

#[tokio::test]
async fn on_a_node_with_as_many_pods_as_it_may_have_the_least_important_one_goes() -> TestResult {
    let test = "on_a_node_with_as_many_pods_as_it_may_have_the_least_important_one_goes";
    let pods: Vec<TestPod> =
        (0..8).map(|n| TestPod::new(format!("web-{n}"), 1000 - n, STOP_MS)).collect();
    let more = "maxPods: 8\npreemptionStrategy: minimal\n".to_owned();
    let setup = Setup { more, ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, pods, &setup).await? else { return Ok(()) };
    scenario.start().await?;

    // One that is no more important than the others is refused, with the kubelet's words.
    let equal = pod_like(&scenario, "equal", 993);
    put(&scenario, &equal, None, Level::Container)?;
    wait_rejected(&scenario, "equal").await?;
    let told_of = told(&scenario, "equal").await?;
    assert_eq!(told_of["reason"], "UnexpectedAdmissionError", "{told_of}");
    assert_eq!(
        told_of["message"],
        "Pod was rejected: Unexpected error while attempting to recover from admission failure: \
         preemption: error finding a set of pods to preempt: no set of running pods found to \
         reclaim resources: [(res: pods, q: 1), ]"
    );
    scenario.assert_nothing_was_asked()?;

    let dns = pod_like(&scenario, "dns", CRITICAL);
    put(&scenario, &dns, None, Level::Container)?;
    wait_phase(&scenario, "dns", "Running").await?;
    let ended: Vec<String> = scenario
        .logs()
        .into_iter()
        .filter(|(_, log)| !log.terms.is_empty())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(ended, ["web-7"]);
    Ok(())
}

/// One pod of each class: nothing asked for, something, and something that is all it gets.
fn three_classes() -> Vec<TestPod> {
    ["best-effort", "burstable", "guaranteed"].map(|name| TestPod::new(name, 0, STOP_MS)).into()
}

/// A further pod, of the kind that the node runs.
fn pod_like(scenario: &Scenario, name: &str, priority: i32) -> TestPod {
    let pod = TestPod::new(name, priority, STOP_MS);
    match scenario.pods.iter().any(|pod| pod.image.is_some()) {
        true => pod.in_container(),
        false => pod,
    }
}

async fn wait_rejected(scenario: &Scenario, name: &str) -> TestResult {
    let rejected = async || {
        let pod = told(scenario, name).await.unwrap_or_default();
        pod["reason"].as_str().is_some_and(|reason| !reason.is_empty())
    };
    scenario.node.wait_until(&format!("{name} to be rejected"), SOON, rejected).await?;
    Ok(())
}

/// Three pods run; a critical one comes that asks for all there is. Those that ask for something end,
/// the one that does not goes on, and the critical one starts after the last of them has gone.
async fn ends_those_that_ask(scenario: &Scenario, level: Level) -> TestResult {
    let [_, burstable, guaranteed] = &scenario.pods[..] else { return Err("three pods".into()) };
    put(scenario, burstable, Some(&Asks::little(false)), level)?;
    put(scenario, guaranteed, Some(&Asks::little(true)), level)?;
    scenario.start().await?;
    scenario.all_pods_are("Running").await?;

    let mut dns = pod_like(scenario, "dns", CRITICAL);
    dns.stop_ms = 0;
    put(scenario, &dns, Some(&Asks::everything()?), level)?;
    wait_phase(scenario, "dns", "Running").await?;

    let logs = scenario.logs();
    let gone = |name: &str| logs[name].exits.first().copied();
    let last = gone("burstable").max(gone("guaranteed")).ok_or("nobody has gone")?;
    for name in ["burstable", "guaranteed"] {
        assert_eq!((logs[name].terms.len(), logs[name].exits.len()), (1, 1), "{name}: {logs:?}");
        let pod = told(scenario, name).await?;
        assert_eq!((&pod["phase"], &pod["reason"]), (&"Failed".into(), &"Preempting".into()));
        assert_eq!(pod["message"], "Preempted in order to admit critical pod");
        // By itself, and with 0: the cause stays all the same.
        assert_eq!(pod["containers"][0]["exitCode"], 0, "{pod}");
    }
    assert_eq!(told(scenario, "best-effort").await?["phase"], "Running");
    assert_eq!((logs["best-effort"].starts.len(), logs["best-effort"].terms.len()), (1, 0));
    let all = [&scenario.pods[..], &[dns]].concat();
    let started = winddown_node_tests::read_pod_log(&scenario.node, &all)["dns"].starts.clone();
    let [(started, _)] = started[..] else { return Err(format!("starts: {started:?}").into()) };
    assert!(started > last, "it ran beside those whose room it has");
    println!("from the last end to the start: {} ms", (started - last) / 1_000_000);
    the_story_is_told(scenario).await
}

async fn the_story_is_told(scenario: &Scenario) -> TestResult {
    let begun = decisions(scenario, "preemptionStarted").await?;
    let [begun] = &begun[..] else { return Err(format!("{begun:?}").into()) };
    assert!(begun.contains("lacks cpu"), "{begun}");
    assert!(begun.contains("burstable") && begun.contains("guaranteed"), "{begun}");
    let preempted = decisions(scenario, "podPreempted").await?;
    assert_eq!(preempted.len(), 2, "{preempted:?}");
    let held = decisions(scenario, "podHeld").await?;
    assert_eq!(held.len(), 1, "{held:?}");
    let journal = scenario.node.journal(&["--unit=winddown"]).await?;
    assert!(journal.contains(begun), "{journal}");
    Ok(())
}
