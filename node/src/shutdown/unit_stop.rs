//! The second line of defence: the unit is stopped because the machine goes down in a way that the login manager does
//! not announce.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use winddown_shared::{Inhibitor, InhibitorState, LockState, PodKiller, Runtime, ShutdownKind};
use winddown_shutdown::{ProgressPhase, RunRecord, Trigger};

use super::Joined;

/// Added to the time that the policy wants; what takes longer is not waited for.
const SLACK: Duration = Duration::from_secs(10);

impl<R: Runtime> Joined<R> {
    /// Ends the pods in a shutdown of this kind. Without a kind it was announced, and this only waits for its run.
    pub(super) async fn end_at_unit_stop(self: Arc<Self>, unannounced: Option<ShutdownKind>) {
        let wanted = self.policy.borrow().delay_wanted();
        let ended = async {
            match unannounced {
                Some(kind) => self.end_unannounced(kind, wanted).await,
                None => self.run_is_over().await,
            }
        };
        let _ = timeout(wanted + SLACK, ended).await;
    }

    async fn run_is_over(&self) {
        let mut progress = self.progress.subscribe();
        let is_over = |phase| matches!(phase, ProgressPhase::Released | ProgressPhase::Cancelled);
        let _ = progress.wait_for(|progress| is_over(progress.phase)).await;
    }

    async fn end_unannounced(&self, kind: ShutdownKind, wanted: Duration) {
        self.core.pods_are_known().await;
        if self.core.workers.running().is_known_empty() {
            tracing::info!("the machine goes down, and there is no pod to end");
            return;
        }
        tracing::warn!("the machine goes down without logind's word: ending the pods now");
        let inhibitor = Arc::new(UnitStop::new(wanted, kind));
        let mut state = inhibitor.state();
        let run = async {
            let carried = self.unfinished_run().await;
            let controller = self.controller(inhibitor, Trigger::UnitStop, carried);
            controller.run(self.core.stop.clone()).await;
        };
        tokio::select! {
            () = run => {}
            // After that, the controller waits for the next shutdown.
            _ = state.wait_for(|state| state.lock == LockState::Released) => {}
        }
    }

    /// The unfinished run of this boot, if there is one.
    async fn unfinished_run(&self) -> Option<RunRecord> {
        let (places, boot) = (self.kept.records.clone(), self.core.identity.boot_id.clone());
        let look = tokio::task::spawn_blocking(move || RunRecord::of_boot(&places, &boot));
        look.await.ok().flatten().filter(|record| !record.phase.is_over())
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
            delay: Some(delay),
            ..InhibitorState::unknown()
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
