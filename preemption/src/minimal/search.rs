//! Branch and bound over sets of a given size.

use super::Criterion;
use super::effort::Effort;
use super::items::Items;
use super::suffix::Suffix;
use super::swaps;
use crate::Proof;

/// The largest set that is searched for: the recursion goes one call deeper for each pod.
const MAX_SEARCHED_SET: usize = 1024;

/// Tolerance for rounding errors when sums of scores are compared.
pub(super) const ROUNDING_SLACK: f64 = 1e-9;

/// A set, and how good it is known to be among the sets of its size.
#[derive(Debug)]
pub(super) struct Best {
    pub(super) set: Vec<usize>,
    pub(super) proof: Proof,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum SearchOutcome {
    /// Such a set.
    Found(Vec<usize>),
    /// There is no such set.
    None,
    /// The search was given up: it would take too much work.
    Unknown,
}

/// Finds the best sufficient set of the same size as `start`, which must be sufficient itself.
pub(super) fn best(items: &Items, start: Vec<usize>, effort: &mut Effort) -> Best {
    let start = swaps::improve(items, start, effort);
    let size = start.len();
    if size > MAX_SEARCHED_SET {
        return Best { set: start, proof: Proof::UpTo(Criterion::Number) };
    }
    let mut search = Search::new(items, size, effort);
    search.best = Some(Costed::new(items, start));
    search.descend(0, size, &items.need, 0, 0);
    let complete = !search.is_cut;
    let lightest = search.lightest();
    let Some(best) = search.best else {
        return Best { set: Vec::new(), proof: Proof::Heuristic };
    };
    let known = match (complete, best.weight == lightest) {
        (true, _) => Criterion::Identity,
        (false, true) => Criterion::Overshoot,
        (false, false) => Criterion::Number,
    };
    Best { set: best.set, proof: Proof::UpTo(known) }
}

/// Finds any set of this size that is enough.
pub(super) fn any(items: &Items, size: usize, effort: &mut Effort) -> SearchOutcome {
    if size > MAX_SEARCHED_SET {
        return SearchOutcome::Unknown;
    }
    let mut search = Search::new(items, size, effort);
    search.is_first_enough = true;
    search.descend(0, size, &items.need, 0, 0);
    match search.best {
        Some(found) => SearchOutcome::Found(found.set),
        None if search.is_cut => SearchOutcome::Unknown,
        None => SearchOutcome::None,
    }
}

struct Search<'a> {
    items: &'a Items,
    effort: &'a mut Effort,
    size: usize,
    /// Prefix sums of the scores.
    scores: Vec<f64>,
    /// Whether each pod frees the same as the one before it.
    is_twin: Vec<bool>,
    /// The most that a number of pods can free, for each requirement.
    most: Vec<Suffix<i128>>,
    least_weight: Suffix<u128>,
    least_rest: Suffix<u64>,
    chosen: Vec<usize>,
    best: Option<Costed>,
    is_first_enough: bool,
    /// Whether the search was cut short by the limit on the work.
    is_cut: bool,
}

struct Costed {
    set: Vec<usize>,
    weight: u128,
    rest: u64,
    /// Ranks by age, oldest first.
    ages: Vec<u32>,
    identities: Vec<u32>,
}

// === impl Search ===

impl<'a> Search<'a> {
    fn new(items: &'a Items, size: usize, effort: &'a mut Effort) -> Self {
        let mut sum = 0.0;
        let mut scores = vec![0.0];
        scores.extend(items.items.iter().map(|item| {
            sum += item.score;
            sum
        }));
        let twins = items.items.windows(2).map(|pair| pair[0].amounts == pair[1].amounts);
        let column = |r: usize| -> Vec<i128> {
            items.items.iter().map(|item| i128::from(item.amounts[r])).collect()
        };
        let weights: Vec<u128> = items.items.iter().map(|item| item.weight).collect();
        let rests: Vec<u64> = items.items.iter().map(|item| item.rest).collect();
        Self {
            items,
            effort,
            size,
            scores,
            is_twin: std::iter::once(false).chain(twins).collect(),
            most: (0..items.need.len()).map(|r| Suffix::greatest(&column(r), size)).collect(),
            least_weight: Suffix::least(&weights, size),
            least_rest: Suffix::least(&rests, size),
            chosen: Vec::with_capacity(size),
            best: None,
            is_first_enough: false,
            is_cut: false,
        }
    }

    /// Returns a lower bound on the weight of any sufficient set of this size.
    fn lightest(&self) -> u128 {
        let least = self.items.least_weight(&self.items.need);
        least.max(self.least_weight.sum(0, self.size))
    }

    /// Tries every way to choose `number` more pods, from index `from` on, that free what is `left`.
    fn descend(&mut self, from: usize, number: usize, left: &[i64], weight: u128, rest: u64) {
        let items = self.items;
        let lacking = items.score_of(left) - ROUNDING_SLACK;
        let mut after = left.to_vec();
        for place in from..items.len().saturating_sub(number - 1) {
            // The pod before it frees the same, ranks first, and was skipped: this one cannot be better.
            if place > from && self.is_twin[place] {
                continue;
            }
            if !self.effort.step() {
                self.is_cut = true;
            }
            if self.is_over() || !self.can_be_enough(place, number, left, lacking) {
                return;
            }
            let item = &items.items[place];
            for (after, (left, amount)) in after.iter_mut().zip(left.iter().zip(&item.amounts)) {
                *after = left.saturating_sub(*amount);
            }
            let (weight, rest) = (weight + item.weight, rest + item.rest);
            if !self.can_be_better(place + 1, number - 1, &after, weight, rest) {
                continue;
            }
            self.chosen.push(place);
            if number > 1 {
                self.descend(place + 1, number - 1, &after, weight, rest);
            } else if after.iter().all(|left| *left <= 0) {
                self.offer();
            }
            self.chosen.pop();
        }
    }

    fn is_over(&self) -> bool {
        self.is_cut || (self.is_first_enough && self.best.is_some())
    }

    /// Whether `number` pods from `place` on can free what is left. Once false, it is false for all later places.
    fn can_be_enough(&self, place: usize, number: usize, left: &[i64], lacking: f64) -> bool {
        let score = self.scores[place + number] - self.scores[place];
        score >= lacking
            && self
                .most
                .iter()
                .zip(left)
                .all(|(most, left)| most.sum(place, number) >= i128::from(*left))
    }

    /// Whether a set with these costs and `number` more pods, from `place` on, can be better than the best
    /// set so far.
    fn can_be_better(
        &self,
        place: usize,
        number: usize,
        left: &[i64],
        weight: u128,
        rest: u64,
    ) -> bool {
        let Some(best) = &self.best else { return true };
        let more = self.least_weight.sum(place, number);
        if weight.saturating_add(more) > best.weight {
            return false;
        }
        let more = self.items.least_weight(left).max(more);
        let rest = rest + self.least_rest.sum(place, number);
        (weight.saturating_add(more), rest) <= (best.weight, best.rest)
    }

    fn offer(&mut self) {
        let offered = Costed::new(self.items, self.chosen.clone());
        if self.best.as_ref().is_none_or(|best| offered.cost() < best.cost()) {
            self.best = Some(offered);
        }
    }
}

// === impl Costed ===

impl Costed {
    fn new(items: &Items, set: Vec<usize>) -> Self {
        let of_all = || set.iter().map(|item| &items.items[*item]);
        let mut ages: Vec<u32> = of_all().map(|item| item.age).collect();
        ages.sort_unstable_by(|a, b| b.cmp(a));
        let mut identities: Vec<u32> = of_all().map(|item| item.identity).collect();
        identities.sort_unstable();
        let weight = of_all().map(|item| item.weight).sum();
        let rest = of_all().map(|item| item.rest).sum();
        Self { weight, rest, ages, identities, set }
    }

    fn cost(&self) -> (u128, u64, &[u32], &[u32]) {
        (self.weight, self.rest, &self.ages, &self.identities)
    }
}
