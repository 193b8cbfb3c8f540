//! The best set of victims, by a fixed order of what matters.
//!
//! 1. Which priorities are needed at all is a matter of sums: the pods up to some priority are enough,
//!    those below it are not.
//! 2. How few of them are enough is a covering problem with a handful of dimensions. Relaxed, it gives
//!    a bound that is off by less than one pod per resource, so there is little to search
//!    ([`fewest`]).
//! 3. Among the sets of that size, swaps find a good one and branch and bound the best ([`search`]).
//!
//! The search has a bound on its work, counted in pods looked at and not in time, so that the answer
//! is the same on every machine. When it is reached, the best set that was found is the answer, and
//! [`Proof`] says what is known of it. The first two criteria rarely need it: see
//! `docs/explanation/preemption.md` for what was measured.

use winddown_shared::Pod;

use crate::table::Table;
use crate::{Proof, Selection, distance};

mod effort;
mod fewest;
mod items;
mod search;
mod suffix;
mod swaps;

use effort::Effort;
use items::Items;
pub(crate) use items::{can_run_elsewhere, is_ending};

/// The criteria that compare sets of victims, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Criterion {
    /// The highest priority of a victim, the lower the better. A pod without one has 0.
    Priority,
    /// The number of victims.
    Number,
    /// What is freed beyond what is required, each resource relative to its requirement, summed up.
    Overshoot,
    /// Victims that are not ending already.
    Ending,
    /// Victims that cannot run elsewhere: static pods, their mirrors, pods of a DaemonSet.
    Bound,
    /// Guaranteed victims, then burstable ones.
    Class,
    /// The age of the oldest victim, then of the next one, …; a pod of unknown age is the oldest.
    Age,
    /// UID, namespace and name: of two sets that are equal in all else, one is always the answer.
    Identity,
}

/// Chooses among candidates that are sufficient together.
pub(crate) fn select(table: &Table<'_>, pods: &[Pod]) -> Selection {
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
