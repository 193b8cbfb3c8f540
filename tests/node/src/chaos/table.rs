//! The table of schedules in a document.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Fault, Feature, Outcome, Phase, Runtime};
use crate::Suite;

/// The lines around the table in a document.
pub const MARKS: [&str; 2] =
    ["<!-- Written by `make chaos`. -->", "<!-- End of the chaos table. -->"];
/// The lines around that of schedules in a row.
pub const IN_A_ROW: [&str; 2] =
    ["<!-- Written by `make chaos KIND=reboots`. -->", "<!-- End of the table. -->"];

/// A Markdown table with a row per fault and a column per phase.
#[must_use]
pub fn table(outcomes: &[Outcome]) -> String {
    let count = outcomes.len();
    let with = |runtime| outcomes.iter().filter(|o| o.schedule.runtime == runtime).count();
    let (services, containers) = (with(Runtime::Systemd), with(Runtime::Containerd));
    let (members, beside) = (with(Runtime::Cluster), with(Runtime::Companion));
    let trixie = outcomes.iter().filter(|o| o.schedule.suite == Suite::Trixie).count();
    let violated = outcomes.iter().filter(|outcome| !outcome.violations.is_empty()).count();
    let seed = |outcome: Option<&Outcome>| outcome.map_or(0, |outcome| outcome.schedule.seed);
    let (first, last) = (seed(outcomes.first()), seed(outcomes.last()));
    let mut text = format!(
        "{count} schedules, seeds {first} to {last}, {services} of them with systemd, {containers} with containerd, \
         {members} in a cluster, {beside} beside a kubelet, {trixie} on Debian 13: {violated} \
         with a violation.\n\n| fault |"
    );
    // Writing to a text cannot fail.
    for phase in Phase::ALL {
        let _ = write!(text, " {phase} |");
    }
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(Phase::ALL.len()));
    text.push('\n');
    for fault in Fault::ALL {
        let _ = write!(text, "| {fault} |");
        for phase in Phase::ALL {
            let _ = write!(text, " {} |", cell(fault, phase, outcomes));
        }
        text.push('\n');
    }
    text.push_str("\n| switched on | schedules |\n|---|--:|\n");
    for feature in Feature::ALL {
        let cell = count_of(outcomes, |outcome| outcome.schedule.is_on(feature));
        let _ = writeln!(text, "| {feature} | {cell} |");
    }
    let mut kinds: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for outcome in outcomes {
        for violation in &outcome.violations {
            kinds.entry(violation.invariant).or_default().push(outcome.schedule.seed);
        }
    }
    for (invariant, seeds) in kinds {
        let seeds = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let _ = write!(text, "\nViolated: {invariant}, by seeds {seeds}.\n");
    }
    text
}

/// The number of schedules with the fault in the phase.
fn cell(fault: Fault, phase: Phase, outcomes: &[Outcome]) -> String {
    count_of(outcomes, |outcome| outcome.schedule.phase == phase && outcome.schedule.has(fault))
}

/// The number of matching schedules, and how many of them have violations.
fn count_of(outcomes: &[Outcome], is: impl Fn(&Outcome) -> bool) -> String {
    let had = |outcome: &&Outcome| is(outcome);
    let all = outcomes.iter().filter(had).count();
    let bad = outcomes.iter().filter(had).filter(|outcome| !outcome.violations.is_empty()).count();
    match (all, bad) {
        (0, _) => "–".to_owned(),
        (all, 0) => all.to_string(),
        (all, bad) => format!("{all}, **{bad}** violated"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{cell, table};
    use crate::chaos::{Outcome, Schedule, Violation};

    #[test]
    fn a_schedule_counts_for_each_of_its_faults_and_a_violation_is_named_with_its_seed() {
        let schedule = Schedule::draw(3);
        let (fault, phase) = (schedule.strikes[0].fault, schedule.phase);
        let clean = Outcome { schedule, violations: Vec::new(), took: Duration::ZERO };
        let seen = "late".to_owned();
        let mut bad =
            Outcome { violations: vec![Violation { invariant: "order", seen }], ..clean.clone() };
        bad.schedule.seed = 4;
        assert_eq!(cell(fault, phase, &[clean.clone(), clean.clone()]), "2");
        assert_eq!(cell(fault, phase, &[clean.clone(), bad.clone()]), "2, **1** violated");
        let text = table(&[clean, bad]);
        assert!(text.contains("2 schedules, seeds 3 to 4"), "{text}");
        assert!(text.contains("Violated: order, by seeds 4."), "{text}");
    }
}
