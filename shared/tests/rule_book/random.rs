//! Random days of a node: pods come, change and go, the runtime fails, the agent is restarted on
//! the same runtime. In the end, the desired pods run and nothing else is left.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use winddown_shared::testing::FakeRuntime;
use winddown_shared::{Lifecycle, Pod, PodKiller, Runtime};

use super::node::{Node, node};
use super::{pod, request, secs, settle, static_pod};

const PODS: u8 = 6;

#[derive(Clone, Debug)]
enum Op {
    /// The pod becomes desired, or is no longer; as another object than before.
    Want(u8, bool),
    Kill(u8),
    Refuse(u8),
    /// Its containers exit by themselves.
    Exit(u8),
    /// Another party starts containers of the pod.
    Appear(u8),
    /// Milliseconds that its stops take, and how many fail.
    Stops(u8, u16, u8),
    Fail(bool),
    Sleep(u16),
    /// The agent stops and another one starts.
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let pod = || 0..PODS;
    prop_oneof![
        8 => (pod(), any::<bool>()).prop_map(|(p, w)| Op::Want(p, w)),
        2 => pod().prop_map(Op::Kill),
        1 => pod().prop_map(Op::Refuse),
        1 => pod().prop_map(Op::Exit),
        1 => (2..PODS).prop_map(Op::Appear),
        2 => (pod(), 0..5000u16, 0..3u8).prop_map(|(p, t, f)| Op::Stops(p, t, f)),
        1 => any::<bool>().prop_map(Op::Fail),
        5 => (1..4000u16).prop_map(Op::Sleep),
        1 => Just(Op::Restart),
    ]
}

/// The first two share a name.
fn make(p: u8) -> Pod {
    if p < 2 { static_pod(&p.to_string(), "shared") } else { pod(&p.to_string()) }
}

async fn want(node: &Node, wanted: &HashMap<u8, Pod>) {
    let pods: Vec<&Pod> = wanted.values().collect();
    node.want(&pods).await;
}

async fn day(ops: Vec<Op>) {
    let runtime = FakeRuntime::default();
    let mut agent = node(runtime.clone());
    let mut wanted: HashMap<u8, Pod> = HashMap::new();
    want(&agent, &wanted).await;
    for op in ops {
        match op {
            Op::Want(p, true) => drop(wanted.insert(p, make(p))),
            Op::Want(p, false) => drop(wanted.remove(&p)),
            Op::Kill(p) => agent.workers.request_kill(make(p), &request()),
            Op::Refuse(p) => agent.refuse(&make(p)),
            Op::Exit(p) => runtime.exit(make(p).uid(), 0),
            Op::Appear(p) => runtime.revive(make(p).uid()),
            Op::Stops(p, takes, fails) => {
                runtime.stop_takes(make(p).uid(), Duration::from_millis(takes.into()));
                runtime.stop_fails(make(p).uid(), fails.into());
            }
            Op::Fail(fails) => runtime.fail(fails),
            Op::Sleep(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
            Op::Restart => {
                agent.end().await;
                agent = node(runtime.clone());
            }
        }
        want(&agent, &wanted).await;
        let both = runtime.runs(make(0).uid()) && runtime.runs(make(1).uid());
        assert!(!both, "two static pods of one name run");
    }
    runtime.fail(false);
    tokio::time::sleep(secs(1000)).await;
    for p in 0..PODS {
        let pod = make(p);
        let runs = runtime.runs(pod.uid());
        match agent.lifecycle(&pod) {
            None => assert!(!runs, "{p} runs and no worker knows it"),
            Some(Lifecycle::Syncing) => assert!(wanted.contains_key(&p), "{p} is not wanted"),
            Some(Lifecycle::Waiting) => assert!(p < 2 && !runs, "{p} waits, or runs too"),
            Some(Lifecycle::Finished) => {
                assert!(!runs && wanted.contains_key(&p), "{p} runs, or is not forgotten");
            }
            Some(other) => panic!("{p} is still {other:?}"),
        }
        let refused = agent.phase(&pod).as_deref() == Some("Failed");
        let known = agent.lifecycle(&pod).is_some();
        assert!(known || refused || !wanted.contains_key(&p), "{p} is wanted and forgotten");
    }
    want(&agent, &HashMap::new()).await;
    tokio::time::sleep(secs(1000)).await;
    assert!(agent.workers.snapshot().is_empty() && agent.workers.running().pods.is_empty());
    assert!(agent.statuses.all().is_empty(), "a status leaked");
    assert_eq!(runtime.list_pods().await.unwrap(), [], "something is left in the runtime");
    settle().await;
}

/// All cases in the long form, some of them otherwise.
fn cases() -> u32 {
    if std::env::var_os("WINDDOWN_LONG").is_some() { 2000 } else { 200 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn what_is_wanted_runs_in_the_end_and_nothing_else_is_left(
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(day(ops));
    }
}
