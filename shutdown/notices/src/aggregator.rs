//! Collects the notices of all sources that are in force.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use winddown_shared::{LONGEST_NOTICE, Mutex, Notice, NoticeState, Notices, WallTime};

use crate::{Announcement, When};

#[cfg(test)]
mod tests;

/// Deadlines closer together than this count as equal: servers' clocks have whole seconds.
const SAME_DEADLINE_TOLERANCE: Duration = Duration::from_secs(1);

/// Aggregates the notices of all sources. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct NoticeAggregator(Arc<AggregatorShared>);

/// One source's handle on the aggregator. A source that has nothing to announce must call
/// [`withdraw`](Self::withdraw) once it knows so: until then an earlier agent's notice holds.
#[derive(Debug)]
pub struct NoticePublisher {
    aggregator: NoticeAggregator,
    slot: usize,
}

/// The status of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStatus {
    /// Short name of the source, e.g. `file`.
    pub source: Arc<str>,
    /// The source's notice, if it announces one.
    pub notice: Option<Arc<Notice>>,
    /// Whether the notice is in effect; `false` while its deadline is farther away than the lead.
    pub effective: bool,
    /// Why the source cannot currently be read, for people.
    pub problem: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct AggregatorShared {
    slots: Mutex<Vec<Slot>>,
    state: watch::Sender<NoticeState>,
    /// Incremented with each change that [`SourceStatus`] shows.
    changes: watch::Sender<u64>,
    /// Wakes [`run`](NoticeAggregator::run): the time of the next delayed notice may have changed.
    published: Notify,
}

#[derive(Debug)]
struct Slot {
    source: Arc<str>,
    lead: Option<Duration>,
    /// Whether the source has been read, whatever it announces.
    heard: bool,
    published: Option<Published>,
    problem: Option<Arc<str>>,
}

#[derive(Debug)]
struct Published {
    announced: Announcement,
    notice: Arc<Notice>,
}

// === impl NoticeAggregator ===

impl NoticeAggregator {
    /// Creates an aggregator without sources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a source under a short name and returns its publisher. Its notices take effect `lead`
    /// before their deadline, or at once without a lead.
    pub fn publisher(&self, source: &'static str, lead: Option<Duration>) -> NoticePublisher {
        let (source, heard, published, problem) = (source.into(), false, None, None);
        let slot = {
            let mut slots = self.0.slots.lock();
            slots.push(Slot { source, lead, heard, published, problem });
            slots.len() - 1
        };
        self.refreshed();
        NoticePublisher { aggregator: self.clone(), slot }
    }

    /// Changes the lead of all sources that have one. A notice that is in effect stays in effect.
    pub fn set_lead(&self, lead: Duration) {
        let now = Instant::now();
        for slot in self.0.slots.lock().iter_mut().filter(|slot| slot.lead.is_some()) {
            slot.lead = Some(lead);
            if let Some(published) = &mut slot.published
                && published.notice.since > now
            {
                let notice = Notice::clone(&published.notice);
                let since = since(notice.deadline, slot.lead, now);
                published.notice = Arc::new(Notice { since, ..notice });
            }
        }
        self.refreshed();
    }

    /// The notices in force, and which sources have been read.
    pub fn notices(&self) -> Notices {
        self.0.state.subscribe()
    }

    /// A counter that changes whenever [`source_statuses`](Self::source_statuses) does.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The status of each source, in the order of registration.
    pub fn source_statuses(&self) -> Vec<SourceStatus> {
        let now = Instant::now();
        let status = |slot: &Slot| SourceStatus {
            source: Arc::clone(&slot.source),
            notice: slot.published.as_ref().map(|published| Arc::clone(&published.notice)),
            effective: slot.counts_from().is_some_and(|from| from <= now),
            problem: slot.problem.clone(),
        };
        self.0.slots.lock().iter().map(status).collect()
    }

    /// Puts delayed notices in force when their time comes. Never returns. Unless this runs, only notices
    /// that take effect at once are published.
    pub async fn run(&self) {
        loop {
            let published = self.0.published.notified();
            match self.refresh() {
                None => published.await,
                Some(next) => tokio::select! {
                    () = published => {}
                    () = sleep_until(next) => {}
                },
            }
        }
    }

    /// Publishes the notices that are in force now. Returns when the next delayed notice takes effect.
    fn refresh(&self) -> Option<Instant> {
        let slots = self.0.slots.lock();
        let now = Instant::now();
        let (heard, unheard) = heard(&slots);
        let state = NoticeState { in_effect: in_effect(&slots, now), heard, unheard };
        // Sent under the lock, or an older state could overwrite a newer one.
        self.0.state.send_if_modified(|current| {
            let changed = *current != state;
            log_change(&current.in_effect, &state.in_effect, now);
            *current = state;
            changed
        });
        self.0.changes.send_modify(|n| *n += 1);
        let later = slots.iter().filter_map(Slot::counts_from).filter(|from| *from > now);
        later.min()
    }

    fn refreshed(&self) {
        self.refresh();
        self.0.published.notify_one();
    }
}

// === impl NoticePublisher ===

impl NoticePublisher {
    /// Publishes that the node will go down, replacing the source's earlier notice. `now` is the current
    /// time of the clock that the announcement refers to.
    ///
    /// Publishing the same announcement again changes nothing, unless that clock was set in the meantime.
    pub fn publish(&self, announced: &Announcement, now: WallTime) {
        if self.change(|slot| slot.hear() | slot.take(announced, now, Instant::now())) {
            self.aggregator.refreshed();
        }
    }

    /// Like [`publish`](Self::publish), but as a notice of its own, whose time counts from now also if the source had one.
    pub fn replace(&self, announced: &Announcement, now: WallTime) {
        let new = |slot: &mut Slot| {
            slot.published = None;
            slot.hear() | slot.take(announced, now, Instant::now())
        };
        if self.change(new) {
            self.aggregator.refreshed();
        }
    }

    /// Publishes that the source announces nothing, or no longer does.
    pub fn withdraw(&self) {
        if self.change(|slot| slot.hear() | slot.published.take().is_some()) {
            self.aggregator.refreshed();
        }
    }

    /// Publishes why the source cannot be read, or that it can be read again. Its notice stays in
    /// force.
    pub fn problem(&self, why: Option<&str>) {
        let changed = self.change(|slot| {
            let changed = slot.problem.as_deref() != why;
            if changed {
                slot.problem = why.map(Into::into);
            }
            changed
        });
        if changed {
            self.aggregator.0.changes.send_modify(|n| *n += 1);
        }
    }

    /// This source's notice, whether or not it is in effect yet.
    pub fn published(&self) -> Option<Arc<Notice>> {
        let slots = self.aggregator.0.slots.lock();
        Some(Arc::clone(&slots.get(self.slot)?.published.as_ref()?.notice))
    }

    /// A counter that changes whenever any source publishes something.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.aggregator.changes()
    }

    fn change(&self, change: impl FnOnce(&mut Slot) -> bool) -> bool {
        self.aggregator.0.slots.lock().get_mut(self.slot).is_some_and(change)
    }
}

impl Slot {
    /// Records that the source was read. Returns false if that was already recorded.
    fn hear(&mut self) -> bool {
        !std::mem::replace(&mut self.heard, true)
    }

    /// Stores an announcement received at `heard`. Returns false if nothing changed.
    fn take(&mut self, announced: &Announcement, now: WallTime, heard: Instant) -> bool {
        let before = self.published.as_ref();
        if before.is_some_and(|published| {
            published.announced == *announced && matches!(announced.when, When::In(_))
        }) {
            return false;
        }
        let left = announced.left(now).min(LONGEST_NOTICE);
        let deadline = heard.checked_add(left).unwrap_or(heard);
        if before.is_some_and(|published| {
            published.notice.text == announced.text
                && is_same(published.notice.deadline, deadline, heard)
        }) {
            return false;
        }
        // A moved deadline is not a new notice: the budget counts from the first one.
        let first = before.map_or(heard, |published| published.notice.since.min(heard));
        let notice = Notice {
            source: Arc::clone(&self.source),
            text: Arc::clone(&announced.text),
            since: since(deadline, self.lead, first),
            deadline,
        };
        self.published = Some(Published { announced: announced.clone(), notice: Arc::new(notice) });
        true
    }

    /// When the source's notice takes effect, if it announces one.
    fn counts_from(&self) -> Option<Instant> {
        Some(self.published.as_ref()?.notice.since)
    }
}

/// Returns when a notice received at `first` takes effect.
fn since(deadline: Instant, lead: Option<Duration>, first: Instant) -> Instant {
    // If the subtraction underflows, that instant is in the past anyway.
    let from = lead.and_then(|lead| deadline.checked_sub(lead));
    from.map_or(first, |from| from.max(first))
}

/// Returns the notices in effect, the earliest deadline first; on a tie, in the order of the sources.
fn in_effect(slots: &[Slot], now: Instant) -> Vec<Arc<Notice>> {
    let published = slots.iter().filter_map(|slot| slot.published.as_ref());
    let notices = published.map(|published| Arc::clone(&published.notice));
    let mut counting: Vec<_> = notices.filter(|notice| notice.since <= now).collect();
    counting.sort_by_key(|notice| notice.deadline);
    counting
}

/// Returns the sources that have been read, and the others. One with several publishers counts once all of them have.
fn heard(slots: &[Slot]) -> (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>) {
    let all_heard = |source: &str| slots.iter().all(|slot| slot.heard || *slot.source != *source);
    let sources = slots.iter().map(|slot| Arc::clone(&slot.source));
    sources.partition(|source| all_heard(source))
}

/// Whether two deadlines count as equal. Two that have both passed do, however far apart they are.
fn is_same(before: Instant, deadline: Instant, now: Instant) -> bool {
    apart(before, deadline) < SAME_DEADLINE_TOLERANCE || (before <= now && deadline <= now)
}

fn apart(a: Instant, b: Instant) -> Duration {
    a.max(b).duration_since(a.min(b))
}

fn log_change(before: &[Arc<Notice>], now_in_force: &[Arc<Notice>], now: Instant) {
    for notice in now_in_force.iter().filter(|notice| !before.contains(notice)) {
        tracing::warn!(
            log_kind = "noticeReceived",
            source = &*notice.source,
            left_seconds = notice.deadline.saturating_duration_since(now).as_secs(),
            "the node is going away: {}",
            notice.text
        );
    }
    let is_left = |before: &Notice| now_in_force.iter().any(|n| n.source == before.source);
    for notice in before.iter().filter(|notice| !is_left(notice)) {
        tracing::info!(
            log_kind = "noticeWithdrawn",
            source = &*notice.source,
            "the notice is withdrawn: {}",
            notice.text
        );
    }
}
