//! Tasks: a fork bomb is ended before nothing else can start.

use winddown_node_tests::scenario::TestResult;

use super::bounded::{Bounded, Bounds, Spec};

#[tokio::test]
async fn a_fork_bomb_is_ended_while_tasks_are_left() -> TestResult {
    let test = "a_fork_bomb_is_ended_while_tasks_are_left";
    let bounds = Bounds { tasks: Some(400), ..Bounds::default() };
    let config = "evictionHard: {pid.available: '150'}\n";
    let web = Spec { name: "web", priority: 0, asks: 0, does: ("hold", 5) };
    let bomb = Spec { name: "bomb", priority: 0, asks: 0, does: ("fork", 100) };
    let Some(bed) = Bounded::start(test, bounds, config, &[web, bomb]).await? else {
        return Ok(());
    };
    bed.until("the eviction is told", || bed.evicted().is_ok_and(|e| e == ["bomb"])).await?;
    assert_eq!(bed.asked("web"), None);
    let pressure = bed.status()?["pressure"]["conditions"].clone();
    assert_eq!(pressure, serde_json::json!(["PIDPressure"]));
    Ok(())
}
