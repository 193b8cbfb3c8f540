//! What the agent costs while nothing happens.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_node_tests::usage::{self, Memory, Used, Watch};

use crate::figure::{self, Figure, megabytes};
use crate::node::{BenchError, TestNode};
use crate::table::Table;
use crate::targets;

/// How long after the pods' start the agent is left alone before it counts as idle.
const SETTLE: Duration = Duration::from_secs(3);
/// How often the threads are looked at; what one does in the last moment of its life is missed.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) async fn measure(
    node: &TestNode,
    span: Duration,
    table: &mut Table,
) -> Result<(), BenchError> {
    settle().await;
    let agent_pid = node.agent_pid()?;
    let shim_pids = usage::running(&node.shim_program(), "run");
    let counts = usage::forget_touched(agent_pid).is_ok();
    let mut agent = Watch::new(vec![agent_pid]);
    let mut shims = Watch::new(shim_pids.clone());
    let span = watch(&mut agent, span).await;
    shims.look();

    let memory = usage::memory(agent_pid);
    memory_rows(table, &memory, counts);
    time_rows(table, agent.used(), span);
    if !shim_pids.is_empty() {
        let share: u64 = shim_pids.iter().map(|pid| usage::memory(*pid).share).sum();
        table.row("memory of all shims (fair share)", megabytes(share));
        table.row("idle CPU of all shims", percent(shims.used(), span));
    }
    Ok(())
}

/// What is asked of an idle agent, and of the kubelet beside it. With `counts`, what was touched was
/// touched while it was idle.
pub(crate) fn memory_rows(table: &mut Table, memory: &Memory, counts: bool) {
    let resident = table.row("resident memory of the agent", megabytes(memory.resident));
    resident.below(megabytes(targets::RESIDENT)).kubelet(megabytes(103_000_000));
    let files = memory.resident.saturating_sub(memory.anonymous);
    table.row("- of its memory: pages of its program and of libraries", megabytes(files));
    table.row("- of its memory: heap and stacks", megabytes(memory.anonymous));
    if counts {
        table.row("- of its memory: touched while idle", megabytes(memory.touched));
    }
}

/// The same of its time.
pub(crate) fn time_rows(table: &mut Table, used: Used, span: Duration) {
    let cpu = table.row("idle CPU of the agent", percent(used, span));
    cpu.below(figure::percent(targets::IDLE_CPU)).kubelet(figure::percent(2.4));
    table.row("wake-ups of the agent", per_second(used, span));
}

/// Leaves what was just started alone until it counts as idle.
pub(crate) async fn settle() {
    sleep(SETTLE).await;
}

/// Looks at processes for `span`; returns how long it was exactly.
pub(crate) async fn watch(watch: &mut Watch, span: Duration) -> Duration {
    let start = Instant::now();
    while start.elapsed() < span {
        sleep(LOOK).await;
        watch.look();
    }
    start.elapsed()
}

pub(crate) fn percent(used: Used, span: Duration) -> Figure {
    figure::percent(used.cpu.as_secs_f64() / span.as_secs_f64() * 100.0)
}

pub(crate) fn per_second(used: Used, span: Duration) -> Figure {
    figure::per_second(figure::exact(used.wake_ups) / span.as_secs_f64())
}
