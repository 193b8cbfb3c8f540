//! How fast the node's pods end when logind says so.

use std::time::Duration;

use winddown_shared::ShutdownKind;

use crate::clock;
use crate::node::{BenchError, TestNode};
use crate::pod::PodTimes;
use crate::table::{Table, millis};

pub(crate) async fn measure(node: TestNode, table: &mut Table) -> Result<(), BenchError> {
    let signal = clock::now();
    let outcome = node.logind().shutdown(ShutdownKind::PowerOff).await;
    if !outcome.late.is_empty() || outcome.released.is_empty() {
        return Err(BenchError::LockKept(outcome.took));
    }
    let (ordinary, critical) = node.times();
    let first = first_asked(&ordinary).or_else(|| first_asked(&critical));
    let first = first.ok_or(BenchError::NothingAsked)?;
    table.row("signal to first SIGTERM", millis(first.saturating_sub(signal)), "< 5 ms");
    let spread = last_asked(&ordinary).unwrap_or(first).saturating_sub(first);
    table.row("first to last SIGTERM of the first group", millis(spread), "");
    if let (Some(gone), Some(asked)) = (last_gone(&ordinary), first_asked(&critical)) {
        table.row("gap between groups", millis(asked.saturating_sub(gone)), "< 50 ms");
    }
    table.row("signal to lock released", millis(outcome.took), "< 3000 ms");
    let unasked = ordinary.iter().chain(&critical).filter(|pod| pod.gone.is_none()).count();
    if unasked > 0 {
        return Err(BenchError::Left(unasked));
    }
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
