//! What the agent costs while nothing happens.

use std::time::Duration;

use crate::node::{BenchError, TestNode};
use crate::process::{self, Used};
use crate::table::{Table, mebibytes};

/// How long after the pods' start the agent is left alone before it counts as idle.
const SETTLE: Duration = Duration::from_secs(3);

pub(crate) async fn measure(
    node: &TestNode,
    span: Duration,
    table: &mut Table,
) -> Result<(), BenchError> {
    tokio::time::sleep(SETTLE).await;
    let agent = node.agent_pid()?;
    let shims = process::with_words(&node.agent_program(), "shim");
    let before = process::used(agent);
    let shims_before = sum(&shims);
    tokio::time::sleep(span).await;
    let after = process::used(agent);
    let shims_after = sum(&shims);

    let memory = process::memory(agent);
    table.row("resident memory of the agent", mebibytes(memory.resident), "< 16 MB");
    table.row("idle CPU of the agent", percent(before, after, span), "< 0.1 %");
    table.row("wake-ups of the agent", per_second(before, after, span), "");
    if !shims.is_empty() {
        let share: u64 = shims.iter().map(|pid| process::memory(*pid).share).sum();
        table.row("memory of all shims (fair share)", mebibytes(share), "");
        table.row("idle CPU of all shims", percent(shims_before, shims_after, span), "");
    }
    Ok(())
}

fn sum(pids: &[u32]) -> Used {
    pids.iter().map(|pid| process::used(*pid)).fold(Used::default(), |sum, one| Used {
        cpu: sum.cpu + one.cpu,
        wake_ups: sum.wake_ups + one.wake_ups,
    })
}

fn percent(before: Used, after: Used, span: Duration) -> String {
    let used = after.cpu.saturating_sub(before.cpu);
    format!("{:.3} %", used.as_secs_f64() / span.as_secs_f64() * 100.0)
}

fn per_second(before: Used, after: Used, span: Duration) -> String {
    let count = u32::try_from(after.wake_ups.saturating_sub(before.wake_ups)).unwrap_or(u32::MAX);
    format!("{:.2} / s", f64::from(count) / span.as_secs_f64())
}
