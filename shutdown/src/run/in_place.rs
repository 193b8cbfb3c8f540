//! How the node goes down, for pods that stay if it comes back.

use std::time::Duration;

use tokio::time::sleep_until;
use winddown_shared::{PodKiller, ShutdownKind};

use super::{Cancelled, Run, changed};
use crate::in_place::comes_back;

/// How long the login manager may take to name the kind of a shutdown after it said that there is one. systemd 257
/// names it some milliseconds after `PreparingForShutdown` changes, and before 255 never.
const NAMED_WITHIN: Duration = Duration::from_millis(200);

impl<K: PodKiller> Run<'_, K> {
    /// Waits for the kind of the shutdown where it decides which pods stay.
    pub(super) async fn wait_for_kind(&mut self) -> Result<(), Cancelled> {
        let pods = self.waiting.iter().flatten();
        let decides = pods.into_iter().any(|(_, pod)| self.plan.may_stay(pod));
        while decides && self.kind_may_come() && self.elapsed() < NAMED_WITHIN {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(Cancelled),
                () = changed(&mut self.driven.context) => self.follow().await,
                () = sleep_until(self.order.started + NAMED_WITHIN) => {}
            }
        }
        Ok(())
    }

    fn kind_may_come(&self) -> bool {
        self.driven.context.as_ref().is_some_and(|context| {
            let context = context.borrow();
            context.kind == ShutdownKind::Unknown && context.notice.is_none()
        })
    }

    /// Whether the node comes back by itself, as far as that was said.
    pub(super) fn node_comes_back(&self) -> bool {
        self.driven.context.as_ref().is_some_and(|context| {
            let context = context.borrow();
            comes_back(context.kind, context.notice.is_some())
        })
    }
}
