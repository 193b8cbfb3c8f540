//! What the agent costs while nothing happens.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_node_tests::usage::{self, Memory, Used, Watch};

use crate::figure::{self, Figure, megabytes};
use crate::node::{BenchError, TestNode};
use crate::table::Table;
use crate::targets;

/// The names of rows that have a target.
pub(crate) const RESIDENT: &str = "resident memory of the agent";
const CPU: &str = "idle CPU of the agent";
const WAKE_UPS: &str = "wake-ups of the agent";
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
    let figures = memory_figures(&memory, counts);
    for (what, figure) in figures.into_iter().chain(time_figures(agent.used(), span)) {
        table.row(what, figure).below_if(target(what));
    }
    if !shim_pids.is_empty() {
        let share: u64 = shim_pids.iter().map(|pid| usage::memory(*pid).share).sum();
        table.row("memory of all shims (fair share)", megabytes(share));
        table.row("idle CPU of all shims", percent(shims.used(), span));
    }
    Ok(())
}

/// What an idle agent has. With `counts`, what was touched was touched while it was idle.
pub(crate) fn memory_figures(memory: &Memory, counts: bool) -> Vec<(&'static str, Figure)> {
    let files = memory.resident.saturating_sub(memory.anonymous);
    let mut figures = vec![
        (RESIDENT, megabytes(memory.resident)),
        ("- of its memory: pages of its program and of libraries", megabytes(files)),
        ("- of its memory: heap and stacks", megabytes(memory.anonymous)),
    ];
    if counts {
        figures.push(("- of its memory: touched while idle", megabytes(memory.touched)));
    }
    figures
}

/// The same of its time.
pub(crate) fn time_figures(used: Used, span: Duration) -> [(&'static str, Figure); 2] {
    [(CPU, percent(used, span)), (WAKE_UPS, per_second(used, span))]
}

/// What is asked of an idle agent.
pub(crate) fn target(what: &str) -> Option<Figure> {
    Some(match what {
        RESIDENT => megabytes(targets::RESIDENT),
        CPU => figure::percent(targets::IDLE_CPU),
        WAKE_UPS => figure::per_second(targets::WAKE_UPS),
        _ => return None,
    })
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
