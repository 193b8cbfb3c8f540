//! How fast the node's pods end when logind says so.

use std::time::Duration;

use winddown_shared::ShutdownKind;

use crate::clock;
use crate::figure::millis;
use crate::node::{BenchError, TestNode};
use crate::pod::PodTimes;
use crate::table::Table;
use crate::targets;

/// Powers the node off; how long it was from the signal to the lock's release.
pub(crate) async fn run(node: &TestNode) -> Result<Duration, BenchError> {
    let outcome = node.logind().shutdown(ShutdownKind::PowerOff).await;
    if !outcome.late.is_empty() || outcome.released.is_empty() {
        return Err(BenchError::LockKept(outcome.took));
    }
    let (ordinary, critical) = node.times();
    match ordinary.iter().chain(&critical).filter(|pod| pod.gone.is_none()).count() {
        0 => Ok(outcome.took),
        left => Err(BenchError::Left(left)),
    }
}

pub(crate) async fn measure(node: TestNode, table: &mut Table) -> Result<(), BenchError> {
    let signal = clock::now();
    let took = run(&node).await?;
    let told = node.least_told().await?;
    let (ordinary, critical) = node.times();
    let first = first_asked(&ordinary).or_else(|| first_asked(&critical));
    let first = first.ok_or(BenchError::NothingAsked)?;
    let floor = |from: Duration, to: Option<Duration>| Some(millis(to?.saturating_sub(from)));
    table
        .row("signal to first SIGTERM", millis(first.saturating_sub(signal)))
        .below(millis(targets::FIRST_TERM))
        .floor(floor(signal, node.victim_asked()));
    let spread = last_asked(&ordinary).unwrap_or(first).saturating_sub(first);
    table.row("first to last SIGTERM of the first group", millis(spread));
    if let (Some(gone), Some(asked)) = (last_gone(&ordinary), first_asked(&critical)) {
        let gap = table.row("gap between groups", millis(asked.saturating_sub(gone)));
        gap.below(millis(targets::GAP)).floor(floor(gone, told.ordinary));
    }
    table.row("signal to lock released", millis(took)).below(millis(targets::SHUTDOWN));
    Ok(())
}

pub(crate) fn first_asked(pods: &[PodTimes]) -> Option<Duration> {
    pods.iter().filter_map(|pod| pod.asked).min()
}

pub(crate) fn last_asked(pods: &[PodTimes]) -> Option<Duration> {
    pods.iter().filter_map(|pod| pod.asked).max()
}

pub(crate) fn last_gone(pods: &[PodTimes]) -> Option<Duration> {
    pods.iter().filter_map(|pod| pod.gone).max()
}
