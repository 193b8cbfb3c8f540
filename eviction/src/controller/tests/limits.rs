//! The kubelet's own tests of local storage limits, as scenarios.

use std::sync::Arc;

use serde_json::json;
use winddown_shared::{DiskUse, PressureCondition};

use super::*;
use crate::HookRule;
use crate::tests::disk;

/// A pod with a limit of 1 GiB of local storage.
fn limited(name: &str, priority: i32) -> Pod {
    changed(name, priority, &[], |object| {
        let limit = [("ephemeral-storage", "1Gi")];
        object.spec.as_mut().unwrap().containers = vec![container("main", &[], &limit)];
    })
}

#[tokio::test(start_paused = true)]
async fn storage_limit_evictions() {
    let pods = vec![
        (limited("rootfs", 0), disk("2Gi", "0")),
        (limited("logs", 0), disk("0", "2Gi")),
        (limited("within", 0), disk("512Mi", "0")),
        (pod("without-limit", 0, &[]), disk("9Gi", "0")),
        (limited("critical", 2_000_000_000), disk("9Gi", "0")),
    ];
    let world = World::new(policy(json!({})), pods);
    world.is(left("8Gi"), secs(1)).await;
    let all = ["rootfs", "logs"].map(|name| (name.to_owned(), Some(1)));
    assert_eq!(world.killed(), all, "at once and beside each other");
    assert!(!world.has(PressureCondition::Disk), "the pods' own matter");
    let calls = world.killer.calls();
    let status = calls[0].request.status.as_ref().unwrap();
    let text = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ";
    assert_eq!(&*status.message, text);
    assert_eq!(status.disruption_message, None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_over_its_limit_is_asked_once_while_its_hook_runs() {
    let mut policy = policy(json!({}));
    policy.hook = Some(Arc::new(HookRule { timeout: secs(50), ..HookRule::default() }));
    let world = World::new(policy, vec![(limited("p", 0), disk("2Gi", "0"))]);
    world.is(left("8Gi"), MINUTE).await;
    assert_eq!((world.node.state().hooks.len(), world.killed().len()), (1, 1));
    assert_eq!(world.view.history().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn manager_with_local_storage_capacity_isolation_off_measures_no_pod() {
    let mut policy = policy(json!({"evictionHard": {"memory.available": "1Gi"}}));
    policy.local_storage_limits = false;
    let mut stats = disk("2Gi", "0");
    stats.ephemeral = Some(DiskUse { bytes: bytes("2Gi"), inodes: 1, is_partial: false });
    let world = World::new(policy, vec![(limited("p", 0), stats)]);
    world.is(left("8Gi"), 2 * MINUTE).await;
    assert_eq!(world.killed(), []);
    assert_eq!(world.node.state().measured, []);
}
