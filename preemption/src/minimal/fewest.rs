//! How few pods are enough.
//!
//! With any non-negative weights on the requirements, what a set frees in the weighed sum must reach
//! what is required in it. So no set of `k` pods is enough if the `k` pods that are best in the weighed
//! sum do not reach it. The weights for which they fall short the most give the bound.

use super::items::Items;
use super::search::{self, Effort, Outcome, SLACK};
use super::swaps;

/// Steps towards the best weights, for each number of pods.
const STEPS: usize = 48;

/// A set that is enough.
#[derive(Debug)]
pub(super) struct Fewest {
    pub(super) set: Vec<usize>,
    /// No set with fewer pods is enough.
    pub(super) is_proven: bool,
}

/// Finds the smallest set that is enough; never one that is larger than what is needed of `known`,
/// the places of pods that are enough. Sorts the items as it suits a search for sets of that size.
pub(super) fn find(items: &mut Items, known: &[usize], effort: &mut Effort) -> Fewest {
    let mut known = known_places(items, known);
    let mut is_proven = true;
    let mut size = 1;
    loop {
        let bound = bound(items, size, effort);
        size = bound.size;
        items.sort_by_score(bound.weights);
        let reached = prefix(items, effort);
        let fallback = smaller(known.as_deref().map(|k| set_of(items, k)), reached);
        if size >= fallback.len() {
            return Fewest { set: fallback, is_proven };
        }
        let best: Vec<usize> = (0..size).collect();
        if let Some(set) = swaps::mend(items, best, effort) {
            return Fewest { set, is_proven };
        }
        match search::any(items, size, effort) {
            Outcome::Found(set) => return Fewest { set, is_proven },
            Outcome::None => {}
            Outcome::Unknown => is_proven = false,
        }
        known = Some(fallback.iter().map(|item| items.items[*item].place).collect());
        size += 1;
    }
}

/// A number of pods below which no set is enough, and the weights that show it.
struct Bound {
    size: usize,
    weights: Vec<f64>,
}

fn bound(items: &Items, at_least: usize, effort: &mut Effort) -> Bound {
    let requirements = items.need.len();
    let mut size = at_least;
    let mut weights = vec![1.0 / count(requirements); requirements];
    let mut best = (f64::INFINITY, weights.clone());
    let mut step = 0;
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(items.len());
    while step < STEPS && size < items.len() {
        effort.add(items.len());
        let freed = freed_by_the_best(items, size, &weights, &mut order);
        let sum: f64 = freed.iter().zip(&weights).map(|(freed, weight)| freed * weight).sum();
        if sum < 1.0 - SLACK {
            size += 1;
            step = 0;
            best = (f64::INFINITY, weights.clone());
            continue;
        }
        if sum < best.0 {
            best = (sum, weights.clone());
        }
        if requirements == 1 {
            break;
        }
        // Away from what is freed in plenty.
        let pace = 1.0 / count(step + 2);
        let least = freed.iter().copied().fold(f64::INFINITY, f64::min);
        for (weight, freed) in weights.iter_mut().zip(&freed) {
            *weight /= 1.0 + pace * (freed - least);
        }
        let all: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= all);
        step += 1;
    }
    Bound { size, weights: best.1 }
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn count(number: usize) -> f64 {
    number as f64
}

/// What those `size` pods free that free most in the weighed sum, as parts of the requirements.
fn freed_by_the_best(
    items: &Items,
    size: usize,
    weights: &[f64],
    order: &mut Vec<(f64, usize)>,
) -> Vec<f64> {
    order.clear();
    order.extend(items.items.iter().enumerate().map(|(index, item)| {
        let score = item.parts.iter().zip(weights).map(|(part, weight)| part * weight).sum();
        (score, index)
    }));
    order.select_nth_unstable_by(size - 1, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut best: Vec<usize> = order[..size].iter().map(|(_, index)| *index).collect();
    // Sums of floats depend on their order.
    best.sort_unstable();
    let mut freed = vec![0.0; items.need.len()];
    for index in best {
        for (sum, part) in freed.iter_mut().zip(&items.items[index].parts) {
            *sum += part;
        }
    }
    freed
}

/// The first pods until they are enough, without those that are not needed.
fn prefix(items: &Items, effort: &mut Effort) -> Vec<usize> {
    let mut left = items.need.clone();
    let mut set = Vec::new();
    for (index, item) in items.items.iter().enumerate() {
        if left.iter().all(|left| *left <= 0) {
            break;
        }
        for (left, amount) in left.iter_mut().zip(&item.amounts) {
            *left = left.saturating_sub(*amount);
        }
        set.push(index);
    }
    effort.add(set.len());
    without_the_needless(items, set)
}

/// Leaves out pods without which the set is enough, those that help least first.
fn without_the_needless(items: &Items, mut set: Vec<usize>) -> Vec<usize> {
    set.sort_unstable();
    let mut left = items.left(&set);
    for at in (0..set.len()).rev() {
        let amounts = &items.items[set[at]].amounts;
        if left.iter().zip(amounts).all(|(left, amount)| left.saturating_add(*amount) <= 0) {
            left.iter_mut().zip(amounts).for_each(|(left, amount)| *left += amount);
            set.remove(at);
        }
    }
    set
}

/// The places, if the pods there are all among the items: none has a higher priority than needed.
fn known_places(items: &Items, known: &[usize]) -> Option<Vec<usize>> {
    let mut places: Vec<usize> = items.items.iter().map(|item| item.place).collect();
    places.sort_unstable();
    known.iter().all(|k| places.binary_search(k).is_ok()).then(|| known.to_vec())
}

fn set_of(items: &Items, places: &[usize]) -> Vec<usize> {
    let mut places = places.to_vec();
    places.sort_unstable();
    let here = items.items.iter().enumerate();
    let set = here.filter(|(_, item)| places.binary_search(&item.place).is_ok());
    without_the_needless(items, set.map(|(index, _)| index).collect())
}

fn smaller(one: Option<Vec<usize>>, other: Vec<usize>) -> Vec<usize> {
    match one {
        Some(one) if one.len() <= other.len() => one,
        _ => other,
    }
}
