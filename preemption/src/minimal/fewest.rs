//! The smallest number of pods that is enough.
//!
//! For any non-negative weights on the requirements, the weighted sum of what a set frees must reach the
//! weighted sum of what is required. So no set of `k` pods is enough if the `k` pods with the best
//! weighted sums do not reach it. The weights for which they fall short the most give the bound. If pods
//! are of two kinds, each freeing mostly one resource, the same check is made for every way to divide `k`
//! between the kinds: then fractions of one kind cannot fill in for the other.

use super::effort::Effort;
use super::items::Items;
use super::search::{self, ROUNDING_SLACK, SearchOutcome};
use super::swaps;

/// The most steps towards the best weights, for each number of pods.
const MAX_WEIGHT_STEPS: usize = 48;

/// The most pods that [`by_two_kinds`] may examine.
const MAX_DIVIDED_PODS: u64 = 200_000;

/// A set that is enough.
#[derive(Debug)]
pub(super) struct Fewest {
    pub(super) set: Vec<usize>,
    /// Whether it is proven that no smaller set is enough.
    pub(super) is_proven: bool,
}

/// Finds the smallest set that is enough. `known` has the places of a set that is enough; the result is
/// never larger than the part of it that is needed. Sorts the items for a search for sets of that size.
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
        if let Some(set) = swaps::repair(items, best, effort) {
            return Fewest { set, is_proven };
        }
        let outcome = match by_two_kinds(items, size, effort) {
            SearchOutcome::Unknown => search::any(items, size, effort),
            known => known,
        };
        match outcome {
            SearchOutcome::Found(set) => return Fewest { set, is_proven },
            SearchOutcome::None => {}
            SearchOutcome::Unknown => is_proven = false,
        }
        known = Some(fallback.iter().map(|item| items.items[*item].place).collect());
        size += 1;
    }
}

/// A number of pods below which no set is enough, and the weights that prove it.
struct Bound {
    size: usize,
    weights: Vec<f64>,
}

fn bound(items: &Items, at_least: usize, effort: &mut Effort) -> Bound {
    let mut size = at_least;
    let mut all: Vec<usize> = (0..items.len()).collect();
    loop {
        let weighed = weigh(items, &mut [(&mut all, size)], effort);
        if !weighed.falls_short || size >= items.len() {
            return Bound { size, weights: weighed.weights };
        }
        size += 1;
    }
}

/// Splits the pods into two kinds: those that free mostly one particular resource, and the others. For
/// every way to divide a set of this size between them, checks whether such a set can be enough, and if
/// so, whether swaps lead to one. Tries each resource but the first in turn.
fn by_two_kinds(items: &Items, size: usize, effort: &mut Effort) -> SearchOutcome {
    let mut outcome = SearchOutcome::Unknown;
    let most = effort.spent().saturating_add(MAX_DIVIDED_PODS);
    for resource in 1..items.need.len() {
        let is_of_it = |item: &usize| {
            let parts = &items.items[*item].parts;
            parts.iter().all(|part| *part <= parts[resource])
        };
        let (mut of_it, mut others): (Vec<usize>, Vec<usize>) =
            (0..items.len()).partition(is_of_it);
        let mut are_too_few = true;
        for number in size.saturating_sub(others.len())..=size.min(of_it.len()) {
            let kinds = &mut [(&mut of_it, number), (&mut others, size - number)];
            let weighed = weigh(items, kinds, effort);
            if weighed.falls_short {
                continue;
            }
            if effort.spent() > most {
                return SearchOutcome::Unknown;
            }
            are_too_few = false;
            freed_by_the_best(items, kinds, &scores(items, &weighed.weights));
            let best = kinds.iter().flat_map(|(members, number)| &members[..*number]);
            if let Some(set) = swaps::repair(items, best.copied().collect(), effort) {
                return SearchOutcome::Found(set);
            }
        }
        if are_too_few {
            outcome = SearchOutcome::None;
        }
    }
    outcome
}

/// Weights, and whether the best pods fall short with them.
struct Weighed {
    weights: Vec<f64>,
    falls_short: bool,
}

/// Searches for weights with which the best pods, a given number of each kind, fall short of what is
/// required. If it finds none, returns those with which they exceed it the least.
fn weigh(items: &Items, kinds: &mut [Kind<'_>], effort: &mut Effort) -> Weighed {
    let mut best = (f64::INFINITY, Vec::new());
    let mut path = Path::new(items.need.len());
    for _ in 0..MAX_WEIGHT_STEPS {
        let weights = &path.weights;
        effort.add(items.len());
        let freed = freed_by_the_best(items, kinds, &scores(items, weights));
        let sum: f64 = freed.iter().zip(weights).map(|(freed, weight)| freed * weight).sum();
        if sum < 1.0 - ROUNDING_SLACK {
            return Weighed { weights: path.weights, falls_short: true };
        }
        if sum < best.0 {
            best = (sum, weights.clone());
        }
        if !path.step(&freed, sum) {
            break;
        }
    }
    Weighed { weights: best.1, falls_short: false }
}

/// A descent towards weights with which the pods fall short. Their excess over the requirements is convex
/// in the weights, and the amounts that they free are a subgradient of it.
struct Path {
    weights: Vec<f64>,
    /// With two requirements, the interval that contains the best weight of the second.
    between: (f64, f64),
    /// With more, how many requirements have been tried with all of the weight.
    alone: usize,
}

impl Path {
    fn new(requirements: usize) -> Self {
        let weights = match requirements {
            2 => vec![0.5, 0.5],
            _ => (0..requirements).map(|r| if r == 0 { 1.0 } else { 0.0 }).collect(),
        };
        Self { weights, between: (0.0, 1.0), alone: 1 }
    }

    /// Moves on from weights with which the pods free `freed`, with a weighted sum of `sum`. Returns false
    /// when there is nothing left to try.
    fn step(&mut self, freed: &[f64], sum: f64) -> bool {
        match *freed {
            [_] => false,
            [one, two] => {
                let at = self.weights[1];
                self.between = if two > one { (self.between.0, at) } else { (at, self.between.1) };
                let middle = f64::midpoint(self.between.0, self.between.1);
                self.weights = vec![1.0 - middle, middle];
                self.between.1 - self.between.0 > ROUNDING_SLACK
            }
            _ if self.alone < freed.len() => {
                self.weights.swap(self.alone - 1, self.alone);
                self.alone += 1;
                true
            }
            _ if self.alone == freed.len() => {
                self.weights.fill(1.0 / count(freed.len()));
                self.alone += 1;
                true
            }
            _ => self.descend(freed, sum),
        }
    }

    /// Moves weight away from what is freed in plenty, as far as would be enough if the slope stayed constant.
    fn descend(&mut self, freed: &[f64], sum: f64) -> bool {
        let mean = freed.iter().sum::<f64>() / count(freed.len());
        let slope: f64 = freed.iter().map(|freed| (freed - mean) * (freed - mean)).sum();
        if slope < ROUNDING_SLACK {
            return false;
        }
        let pace = (sum - 1.0 + 1e-6) / slope;
        for (weight, freed) in self.weights.iter_mut().zip(freed) {
            *weight = (*weight - pace * (freed - mean)).max(0.0);
        }
        let all: f64 = self.weights.iter().sum();
        self.weights.iter_mut().for_each(|weight| *weight /= all);
        true
    }
}

fn scores(items: &Items, weights: &[f64]) -> Vec<f64> {
    let score = |parts: &[f64]| parts.iter().zip(weights).map(|(part, weight)| part * weight).sum();
    items.items.iter().map(|item| score(&item.parts)).collect()
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn count(number: usize) -> f64 {
    number as f64
}

/// The pods of one kind, and how many of them a set has.
type Kind<'a> = (&'a mut Vec<usize>, usize);

/// Returns what the pods with the highest scores free, as fractions of the requirements. The given number
/// of each kind come first in its list afterwards.
fn freed_by_the_best(items: &Items, kinds: &mut [Kind<'_>], scores: &[f64]) -> Vec<f64> {
    let mut freed = vec![0.0; items.need.len()];
    for (members, number) in kinds {
        if *number > 0 && *number < members.len() {
            members.select_nth_unstable_by(*number - 1, |a, b| {
                scores[*b].total_cmp(&scores[*a]).then(a.cmp(b))
            });
        }
        let best = &mut members[..*number];
        // Sums of floats depend on the order of the terms.
        best.sort_unstable();
        for index in best {
            for (sum, part) in freed.iter_mut().zip(&items.items[*index].parts) {
                *sum += part;
            }
        }
    }
    freed
}

/// Returns the shortest prefix of the items that is enough, without the pods that are not needed.
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

/// Drops pods that the set does not need, those that help least first.
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

/// Returns `known` if all of its pods are among the items, i.e. none has a higher priority than needed.
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
