//! The cached states of units that callers wait for.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::units::{UnitPhase, UnitView};

use winddown_shared::Mutex;

/// The awaited units, each with its latest view.
#[derive(Debug, Default)]
pub(crate) struct UnitCache(Mutex<KnownUnit>);

#[derive(Debug, Default)]
struct KnownUnit {
    /// Counts observations, so that a list can be distinguished from observations made after it was requested.
    clock: u64,
    units: HashMap<Arc<str>, Unit>,
}

#[derive(Debug)]
struct Unit {
    view: watch::Sender<UnitView>,
    /// When the unit was last seen; none until its start was accepted.
    seen: Option<u64>,
}

/// A handle to wait for changes of a unit.
#[derive(Clone, Debug)]
pub(crate) struct WatchedUnit(watch::Receiver<UnitView>);

impl UnitCache {
    /// Begins to track a unit.
    pub(crate) fn expect(&self, unit: &str) -> WatchedUnit {
        let mut known = self.0.lock();
        if let Some(known) = known.units.get(unit) {
            return WatchedUnit(known.view.subscribe());
        }
        let (view, watched) = watch::channel(UnitView::default());
        known.units.insert(unit.into(), Unit { view, seen: None });
        WatchedUnit(watched)
    }

    /// Records that the unit exists.
    pub(crate) fn confirm(&self, unit: &str) {
        let mut known = self.0.lock();
        known.clock += 1;
        let clock = known.clock;
        if let Some(unit) = known.units.get_mut(unit) {
            unit.seen = Some(clock);
        }
    }

    /// Records the state of a unit. Ignores late reports: a unit never returns to an earlier phase.
    pub(crate) fn see(&self, unit: &str, view: UnitView) {
        self.confirm(unit);
        let known = self.0.lock();
        let Some(unit) = known.units.get(unit) else { return };
        unit.view.send_if_modified(|old| {
            if view.phase < old.phase {
                return false;
            }
            let view = UnitView { end: view.end.or(old.end), ..view };
            let is_new = view != *old;
            *old = view;
            is_new
        });
    }

    /// Returns a unit's state; none if it is not tracked.
    pub(crate) fn view(&self, unit: &str) -> Option<UnitView> {
        self.0.lock().units.get(unit).map(|unit| *unit.view.borrow())
    }

    /// Forgets a unit. Tasks that wait for it see it as [`UnitPhase::Over`].
    pub(crate) fn forget(&self, unit: &str) {
        self.0.lock().units.remove(unit);
    }

    /// The current time of the cache's clock, for [`missing`](Self::missing).
    pub(crate) fn now(&self) -> u64 {
        self.0.lock().clock
    }

    /// Forgets the units that were last seen before `since` and are not `listed`.
    pub(crate) fn missing(&self, listed: &[(String, UnitView)], since: u64) {
        let listed: std::collections::HashSet<&str> =
            listed.iter().map(|(unit, _)| unit.as_str()).collect();
        let is_there = |unit: &Arc<str>, seen: Option<u64>| {
            listed.contains(&**unit) || seen.is_none_or(|seen| seen > since)
        };
        self.0.lock().units.retain(|unit, known| is_there(unit, known.seen));
    }
}

impl WatchedUnit {
    /// Resolves when the unit's phase is as wanted, or when the unit does not exist any more: then its phase is
    /// [`UnitPhase::Over`]. Cancel-safe.
    pub(crate) async fn until(&mut self, wanted: impl Fn(UnitPhase) -> bool) -> UnitView {
        if let Ok(view) = self.0.wait_for(|view| wanted(view.phase)).await {
            return *view;
        }
        UnitView { phase: UnitPhase::Over, ..*self.0.borrow() }
    }

    /// Resolves when no process of the unit runs. Cancel-safe.
    pub(crate) async fn over(&mut self) {
        self.until(|phase| phase == UnitPhase::Over).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(phase: UnitPhase) -> UnitView {
        UnitView { phase, ..UnitView::default() }
    }

    #[tokio::test]
    async fn a_unit_that_a_list_lacks_is_over_unless_it_was_seen_after_the_list_was_asked_for() {
        let unit_cache = UnitCache::default();
        let [mut old, mut new, mut asked] =
            ["old", "new", "asked"].map(|unit| unit_cache.expect(unit));
        unit_cache.see("old", view(UnitPhase::Running));
        let since = unit_cache.now();
        unit_cache.confirm("new");
        unit_cache.missing(&[], since);
        assert_eq!(old.until(UnitPhase::has_ended).await.phase, UnitPhase::Over);
        for watched in [&mut new, &mut asked] {
            let waits = watched.until(UnitPhase::has_ended);
            let paused = tokio::time::timeout(std::time::Duration::from_millis(5), waits).await;
            assert!(paused.is_err());
        }
        unit_cache.missing(&[("new".to_owned(), view(UnitPhase::Running))], unit_cache.now());
        assert!(unit_cache.view("new").is_some() && unit_cache.view("old").is_none());
    }

    #[tokio::test]
    async fn a_view_that_comes_late_changes_nothing() {
        let unit_cache = UnitCache::default();
        let mut watched = unit_cache.expect("u");
        unit_cache.see("u", view(UnitPhase::Exited));
        unit_cache.see("u", view(UnitPhase::Running));
        assert_eq!(watched.until(UnitPhase::has_ended).await.phase, UnitPhase::Exited);
    }
}
