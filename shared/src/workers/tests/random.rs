//! Random interleavings: whatever is asked in whatever order, the promises hold.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;

use super::{bench, pod_with, settle, static_pod, uid, with_grace};
use crate::fake::Script;
use crate::{Lifecycle, Pod, PodKiller, PodUid, RuntimePod, UpdateKind};

#[derive(Clone, Debug)]
enum Op {
    Create(u8),
    Update(u8),
    Kill(u8, u8),
    Orphan(u8),
    Stray(u8),
    Look(u8),
    Sleep(u16),
    Script(u8, u8, u8, u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..6u8).prop_map(Op::Create),
        2 => (0..6u8).prop_map(Op::Update),
        3 => (0..6u8, 0..20u8).prop_map(|(p, g)| Op::Kill(p, g)),
        1 => (0..6u8).prop_map(Op::Orphan),
        1 => (0..6u8).prop_map(Op::Stray),
        1 => (0..6u8).prop_map(Op::Look),
        3 => (1..3000u16).prop_map(Op::Sleep),
        2 => (0..6u8, 0..4u8, 0..3u8, 0..9u8).prop_map(|(p, f, s, t)| Op::Script(p, f, s, t)),
    ]
}

/// Pods 0 to 2 are static and share one name; the others are ordinary.
fn pod(p: u8) -> Pod {
    let name = format!("p{p}");
    if p < 3 { static_pod(&name, "shared") } else { pod_with(&name, &name, |_| {}) }
}

async fn run(ops: Vec<Op>) {
    let b = bench();
    let mut seen: HashMap<PodUid, Lifecycle> = HashMap::new();
    let mut kills = Vec::new();
    let mut desired: HashSet<PodUid> = (0..6).map(|p| uid(&format!("p{p}"))).collect();
    for op in ops {
        match op {
            Op::Create(p) => b.workers.update(UpdateKind::Create, pod(p), None),
            Op::Update(p) => b.workers.update(UpdateKind::Update, pod(p), None),
            Op::Kill(p, grace) => {
                let workers = b.workers.clone();
                kills.push(tokio::spawn(async move {
                    workers.kill_pod(pod(p), with_grace(grace.into())).await
                }));
                settle().await;
            }
            Op::Orphan(p) => {
                desired.remove(pod(p).uid());
                b.workers.sync_known_pods(&desired);
                desired.insert(pod(p).uid().clone());
                // What is forgotten may start anew.
                seen.retain(|u, _| b.workers.lifecycle(u).is_some());
            }
            Op::Stray(p) => b.workers.kill_runtime_pod(RuntimePod {
                uid: pod(p).uid().clone(),
                name: pod(p).name().clone(),
                namespace: pod(p).namespace().clone(),
                running: true,
            }),
            Op::Look(p) => {
                b.workers.look_again(pod(p).uid());
            }
            Op::Sleep(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
            Op::Script(p, fails, stop_fails, takes) => b.syncer.script(
                pod(p).uid(),
                Script {
                    sync_takes: Duration::from_millis(u64::from(takes) * 100),
                    sync_fails: fails.into(),
                    terminal: fails == 3,
                    stop_takes: Duration::from_secs(takes.into()),
                    stop_fails: stop_fails.into(),
                    finish_fails: stop_fails.into(),
                    ..Script::default()
                },
            ),
        }
        seen.retain(|u, _| b.workers.lifecycle(u).is_some());
        for s in b.workers.snapshot() {
            let before = seen.insert(s.uid.clone(), s.lifecycle);
            // A record that was removed and made anew between two looks starts over, which only a
            // stray's end can do here; every other step is forward.
            let forward = before.is_none_or(|l| l <= s.lifecycle);
            assert!(forward || s.pod.is_none() || s.lifecycle < Lifecycle::Terminating, "{s:?}");
        }
    }
    tokio::time::sleep(Duration::from_secs(400)).await;
    for kill in kills {
        assert!(kill.is_finished(), "a kill_pod did not return");
    }
    for _ in 0..8 {
        b.workers.sync_known_pods(&HashSet::new());
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let state = b.workers.inner.lock();
    assert!(state.records.is_empty(), "a record leaked: {:?}", state.records);
    assert!(state.names.is_empty(), "a name leaked");
    assert_eq!(state.next_due(), None, "a date leaked");
    assert_eq!(b.workers.inner.tasks.len(), 0, "a task leaked");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// No two steps of one UID at once (the fake panics), phases only move forward, every kill
    /// returns, and nothing is left behind.
    #[test]
    fn promises_hold_under_any_interleaving(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(ops));
    }
}
