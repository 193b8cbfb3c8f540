//! The headline of a report: one sentence, with which every rendering of the report begins.

use winddown_shared::display::{in_seconds, pod_count};

use super::{Outcome, PodEnd, ShutdownReport, Trigger};

impl ShutdownReport {
    /// Summarizes the run in one sentence, for people.
    pub fn headline(&self) -> String {
        let what = match self.trigger {
            Trigger::Drain => "drain",
            Trigger::Drill => "drill",
            Trigger::LoginManager | Trigger::UnitStop | Trigger::Notice => "shutdown",
        };
        let survive = self.count(PodEnd::Survives);
        let stay = self.count(PodEnd::Stays);
        let total = self.pods().count() - survive - stay;
        let took = in_seconds(self.took);
        let time = format!("{took} (budget {})", in_seconds(self.budget.pods));
        let killed = self.count(PodEnd::Killed);
        let ended = self.count(PodEnd::Exited) + killed;
        let left = self.count(PodEnd::Left);
        let ending = self.count(PodEnd::Ending) + left;
        let spared = self.count(PodEnd::Spared);
        let of = |count, what| match count {
            0 => String::new(),
            _ => format!("; {} {what}", pod_count(count)),
        };
        let survived =
            of(survive, "survived it") + &of(stay, if stay == 1 { "stays" } else { "stay" });
        let tally =
            || format!("{} had ended, {ending} still ending, {spared} spared", pod_count(ended));
        match self.outcome {
            Outcome::Clean if total == 0 && survive > 0 => {
                format!("Clean {what}: {} survived it.", pod_count(survive))
            }
            Outcome::Clean if total == 0 => {
                format!("Clean {what}: there were no pods to end{survived}.")
            }
            Outcome::Clean if total == 1 => {
                format!("Clean {what}: 1 pod ended by itself in {time}{survived}.")
            }
            Outcome::Clean => {
                format!("Clean {what}: {total} pods ended by themselves in {time}{survived}.")
            }
            Outcome::Forced => format!(
                "Forced {what}: {killed} of {} had to be killed, all ended in {time}.",
                pod_count(total)
            ),
            Outcome::Left => self.left_headline(what, left, total, &time),
            Outcome::Cancelled => format!("Cancelled {what}, after {took}: {}.", tally()),
            Outcome::Interrupted => {
                format!("Interrupted {what}: the agent was stopped after {took}: {}.", tally())
            }
            Outcome::CutOff => format!(
                "Cut-off {what}: the machine went down in the middle. At its last record, {took} \
                 after the signal, {} had ended, {ending} still ending, {spared} not asked yet.",
                pod_count(ended)
            ),
        }
    }

    /// The sentence of a run that left pods running, or may have.
    fn left_headline(&self, what: &str, left: usize, total: usize, time: &str) -> String {
        let pods = pod_count(total);
        match left {
            0 if self.pods_unknown => format!(
                "Incomplete {what}: the container runtime did not say what runs, so pods may have \
                 been left running, after {time}."
            ),
            0 => format!("Failed {what}: it is not known what became of the pods, after {time}."),
            _ if self.trigger == Trigger::Drain => {
                format!("Incomplete {what}: {left} of {pods} still ran at its end, after {time}.")
            }
            _ => format!(
                "Incomplete {what}: {left} of {pods} still ran when the lock was released, after {time}."
            ),
        }
    }
}
