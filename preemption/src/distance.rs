//! The kubelet's heuristic: the same victims, in the same order.
//!
//! It goes through the QoS classes from guaranteed down, and asks of each class only what those below it
//! cannot free. Within a class it chooses one pod after the other, each time the one whose requests are
//! closest to what is still lacking.
//!
//! The distance is a sum of squared ratios in 64-bit floats, and victims depend on whether two distances
//! are *equal*. So it is computed with the kubelet's operations in the kubelet's order, but only for the
//! few pods of each round that an estimate does not rule out ([`estimate`]).

mod estimate;

use std::cmp::Reverse;
use winddown_shared::ResourceName;

use self::estimate::Estimates;
use crate::table::{CandidateTable, Lane, VictimCandidate};
use crate::{Proof, Selection};

const BEST_EFFORT: usize = 0;
const BURSTABLE: usize = 1;
const GUARANTEED: usize = 2;

/// Chooses among candidates that together are enough.
pub(crate) fn select(table: &CandidateTable<'_>) -> Selection {
    let mut work = 0;
    let mut freed = vec![0; table.open.len()];
    let mut pick = |lane: usize, freed: &mut [i64]| {
        let lacking = lacking(table, lane, freed);
        let picked = Picking::new(&table.lanes[lane], lacking).run(&mut work);
        for pod in &picked {
            for (freed, (resource, _)) in freed.iter_mut().zip(&table.open) {
                *freed = freed.saturating_add(pod.requests.get(resource));
            }
        }
        picked
    };
    let from_guaranteed = pick(GUARANTEED, &mut freed);
    let from_burstable = pick(BURSTABLE, &mut freed);
    let from_best_effort = pick(BEST_EFFORT, &mut freed);
    let victims = [from_best_effort, from_burstable, from_guaranteed];
    let victims = victims.iter().flatten().map(|pod| pod.place).collect();
    Selection { victims, proof: Proof::Heuristic, work }
}

/// Returns the distance of a pod from what is lacking, given as pairs of the amount lacking and the amount
/// freed: 0 if the pod frees all of it, plus up to 1 for each resource that it does not free in full.
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

/// A requirement that is not met.
#[derive(Clone, Copy, Debug)]
struct Lacking<'a> {
    resource: &'a ResourceName,
    /// Always above 0.
    amount: i64,
}

/// Returns what a class has to free, given what has been `freed` and what the classes below it can free.
fn lacking<'a>(table: &'a CandidateTable<'_>, lane: usize, freed: &[i64]) -> Vec<Lacking<'a>> {
    let left = table.open.iter().enumerate().map(|(column, (resource, amount))| {
        let below = table.lanes[..lane].iter();
        let others = below.fold(freed[column], |sum, lane| sum.saturating_add(lane.sums[column]));
        Lacking { resource, amount: amount.saturating_sub(others) }
    });
    left.filter(|lacking| lacking.amount > 0).collect()
}

/// The process of picking pods from a lane until nothing is lacking.
struct Picking<'a> {
    /// The pods, in the order of the estimates' rows.
    pods: Vec<VictimCandidate<'a>>,
    /// Each pod's position in the kubelet's list, which breaks ties.
    positions: Vec<usize>,
    /// The kubelet's list: the rows of the remaining pods.
    list: Vec<usize>,
    lacking: Vec<Lacking<'a>>,
    estimates: Estimates,
}

impl<'a> Picking<'a> {
    fn new(lane: &Lane<'a>, lacking: Vec<Lacking<'a>>) -> Self {
        let pods = if lacking.is_empty() { &[] } else { &lane.pods[..] };
        let columns = lacking.iter().map(|lacking| {
            (lacking.amount, pods.iter().map(|pod| pod.requests.get(lacking.resource)))
        });
        let (estimates, positions) = Estimates::new(pods.len(), columns);
        let mut list = vec![0; pods.len()];
        positions.iter().enumerate().for_each(|(row, position)| list[*position] = row);
        let pods = positions.iter().map(|position| pods[*position]).collect();
        Self { pods, positions, list, lacking, estimates }
    }

    fn run(mut self, work: &mut u64) -> Vec<VictimCandidate<'a>> {
        let mut picked = Vec::new();
        while !self.lacking.is_empty() && !self.list.is_empty() {
            let nearest = self.nearest();
            picked.push(self.take(nearest));
        }
        *work += self.estimates.looks();
        picked
    }

    /// Returns the row of the closest pod. Ties go to the pod that requests less, first by memory, then by
    /// cpu; remaining ties go to the last one in the list.
    fn nearest(&mut self) -> usize {
        let rows = self.estimates.closest(self.lacking.iter().map(|lacking| lacking.amount));
        if let [only] = *rows {
            return only;
        }
        let mut best: Option<(usize, f64)> = None;
        for &row in rows {
            let requests = self.pods[row].requests;
            let frees = self.lacking.iter().map(|l| (l.amount, requests.get(l.resource)));
            let distance = distance(frees);
            let order = |row: usize| {
                let requests = self.pods[row].requests;
                (requests.memory_bytes(), requests.cpu_milli(), Reverse(self.positions[row]))
            };
            if best.is_none_or(|(best, least)| {
                distance < least || (distance == least && order(row) < order(best))
            }) {
                best = Some((row, distance));
            }
        }
        best.map_or(0, |(row, _)| row)
    }

    /// Removes a pod. The last one in the list moves to its position.
    fn take(&mut self, row: usize) -> VictimCandidate<'a> {
        let position = self.positions[row];
        self.list.swap_remove(position);
        if let Some(moved) = self.list.get(position) {
            self.positions[*moved] = position;
        }
        self.estimates.remove(row);
        let pod = self.pods[row];
        for at in (0..self.lacking.len()).rev() {
            let lacking = &mut self.lacking[at];
            lacking.amount = lacking.amount.saturating_sub(pod.requests.get(lacking.resource));
            if lacking.amount <= 0 {
                self.lacking.remove(at);
                self.estimates.remove_requirement(at);
            }
        }
        pod
    }
}
