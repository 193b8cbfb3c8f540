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
    let least_pid = node.least_pid()?;
    let mut least = Watch::new(vec![least_pid]);
    let span = watch(&mut [&mut agent, &mut least], span).await;
    shims.look();

    let memory = usage::memory(agent_pid);
    let floors = floors(&memory, &usage::memory(least_pid), least.used(), span);
    let figures = memory_figures(&memory, counts);
    for (what, figure) in figures.into_iter().chain(time_figures(agent.used(), span)) {
        let floor = floors.iter().find(|(name, _)| *name == what).map(|(_, floor)| *floor);
        table.row(what, figure).below_if(target(what)).floor(floor);
    }
    if !shim_pids.is_empty() {
        let share: u64 = shim_pids.iter().map(|pid| usage::memory(*pid).share).sum();
        table.row("memory of all shims (fair share)", megabytes(share));
        table.row("idle CPU of all shims", percent(shims.used(), span));
    }
    Ok(())
}

/// The floors of an idle agent: the pages of its program as they are and what else the least program has, and what that
/// uses.
pub(crate) fn floors(
    agent: &Memory,
    least: &Memory,
    used: Used,
    span: Duration,
) -> Vec<(&'static str, Figure)> {
    let resident = agent.resident.saturating_sub(agent.anonymous) + least.anonymous;
    let mut floors = vec![(RESIDENT, megabytes(resident))];
    floors.extend(time_figures(used, span));
    floors
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
pub(crate) async fn watch(watches: &mut [&mut Watch], span: Duration) -> Duration {
    let start = Instant::now();
    while start.elapsed() < span {
        sleep(LOOK).await;
        watches.iter_mut().for_each(|watch| watch.look());
    }
    start.elapsed()
}

pub(crate) fn percent(used: Used, span: Duration) -> Figure {
    figure::percent(used.cpu.as_secs_f64() / span.as_secs_f64() * 100.0)
}

pub(crate) fn per_second(used: Used, span: Duration) -> Figure {
    figure::per_second(figure::exact(used.wake_ups) / span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use winddown_node_tests::usage::{Memory, Used};

    use super::{CPU, RESIDENT, WAKE_UPS, floors};
    use crate::figure::{megabytes, per_second, percent};

    #[test]
    fn the_floors_are_the_agents_files_and_all_else_of_the_least_program() {
        let agent = Memory { resident: 30_000_000, anonymous: 12_000_000, ..Memory::default() };
        let least = Memory { resident: 9_000_000, anonymous: 2_000_000, ..Memory::default() };
        let used = Used { cpu: Duration::from_millis(1), wake_ups: 5 };
        assert_eq!(
            floors(&agent, &least, used, Duration::from_secs(10)),
            [(RESIDENT, megabytes(20_000_000)), (CPU, percent(0.01)), (WAKE_UPS, per_second(0.5))]
        );
    }
}
