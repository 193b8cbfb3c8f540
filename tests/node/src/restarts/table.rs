//! The table of a run.

use std::fmt::Write as _;

use super::{Deed, Round, Runtime};

/// One row per deed: the rounds, and those that differed from the undisturbed deed.
#[must_use]
pub fn table(all: &[(Runtime, Vec<Round>)]) -> String {
    let mut text = String::from("| deed |");
    for (runtime, _) in all {
        // Writing to a text cannot fail.
        let _ = write!(text, " {} |", runtime.name());
    }
    text.push_str(&format!("\n|---|{}\n", "--:|".repeat(all.len())));
    for deed in Deed::ON_A_NODE_THAT_STAYS.into_iter().chain([Deed::Shutdown]) {
        let _ = write!(text, "| {deed} |");
        for (_, rounds) in all {
            let of_deed = || rounds.iter().filter(|round| round.deed == deed);
            let as_without = of_deed().filter(|round| round.differences.is_empty()).count();
            let _ = write!(text, " {as_without} of {} |", of_deed().count());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restarts::Strike;

    #[test]
    fn a_row_counts_the_rounds_that_ended_as_without_a_restart() {
        let round = |differences| Round {
            deed: Deed::Drain,
            strike: Strike { kills: true, at: 5 },
            differences,
        };
        let rounds = vec![round(vec![]), round(vec!["web: …".to_owned()])];
        let text = table(&[(Runtime::Process, rounds)]);
        assert!(text.contains("\n| drain | 1 of 2 |\n"), "{text}");
        assert!(text.starts_with("| deed | process |\n|---|--:|\n"), "{text}");
    }
}
