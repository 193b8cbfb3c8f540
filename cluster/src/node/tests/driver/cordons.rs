//! Who owns the cordon, against a server that others write to as well.

use serde_json::json;

use super::*;
use crate::node::CORDONED_BY;

#[tokio::test(start_paused = true)]
async fn a_persons_cordon_is_there_after_the_shutdown_was_called_off() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    ledger.edit(&json!({ "spec": { "unschedulable": true } }));
    agent.handle.set_shutting_down(true);
    agent.told().await;
    let written = ledger.sent(&Method::PATCH, NODE);
    assert_eq!(written.len(), 0, "the answer to the status has told that a person was first");
    agent.handle.set_shutting_down(false);
    agent.told().await;
    assert_eq!(ledger.node()["spec"]["unschedulable"], true);
    assert_eq!(ledger.node()["metadata"]["annotations"].get(CORDONED_BY), None);
}

#[tokio::test(start_paused = true)]
async fn a_cordon_of_ours_whose_mark_a_person_removed_is_theirs() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    ledger.edit(&json!({ "metadata": { "annotations": { CORDONED_BY: null } } }));
    agent.handle.set_shutting_down(false);
    agent.told().await;
    assert_eq!(ledger.node()["spec"]["unschedulable"], true);
}

#[tokio::test(start_paused = true)]
async fn a_node_may_be_left_uncordoned_by_the_settings() {
    let ledger = Ledger::new();
    let settings = NodeSettings { cordon_on_shutdown: false, ..NodeSettings::default() };
    let agent = Agent::start_with(&ledger, facts(), settings);
    agent.handle.set_ready(Ok(()));
    agent.told().await;
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(ledger.node()["spec"]["unschedulable"], json!(null));
    assert_eq!(ready_is(&ledger).1, "node is shutting down");
}

#[tokio::test(start_paused = true)]
async fn a_cordon_that_the_server_forbids_is_not_awaited() {
    let ledger = Ledger::new();
    let agent = Agent::ready(&ledger).await;
    ledger.script(|entry| {
        let cordon = entry.path == NODE && entry.body["spec"]["unschedulable"] == true;
        let refusal = json!({ "code": 403, "reason": "Forbidden", "message": "no" });
        cordon.then_some(Mishap::Refuse(403, refusal))
    });
    let t0 = Instant::now();
    agent.handle.set_shutting_down(true);
    agent.told().await;
    assert_eq!(t0.elapsed(), Duration::ZERO);
    assert_eq!(ledger.condition("Ready")["status"], "False");
    assert_eq!(agent.handle.state().borrow().refused.as_deref(), Some("no"));
}
