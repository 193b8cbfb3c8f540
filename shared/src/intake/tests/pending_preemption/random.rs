//! Random arrivals and departures on a crowded node.

use proptest::prelude::*;

use super::*;

/// An event on a crowded node.
#[derive(Clone, Debug)]
enum Op {
    /// A pod arrives: its rank, its cpus, how long its stop takes, how often that fails.
    Come(u8, u8, u8, u8),
    Leave(usize),
    Sleep(u8),
    Gate(GateState),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..4_u8, 0..7_u8, 0..40_u8, 0..3_u8).prop_map(|(r, c, t, f)| Op::Come(r, c, t, f)),
        2 => any::<usize>().prop_map(Op::Leave),
        4 => (0..60_u8).prop_map(Op::Sleep),
        1 => (0..3_usize).prop_map(|one| {
            Op::Gate([GateState::Open, GateState::Undecided { why: "" }, GateState::Shut][one])
        }),
    ]
}

async fn carry_out(ops: Vec<Op>) {
    let c = crowded();
    let mut wanted: Vec<Pod> = Vec::new();
    let over = || assert!(c.used() <= 10, "{} cpus are used", c.used());
    for (i, op) in ops.into_iter().enumerate() {
        match op {
            Op::Come(rank, cpus, takes, fails) => {
                let priority = [Some(0), None, Some(2_000_000_000), Some(2_000_001_000)];
                let pod = asks(&format!("p{i}"), priority[usize::from(rank)], cpus);
                c.takes(&pod, takes.into());
                c.node.runtime.stop_fails(pod.uid(), fails.into());
                wanted.push(pod);
            }
            Op::Leave(i) if !wanted.is_empty() => drop(wanted.remove(i % wanted.len())),
            Op::Leave(_) => {}
            Op::Sleep(seconds) => {
                for _ in 0..seconds {
                    tokio::time::sleep(secs(1)).await;
                    over();
                }
            }
            Op::Gate(state) => drop(c.node.gate.send_replace(state)),
        }
        c.node.want(&wanted.iter().collect::<Vec<_>>()).await;
        over();
    }
    c.node.gate.send_replace(GateState::Open);
    for _ in 0..300 {
        tokio::time::sleep(secs(1)).await;
        over();
    }
    let held: Vec<&Pod> =
        wanted.iter().filter(|pod| c.reason(pod) == WAITING_FOR_PREEMPTION).collect();
    assert!(held.is_empty(), "nothing ends any more, and {held:?} still wait");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever comes and goes, and however stops end: no more pods run than fit on the node, and
    /// no pod waits forever.
    #[test]
    fn no_pod_starts_beside_one_whose_room_it_needs(ops in proptest::collection::vec(op(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(carry_out(ops));
    }
}
