//! Checks the runtime's health.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use winddown_host::beat;
use winddown_shared::{doubled, error_chain};

use super::health::{CriHealth, note_gone, read, version};
use super::{CriContext, api, list};

/// The shortest wait between two checks of a runtime that is not healthy.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for a runtime that answers but is not healthy.
const MAX_INTERVAL_UNHEALTHY: Duration = Duration::from_secs(5);
/// The longest wait for a runtime that does not answer; shorter, because pods wait for it.
const MAX_INTERVAL_SILENT: Duration = Duration::from_secs(1);

/// Checks the runtime's health periodically and when the connection is lost, and lists everything
/// when the runtime comes back. Pods that failed are tried again when it can do more than before.
pub(super) async fn follow(context: Arc<CriContext>) {
    let mut failures = 0;
    loop {
        let before = context.health.borrow().clone();
        context.client.forget_losses();
        let mut now = look(&context, &before).await;
        let is_back = now.reachable && !before.reachable;
        let has_come = |what: fn(&CriHealth) -> bool| what(&now) && !what(&before);
        let can_more =
            has_come(|health| health.runtime_ready) || has_come(|health| health.network_ready);
        if now.version.is_empty() {
            // A listing may have asked for it meanwhile.
            now.version.clone_from(&context.health.borrow().version);
        }
        if now != before {
            log_change(&before, &now);
            context.health.send_replace(now.clone());
        }
        if is_back {
            // Events may have been missed.
            if let Err(error) = list::list_all(&context).await {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot list what the container runtime has"
                );
            }
        }
        if is_back || can_more {
            context.retry_failed();
        }
        failures = if now.is_well() || is_back { 0 } else { failures + 1 };
        let wait = match (now.is_well(), now.reachable) {
            (true, _) => context.config.times.health,
            (false, true) => doubled(MIN_INTERVAL, MAX_INTERVAL_UNHEALTHY, failures),
            (false, false) => doubled(MIN_INTERVAL, MAX_INTERVAL_SILENT, failures),
        };
        rest(&context, wait, now.reachable).await;
    }
}

/// Waits for the next check. Returns early if a call finds the runtime unreachable or the connection
/// is lost.
async fn rest(context: &CriContext, wait: Duration, was_reachable: bool) {
    if !was_reachable {
        return sleep(wait).await;
    }
    let mut noticed = context.health.subscribe();
    tokio::select! {
        () = beat::sleep(wait) => {}
        _ = noticed.wait_for(|health| !health.reachable) => {}
        () = context.client.lost() => note_gone(context, "the connection was lost"),
    }
}

async fn look(context: &CriContext, before: &CriHealth) -> CriHealth {
    let answer = context.client.status(api::StatusRequest { verbose: false }).await;
    match answer {
        Ok(answer) => {
            let conditions = answer.status.unwrap_or_default().conditions;
            let mut now = read(&conditions);
            let is_back = !before.reachable;
            now.epoch = before.epoch + u64::from(is_back);
            now.version = match is_back || before.version.is_empty() {
                true => version(context).await.unwrap_or_else(|_| before.version.clone()),
                false => before.version.clone(),
            };
            now
        }
        Err(error) => CriHealth {
            version: before.version.clone(),
            epoch: before.epoch,
            message: error.to_string(),
            ..CriHealth::unknown()
        },
    }
}

fn log_change(before: &CriHealth, now: &CriHealth) {
    if now.reachable != before.reachable || now.message != before.message {
        if now.is_well() {
            tracing::info!(log_kind = "runtimeReady", version = %now.version, "the container runtime is ready");
        } else {
            tracing::warn!(log_kind = "runtimeNotReady", why = %now.message, "the container runtime is not ready");
        }
    }
}
