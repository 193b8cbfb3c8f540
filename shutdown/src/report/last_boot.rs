//! Determines how the node went down before this boot.

use winddown_shared::WallTime;

use super::{BootMark, Outcome, PodEnd, PodReport, ShutdownReport, Tone, Trigger};
use crate::run::outcome_of;
use crate::{RunPhase, RunRecord};

#[cfg(test)]
mod tests;

/// The most pods that [`LastBoot::describe`] names for each way in which they ended.
const MAX_NAMED_PODS: usize = 5;

/// The evidence that an agent finds on disk at its start.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The id of the current boot.
    pub boot_id: String,
    /// The mark that the previous agent left, in this boot or an earlier one.
    pub mark: Option<BootMark>,
    /// The last shutdown of an earlier boot.
    pub report: Option<ShutdownReport>,
    /// The last shutdown of this boot: the boot id stays the same over a soft reboot.
    pub same_boot: Option<ShutdownReport>,
    /// The last record of a run of an earlier boot, or of this one if the system was started again since
    /// ([`RunRecord::is_of`]).
    pub record: Option<RunRecord>,
    /// The stored report of the run in `record`, whatever became of it.
    pub of_record: Option<ShutdownReport>,
}

/// How the node went down before this boot.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LastBoot {
    /// Unknown: the agent starts on this node for the first time.
    Unknown,
    /// By a shutdown whose report was stored.
    Reported(Box<ShutdownReport>),
    /// By a shutdown that the machine did not wait for. The report is reconstructed from its record,
    /// and is not stored yet.
    Recorded(Box<ShutdownReport>),
    /// Without a shutdown that the agent observed.
    Unseen {
        /// The id of the boot that ended this way.
        boot_id: String,
        /// When the agent was stopped, if it was: then it could not observe a shutdown.
        agent_stopped_at: Option<WallTime>,
        /// Whether the disk was full, so that a shutdown could leave no report.
        disk_was_full: bool,
    },
}

/// Determines from `evidence` how the node went down before this boot.
pub fn last_boot(evidence: Evidence) -> LastBoot {
    let Evidence { boot_id, mark, report, same_boot, record, of_record } = evidence;
    // A disk that was full may never have taken the end of a run whose report it took later.
    let record =
        record.filter(|_| of_record.as_ref().is_none_or(|of_it| !of_it.left_the_node_up()));
    if let Some(record) = record.as_ref().filter(|r| r.report.boot_id == boot_id && ends_a_boot(r))
    {
        let reported = same_boot.filter(|report| !is_of_later_run(record, report));
        return match reported {
            Some(report) => LastBoot::Reported(Box::new(report)),
            None => LastBoot::Recorded(Box::new(report_of(record.clone()))),
        };
    }
    if let Some(mark) = mark.as_ref().filter(|mark| mark.boot_id == boot_id) {
        let soft = |report: &ShutdownReport| {
            is_soft_reboot(report) && report.finished_at >= mark.started_at
        };
        if let Some(report) = same_boot.filter(soft) {
            return LastBoot::Reported(Box::new(report));
        }
    }
    let previous = mark.and_then(|mark| mark.previous_boot(&boot_id));
    let of_it = |boot: &str| match &previous {
        Some(previous) => previous.boot_id == boot,
        None => boot != boot_id,
    };
    let last_start = previous.as_ref().and_then(|previous| previous.agent_started_at);
    let came_back = |report: &ShutdownReport| {
        (is_soft_reboot(report) || report.outcome == Outcome::CutOff)
            && last_start.is_some_and(|start| start > report.finished_at)
    };
    let report = report.filter(|report| of_it(&report.boot_id) && !came_back(report));
    let record = record.filter(|record| of_it(&record.report.boot_id) && ends_a_boot(record));
    // What is stored of a run is never replaced by what its record says.
    let record = record.filter(|_| of_record.is_none());
    match (report, record, previous) {
        (Some(report), Some(record), _) if is_of_later_run(&record, &report) => {
            LastBoot::Recorded(Box::new(report_of(record)))
        }
        (Some(report), ..) => LastBoot::Reported(Box::new(report)),
        (None, Some(record), _) => LastBoot::Recorded(Box::new(report_of(record))),
        (None, None, Some(previous)) => LastBoot::Unseen {
            boot_id: previous.boot_id,
            agent_stopped_at: previous.agent_stopped_at,
            disk_was_full: previous.disk_was_full,
        },
        (None, None, None) => LastBoot::Unknown,
    }
}

// === impl LastBoot ===

impl LastBoot {
    /// Whether every pod stopped by itself before the node went down; `None` if that is unknown.
    pub fn graceful(&self) -> Option<bool> {
        match self {
            Self::Unknown
            | Self::Unseen { agent_stopped_at: Some(_), .. }
            | Self::Unseen { disk_was_full: true, .. } => None,
            Self::Unseen { agent_stopped_at: None, disk_was_full: false, .. } => Some(false),
            Self::Reported(report) | Self::Recorded(report) => {
                Some(report.outcome == Outcome::Clean)
            }
        }
    }

    /// The report of the shutdown, if there is one.
    pub fn report(&self) -> Option<&ShutdownReport> {
        match self {
            Self::Reported(report) | Self::Recorded(report) => Some(report),
            Self::Unknown | Self::Unseen { .. } => None,
        }
    }

    /// Describes in one line, for people, how the shutdown went, how long it took, and which pods were cut
    /// short. `None` if nothing is known.
    pub fn describe(&self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Reported(report) | Self::Recorded(report) => Some(summary(report)),
            Self::Unseen { disk_was_full: true, .. } => Some(
                "unknown outcome: the disk of the state directory was full, and took no report of a shutdown".into(),
            ),
            Self::Unseen { agent_stopped_at: Some(at), .. } => Some(format!(
                "unknown outcome: the agent had been stopped at {}",
                at.strftime("%Y-%m-%d %H:%M:%S UTC")
            )),
            Self::Unseen { agent_stopped_at: None, .. } => Some(
                "the node went down without a shutdown: power loss, a crash, or a forced one"
                    .into(),
            ),
        }
    }
}

/// Whether the shutdown restarted user space only, in the same boot.
fn is_soft_reboot(report: &ShutdownReport) -> bool {
    report.node_action.as_deref() == Some("softReboot")
}

/// Whether a record shows how a boot ended. Runs that were called off, drains and drills do not.
fn ends_a_boot(record: &RunRecord) -> bool {
    record.phase != RunPhase::Cancelled
        && !matches!(record.report.trigger, Trigger::Drain | Trigger::Drill)
}

/// Whether `record` is of a run that began after the one in `report`.
fn is_of_later_run(record: &RunRecord, report: &ShutdownReport) -> bool {
    record.phase != RunPhase::Released && record.report.started_at > report.started_at
}

/// Reconstructs the report of a run that did not get to write it.
fn report_of(record: RunRecord) -> ShutdownReport {
    let asked_all = matches!(record.phase, RunPhase::Reporting | RunPhase::Released);
    let mut report = record.report;
    let any = |end: PodEnd| report.count(end) > 0;
    let may_lack_some = any(PodEnd::Spared) || report.pods_unknown;
    report.outcome = if any(PodEnd::Terminating) || (may_lack_some && !asked_all) {
        Outcome::CutOff
    } else {
        outcome_of(&report.groups, report.pods_unknown)
    };
    report.warnings.push(
        "The machine went down before this report was written: it was put together from the run's \
         record at the next start."
            .into(),
    );
    report
}

fn summary(report: &ShutdownReport) -> String {
    let mut said = report.headline();
    said.truncate(said.trim_end_matches('.').len());
    if let Some(first) = said.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    for end in PodEnd::ALL {
        let (count, text) = (report.count(end), end.text());
        if count > 0 && matches!(text.tone, Some(Tone::Warn | Tone::Bad)) {
            said.push_str(&format!("; {}: {}", text.several, named(report, end, count)));
        }
    }
    said
}

/// Names the first pods that ended as `end`, and counts the rest.
fn named(report: &ShutdownReport, end: PodEnd, count: usize) -> String {
    let pods = report.pods().map(|(_, pod)| pod).filter(|pod| pod.end == end);
    let mut names =
        pods.take(MAX_NAMED_PODS).map(PodReport::full_name).collect::<Vec<_>>().join(", ");
    if count > MAX_NAMED_PODS {
        names.push_str(&format!(" and {} more", count - MAX_NAMED_PODS));
    }
    names
}
