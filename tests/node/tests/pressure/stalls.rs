//! Waits for memory: the kernel wakes the agent, of the node's own cgroup.

use winddown_node_tests::scenario::TestResult;

use super::bounded::{Bounded, Bounds, Spec};

#[tokio::test]
async fn programs_that_wait_for_memory_wake_the_agent_and_end_nobody() -> TestResult {
    let test = "programs_that_wait_for_memory_wake_the_agent_and_end_nobody";
    // Beside other tests these programs may wait for the disk alone.
    let bounds = Bounds { memory: Some(150), alone: true, ..Bounds::default() };
    let config = "evictionHard: {memory.available: 20Mi}\n";
    let web = Spec { name: "web", priority: 0, asks: 0, does: ("hold", 5) };
    // They read what does not fit, again and again: pages in use are thrown out, and waiting for one to be
    // read again is a wait for memory.
    let reader = |name| Spec { name, priority: 0, asks: 0, does: ("cache", 60) };
    let readers = ["reader", "reader-2", "reader-3", "reader-4"].map(reader);
    let pods = [&[web][..], &readers].concat();
    let Some(bed) = Bounded::start(test, bounds, config, &pods).await? else {
        return Ok(());
    };
    let place = format!("cgroup /{}", bed.name()?);
    bed.until_said(&["memory pressure wakes eviction at once", &place]).await?;
    bed.until_said(&["tasks wait for memory: eviction checks at once"]).await?;
    assert!(bed.evicted()?.is_empty());
    assert!(pods.iter().all(|pod| bed.asked(pod.name).is_none()));
    Ok(())
}
