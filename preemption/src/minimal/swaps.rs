//! Local search: improves a set by swapping one pod for another at a time.

use super::effort::Effort;
use super::items::Items;

/// The most pairs examined in one round. Sets with more pairs are left as they are.
const MAX_PAIRS: usize = 50_000;

/// The most rounds. Each improves the set by one swap.
const MAX_ROUNDS: usize = 40;

/// Improves a set that is enough.
pub(super) fn improve(items: &Items, mut set: Vec<usize>, effort: &mut Effort) -> Vec<usize> {
    for _ in 0..MAX_ROUNDS {
        let left = items.left(&set);
        let is_better = |inside: usize, outside: usize| {
            let (inside, outside) = (&items.items[inside], &items.items[outside]);
            let cost = (outside.weight, outside.rank());
            cost < (inside.weight, inside.rank())
        };
        let gain = |inside: usize, outside: usize| {
            let (from, to) = (&items.items[inside], &items.items[outside]);
            let pairs = from.amounts.iter().zip(&to.amounts).zip(&left);
            let mut pairs = pairs.map(|((from, to), left)| left.saturating_add(from - to));
            let is_enough = pairs.all(|left| left <= 0);
            is_enough.then(|| from.weight.saturating_sub(to.weight))
        };
        let swap = best_pair(items, &set, effort, |inside, outside| {
            is_better(inside, outside).then(|| gain(inside, outside)).flatten()
        });
        let Some((at, outside)) = swap else { break };
        set[at] = outside;
    }
    set
}

/// Tries to turn a set that is not enough into one that is.
pub(super) fn repair(
    items: &Items,
    mut set: Vec<usize>,
    effort: &mut Effort,
) -> Option<Vec<usize>> {
    for _ in 0..MAX_ROUNDS {
        let left = items.left(&set);
        let lack = |left: &mut dyn Iterator<Item = i64>| -> u64 {
            let parts = left.zip(&items.need).map(|(left, need)| millionths(left, *need));
            parts.sum()
        };
        let now = lack(&mut left.iter().copied());
        if left.iter().all(|left| *left <= 0) {
            return Some(set);
        }
        let swap = best_pair(items, &set, effort, |inside, outside| {
            let (from, to) = (&items.items[inside], &items.items[outside]);
            let pairs = from.amounts.iter().zip(&to.amounts).zip(&left);
            let then = lack(&mut pairs.map(|((from, to), left)| left.saturating_add(from - to)));
            (then < now).then(|| now - then)
        });
        let (at, outside) = swap?;
        set[at] = outside;
    }
    None
}

/// Returns what is lacking, in millionths of the requirement, rounded up.
fn millionths(left: i64, need: i64) -> u64 {
    let left = u128::try_from(left).unwrap_or(0) * 1_000_000;
    u64::try_from(left.div_ceil(u128::try_from(need).unwrap_or(1).max(1))).unwrap_or(u64::MAX >> 8)
}

/// Returns the swap that gains most, as an index into `set` and the item to put there. On a tie, the first.
fn best_pair<G: Ord>(
    items: &Items,
    set: &[usize],
    effort: &mut Effort,
    gain: impl Fn(usize, usize) -> Option<G>,
) -> Option<(usize, usize)> {
    let pairs = set.len().saturating_mul(items.len() - set.len());
    if pairs > MAX_PAIRS {
        return None;
    }
    effort.add(pairs);
    let mut is_inside = vec![false; items.len()];
    set.iter().for_each(|item| is_inside[*item] = true);
    let mut best: Option<(G, usize, usize)> = None;
    for (at, inside) in set.iter().enumerate() {
        for outside in (0..items.len()).filter(|item| !is_inside[*item]) {
            if let Some(gained) = gain(*inside, outside)
                && best.as_ref().is_none_or(|(most, ..)| gained > *most)
            {
                best = Some((gained, at, outside));
            }
        }
    }
    best.map(|(_, at, outside)| (at, outside))
}
