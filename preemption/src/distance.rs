//! The kubelet's choice: its victims, in its order.
//!
//! Class by class from the guaranteed down, each class only for what those below it cannot free.
//! Within a class, one pod after the other: the one whose requests are closest to what is still
//! lacking.
//!
//! The distance is a sum of squared ratios in 64-bit floats, and whether two are *equal* decides about
//! victims. So it is computed with the kubelet's operations in the kubelet's order, but only for the
//! few pods of each round that an estimate without divisions leaves.

mod estimate;

use self::estimate::{Estimates, Lacking};
use crate::table::{Lane, Table};
use crate::{Proof, Requirement, Selection};

const BEST_EFFORT: usize = 0;
const BURSTABLE: usize = 1;
const GUARANTEED: usize = 2;

/// Chooses among candidates that are sufficient together.
pub(crate) fn select(mut table: Table) -> Selection {
    let mut work = 0;
    let sums = |table: &Table, lane| -> Vec<i64> {
        (0..table.open.len()).map(|requirement| table.sum(lane, requirement)).collect()
    };
    let (best_effort, burstable) = (sums(&table, BEST_EFFORT), sums(&table, BURSTABLE));
    let mut freed = vec![0; table.open.len()];
    let mut pick = |lane: usize, others: &[&[i64]], freed: &mut [i64]| {
        let lacking = lacking(&table.open, others, freed);
        Picking { lane: &mut table.lanes[lane], lacking, freed }.run(&mut work)
    };
    let from_guaranteed = pick(GUARANTEED, &[&best_effort, &burstable], &mut freed);
    let from_burstable = pick(BURSTABLE, &[&best_effort], &mut freed);
    let mut victims = pick(BEST_EFFORT, &[], &mut freed);
    victims.extend(from_burstable);
    victims.extend(from_guaranteed);
    Selection { victims, proof: Proof::Heuristic, work }
}

/// How far a pod that frees these amounts is from what is lacking, given as pairs of both: 0 when it
/// frees all of it, 1 for each resource of which it frees nothing.
pub(crate) fn distance(lacking_and_freed: impl IntoIterator<Item = (i64, i64)>) -> f64 {
    let mut distance = 0.0;
    for (lacking, freed) in lacking_and_freed {
        let left = lacking.saturating_sub(freed);
        if left > 0 {
            let ratio = float(left) / float(lacking);
            distance += ratio * ratio;
        }
    }
    distance
}

#[allow(clippy::cast_precision_loss, reason = "the kubelet rounds here, and so must we")]
fn float(amount: i64) -> f64 {
    amount as f64
}

/// What is left to free when these have been freed.
fn lacking(open: &[Requirement], others: &[&[i64]], freed: &[i64]) -> Vec<Lacking> {
    let left = open.iter().enumerate().map(|(column, (_, amount))| {
        let others = others.iter().fold(freed[column], |sum, o| sum.saturating_add(o[column]));
        Lacking { column, amount: amount.saturating_sub(others) }
    });
    left.filter(|lacking| lacking.amount > 0).collect()
}

/// Taking pods out of a lane until nothing is lacking.
struct Picking<'a> {
    lane: &'a mut Lane,
    lacking: Vec<Lacking>,
    freed: &'a mut [i64],
}

impl Picking<'_> {
    fn run(mut self, work: &mut u64) -> Vec<usize> {
        let mut picked = Vec::new();
        if self.lacking.is_empty() {
            return picked;
        }
        let mut estimates = Estimates::new(&self.lane.amounts);
        while !self.lacking.is_empty() && !self.lane.place.is_empty() {
            *work += u64::try_from(self.lane.place.len()).unwrap_or(u64::MAX);
            let nearest = self.nearest(estimates.closest(&self.lacking));
            estimates.swap_remove(nearest);
            picked.push(self.take(nearest));
        }
        picked
    }

    /// The pod that is closest. Among equals the one that asks for less, memory before cpu; among
    /// equals in that, too, the last.
    fn nearest(&self, rows: &[usize]) -> usize {
        let mut best = None;
        for &row in rows {
            let pairs = self.lacking.iter().map(|l| (l.amount, self.lane.amounts[l.column][row]));
            let distance = distance(pairs);
            let size = (self.lane.memory[row], self.lane.cpu[row]);
            if best.is_none_or(|(_, d, s)| distance < d || (distance == d && size <= s)) {
                best = Some((row, distance, size));
            }
        }
        best.map_or(0, |(row, ..)| row)
    }

    /// Takes a pod out. The last one moves to its row, which decides between equals later on.
    fn take(&mut self, row: usize) -> usize {
        for (column, amounts) in self.lane.amounts.iter_mut().enumerate() {
            let amount = amounts.swap_remove(row);
            self.freed[column] = self.freed[column].saturating_add(amount);
            for lacking in self.lacking.iter_mut().filter(|l| l.column == column) {
                lacking.amount = lacking.amount.saturating_sub(amount);
            }
        }
        self.lacking.retain(|lacking| lacking.amount > 0);
        self.lane.memory.swap_remove(row);
        self.lane.cpu.swap_remove(row);
        self.lane.place.swap_remove(row)
    }
}
