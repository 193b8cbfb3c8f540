//! The outcomes of runs, and how each is described: one table, from which every rendering of a report, the exit codes and
//! the documentation take their words.

use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Serialize};
use winddown_shared::display::{in_seconds, pod_count};

use super::{PodEnd, ShutdownReport};

/// The outcome of a run. If several apply, the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Every pod stopped by itself within its grace period.
    Clean,
    /// Every pod stopped, but at least one needed SIGKILL.
    Forced,
    /// At least one pod was not seen to stop, or it is not known which pods were running.
    #[serde(alias = "left")]
    Incomplete,
    /// The run was cancelled. Groups that had not started were spared.
    Cancelled,
    /// The agent itself was stopped in the middle.
    Interrupted,
    /// The machine went down in the middle. The report was reconstructed at the next start.
    CutOff,
}

/// How an outcome is described.
#[derive(Clone, Copy, Debug)]
pub struct OutcomeText {
    /// The first word of the report.
    pub word: &'static str,
    /// Its meaning, for the documentation.
    pub meaning: &'static str,
    /// Decides the colour.
    pub tone: Tone,
    /// The label of the end of such a run; none if that follows from its trigger.
    end: Option<&'static str>,
    /// The sentence after the first word and the kind of the run.
    sentence: fn(&Tally) -> String,
}

/// How good the news is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// All went well.
    Good,
    /// An operator should know.
    Warn,
    /// Pods may have been harmed.
    Bad,
}

/// The numbers that the sentences have.
struct Tally {
    /// When the run was over, as a clause.
    when_over: &'static str,
    pods_unknown: bool,
    /// All pods but those that survived, stay or did not run.
    total: usize,
    killed: usize,
    ended: usize,
    left: usize,
    gone: usize,
    ending: usize,
    spared: usize,
    survived: usize,
    stay: usize,
    idle: usize,
    /// How long the run took.
    took: String,
    /// The same, and the time that it had.
    time: String,
}

// === impl Outcome ===

impl Outcome {
    /// All outcomes, the best first.
    pub const ALL: [Self; 6] = [
        Self::Clean,
        Self::Forced,
        Self::Incomplete,
        Self::Cancelled,
        Self::Interrupted,
        Self::CutOff,
    ];

    /// The outcome of this name in JSON; none if this version does not know it.
    pub fn named(name: &str) -> Option<Self> {
        let name: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
            name.into_deserializer();
        Self::deserialize(name).ok()
    }

    /// How the outcome is described.
    pub const fn text(self) -> OutcomeText {
        let end = None;
        match self {
            Self::Clean => OutcomeText {
                word: "Clean",
                meaning: "every pod exited by itself within its grace period",
                tone: Tone::Good,
                end,
                sentence: Tally::clean,
            },
            Self::Forced => OutcomeText {
                word: "Forced",
                meaning: "every pod terminated, at least one by SIGKILL",
                tone: Tone::Warn,
                end,
                sentence: Tally::forced,
            },
            Self::Incomplete => OutcomeText {
                word: "Incomplete",
                meaning: "at least one pod was not seen to terminate, or it is unknown which pods ran",
                tone: Tone::Bad,
                end,
                sentence: Tally::incomplete,
            },
            Self::Cancelled => OutcomeText {
                word: "Cancelled",
                meaning: "the shutdown was cancelled; groups that had not started were spared",
                tone: Tone::Warn,
                end: Some("cancelled"),
                sentence: Tally::cancelled,
            },
            Self::Interrupted => OutcomeText {
                word: "Interrupted",
                meaning: "the agent itself was stopped in the middle",
                tone: Tone::Bad,
                end: Some("the agent was stopped"),
                sentence: Tally::interrupted,
            },
            Self::CutOff => OutcomeText {
                word: "Cut-off",
                meaning: "the machine went down in the middle; reported at the next start",
                tone: Tone::Bad,
                end: Some("last heard of"),
                sentence: Tally::cut_off,
            },
        }
    }
}

// === impl ShutdownReport ===

impl ShutdownReport {
    /// Summarizes the run in one sentence, for people.
    pub fn headline(&self) -> String {
        let what = self.trigger.text().run;
        let OutcomeText { word, sentence, .. } = self.outcome.text();
        let after = match self.node_stayed_up {
            true => " It was cancelled afterwards: the node stayed up.",
            false => "",
        };
        format!("{word} {what}{}{after}", sentence(&Tally::of(self)))
    }

    /// Whether each pod that this run asked to terminate was seen to exit by itself; the run may have been cancelled.
    /// Decides the exit code of `winddown report --check`.
    pub fn is_graceful(&self) -> bool {
        match self.outcome {
            Outcome::Clean => true,
            Outcome::Cancelled => {
                !self.pods_unknown && self.pods().all(|(_, pod)| pod.end.is_graceful())
            }
            Outcome::Forced | Outcome::Incomplete | Outcome::Interrupted | Outcome::CutOff => false,
        }
    }

    /// The label for the end of the run.
    pub fn end_of_run(&self) -> &'static str {
        self.outcome.text().end.unwrap_or(self.trigger.text().end)
    }
}

// === impl Tally ===

impl Tally {
    fn of(report: &ShutdownReport) -> Self {
        let (survived, stay) = (report.count(PodEnd::Survives), report.count(PodEnd::NotDrainable));
        let (killed, left) = (report.count(PodEnd::Killed), report.count(PodEnd::StillRunning));
        let (gone, idle) = (report.count(PodEnd::Gone), report.count(PodEnd::NotRunning));
        let took = in_seconds(report.took);
        Self {
            when_over: report.trigger.text().when_over,
            pods_unknown: report.pods_unknown,
            total: report.pods().count() - survived - stay - idle,
            killed,
            ended: report.count(PodEnd::Exited) + idle + killed + gone,
            left,
            gone,
            ending: report.count(PodEnd::Terminating) + left,
            spared: report.count(PodEnd::Spared),
            survived,
            stay,
            idle,
            time: format!("{took} (budget {})", in_seconds(report.budget.pods)),
            took,
        }
    }

    /// How far a run came that did not go on to its end.
    fn so_far(&self) -> String {
        let Self { ended, ending, spared, .. } = self;
        let [is_ending, is_spared] = several([PodEnd::Terminating, PodEnd::Spared]);
        format!("{} had terminated, {ending} {is_ending}, {spared} {is_spared}", pod_count(*ended))
    }

    fn clean(&self) -> String {
        let Self { total, survived, stay, idle, time, .. } = self;
        if *total == 0 && *survived > 0 {
            return format!(": {} survived it.", pod_count(*survived));
        }
        let of = |count: usize, what: &str| match count {
            0 => String::new(),
            _ => format!("; {} {what}", pod_count(count)),
        };
        let stay = of(*stay, if *stay == 1 { "stays" } else { "stay" });
        let idle = of(*idle, if *idle == 1 { "was not running" } else { "were not running" });
        let others = of(*survived, "survived it") + &stay + &idle;
        match total {
            0 => format!(": there were no pods to terminate{others}."),
            1 => format!(": 1 pod exited by itself in {time}{others}."),
            _ => {
                let [exited] = several([PodEnd::Exited]);
                format!(": {total} pods {exited} in {time}{others}.")
            }
        }
    }

    fn forced(&self) -> String {
        let Self { killed, total, time, .. } = self;
        let ([is_killed], total) = (several([PodEnd::Killed]), pod_count(*total));
        format!(": {killed} of {total} had to be {is_killed}, all terminated in {time}.")
    }

    fn incomplete(&self) -> String {
        let Self { left, gone, time, when_over, .. } = self;
        match (left, gone, self.pods_unknown) {
            (1.., ..) => format!(": {} still running {when_over}, after {time}.", self.were(*left)),
            (0, _, true) => format!(
                ": the container runtime did not list its pods, so some may have been left running, after {time}."
            ),
            (0, 1.., false) => {
                let ([is_gone], gone) = (several([PodEnd::Gone]), self.were(*gone));
                format!(": {gone} {is_gone}, in an unknown order, after {time}.")
            }
            // Of an agent before 0.1.0: pods that it had not asked, or not seen to terminate, had other words.
            (0, 0, false) => format!(": {}, after {time}.", self.so_far()),
        }
    }

    /// So many of all pods, as the subject of a sentence.
    fn were(&self, part: usize) -> String {
        let verb = if part == 1 { "was" } else { "were" };
        format!("{part} of {} {verb}", pod_count(self.total))
    }

    fn cancelled(&self) -> String {
        format!(", after {}: {}.", self.took, self.so_far())
    }

    fn interrupted(&self) -> String {
        format!(": the agent was stopped after {}: {}.", self.took, self.so_far())
    }

    fn cut_off(&self) -> String {
        let Self { took, ended, ending, spared, .. } = self;
        let [is_ending] = several([PodEnd::Terminating]);
        format!(
            ": the machine went down in the middle. At its last record, {took} after the signal, \
             {} had terminated, {ending} {is_ending}, {spared} not asked yet.",
            pod_count(*ended)
        )
    }
}

/// The labels of several pods that ended like this.
fn several<const N: usize>(ends: [PodEnd; N]) -> [&'static str; N] {
    ends.map(|end| end.text().several)
}
