//! The candidates in numeric form, in an order that does not depend on the order of the input.

use std::cmp::Reverse;

use k8s_openapi::jiff::Timestamp;
use winddown_shared::{Pod, QosClass, Requests};

use crate::table::CandidateTable;

/// The candidates up to the lowest priority at which they are enough.
#[derive(Debug)]
pub(super) struct Items {
    /// The amounts to free, each above 0.
    pub(super) need: Vec<i64>,
    /// The weight of each requirement in the scores.
    pub(super) weights: Vec<f64>,
    /// The pods, sorted by score. Pods that free the same are next to each other.
    pub(super) items: Vec<Item>,
    /// The weight of one unit of each requirement; 0 if there is no common unit (see [`weigh`]).
    pub(super) units: Vec<u128>,
    /// The greatest common divisor of all pods' amounts, for each requirement.
    pub(super) steps: Vec<i64>,
}

/// One pod.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The pod's index in the given list.
    pub(super) place: usize,
    /// How much it frees of each requirement.
    pub(super) amounts: Box<[i64]>,
    /// The amounts as fractions of the requirements, at most 1 each.
    pub(super) parts: Box<[f64]>,
    /// The sum of its amounts, in a unit that is common to all requirements.
    pub(super) weight: u128,
    /// The criteria from [`Ending`](super::Criterion::Ending) to [`Class`](super::Criterion::Class)
    /// as digits of one number, so that sums of them compare as the criteria do.
    pub(super) rest: u64,
    /// Rank by age: the youngest has 0, and pods of the same age have the same rank.
    pub(super) age: u32,
    /// Rank by UID, namespace and name.
    pub(super) identity: u32,
    /// How much the pod helps. The scores of a sufficient set add up to at least that of the requirements.
    pub(super) score: f64,
}

// === impl Items ===

impl Items {
    pub(super) fn new(table: &CandidateTable<'_>, pods: &[Pod]) -> Self {
        let need: Vec<i64> = table.open.iter().map(|(_, amount)| *amount).collect();
        let mut items = up_to_the_priority_needed(table, pods, &need);
        rank(&mut items, pods);
        let units = weigh(&mut items, &need);
        let steps = (0..need.len())
            .map(|r| items.iter().fold(0, |step, item| gcd(step, item.amounts[r])).max(1))
            .collect();
        let mut all = Self { weights: Vec::new(), need, items, units, steps };
        all.sort_by_score(vec![1.0; all.need.len()]);
        all
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Recomputes the scores with these weights of the requirements, and sorts by them.
    pub(super) fn sort_by_score(&mut self, weights: Vec<f64>) {
        for item in &mut self.items {
            item.score = item.parts.iter().zip(&weights).map(|(part, weight)| part * weight).sum();
        }
        self.weights = weights;
        self.items.sort_unstable_by(|a, b| {
            let by_score = b.score.total_cmp(&a.score);
            by_score.then_with(|| b.amounts.cmp(&a.amounts)).then_with(|| a.rank().cmp(&b.rank()))
        });
    }

    /// Returns what the pods of a set leave to be freed.
    pub(super) fn left(&self, set: &[usize]) -> Vec<i64> {
        let mut left = self.need.clone();
        for &item in set {
            for (left, amount) in left.iter_mut().zip(&self.items[item].amounts) {
                *left = left.saturating_sub(*amount);
            }
        }
        left
    }

    /// Returns the least score that pods need in order to free what is left.
    pub(super) fn score_of(&self, left: &[i64]) -> f64 {
        let parts = left.iter().zip(&self.need).map(|(left, need)| part(*left, *need));
        parts.zip(&self.weights).map(|(part, weight)| part * weight).sum()
    }

    /// Returns the least weight of any set that frees what is left.
    pub(super) fn least_weight(&self, left: &[i64]) -> u128 {
        // At most one step above what is left, so it fits into a machine word: this runs for every pod of a search.
        let word = |amount: i64| u64::try_from(amount).unwrap_or(0);
        let rounded = left.iter().zip(&self.steps).map(|(left, step)| {
            let step = word(*step);
            u128::from(word(*left).div_ceil(step) * step)
        });
        let weights = rounded.zip(&self.units).map(|(left, unit)| left.saturating_mul(*unit));
        weights.fold(0, u128::saturating_add)
    }

    /// Returns the places of a set's pods, in the order in which to stop them.
    pub(super) fn in_order(&self, set: &[usize], pods: &[Pod]) -> Vec<usize> {
        let mut chosen: Vec<&Item> = set.iter().map(|item| &self.items[*item]).collect();
        chosen.sort_unstable_by_key(|item| {
            let pod = &pods[item.place];
            (pod.qos(), pod.priority_or_zero(), item.age, item.identity)
        });
        chosen.into_iter().map(|item| item.place).collect()
    }
}

// === impl Item ===

impl Item {
    /// Creates an item with only its amounts; all other fields are still empty.
    fn new(place: usize, amounts: Box<[i64]>) -> Self {
        Self {
            place,
            amounts,
            parts: Box::default(),
            weight: 0,
            rest: 0,
            age: 0,
            identity: 0,
            score: 0.0,
        }
    }

    /// The key that decides which of two pods that free the same is chosen first.
    pub(super) fn rank(&self) -> (u64, u32, u32) {
        (self.rest, self.age, self.identity)
    }
}

fn up_to_the_priority_needed(table: &CandidateTable<'_>, pods: &[Pod], need: &[i64]) -> Vec<Item> {
    let candidates = table.lanes.iter().flat_map(|lane| &lane.pods);
    let amounts = |requests: &Requests| table.open.iter().map(|(r, _)| requests.get(r)).collect();
    let mut items: Vec<Item> = candidates
        .map(|candidate| Item::new(candidate.place, amounts(candidate.requests)))
        .collect();
    items.sort_by_key(|item| pods[item.place].priority_or_zero());
    let mut left = need.to_vec();
    let enough = items.iter().position(|item| {
        for (left, amount) in left.iter_mut().zip(&item.amounts) {
            *left = left.saturating_sub(*amount);
        }
        left.iter().all(|left| *left <= 0)
    });
    if let Some(enough) = enough {
        let most = pods[items[enough].place].priority_or_zero();
        let up_to = items.partition_point(|item| pods[item.place].priority_or_zero() <= most);
        items.truncate(up_to);
    }
    for item in &mut items {
        let parts = item.amounts.iter().zip(need);
        item.parts = parts.map(|(amount, need)| part(*amount, *need)).collect();
    }
    items
}

/// Returns an amount as a fraction of the requirement, at most 1.
#[allow(clippy::cast_precision_loss, reason = "bounds are compared with room for rounding")]
fn part(amount: i64, need: i64) -> f64 {
    if amount >= need { 1.0 } else { amount.max(0) as f64 / need as f64 }
}

/// Fills in the fields that distinguish pods that free the same.
fn rank(items: &mut [Item], pods: &[Pod]) {
    let base = u64::try_from(items.len()).unwrap_or(u64::MAX).saturating_add(1).min(1 << 15);
    let (identities, ages) = (numbers(items, |i| identity(&pods[i.place])), {
        numbers(items, |i| Reverse(born(&pods[i.place])))
    });
    for (index, item) in items.iter_mut().enumerate() {
        let pod = &pods[item.place];
        let digits = [
            !is_ending(pod),
            !can_run_elsewhere(pod),
            pod.qos() == QosClass::Guaranteed,
            pod.qos() == QosClass::Burstable,
        ];
        item.rest = digits.iter().fold(0, |number, digit| number * base + u64::from(*digit));
        item.age = ages[index];
        item.identity = identities[index];
    }
}

/// Returns the rank of each item's key among the distinct keys.
fn numbers<K: Ord>(items: &[Item], key: impl Fn(&Item) -> K) -> Vec<u32> {
    let mut order: Vec<(K, usize)> = items.iter().enumerate().map(|(i, it)| (key(it), i)).collect();
    order.sort_unstable();
    let mut numbers = vec![0; items.len()];
    let mut number = 0;
    for (at, (key, item)) in order.iter().enumerate() {
        if at > 0 && order[at - 1].0 != *key {
            number += 1;
        }
        numbers[*item] = number;
    }
    numbers
}

fn identity(pod: &Pod) -> (&str, &str, &str) {
    (pod.uid().as_str(), pod.namespace(), pod.name())
}

/// Whether the pod is terminating: it has a deletion timestamp.
pub(crate) fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether the pod's controller can create a replacement on another node.
pub(crate) fn can_run_elsewhere(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let is_of_daemon_set = owners.into_iter().any(|owner| owner.kind == "DaemonSet");
    !pod.is_static() && !pod.is_mirror() && !is_of_daemon_set
}

/// Returns the pod's creation time, or its start time. `None` (unknown) sorts first.
pub(crate) fn born(pod: &Pod) -> Option<Timestamp> {
    let started = || pod.status.as_ref()?.start_time.as_ref();
    let time = pod.metadata.creation_timestamp.as_ref().or_else(started)?;
    Some(time.0)
}

/// Sets each pod's weight: its amounts of different resources in one common unit, so that sums of weights
/// compare as overshoots do. Exact, unless the requirements are so odd that no common unit fits into
/// 128 bits; then precise to about 1e-12. Returns the weight of one unit of each requirement.
fn weigh(items: &mut [Item], need: &[i64]) -> Vec<u128> {
    if let Some(units) = common_units(items, need) {
        for item in items {
            let amounts = item.amounts.iter().zip(&units);
            item.weight = amounts.map(|(amount, unit)| unsigned(*amount) * unit).sum();
        }
        return units;
    }
    for item in items {
        let amounts = item.amounts.iter().zip(need);
        item.weight = amounts.map(|(a, need)| (unsigned(*a) << 40) / unsigned(*need)).sum();
    }
    vec![0; need.len()]
}

/// Returns the weight of one unit of each requirement, such that all requirements weigh the same. `None`
/// if the sum of all weights would overflow.
fn common_units(items: &[Item], need: &[i64]) -> Option<Vec<u128>> {
    let whole = need.iter().try_fold(1_u128, |whole, need| {
        let need = unsigned(*need);
        (whole / gcd_wide(whole, need)).checked_mul(need)
    })?;
    let units: Vec<u128> = need.iter().map(|need| whole / unsigned(*need)).collect();
    let mut sum = whole.checked_mul(2)?;
    for item in items {
        for (amount, unit) in item.amounts.iter().zip(&units) {
            sum = sum.checked_add(unsigned(*amount).checked_mul(*unit)?)?;
        }
    }
    Some(units)
}

/// Negative amounts count as 0.
fn unsigned(amount: i64) -> u128 {
    u128::try_from(amount).unwrap_or(0)
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn gcd_wide(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd_wide(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(amounts: &[i64]) -> Item {
        Item::new(0, amounts.into())
    }

    #[test]
    fn amounts_of_different_resources_are_weighed_in_the_smallest_common_unit() {
        let mut items = [item(&[30, 7]), item(&[0, 250])];
        assert_eq!(weigh(&mut items, &[100, 250]), [5, 2]);
        assert_eq!(items.each_ref().map(|item| item.weight), [164, 500]);
    }

    #[test]
    fn requirements_without_a_common_unit_are_weighed_to_a_millionth_of_a_millionth() {
        let need = [i64::MAX, i64::MAX - 1, i64::MAX - 24];
        let mut items = [item(&[i64::MAX / 2, 0, 0]), item(&[0, i64::MAX - 1, i64::MAX / 2])];
        assert_eq!(weigh(&mut items, &need), [0; 3]);
        let whole = 1 << 40;
        assert_eq!(items.each_ref().map(|item| item.weight), [whole / 2 - 1, whole + whole / 2]);
    }

    #[test]
    fn what_every_amount_is_a_multiple_of() {
        for (a, b, greatest) in [(12, 18, 6), (0, 5, 5), (7, 3, 1)] {
            assert_eq!(gcd(a, b), greatest);
            assert_eq!(gcd_wide(unsigned(a), unsigned(b)), unsigned(greatest));
        }
    }
}
