//! The kubelet's own tests of local storage limits, as scenarios.

use serde_json::json;
use winddown_shared::DiskUse;

use super::*;
use crate::Condition;
use crate::tests::disk;

#[tokio::test(start_paused = true)]
async fn storage_limit_evictions() {
    let limit = [("ephemeral-storage", "1Gi")];
    let limited = |name: &str| {
        changed(name, 0, &[], |object| {
            object.spec.as_mut().unwrap().containers = vec![container("main", &[], &limit)];
        })
    };
    let critical = changed("critical", 2_000_000_000, &[], |object| {
        object.spec.as_mut().unwrap().containers = vec![container("main", &[], &limit)];
    });
    let pods = vec![
        (limited("rootfs"), disk("2Gi", "0")),
        (limited("logs"), disk("0", "2Gi")),
        (limited("within"), disk("512Mi", "0")),
        (pod("without-limit", 0, &[]), disk("9Gi", "0")),
        (critical, disk("9Gi", "0")),
    ];
    let world = World::new(policy(json!({})), pods);
    world.is(left("8Gi"), secs(1)).await;
    let all = ["rootfs", "logs"].map(|name| (name.to_owned(), Some(1)));
    assert_eq!(world.killed(), all, "at once and beside each other");
    assert!(!world.has(Condition::Disk), "the pods' own matter");
    let calls = world.killer.calls();
    let status = calls[0].request.status.as_ref().unwrap();
    let text = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ";
    assert_eq!(&*status.message, text);
    assert_eq!(status.disruption_message, None);
}

#[tokio::test(start_paused = true)]
async fn manager_with_local_storage_capacity_isolation_off_measures_no_pod() {
    let limited = changed("p", 0, &[], |object| {
        let limit = [("ephemeral-storage", "1Gi")];
        object.spec.as_mut().unwrap().containers = vec![container("main", &[], &limit)];
    });
    let mut policy = policy(json!({"evictionHard": {"memory.available": "1Gi"}}));
    policy.local_storage_limits = false;
    let mut stats = disk("2Gi", "0");
    stats.ephemeral = Some(DiskUse { bytes: bytes("2Gi"), inodes: 1 });
    let world = World::new(policy, vec![(limited, stats)]);
    world.is(left("8Gi"), 2 * MINUTE).await;
    assert_eq!(world.killed(), []);
    assert_eq!(world.node.state().measured, []);
}
