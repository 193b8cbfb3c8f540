//! A calm node: nobody is ended, and looking costs next to nothing.

use std::time::Duration;

use winddown_node_tests::scenario::TestResult;

use super::bounded::{Bounded, Bounds, Spec};

/// How long, in seconds; `make pressure KIND=calm` asks for ten minutes.
fn long() -> u64 {
    std::env::var("WINDDOWN_CALM_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

#[tokio::test]
async fn on_a_calm_node_nobody_is_evicted_and_looking_costs_next_to_nothing() -> TestResult {
    let test = "on_a_calm_node_nobody_is_evicted_and_looking_costs_next_to_nothing";
    let names: Vec<String> = (0..20).map(|n| format!("web-{n}")).collect();
    let pods: Vec<Spec<'_>> =
        names.iter().map(|name| Spec { name, priority: 0, asks: 0, does: ("hold", 1) }).collect();
    let bounds = Bounds { memory: Some(1024), ..Bounds::default() };
    let config = "evictionHard: {memory.available: 100Mi, nodefs.available: 1Mi}\n";
    let Some(bed) = Bounded::start(test, bounds, config, &pods).await? else { return Ok(()) };
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (mut watch, long) = (bed.watch(), Duration::from_secs(long()));
    for _ in 0..long.as_secs() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        watch.look();
    }
    assert!(bed.evicted()?.is_empty());
    assert!(pods.iter().all(|pod| bed.asked(pod.name).is_none()));
    let used = watch.used();
    let share = used.cpu.as_secs_f64() / long.as_secs_f64() * 100.0;
    let wakes = used.wake_ups as f64 / long.as_secs_f64();
    println!(
        "{test}: {} s, 0 evictions, {share:.3} % of a processor, {wakes:.1} wake-ups/s",
        long.as_secs()
    );
    // A debug build on a busy machine; 0.1 % is the aim of a release build.
    assert!(share < 1.0, "{share} % of a processor");
    assert!(wakes < 20.0, "{wakes} wake-ups a second");
    Ok(())
}
