//! Follows the changes of units and updates the cache.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;
use winddown_shared::{critical, error_chain};

use super::units::{ServiceUnits, UnitChange, UnitPhase};
use super::{Context, names};

/// Delay between two attempts to list the units while the service manager does not answer.
const LIST_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Follows the changes until the runtime or the service manager's client is dropped.
pub(crate) fn listen<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    changes: broadcast::Receiver<UnitChange>,
) {
    let context = Arc::clone(context);
    let mut alive = context.alive.clone();
    critical::spawn("changes of services", async move {
        tokio::select! {
            () = follow(&context, changes) => {}
            _ = alive.changed() => {}
        }
    });
}

async fn follow<U: ServiceUnits>(
    context: &Context<U>,
    mut changes: broadcast::Receiver<UnitChange>,
) {
    loop {
        match changes.recv().await {
            Ok(UnitChange::Seen { unit, view }) => context.driver.unit_cache.see(&unit, view),
            Ok(UnitChange::Vanished { unit }) => vanished(context, &unit).await,
            Ok(UnitChange::Missed) | Err(RecvError::Lagged(_)) => look_at_all(context).await,
            Err(RecvError::Closed) => return,
        }
    }
}

/// Handles a report that a unit was unloaded. When the service manager reloads, it reports this for every unit and
/// loads them again at once, so only its answer to a query counts.
async fn vanished<U: ServiceUnits>(context: &Context<U>, unit: &str) {
    match context.driver.unit_cache.view(unit) {
        None => {}
        Some(view) if view.phase == UnitPhase::Over => context.driver.unit_cache.forget(unit),
        Some(_) => match context.driver.units.look(unit).await {
            Ok(Some(view)) => context.driver.unit_cache.see(unit, view),
            Ok(None) => context.driver.unit_cache.forget(unit),
            Err(_) => look_at_all(context).await,
        },
    }
}

async fn look_at_all<U: ServiceUnits>(context: &Context<U>) {
    loop {
        let since = context.driver.unit_cache.now();
        match context.driver.units.list(names::PREFIX).await {
            Ok(listed) => {
                context.driver.unit_cache.missing(&listed, since);
                for (unit, view) in listed {
                    context.driver.unit_cache.see(&unit, view);
                }
                return;
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "cannot list the units; retrying");
                sleep(LIST_RETRY_DELAY).await;
            }
        }
    }
}
