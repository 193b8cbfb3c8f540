//! The record of a run, which survives if the agent is killed in the middle.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::{
    BootClock, EarlierKill, InhibitorState, KillRequest, LONGEST_NOTICE, MachineState, PodUid,
    ShutdownKind, WallClock, millis,
};

use crate::controller::status_of_ended;
use crate::in_place::status_of_staying;
use crate::report::ReportHeader;
use crate::run_context::RunContext;
use crate::{Budget, FileError, Outcome, PodReport, ReportStore, ShutdownReport, Trigger};

mod file;
#[cfg(test)]
pub(crate) mod tests;

pub use file::RecordFile;

/// The longest plausible time in a record. A run's deadline comes from a notice or the configuration, and
/// the run may have begun some time after the boot.
const MAX_PLAUSIBLE_TIME: Duration = LONGEST_NOTICE.saturating_mul(2);

/// The version of the record's schema. It increases when a reader of the old one would be misled.
pub(crate) const VERSION: u32 = 1;

/// The progress of a run, persisted before any of it takes effect.
///
/// It is written before the first pod is requested to stop, before each further group, within a tenth of
/// a second after a pod needed SIGKILL, and at the end. A reader always finds a complete record: the
/// newest one or, after a power cut, an earlier one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunRecord {
    /// The version of this schema.
    pub version: u32,
    /// The number of writes of one run, over all agents that took part in it: of two records of a run, the
    /// one with the higher number is newer.
    pub sequence: u64,
    /// The phase of the run.
    pub phase: RunPhase,
    /// The time since the kernel's boot, including sleep, when the run began, in milliseconds.
    pub started_boot_ms: u64,
    /// For how many milliseconds the machine had been suspended when that was set ([`of_boot`](Self::of_boot) moves it);
    /// absent in records of older versions. The timers of the agent that began the run stand still meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_ms: Option<u64>,
    /// When the login manager announced the shutdown, in milliseconds since the run's start. Absent
    /// until it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_since_ms: Option<u64>,
    /// When the first pod is requested to stop, in milliseconds since the run's start. Until then, pods are
    /// only not ready.
    #[serde(default)]
    pub first_group_ms: u64,
    /// The report as it would be if the machine went down at the moment of writing. It has the boot,
    /// the plan, and for each pod when it was requested to stop and how much time it was given.
    pub report: ShutdownReport,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum RunPhase {
    /// Pods are no longer ready, but none has been requested to stop yet.
    LameDuck,
    /// Groups are being stopped. Those with a start have been requested to stop.
    Ending,
    /// The pods have stopped or the time is over. Only the report is left to do.
    Reporting,
    /// The report is stored and nothing is left to do: the node may go down.
    Released,
    /// The run was called off.
    Cancelled,
}

/// A place that stores a record. Called on a thread that may block.
pub trait RecordStore: Send + Sync + 'static {
    /// Replaces the stored record. When this returns, `record` is as durable as the place is.
    ///
    /// # Errors
    /// Fails if the record could not be stored. The previous one is kept.
    fn write(&self, record: &RunRecord) -> Result<(), FileError>;

    /// Returns the stored record, if any.
    ///
    /// # Errors
    /// Fails if the record cannot be read, or the content is something else.
    fn read(&self) -> Result<Option<RunRecord>, FileError>;

    /// The place's name for people.
    fn name(&self) -> String;

    /// Whether the place is in memory: a write takes no time, and outlives the agent but not the
    /// machine.
    fn is_volatile(&self) -> bool {
        false
    }
}

// === impl RunRecord ===

impl RunRecord {
    /// Returns the newest record of the boot `boot_id` in any of `places`, of a run that began at `since` or later by its
    /// `clock`: when the [system was started](BootClock::system_start). The time of the run has stood still while the
    /// machine was suspended. Unreadable records are logged and skipped. An empty `boot_id` matches no record. Blocks on
    /// the disk.
    pub fn of_boot(
        places: &[Arc<dyn RecordStore>],
        (boot_id, clock): (&str, &BootClock),
        since: Duration,
    ) -> Option<Self> {
        if boot_id.is_empty() {
            return None;
        }
        let read = |place: &Arc<dyn RecordStore>| match place.read() {
            Ok(record) => record,
            Err(error) => {
                let error = winddown_shared::error_chain(&error);
                tracing::warn!(error, "the record of an earlier run is not used");
                None
            }
        };
        let found = places.iter().filter_map(read).filter(|r| r.is_of(boot_id, since));
        let found = found.filter(|record| {
            let possible = record.longest() <= MAX_PLAUSIBLE_TIME;
            if !possible {
                tracing::warn!(
                    "the record of an earlier run is not used: it names impossible times"
                );
            }
            possible
        });
        found.max_by_key(RunRecord::age).map(|record| record.go_on(clock))
    }

    /// Whether the run began in the boot `boot_id`, at `since` or later by that boot's clock. A soft-reboot, and the
    /// restart of a container, end a run that went on before, but not the boot.
    pub fn is_of(&self, boot_id: &str, since: Duration) -> bool {
        self.report.boot_id == boot_id && Duration::from_millis(self.started_boot_ms) >= since
    }

    /// Moves the start by the time for which the machine was suspended since the start was last set.
    fn go_on(self, clock: &BootClock) -> Self {
        let now = millis(clock.suspended());
        let since = now.saturating_sub(self.suspended_ms.unwrap_or(now));
        let started_boot_ms = self.started_boot_ms.saturating_add(since);
        Self { started_boot_ms, suspended_ms: Some(now), ..self }
    }

    /// The record of a drain, for which the time until `now`, by the record's clock, is added to what it had when this was
    /// written: the node stays up, so nothing is gained by cutting its pods short. A time that is over stays as it is.
    pub(crate) fn paused_until(mut self, now: Duration) -> Self {
        let (report, started) = (&mut self.report, Duration::from_millis(self.started_boot_ms));
        let pause = now.saturating_sub(started).saturating_sub(report.took);
        if self.first_group_ms > millis(report.took) {
            self.first_group_ms += millis(pause);
        }
        report.took += pause;
        report.budget.pods += pause;
        for group in report.groups.iter_mut().filter(|group| group.ended.is_none()) {
            group.latest_end += pause;
        }
        self
    }

    /// The report of the run, as if it had lasted until now.
    pub(crate) fn until_now(&self, boot: &BootClock, wall: &WallClock) -> ShutdownReport {
        let begun = Duration::from_millis(self.started_boot_ms);
        let (took, finished_at) = (boot.now().saturating_sub(begun), wall.now());
        ShutdownReport { took, finished_at, ..self.report.clone() }
    }

    /// The report of the run, which was called off before another agent continued it: it is assumed to have lasted until
    /// now.
    pub fn called_off(&self, boot: &BootClock, wall: &WallClock) -> ShutdownReport {
        let mut report = self.until_now(boot, wall);
        report.outcome = Outcome::Cancelled;
        report.warnings.push("the run was cancelled before an agent continued it".into());
        report
    }

    /// The report of a drain that no agent continues: that of its end, or as of a run that was called off.
    pub fn report_of_drain(&self, boot: &BootClock, wall: &WallClock) -> ShutdownReport {
        if self.phase == RunPhase::Reporting {
            return self.report.clone();
        }
        self.called_off(boot, wall)
    }

    /// The record of the drain that an earlier agent of the boot has left in `places`: of the one that goes on, if one began
    /// at `goes_on`, and otherwise of one that is not among `reports`. Blocks on the disk.
    pub fn of_drain(
        places: &[Arc<dyn RecordStore>],
        boot: (&str, &BootClock),
        goes_on: Option<Duration>,
        reports: &ReportStore,
    ) -> Option<Self> {
        let found = Self::of_boot(places, boot, goes_on.unwrap_or(boot.1.system_start()))?;
        let is_stored = || matches!(reports.of_run(&found), Ok(Some(_)));
        (goes_on.is_some() || !is_stored()).then_some(found)
    }

    /// The record of the run when nothing of it is left to do, because it was called off or a report says the rest.
    #[must_use]
    pub fn closed(self) -> Self {
        Self { phase: RunPhase::Cancelled, sequence: self.sequence + 1, ..self }
    }

    /// Returns the kill requests, by pod UID, to repeat for the pods that had been requested to stop when this was
    /// written. `now` is the current time of the record's clock. Each pod's time ends when it was to end, and not past
    /// its group's end.
    ///
    /// Pods that have stopped are included: they are kept out while the node goes down, and have not been rejected.
    ///
    /// For a run that was called off, these are the pods that are still stopping: they continue to stop, as they do
    /// when a running agent learns that the run is called off. Pods whose time is over are left out.
    pub(crate) fn asked(
        &self,
        now: Duration,
        called_off: bool,
    ) -> impl Iterator<Item = (PodUid, EarlierKill)> {
        let started = Duration::from_millis(self.started_boot_ms);
        let elapsed = now.saturating_sub(started);
        let reason = self.report.trigger.kill_reason();
        let counts = move |pod: &PodReport| !called_off || !pod.end.has_terminated();
        self.report.pods().filter(move |(_, pod)| counts(pod)).filter_map(move |(group, pod)| {
            let until = pod.kill_at(group.latest_end)?;
            if called_off && until <= elapsed {
                return None;
            }
            let request = KillRequest::new(reason).with_status(Some(if pod.stays_on_reboot {
                status_of_staying()
            } else {
                status_of_ended()
            }));
            let mut kill = EarlierKill::new(request, started + until);
            kill.has_terminated = pod.end.has_terminated();
            Some((PodUid::new(pod.uid.as_str()), kill))
        })
    }

    /// Whether `login` or `machine` tells whether the node that this run shuts down still goes down. Only the service
    /// manager knows of a way down that the login manager did not announce. Of one that it did announce the service
    /// manager knows nothing while that waits for locks, so there only the login manager's own word counts.
    pub(crate) fn is_decided_by(&self, login: &InhibitorState, machine: MachineState) -> bool {
        match self.report.trigger {
            Trigger::UnitStop => machine != MachineState::Unknown,
            Trigger::Notice if self.login_since_ms.is_none() => login.lock.is_known(),
            _ => login.has_spoken(),
        }
    }

    /// The notice of `source` that began or shortened the run, if one did: when the node goes down, in time since the
    /// kernel's boot, and the text.
    pub fn notice_of(&self, source: &str) -> Option<(Duration, &str)> {
        let notice = self.report.notice.as_ref().filter(|notice| notice.source == source)?;
        let started = Duration::from_millis(self.started_boot_ms);
        Some((started.saturating_add(notice.deadline), &notice.text))
    }

    fn longest(&self) -> Duration {
        let Self { report, .. } = self;
        let budget = &report.budget;
        let own = [
            Duration::from_millis(self.first_group_ms),
            Duration::from_millis(self.login_since_ms.unwrap_or(0)),
            report.notice.as_ref().map_or(Duration::ZERO, |notice| notice.deadline),
            budget.pods,
            budget.reserve,
        ];
        let groups = report.groups.iter().flat_map(|group| {
            let times = [group.latest_end, group.allowed, group.configured];
            times.into_iter().chain(group.started).chain(group.ended)
        });
        let pods = report.pods().flat_map(|(_, pod)| [pod.grace].into_iter().chain(pod.asked));
        let work = report
            .work
            .iter()
            .flat_map(|work| [work.allowed].into_iter().chain(work.started).chain(work.ended));
        own.into_iter().chain(groups).chain(pods).chain(work).max().unwrap_or_default()
    }

    /// The sort key for records of one boot, newest last.
    pub fn age(&self) -> (u64, u64) {
        (self.started_boot_ms, self.sequence)
    }

    /// The time that the run had when this was written.
    pub(crate) fn budget(&self) -> Budget {
        self.report.budget.budget()
    }

    /// The context when this was written.
    pub(crate) fn context(&self) -> RunContext {
        RunContext {
            budget: self.budget(),
            delayed_by: self.report.budget.delayed_by,
            delay_set_by: self.report.budget.delay_set_by.as_deref().map(Into::into),
            kind: self.kind(),
            request: None,
            login_since: self.login_since_ms.map(Duration::from_millis),
            notice: self.report.notice.clone(),
        }
    }

    /// Returns the report's header for an agent that resumes the run `late` after its start.
    pub(crate) fn header(&self, late: Duration) -> ReportHeader {
        let report = &self.report;
        let mut resumed = report.resumed.clone();
        resumed.push(late);
        ReportHeader {
            trigger: report.trigger,
            node_action: self.kind(),
            boot_id: report.boot_id.clone(),
            started_at: report.started_at,
            budget: report.budget.clone(),
            requested_by: report.requested_by.clone(),
            notice: report.notice.clone(),
            endpoint_drain: report.endpoint_drain,
            resumed,
            warnings: report.warnings.clone(),
        }
    }

    fn kind(&self) -> ShutdownKind {
        use ShutdownKind::{Halt, Kexec, PowerOff, Reboot, SoftReboot};
        let action = self.report.node_action.as_deref();
        let mut known = [PowerOff, Halt, Reboot, Kexec, SoftReboot].into_iter();
        known.find(|kind| Some(kind.as_str()) == action).unwrap_or_default()
    }
}

// === impl RunPhase ===

impl RunPhase {
    /// Whether nothing of the run is left to do.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Released | Self::Cancelled)
    }
}
