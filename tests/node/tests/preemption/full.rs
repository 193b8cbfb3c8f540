//! The kubelet's scenario of a critical pod that asks for the whole node, and a node that is full by
//! the number of its pods.

use serde_json::Value;
use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{SOON, Scenario, TestResult};

use super::room::{
    Asks, CRITICAL, configure, decisions, manifest, metrics, pod_like, put, told, wait_running,
};

/// How long each pod takes to end once asked.
pub(crate) const STOP_MS: u32 = 800;

#[tokio::test]
async fn a_critical_pod_takes_the_node_from_pods_that_ask_for_some_of_it() -> TestResult {
    let test = "a_critical_pod_takes_the_node_from_pods_that_ask_for_some_of_it";
    let Some(scenario) = Scenario::installed_with(test, three_classes()).await? else {
        return Ok(());
    };
    ends_those_that_ask(&scenario, false).await
}

#[tokio::test]
async fn a_critical_pod_takes_the_node_from_pods_in_containers() -> TestResult {
    let test = "a_critical_pod_takes_the_node_from_pods_in_containers";
    let Some(scenario) = Scenario::with_containerd(test, three_classes()).await? else {
        return Ok(());
    };
    ends_those_that_ask(&scenario, false).await
}

#[tokio::test]
async fn a_critical_pod_that_asks_as_a_whole_takes_the_node_from_pods_that_do_so_too() -> TestResult
{
    let test = "a_critical_pod_that_asks_as_a_whole_takes_the_node_from_pods_that_do_so_too";
    let Some(scenario) = Scenario::installed_with(test, three_classes()).await? else {
        return Ok(());
    };
    ends_those_that_ask(&scenario, true).await
}

#[tokio::test]
async fn on_a_node_with_as_many_pods_as_it_may_have_the_least_important_one_goes() -> TestResult {
    let test = "on_a_node_with_as_many_pods_as_it_may_have_the_least_important_one_goes";
    let Some(scenario) = Scenario::installed_with(test, eight()).await? else { return Ok(()) };
    ends_the_least_important(&scenario).await
}

#[tokio::test]
async fn on_a_node_with_as_many_pods_in_containers_as_it_may_have_the_same_one_goes() -> TestResult
{
    let test = "on_a_node_with_as_many_pods_in_containers_as_it_may_have_the_same_one_goes";
    let Some(scenario) = Scenario::with_containerd(test, eight()).await? else { return Ok(()) };
    ends_the_least_important(&scenario).await
}

/// Pods of which each is less important than the one before it.
fn eight() -> Vec<TestPod> {
    (0..8).map(|n| TestPod::new(format!("web-{n}"), 1000 - n, STOP_MS)).collect()
}

async fn ends_the_least_important(scenario: &Scenario) -> TestResult {
    configure(scenario, "maxPods: 8\npreemptionStrategy: minimal\n")?;
    scenario.start().await?;

    // One that is no more important than the others is refused, with the kubelet's words.
    let equal = pod_like(scenario, "equal", 993);
    put(scenario, &equal, None)?;
    wait_rejected(scenario, "equal").await?;
    let told_of = told(scenario, "equal").await?;
    assert_eq!(told_of["reason"], "UnexpectedAdmissionError", "{told_of}");
    assert_eq!(
        told_of["message"],
        "Pod was rejected: Unexpected error while attempting to recover from admission failure: \
         preemption: error finding a set of pods to preempt: no set of running pods found to \
         reclaim resources: [(res: pods, q: 1), ]"
    );
    scenario.assert_nothing_was_asked()?;

    let dns = pod_like(scenario, "dns", CRITICAL);
    put(scenario, &dns, None)?;
    wait_running(scenario, &dns).await?;
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
pub(crate) fn three_classes() -> Vec<TestPod> {
    ["best-effort", "burstable", "guaranteed"].map(|name| TestPod::new(name, 0, STOP_MS)).into()
}

async fn wait_rejected(scenario: &Scenario, name: &str) -> TestResult {
    let rejected = async || {
        let pod = told(scenario, name).await.unwrap_or_default();
        pod["reason"].as_str().is_some_and(|reason| !reason.is_empty())
    };
    scenario.node.wait_until(&format!("{name} to be rejected"), SOON, rejected).await?;
    Ok(())
}

/// Three pods run; a critical one comes that asks for all there is (`whole`: as a whole pod). Those that ask for something end,
/// the one that does not goes on, and the critical one starts after the last of them has gone.
async fn ends_those_that_ask(scenario: &Scenario, whole: bool) -> TestResult {
    let [_, burstable, guaranteed] = &scenario.pods[..] else { return Err("three pods".into()) };
    put(scenario, burstable, Some(&Asks { whole, ..Asks::little(false) }))?;
    put(scenario, guaranteed, Some(&Asks::little(true)))?;
    configure(scenario, "metricsAddress: 127.0.0.1:9477\n")?;
    scenario.start().await?;
    scenario.all_pods_are("Running").await?;
    the_plan_names_both(scenario).await?;

    let dns = pod_like(scenario, "dns", CRITICAL);
    let begun: u64 = scenario.node.run(&["date", "+%s%N"]).await?.trim().parse()?;
    put(scenario, &dns, Some(&Asks { whole, ..Asks::everything()? }))?;
    wait_running(scenario, &dns).await?;

    let logs = scenario.logs();
    let gone = |name: &str| logs[name].exits.first().copied();
    let asked = logs.values().flat_map(|log| log.terms.iter().copied()).min();
    let asked = asked.ok_or("nobody was asked")?.saturating_sub(begun);
    println!("from the manifest to the first SIGTERM: {} ms", asked / 1_000_000);
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
    let held = decisions(scenario, "podWaiting").await?;
    assert_eq!(held.len(), 1, "{held:?}");
    let journal = scenario.node.journal(&["--unit=winddown"]).await?;
    assert!(journal.contains(begun), "{journal}");
    let metrics = metrics(scenario).await?;
    assert!(metrics.contains("\nkubelet_preemptions{preemption_signal=\"cpu\"} 2\n"), "{metrics}");
    Ok(())
}

/// What the agent says beforehand is what it does then.
async fn the_plan_names_both(scenario: &Scenario) -> TestResult {
    let dns = pod_like(scenario, "dns", CRITICAL);
    let text = manifest(&dns, Some(&Asks::everything()?))?;
    scenario.node.write("/tmp/dns.json", text, 0o644)?;
    let plan = ["plan", "preemption", "-f", "/tmp/dns.json", "-o", "json"];
    let plan: Value = serde_json::from_str(&scenario.text(&plan).await?)?;
    assert_eq!(plan["pod"]["verdict"], "preempts", "{plan}");
    let victims = plan["pod"]["victims"].as_array().ok_or("no victims")?;
    let of = |name: &str| victims.iter().any(|v| v.as_str().is_some_and(|v| v.contains(name)));
    assert!(victims.len() == 2 && of("burstable") && of("guaranteed"), "{plan}");
    let free = |resource: &Value| {
        resource["allocatable"].as_i64().unwrap_or(0) - resource["used"].as_i64().unwrap_or(0)
    };
    let cpu = plan["resources"].as_array().into_iter().flatten().find(|r| r["name"] == "cpu");
    let cpu = cpu.ok_or("no processors")?;
    assert_eq!(cpu["used"], 200, "{plan}");
    assert!(free(cpu) > 0, "{plan}");
    Ok(())
}
