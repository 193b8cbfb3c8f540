//! Giving back what no pod misses, before a pod has to end.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use winddown_shared::{PodKiller, error_chain};

use super::{EvictionController, Happened};
use crate::decide::Act;
use crate::history::{Outcome, Record};
use crate::reclaim::Reclaimable;
use crate::seams::{GivenBack, Reclaim, Signals};

/// No longer than this at a time.
const LONGEST: Duration = Duration::from_secs(60);
/// For one signal not again before this, unless a pod has ended since.
const AGAIN: Duration = Duration::from_secs(10);

/// It is over.
pub(super) struct Over {
    pub(super) record: u64,
    pub(super) given_back: GivenBack,
}

impl<K: PodKiller, S: Signals, R: Reclaim> EvictionController<K, S, R> {
    pub(super) fn may_give_back(&self, act: &Act, now: Instant) -> bool {
        let lately = self.reclaimed[act.signal.index()]
            .is_some_and(|last| now.saturating_duration_since(last) < AGAIN);
        !act.reclaim.is_empty() && !self.policy.shadow && !lately
    }

    /// Begins it beside the loop: what ends pods for want of memory does not wait for a disk.
    pub(super) fn begin_giving_back(&mut self, act: &Act) {
        let mut record = Record::new(self.parts.wall.now(), act.cause, Outcome::Reclaiming);
        record.threshold = Some(act.threshold.to_string());
        record.available = Some(act.available.to_string());
        record.hard = act.hard;
        let record = self.shown.note(record);
        self.reclaiming = true;
        self.reclaimed[act.signal.index()] = Some(Instant::now());
        let (reclaim, kinds) = (self.parts.reclaim.clone(), act.reclaim);
        let work = async move {
            let mut given_back = GivenBack::default();
            if timeout(LONGEST, give_back(&*reclaim, kinds, &mut given_back)).await.is_err() {
                tracing::warn!("giving back disk space took longer than 60s; pods are evicted");
            }
            Happened::GivenBack(Over { record, given_back })
        };
        self.under_way.push(work.boxed());
    }
}

async fn give_back<R: Reclaim>(reclaim: &R, kinds: &[Reclaimable], sum: &mut GivenBack) {
    for kind in kinds {
        match reclaim.give_back(*kind).await {
            Ok(more) => {
                sum.items = sum.items.saturating_add(more.items);
                sum.bytes = sum.bytes.saturating_add(more.bytes);
            }
            // What was not given back is seen in the next measurement.
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(?kind, error, "disk space could not be given back");
            }
        }
    }
}
