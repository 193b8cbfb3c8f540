//! The second line of defence: the unit is stopped because the machine goes down in a way that
//! logind does not announce. A restart of the unit touches no pod.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_shared::{
    Inhibitor, InhibitorState, LockState, PodKiller, Runtime, ShutdownKind, error_chain,
};
use winddown_shutdown::{ProgressPhase, Trigger};
use winddown_systemd::{Notifier, shutdown_in_progress};

use winddown_node::{Node, ShutdownHandle};

/// How long the service manager may take to report whether the machine is going down.
const PATIENCE: Duration = Duration::from_secs(2);

/// Added to the plan's time when the service manager is asked to extend the stop timeout.
const SLACK: Duration = Duration::from_secs(10);

/// Ends the pods if the machine is going down and they still run.
///
/// `wanted` is the time that the plan wants. If the service manager does not answer, the stop is taken for a restart
/// of the agent: ending the pods of a node that stays up is the greater harm.
pub(super) async fn end_pods_if_going_down<R: Runtime>(
    (node, shutdown): (&Node<R>, &ShutdownHandle),
    wanted: Duration,
    inhibitor: &impl Inhibitor,
    notifier: &Notifier,
) {
    // This includes a run for a notice, which is already ending the pods.
    let running = shutdown.progress().borrow().phase == ProgressPhase::Ending;
    let announced = running || inhibitor.state().borrow().preparing;
    let way = match announced {
        true => Some(ShutdownKind::Unknown),
        false => shutdown_in_progress(PATIENCE).await.unwrap_or_else(|error| {
            tracing::debug!(error = error_chain(&error), "taken for a restart of the agent");
            None
        }),
    };
    let Some(kind) = way else {
        tracing::info!("the agent ends; the pods go on");
        return;
    };
    notifier.extend_timeout(wanted + SLACK);
    if announced {
        // The pods are ended by the run that was announced, and this only waits for it.
        let mut progress = shutdown.progress();
        let over = progress
            .wait_for(|p| matches!(p.phase, ProgressPhase::Released | ProgressPhase::Cancelled));
        let _ = tokio::time::timeout(wanted + SLACK, over).await;
        return;
    }
    node.pods_are_known().await;
    if node.workers().running().is_known_empty() {
        tracing::info!("the machine goes down, and there is no pod to end");
        return;
    }
    tracing::warn!("the machine goes down without logind's word: ending the pods now");
    let stop = Arc::new(UnitStop::new(wanted, kind));
    let mut state = stop.state();
    let released = state.wait_for(|s| s.lock == LockState::Released);
    tokio::select! {
        () = shutdown.end_pods(Arc::clone(&stop), Trigger::UnitStop) => {}
        _ = released => {}
        () = tokio::time::sleep(wanted + SLACK) => {}
    }
}

/// An inhibitor for a shutdown that the agent itself announces, with the whole budget and without a lock to take first.
struct UnitStop(watch::Sender<InhibitorState>);

impl UnitStop {
    fn new(delay: Duration, kind: ShutdownKind) -> Self {
        Self(watch::Sender::new(InhibitorState {
            lock: LockState::Held,
            preparing: true,
            epoch: 1,
            since: Some(Instant::now()),
            kind,
            request: None,
            delay: Some(delay),
            delay_set_by: None,
        }))
    }
}

impl Inhibitor for UnitStop {
    fn state(&self) -> watch::Receiver<InhibitorState> {
        self.0.subscribe()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        async { self.0.send_modify(|state| state.lock = LockState::Released) }.boxed()
    }
}
