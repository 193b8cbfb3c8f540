//! Keeps the record of a run up to date, for as long as the disk lets it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout};
use winddown_shared::{ShutdownKind, WallClock, error_chain};

use crate::record::{VERSION, millis};
use crate::report::{Ended, ReportHeader};
use crate::{
    Budget, BudgetReport, GroupReport, NoticeReport, Outcome, PodEnd, RecordError, RecordPlace,
    RunPhase, RunRecord, RunReport, RunStop, ShutdownReport,
};

#[cfg(test)]
mod tests;

/// How long a run waits for one place, all its writes together. After that the place is not used
/// again before the end of the run.
const PATIENCE: Duration = Duration::from_millis(250);

/// What whoever ends the node has said so far, and the time that leaves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing {
    pub(crate) budget: Budget,
    pub(crate) delay_set_by: Option<Arc<str>>,
    pub(crate) kind: ShutdownKind,
    /// When the login manager announced the shutdown, counted from the run's start.
    pub(crate) login_since: Option<Duration>,
    pub(crate) notice: Option<NoticeReport>,
}

/// The record of one run: its head, and where it is kept.
///
/// A run never waits long for it: a place that is slow or refuses is left for the next one, which is
/// noted in the report's warnings.
pub(crate) struct Journal {
    pub(crate) header: ReportHeader,
    pub(crate) first_group: Duration,
    phase: RunPhase,
    login_since: Option<Duration>,
    started: Instant,
    started_boot: Duration,
    sequence: u64,
    clock: WallClock,
    places: Vec<Place>,
    kept: bool,
}

/// A place, and what became of it in this run.
struct Place {
    of: Arc<dyn RecordPlace>,
    patience: Duration,
    /// A write that took longer than the patience.
    hanging: Option<JoinHandle<Result<(), RecordError>>>,
    told: bool,
}

// === impl Journal ===

impl Journal {
    /// A journal that has written nothing. `started` and `started_boot` are the same moment.
    pub(crate) fn new(
        header: ReportHeader,
        clock: WallClock,
        (started, started_boot): (Instant, Duration),
        places: &[Arc<dyn RecordPlace>],
    ) -> Self {
        let place = |of: &Arc<dyn RecordPlace>| Place {
            of: Arc::clone(of),
            patience: PATIENCE,
            hanging: None,
            told: false,
        };
        Self {
            header,
            first_group: Duration::ZERO,
            phase: RunPhase::Ending,
            login_since: None,
            started,
            started_boot,
            sequence: 0,
            clock,
            places: places.iter().map(place).collect(),
            kept: false,
        }
    }

    /// Goes on behind what an earlier agent wrote.
    pub(crate) fn after(mut self, sequence: u64) -> Self {
        self.sequence = sequence;
        self
    }

    /// Takes over what has been said, for the report and the record.
    pub(crate) fn stand(&mut self, standing: &Standing) {
        self.login_since = standing.login_since;
        self.header.node_action = standing.kind;
        self.header.budget = BudgetReport::new(standing.budget, standing.delay_set_by.as_deref());
        // A notice that shortened the run and was taken back still has shortened it.
        if standing.notice.is_some() {
            self.header.notice.clone_from(&standing.notice);
        }
    }

    /// The time there is.
    pub(crate) fn budget(&self) -> Budget {
        self.header.budget.budget()
    }

    /// Whether the last note is on disk.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    /// What the record is without its pods; none if none is kept.
    pub(crate) fn last(&self) -> Option<Box<RunRecord>> {
        (!self.places.is_empty()).then(|| Box::new(self.record(&[])))
    }

    /// Keeps that the run is in `phase` and the pods are as in `groups`. Returns when that is on
    /// disk, or the disk has had its time. Not cancel-safe: the record may be the old or the new one.
    pub(crate) async fn note(&mut self, phase: RunPhase, groups: &[GroupReport]) {
        self.phase = phase;
        self.write(groups, None).await;
    }

    /// The first group waits for `less` less than it would have.
    pub(crate) fn start_sooner(&mut self, less: Duration) {
        let drain = self.header.endpoint_drain.map(|drain| drain.saturating_sub(less));
        self.header.endpoint_drain = drain;
    }

    /// The same with the phase as it is, after something else has changed.
    pub(crate) async fn note_again(&mut self, groups: &[GroupReport]) {
        self.note(self.phase, groups).await;
    }

    /// The last note of a run. A place that was slow before is tried once more, until `until`.
    pub(crate) async fn note_last(
        &mut self,
        phase: RunPhase,
        groups: &[GroupReport],
        until: Instant,
    ) {
        self.phase = phase;
        self.write(groups, Some(until)).await;
    }

    async fn write(&mut self, groups: &[GroupReport], until: Option<Instant>) {
        if self.places.is_empty() {
            return;
        }
        self.sequence += 1;
        let record = Arc::new(self.record(groups));
        self.kept = false;
        for place in &mut self.places {
            match place.write(&record, until).await {
                Ok(()) => {
                    self.kept = true;
                    return;
                }
                Err(Some(why)) => self.header.warnings.push(why),
                Err(None) => {}
            }
        }
    }

    fn record(&self, groups: &[GroupReport]) -> RunRecord {
        let run = RunReport { groups: in_flight(groups), stop: RunStop::Cancelled };
        let ended = Ended { at: self.clock.now(), took: self.started.elapsed() };
        let mut report = ShutdownReport::new(self.header.clone(), run, ended);
        report.outcome = Outcome::Interrupted;
        RunRecord {
            version: VERSION,
            sequence: self.sequence,
            phase: self.phase,
            started_boot_ms: millis(self.started_boot),
            login_since_ms: self.login_since.map(millis),
            first_group_ms: millis(self.first_group),
            report,
        }
    }
}

// === impl Place ===

impl Place {
    /// # Errors
    /// The record is not kept here; why, when it is said for the first time.
    async fn write(
        &mut self,
        record: &Arc<RunRecord>,
        until: Option<Instant>,
    ) -> Result<(), Option<String>> {
        if self.hanging.as_ref().is_some_and(|write| !write.is_finished()) {
            return Err(None);
        }
        self.hanging = None;
        let begun = Instant::now();
        let most = match until {
            Some(until) => until.saturating_duration_since(begun),
            None => self.patience,
        };
        if most.is_zero() {
            return Err(self.tell("the disk is too slow"));
        }
        let (of, record) = (Arc::clone(&self.of), Arc::clone(record));
        let mut write = spawn_blocking(move || of.write(&record));
        let answer = timeout(most, &mut write).await;
        self.patience = self.patience.saturating_sub(begun.elapsed());
        match answer {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(self.tell(&error_chain(&error))),
            Ok(Err(_)) => Err(self.tell("the attempt panicked, which is a bug")),
            Err(_) => {
                self.hanging = Some(write);
                Err(self.tell("the disk does not answer in time"))
            }
        }
    }

    fn tell(&mut self, why: &str) -> Option<String> {
        if std::mem::replace(&mut self.told, true) {
            return None;
        }
        let text = format!("the run's record is not kept in {}: {why}", self.of.name());
        tracing::warn!("{text}");
        Some(text)
    }
}

/// A copy in which pods that were asked and have not ended are ending.
fn in_flight(groups: &[GroupReport]) -> Vec<GroupReport> {
    let mut groups = groups.to_vec();
    for pod in groups.iter_mut().flat_map(|group| &mut group.pods) {
        if pod.end == PodEnd::Spared && pod.asked.is_some() {
            pod.end = PodEnd::Ending;
        }
    }
    groups
}
