//! The choice of victims.

use std::fmt;
use std::str::FromStr;

use winddown_shared::{Pod, Requests, ResourceName};

use crate::minimal::Criterion;
use crate::table::CandidateTable;
use crate::{NoVictims, distance, minimal};

/// A resource and how much of it must become free: cpu in millicores, `pods` in pods, all others in
/// base units. An amount of 0 or less is met already.
pub type Requirement = (ResourceName, i64);

/// How victims are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The kubelet's heuristic: QoS class by QoS class, always the pod that is closest to what is
    /// still lacking.
    #[default]
    Distance,
    /// The best set of victims by [`Criterion`].
    Minimal,
}

/// The chosen victims.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selection {
    /// Indices into the given list of pods, in the order in which to stop them. Empty when nothing is
    /// lacking.
    pub victims: Vec<usize>,
    /// How good the set is known to be.
    pub proof: Proof,
    /// The work done: how many pods, and swaps of a victim for another pod, were examined. The same for the
    /// same input on any machine.
    pub work: u64,
}

/// How good a set of victims is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// Nothing is claimed beyond what the strategy does.
    Heuristic,
    /// No set is better by this criterion or an earlier one. By the later ones, the set is the best
    /// that was found before the limit on the work was reached.
    UpTo(Criterion),
}

// === impl Strategy ===

impl Strategy {
    /// The strategy's name in the configuration and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Distance => "distance",
            Self::Minimal => "minimal",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The error for a text that names no strategy.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown strategy {0:?}: expected distance or minimal")]
pub struct StrategyError(pub String);

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        match text {
            "distance" => Ok(Self::Distance),
            "minimal" => Ok(Self::Minimal),
            _ => Err(StrategyError(text.to_owned())),
        }
    }
}

// === impl Proof ===

impl Proof {
    /// Whether no set is better by any criterion.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self == Self::UpTo(Criterion::Identity)
    }
}

/// Chooses victims among `pods`, so that `requirements` become free for `preemptor`.
///
/// Only pods that `preemptor` may preempt are chosen ([`Pod::may_preempt`]). Each frees what it is
/// charged for ([`Pod::accounted_requests`]). With [`Strategy::Distance`], the order of `pods` decides
/// between pods that are equal in everything else, as in the kubelet; with [`Strategy::Minimal`] it
/// does not matter.
///
/// # Errors
/// Fails if all preemptable pods together do not free enough.
pub fn select(
    preemptor: &Pod,
    pods: &[Pod],
    requirements: &[Requirement],
    strategy: Strategy,
) -> Result<Selection, NoVictims> {
    select_by(Pod::accounted_requests, preemptor, pods, requirements, strategy)
}

/// What a pod frees.
pub(crate) type Charge = fn(&Pod) -> &Requests;

/// Makes the choice that the admission of a pod makes, and says what each pod was taken to free.
///
/// For pods with pod-level resources or an overhead, the kubelet's ranking counts less than its fit check does. If that
/// makes the difference, the fit check's amounts count: the fit is checked again before the pod starts.
pub(crate) fn select_for_admission(
    preemptor: &Pod,
    pods: &[Pod],
    requirements: &[Requirement],
    strategy: Strategy,
) -> (Charge, Result<Selection, NoVictims>) {
    let by = |charge: Charge| select_by(charge, preemptor, pods, requirements, strategy);
    match by(Pod::accounted_requests) {
        Ok(selection) => (Pod::accounted_requests, Ok(selection)),
        Err(error) => match by(Pod::fit_requests) {
            Ok(selection) => (Pod::fit_requests, Ok(selection)),
            Err(_) => (Pod::accounted_requests, Err(error)),
        },
    }
}

fn select_by(
    charge: Charge,
    preemptor: &Pod,
    pods: &[Pod],
    requirements: &[Requirement],
    strategy: Strategy,
) -> Result<Selection, NoVictims> {
    let table = CandidateTable::new(charge, preemptor, pods, requirements);
    table.is_enough()?;
    match strategy {
        Strategy::Distance => Ok(distance::select(&table)),
        Strategy::Minimal => Ok(minimal::select(&table, pods)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_is_read_as_it_is_written_and_nothing_else_is_one() {
        for (strategy, text) in [(Strategy::Distance, "distance"), (Strategy::Minimal, "minimal")] {
            assert_eq!(strategy.to_string(), text);
            assert_eq!(text.parse(), Ok(strategy));
        }
        for text in ["", "Distance", "minimal "] {
            assert_eq!(text.parse::<Strategy>(), Err(StrategyError(text.to_owned())));
        }
    }

    #[test]
    fn a_proof_is_exact_if_it_leaves_no_criterion_out() {
        assert!(Proof::UpTo(Criterion::Identity).is_exact());
        assert!(!Proof::UpTo(Criterion::Age).is_exact());
        assert!(!Proof::Heuristic.is_exact());
    }
}
