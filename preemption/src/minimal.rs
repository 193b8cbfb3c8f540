//! The best set of victims, by a fixed order of criteria.
//!
//! 1. Which priorities are needed is found by summing up: the pods up to some priority are enough,
//!    those below it are not.
//! 2. The fewest pods that are enough is a covering problem with a handful of dimensions. Its relaxation
//!    gives a bound that is off by less than one pod per resource, so there is little to search
//!    ([`fewest`]).
//! 3. Among the sets of that size, swaps find a good one, and branch and bound finds the best ([`search`]).
//!
//! The search's work is limited, and counted in pods examined rather than in time, so that the answer
//! is the same on every machine. If the limit is reached, the answer is the best set found so far, and
//! [`Proof`] says what is known of it. The first two criteria rarely reach it: see
//! `docs/explanation/preemption.md` for measurements.

use winddown_shared::Pod;

use crate::table::CandidateTable;
use crate::{Proof, Selection, distance};

mod effort;
mod fewest;
mod items;
mod search;
mod suffix;
mod swaps;

use effort::Effort;
use items::Items;
pub(crate) use items::{born, can_run_elsewhere, is_ending};

/// The criteria for comparing sets of victims, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Criterion {
    /// The highest priority of a victim; lower is better. A pod without a priority counts as 0.
    Priority,
    /// The number of victims.
    Number,
    /// The amount freed beyond the requirements, each resource relative to its requirement, summed up.
    Overshoot,
    /// The number of victims that are not terminating already.
    Ending,
    /// The number of victims that cannot run elsewhere: static pods, mirror pods, pods of a DaemonSet.
    Bound,
    /// The number of guaranteed victims, then that of burstable ones.
    Class,
    /// The age of the oldest victim, then of the next one, and so on. Unknown ages count as the oldest.
    Age,
    /// UID, namespace and name: the tie-breaker that makes the answer unique.
    Identity,
}

/// Chooses among candidates that together are enough.
pub(crate) fn select(table: &CandidateTable<'_>, pods: &[Pod]) -> Selection {
    if table.open.is_empty() {
        let proof = Proof::UpTo(Criterion::Identity);
        return Selection { victims: Vec::new(), proof, work: 0 };
    }
    let known = distance::select(table);
    let mut items = Items::new(table, pods);
    let mut effort = Effort::new(known.work);
    let fewest = fewest::find(&mut items, &known.victims, &mut effort);
    let best = search::best(&items, fewest.set, &mut effort);
    let proof = match (fewest.is_proven, best.proof) {
        (true, proof) => proof,
        (false, _) => Proof::UpTo(Criterion::Priority),
    };
    Selection { victims: items.in_order(&best.set, pods), proof, work: effort.spent() }
}
