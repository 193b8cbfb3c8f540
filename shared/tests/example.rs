//! Runs the example in `docs/examples/`.

#[path = "../examples/in_memory.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod agent;

#[tokio::test]
async fn the_example_agent_runs_two_pods_and_ends_the_least_important_one() {
    let mut phases = agent::run().await.unwrap();
    phases.sort();
    let expected = [("batch", "Failed"), ("database", "Running"), ("web", "Running")];
    assert_eq!(phases, expected.map(|(name, phase)| (name.to_owned(), Some(phase.to_owned()))));
}
