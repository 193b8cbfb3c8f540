//! Keeps the record of a run up to date, as far as the disk allows it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use winddown_shared::{BootClock, RequestReport, WallClock, millis};

use crate::record::VERSION;
use crate::report::{Ended, ReportHeader};
use crate::run_context::RunContext;
use crate::{
    Budget, BudgetReport, GroupReport, Outcome, PodEnd, RecordStore, RunPhase, RunRecord,
    RunReport, RunStop, ShutdownReport, WorkReport,
};
use writer::{LastWrite, PlaceWriter};

#[cfg(test)]
mod tests;
mod writer;

/// How long a run waits for one place, over all writes. After that, the run no longer waits for the
/// place before its end.
const PLACE_WRITE_TIMEOUT: Duration = Duration::from_millis(250);

/// The writer of a run's record: the current header, and the places in which the record is stored.
///
/// If one of the places is in memory ([`RecordStore::is_volatile`]), each note waits for that one only, and
/// the others follow in the background: that is enough for the next agent to continue if this one is killed.
/// Ends of pods follow at most once a second: after a power cut in the middle of a run, the copy on disk may be
/// that much behind.
///
/// A run never waits long for any place: if one is slow or fails, the next is used, and the report gets a
/// warning.
pub(crate) struct Journal {
    pub(crate) header: ReportHeader,
    pub(crate) first_group: Duration,
    /// Whether the runtime has not listed its pods yet.
    pub(crate) pods_unknown: bool,
    /// The reports of the plug-ins' work so far.
    pub(crate) work: Vec<WorkReport>,
    /// How the run stopped, once it has: the record then has the report of its end.
    pub(crate) stop: Option<RunStop>,
    phase: RunPhase,
    login_since: Option<Duration>,
    start: RunStart,
    sequence: u64,
    clock: WallClock,
    places: Vec<JournalPlace>,
    kept: bool,
}

/// When a run began, by tokio's clock and by the one that all agents of the boot share.
#[derive(Clone, Copy)]
pub(crate) struct RunStart {
    at: Instant,
    boot_ms: u64,
    suspended_ms: u64,
}

struct JournalPlace {
    writer: PlaceWriter,
    patience: Duration,
    /// Whether a write took too long and may still be in progress.
    overdue: bool,
    /// Whether a failure of this place has been reported.
    told: bool,
}

// === impl RunStart ===

impl RunStart {
    /// The start of a run that began `at`.
    pub(crate) fn new(at: Instant, clock: &BootClock) -> Self {
        let boot_ms = millis(clock.now().saturating_sub(at.elapsed()));
        Self { at, boot_ms, suspended_ms: millis(clock.suspended()) }
    }

    /// The start of an earlier agent's run, which began `at`, as it was recorded.
    pub(crate) fn of(record: &RunRecord, at: Instant) -> Self {
        let suspended_ms = record.suspended_ms.unwrap_or_default();
        Self { at, boot_ms: record.started_boot_ms, suspended_ms }
    }
}

// === impl Journal ===

impl Journal {
    /// Creates a journal without any writes.
    pub(crate) fn new(
        header: ReportHeader,
        clock: WallClock,
        start: RunStart,
        places: &[Arc<dyn RecordStore>],
    ) -> Self {
        Self {
            header,
            first_group: Duration::ZERO,
            pods_unknown: false,
            work: Vec::new(),
            stop: None,
            phase: RunPhase::LameDuck,
            login_since: None,
            start,
            sequence: 0,
            clock,
            places: places.iter().map(JournalPlace::new).collect(),
            kept: false,
        }
    }

    /// Continues after the last write of an earlier agent.
    pub(crate) fn after(mut self, sequence: u64, phase: RunPhase) -> Self {
        (self.sequence, self.phase) = (sequence, phase);
        self
    }

    /// Copies the context into the report and the record.
    pub(crate) fn set_context(&mut self, context: &RunContext) {
        self.login_since = context.login_since;
        self.header.node_action = context.kind;
        let budget = BudgetReport::new(context.budget, context.delay_set_by.as_deref());
        self.header.budget = BudgetReport { delayed_by: context.delayed_by, ..budget };
        if let Some(request) = &context.request {
            self.header.requested_by = RequestReport::of(request, self.clock.now());
        }
        // If a notice is withdrawn after it shortened the run, the run stays shortened.
        if context.notice.is_some() {
            self.header.notice.clone_from(&context.notice);
        }
    }

    pub(crate) fn budget(&self) -> Budget {
        self.header.budget.budget()
    }

    /// Whether the last note that was awaited is stored in any place.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }

    /// Returns the record without its pods; none if no record is kept.
    pub(crate) fn last(&self) -> Option<Box<RunRecord>> {
        (!self.places.is_empty()).then(|| Box::new(self.record(&[])))
    }

    /// Persists the `phase` of the run and the state of its `groups`. Returns once that survives this agent, or when the
    /// places' time is up. Not cancel-safe: the stored record may be the old or the new one.
    pub(crate) async fn note(&mut self, phase: RunPhase, groups: &[GroupReport]) {
        self.phase = phase;
        self.write(groups, None, false).await;
    }

    /// Shortens the reported wait before the first group by `less`.
    pub(crate) fn start_sooner(&mut self, less: Duration) {
        let drain = self.header.endpoint_drain.map(|drain| drain.saturating_sub(less));
        self.header.endpoint_drain = drain;
    }

    /// Like [`note`](Self::note), with the phase unchanged, after something else has changed.
    pub(crate) async fn note_again(&mut self, groups: &[GroupReport]) {
        self.note(self.phase, groups).await;
    }

    /// Persists in the background which pods have ended, on disk at most once a second. Returns at once, because this is
    /// not worth a wait.
    pub(crate) fn note_ends(&mut self, groups: &[GroupReport]) {
        self.take_failures();
        let quick = self.has_memory();
        let mut places = self.places.iter().filter(|place| place.fits()).peekable();
        if places.peek().is_none() {
            return;
        }
        self.sequence += 1;
        let record = Arc::new(self.record(groups));
        // Without a place in memory the first one has to do.
        for place in places.take(if quick { usize::MAX } else { 1 }) {
            match quick && !place.is_volatile() {
                true => place.writer.put_later(&record),
                false => place.writer.put(&record),
            }
        }
    }

    /// Writes the last note of a run. Places that were slow before are tried once more, until `until`. With
    /// `lasting`, places on disk are awaited too.
    pub(crate) async fn note_last(
        &mut self,
        phase: RunPhase,
        groups: &[GroupReport],
        until: Instant,
        lasting: bool,
    ) {
        self.phase = phase;
        self.write(groups, Some(until), lasting).await;
    }

    async fn write(&mut self, groups: &[GroupReport], until: Option<Instant>, lasting: bool) {
        if self.places.is_empty() {
            return;
        }
        self.take_failures();
        self.places.iter().for_each(|place| place.writer.drop_later());
        self.sequence += 1;
        let record = Arc::new(self.record(groups));
        self.kept = false;
        if !self.has_memory() {
            return self.write_to_first(&record, until, |_| true).await;
        }
        self.places.iter().for_each(|place| place.writer.put(&record));
        for place in self.places.iter_mut().filter(|place| lasting || place.is_volatile()) {
            match place.written(&record, until).await {
                Ok(()) => self.kept = true,
                Err(why) => self.header.warnings.extend(why),
            }
        }
        if !self.kept && !lasting {
            self.write_to_first(&record, until, |place| !place.is_volatile()).await;
        }
    }

    /// Writes to one place after another until one succeeds.
    async fn write_to_first(
        &mut self,
        record: &Arc<RunRecord>,
        until: Option<Instant>,
        wanted: impl Fn(&JournalPlace) -> bool,
    ) {
        for place in self.places.iter_mut().filter(|place| wanted(place)) {
            match place.write(record, until).await {
                Ok(()) => {
                    self.kept = true;
                    return;
                }
                Err(why) => self.header.warnings.extend(why),
            }
        }
    }

    /// Whether there is a place in memory that has not failed yet.
    fn has_memory(&self) -> bool {
        self.places.iter().any(|place| place.is_volatile() && !place.told)
    }

    /// Collects the errors of writes that ran in the background.
    fn take_failures(&mut self) {
        let failed = self.places.iter_mut().filter_map(|place| {
            let why = place.writer.last().failed?;
            place.warn_once(&why)
        });
        self.header.warnings.extend(failed);
    }

    fn record(&self, groups: &[GroupReport]) -> RunRecord {
        let run = RunReport {
            groups: in_flight(groups),
            work: self.work.clone(),
            stop: self.stop.unwrap_or(RunStop::Cancelled),
            pods_unknown: self.pods_unknown,
        };
        let ended = Ended { at: self.clock.now(), took: self.start.at.elapsed() };
        let mut report = ShutdownReport::new(self.header.clone(), run, ended);
        if self.stop.is_none() {
            report.outcome = Outcome::Interrupted;
        }
        RunRecord {
            version: VERSION,
            sequence: self.sequence,
            phase: self.phase,
            started_boot_ms: self.start.boot_ms,
            suspended_ms: Some(self.start.suspended_ms),
            login_since_ms: self.login_since.map(millis),
            first_group_ms: millis(self.first_group),
            report,
        }
    }
}

// === impl JournalPlace ===

impl JournalPlace {
    fn new(of: &Arc<dyn RecordStore>) -> Self {
        let writer = PlaceWriter::new(Arc::clone(of));
        Self { writer, patience: PLACE_WRITE_TIMEOUT, overdue: false, told: false }
    }

    fn is_volatile(&self) -> bool {
        self.writer.place.is_volatile()
    }

    /// Whether the place has neither failed nor hangs.
    fn fits(&self) -> bool {
        !self.told && !self.hangs()
    }

    /// Whether an abandoned write is still in progress.
    fn hangs(&self) -> bool {
        self.overdue && self.writer.is_busy()
    }

    /// Writes `record` and waits until it is stored.
    ///
    /// # Errors
    /// Fails if the record is not stored here. The text is the warning, the first time only.
    async fn write(
        &mut self,
        record: &Arc<RunRecord>,
        until: Option<Instant>,
    ) -> Result<(), Option<String>> {
        if self.hangs() {
            return Err(None);
        }
        if self.left(until).is_zero() {
            return Err(self.warn_once("the disk is too slow"));
        }
        self.writer.put(record);
        self.written(record, until).await
    }

    /// Waits until `record`, which has been queued, is stored.
    ///
    /// # Errors
    /// The same as for [`write`](Self::write).
    async fn written(
        &mut self,
        record: &RunRecord,
        until: Option<Instant>,
    ) -> Result<(), Option<String>> {
        if self.hangs() {
            return Err(None);
        }
        let begun = Instant::now();
        let answer = timeout(self.left(until), self.writer.written(record.sequence)).await;
        self.patience = self.patience.saturating_sub(begun.elapsed());
        self.overdue = answer.is_err();
        match answer {
            Ok(LastWrite { failed: None, .. }) => Ok(()),
            Ok(LastWrite { failed: Some(why), .. }) => Err(self.warn_once(&why)),
            Err(_) => Err(self.warn_once("the disk does not answer in time")),
        }
    }

    /// How much longer to wait for this place.
    fn left(&self, until: Option<Instant>) -> Duration {
        until.map_or(self.patience, |until| until.saturating_duration_since(Instant::now()))
    }

    fn warn_once(&mut self, why: &str) -> Option<String> {
        if std::mem::replace(&mut self.told, true) {
            return None;
        }
        let text = format!("cannot save the run's record in {}: {why}", self.writer.place.name());
        tracing::warn!("{text}");
        Some(text)
    }
}

/// Returns a copy in which pods that have been requested to stop, and have not stopped, are marked as ending.
fn in_flight(groups: &[GroupReport]) -> Vec<GroupReport> {
    let mut groups = groups.to_vec();
    for pod in groups.iter_mut().flat_map(|group| &mut group.pods) {
        if pod.end == PodEnd::Spared && pod.asked.is_some() {
            pod.end = PodEnd::Terminating;
        }
    }
    groups
}
