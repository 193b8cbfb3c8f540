//! A node that is full: a critical pod comes, and then the node goes down while others take its processors.

use std::thread::available_parallelism;

use super::{Agent, CRITICAL, Figures, GAP, START, beside, manifest, running, times_of_pod};
use crate::clock;
use crate::containers::ContainerBenchError;
use crate::figure::millis;
use crate::options::Options;

/// The names of its rows.
pub(in crate::containers) const PREEMPTED: &str =
    "a critical pod's manifest to its container, less its victim's own time";
pub(in crate::containers) const GAP_BUSY: &str =
    "gap between groups, each processor taken by others";
/// The critical pod that comes. It has no number, so it is not counted among the others.
const NEWCOMER: &str = "newcomer";

/// Boots a node, places one critical pod more than fit, and powers the node off while its processors are taken. Returns the
/// floors beside the figures, where there are any.
pub(in crate::containers) async fn measure_full(
    agent: Agent<'_>,
    options: &Options,
) -> Result<(Figures, Figures), ContainerBenchError> {
    let mut node = running(agent, options).await?.0;
    let manifest = manifest(NEWCOMER, CRITICAL, options.stop).to_string();
    let written = clock::now();
    node.write(&format!("{}/pod-{NEWCOMER}.json", agent.manifests()), manifest, 0o644)?;
    let newcomer = || times_of_pod(&node, NEWCOMER).started;
    node.wait_until("the critical pod to run", START, async || newcomer().is_some()).await?;
    let started = newcomer().ok_or(ContainerBenchError::Missing("the critical pod's start"))?;
    let waited = started.saturating_sub(written + options.stop);
    let mut figures = vec![(PREEMPTED, millis(waited))];

    let has_floors = matches!(agent, Agent::Winddown);
    if has_floors {
        beside::start(&node, options).await?;
    }
    for n in 0..available_parallelism().map_or(1, usize::from) {
        let unit = format!("--unit=busy-{n}");
        node.run(&["systemd-run", "--quiet", &unit, "sh", "-c", "while :; do :; done"]).await?;
    }
    let (end, seen) = agent.shut_down(&mut node, options).await?;
    let floors = match has_floors {
        true => beside::floors(&node, options, &seen)?,
        false => Figures::new(),
    };
    let gap = |figures: Figures| {
        let gap = figures.into_iter().find(|(what, _)| *what == GAP);
        gap.map(|(_, figure)| (GAP_BUSY, figure))
    };
    figures.extend(gap(end));
    let victims = super::times(&node, options.critical..options.pods);
    let victims = victims.iter().filter(|pod| pod.asked.is_some_and(|asked| asked < started));
    match victims.count() {
        1 => Ok((figures, gap(floors).into_iter().collect())),
        _ => Err(ContainerBenchError::Missing("the one victim of the critical pod")),
    }
}
