//! What the agent costs while nothing happens.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::node::{BenchError, TestNode};
use crate::process::{self, Used, Watch};
use crate::table::{Table, mebibytes};

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
    let shim_pids = process::running(node.agent_program(), "shim");
    let mut agent = Watch::new(vec![agent_pid]);
    let mut shims = Watch::new(shim_pids.clone());
    let span = watch(&mut agent, span).await;
    shims.look();

    let memory = process::memory(agent_pid);
    table.row("resident memory of the agent", mebibytes(memory.resident), "< 16 MB");
    table.row("idle CPU of the agent", percent(agent.used(), span), "< 0.1 %");
    table.row("wake-ups of the agent", per_second(agent.used(), span), "");
    if !shim_pids.is_empty() {
        let share: u64 = shim_pids.iter().map(|pid| process::memory(*pid).share).sum();
        table.row("memory of all shims (fair share)", mebibytes(share), "");
        table.row("idle CPU of all shims", percent(shims.used(), span), "");
    }
    Ok(())
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

pub(crate) fn percent(used: Used, span: Duration) -> String {
    format!("{:.4} %", used.cpu.as_secs_f64() / span.as_secs_f64() * 100.0)
}

pub(crate) fn per_second(used: Used, span: Duration) -> String {
    let count = u32::try_from(used.wake_ups).unwrap_or(u32::MAX);
    format!("{:.2} / s", f64::from(count) / span.as_secs_f64())
}
