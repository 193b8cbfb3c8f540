//! Memory: hogs and leaks are ended, cache and slow disks are not pressure.

use std::time::Duration;

use winddown_node_tests::scenario::TestResult;

use super::bounded::{Bounded, Bounds, MIB, SHORT, Spec};

const CONFIG: &str = "evictionHard: {memory.available: 100Mi}\n";
const NODE: Bounds = Bounds { memory: Some(600), tasks: None, disk: None, alone: false };

/// Pods that hold what they asked for, one that is more important than the hog, and one that is not.
const OTHERS: [Spec<'_>; 3] = [
    Spec { name: "db", priority: 0, asks: 100, does: ("hold", 60) },
    Spec { name: "vip", priority: 1000, asks: 0, does: ("hold", 90) },
    Spec { name: "web", priority: 0, asks: 0, does: ("hold", 5) },
];

fn with(hog: Spec<'static>) -> Vec<Spec<'static>> {
    OTHERS.into_iter().chain([hog]).collect()
}

/// How often the hog is let loose, and how many ms SIGTERM may take. `make pressure` measures: ten times, and
/// 250 ms of a release agent. Beside other tests the machine may be as busy as it likes, and what is asked is
/// only that the agent does not wait for the next of the kubelet's looks, every ten seconds.
fn asked_for() -> (u32, i128) {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let (runs, limit) = (number("WINDDOWN_PRESSURE_RUNS"), number("WINDDOWN_PRESSURE_MS"));
    (runs.unwrap_or(1), limit.unwrap_or(10_000).into())
}

/// The hog is ended, nobody else, and in time.
async fn is_ended(test: &str, hog: Spec<'static>) -> TestResult {
    let (runs, limit) = asked_for();
    let mut all = Vec::new();
    for _ in 0..runs {
        let Some(took) = ended_after(test, hog).await? else { return Ok(()) };
        all.push(took);
    }
    all.sort_unstable();
    println!("{test}: crossing to SIGTERM in ms, {runs} runs: {all:?}");
    assert!(all.iter().all(|took| *took < limit), "{limit} ms are allowed: {all:?}");
    Ok(())
}

/// How many ms lay between the crossing and the hog's SIGTERM.
async fn ended_after(test: &str, hog: Spec<'static>) -> TestResult<Option<i128>> {
    let bed = Bounded::start(test, NODE, CONFIG, &with(hog)).await?;
    let Some(mut bed) = bed else { return Ok(None) };
    let crossing = bed.crossing().await?;
    bed.until("the hog is asked to stop", || bed.asked(hog.name).is_some()).await?;
    let asked = bed.asked(hog.name).ok_or("it was")?;
    bed.until("the eviction is told", || bed.evicted().is_ok_and(|e| e == [hog.name])).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bed.evicted()?, [hog.name]);
    for other in OTHERS {
        assert_eq!(bed.asked(other.name), None, "{}", other.name);
    }
    let status = bed.status()?;
    let told = status["pods"].as_array().into_iter().flatten().find(|p| p["reason"] == "Evicted");
    let message = told.ok_or("told")?["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: 100Mi"),
        "{message}"
    );
    Ok(Some((asked - crossing) / 1_000_000))
}

/// Nobody is ended for so long, although there was reason to look: what `pod` does to the node is judged
/// by the least MiB that were left, the most that were page cache, and the stage.
async fn is_spared(
    test: &str,
    config: &str,
    pod: Spec<'static>,
    long: Duration,
    was_there: impl FnOnce(u64, u64, &Bounded) -> bool,
) -> TestResult {
    let Some(bed) = Bounded::start(test, NODE, config, &with(pod)).await? else { return Ok(()) };
    let (least, cached) = bed.extremes(long).await?;
    assert!(was_there(least, cached, &bed), "{test} tried nothing: {least} left, {cached} cached");
    for pod in with(pod) {
        assert_eq!(bed.asked(pod.name), None, "{}\n{}", pod.name, bed.status()?);
    }
    assert!(bed.evicted()?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_memory_hog_is_ended_before_the_node_has_none_left() -> TestResult {
    let hog = Spec { name: "hog", priority: 0, asks: 0, does: ("memory", 150) };
    is_ended("a_memory_hog_is_ended_before_the_node_has_none_left", hog).await
}

#[tokio::test]
async fn a_slow_leak_is_ended_when_it_gets_there() -> TestResult {
    let leak = Spec { name: "leak", priority: 0, asks: 10, does: ("memory", 30) };
    is_ended("a_slow_leak_is_ended_when_it_gets_there", leak).await
}

#[tokio::test]
async fn page_cache_is_no_pressure() -> TestResult {
    let reader = Spec { name: "reader", priority: 0, asks: 0, does: ("cache", 700) };
    // So much that with it less than the threshold is left.
    let fills = |_: u64, cached: u64, _: &Bounded| cached > 600 - 155 - SHORT;
    is_spared("page_cache_is_no_pressure", CONFIG, reader, Duration::from_secs(10), fills).await
}

#[tokio::test]
async fn a_slow_disk_is_no_pressure() -> TestResult {
    let writer = Spec { name: "writer", priority: 0, asks: 0, does: ("io", 64) };
    // It begins its file anew again and again: this may be the moment after.
    let writes = |_: u64, _: u64, bed: &Bounded| {
        (0..1000).any(|_| {
            std::thread::park_timeout(Duration::from_millis(1));
            bed.written("writer.io") >= MIB
        })
    };
    is_spared("a_slow_disk_is_no_pressure", CONFIG, writer, Duration::from_secs(10), writes).await
}

#[tokio::test]
async fn pods_that_recover_inside_the_soft_grace_are_left_alone() -> TestResult {
    let pulse = Spec { name: "pulse", priority: 0, asks: 0, does: ("pulse", 200) };
    let config = "evictionHard: {memory.available: 50Mi}\n\
                  evictionSoft: {memory.available: 300Mi}\n\
                  evictionSoftGracePeriod: {memory.available: 6s}\n";
    let test = "pods_that_recover_inside_the_soft_grace_are_left_alone";
    let crosses = |least: u64, _: u64, _: &Bounded| (50..300).contains(&least);
    is_spared(test, config, pulse, Duration::from_secs(17), crosses).await
}
