//! Which pods may be the closest: distances without divisions.

/// How much an estimate may be off. Rounding makes it wrong by some 1e-15 per requirement.
const SLACK: f64 = 1e-9;

/// Rows of one part.
const LANES: usize = 8;

/// What each pod frees, as floats.
#[derive(Debug)]
pub(super) struct Estimates {
    /// For each requirement, the pods' amounts.
    freed: Vec<Vec<f64>>,
    distances: Vec<f64>,
    /// The least distance of each part.
    least: Vec<f64>,
    close: Vec<usize>,
}

/// A requirement that is not met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lacking {
    /// Which one.
    pub(super) column: usize,
    /// How much, above 0.
    pub(super) amount: i64,
}

/// The same, ready to be estimated with.
#[derive(Clone, Copy)]
struct Term {
    amount: f64,
    /// One by the amount.
    part: f64,
}

// === impl Estimates ===

impl Estimates {
    pub(super) fn new(amounts: &[Vec<i64>]) -> Self {
        let floats = |column: &Vec<i64>| column.iter().map(|a| super::float(*a)).collect();
        Self {
            freed: amounts.iter().map(floats).collect(),
            distances: Vec::new(),
            least: Vec::new(),
            close: Vec::new(),
        }
    }

    /// Pods of which one is the closest; each that is as close as that one is among them. In their
    /// order.
    pub(super) fn closest(&mut self, lacking: &[Lacking]) -> &[usize] {
        let Self { freed, distances, least, close } = self;
        distances.clear();
        close.clear();
        // One loop over columns of numbers for each step, which takes several pods at a time.
        for lacking in lacking {
            let (term, freed) = (Term::of(lacking), &freed[lacking.column]);
            if distances.is_empty() {
                distances.extend(freed.iter().map(|freed| term.square(*freed)));
            } else {
                let sums = distances.iter_mut().zip(freed);
                sums.for_each(|(sum, freed)| *sum += term.square(*freed));
            }
        }
        // No row is infinitely far, so one that is is none.
        distances.resize(distances.len().next_multiple_of(LANES), f64::INFINITY);
        let (parts, _) = distances.as_chunks::<LANES>();
        least.clear();
        least.extend(parts.iter().map(|part| part.iter().copied().fold(f64::INFINITY, lesser)));
        let limit = least.iter().copied().fold(f64::INFINITY, lesser) + SLACK;
        for (at, _) in least.iter().enumerate().filter(|(_, least)| **least <= limit) {
            let rows = (at * LANES..).zip(&parts[at]);
            close.extend(rows.filter(|(_, distance)| **distance <= limit).map(|(row, _)| row));
        }
        close
    }

    /// Takes a pod out; the last one moves to its place.
    pub(super) fn swap_remove(&mut self, row: usize) {
        for column in &mut self.freed {
            column.swap_remove(row);
        }
    }
}

/// The lesser of two, in one instruction, as nothing is asked about NaN.
#[inline]
fn lesser(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

// === impl Term ===

impl Term {
    fn of(lacking: &Lacking) -> Self {
        let amount = super::float(lacking.amount);
        Self { amount, part: 1.0 / amount }
    }

    #[inline]
    fn square(&self, freed: f64) -> f64 {
        let left = self.amount - freed;
        // One instruction, as nothing is asked about NaN.
        let left = if left > 0.0 { left } else { 0.0 };
        let ratio = left * self.part;
        ratio * ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that are left of pods that free these amounts, with so much lacking of each.
    fn closest(amounts: &[&[i64]], lacking: &[i64]) -> Vec<usize> {
        let amounts: Vec<Vec<i64>> = amounts.iter().map(|column| column.to_vec()).collect();
        let lacking = lacking.iter().enumerate();
        let lacking: Vec<Lacking> =
            lacking.map(|(column, amount)| Lacking { column, amount: *amount }).collect();
        Estimates::new(&amounts).closest(&lacking).to_vec()
    }

    #[test]
    fn only_pods_that_may_be_the_closest_are_left() {
        assert_eq!(closest(&[&[3, 7, 5, 6]], &[10]), [1]);
        assert_eq!(closest(&[&[3, 10, 5, 12]], &[10]), [1, 3], "more than is lacking is no closer");
        assert_eq!(closest(&[&[10, 0, 5], &[0, 10, 5]], &[10, 10]), [2]);
        let three: [&[i64]; 3] = [&[10, 0, 5, 10], &[0, 10, 5, 5], &[0, 0, 5, 10]];
        assert_eq!(closest(&three, &[10, 10, 10]), [3]);
    }

    #[test]
    fn what_an_estimate_cannot_tell_apart_is_left() {
        let whole = 1_000_000_000_000_000;
        assert_eq!(closest(&[&[whole / 2, whole / 2 + 1, whole / 4]], &[whole]), [0, 1]);
    }

    #[test]
    fn a_pod_that_was_taken_out_gives_its_row_to_the_last_one() {
        let mut estimates = Estimates::new(&[vec![9, 1, 8]]);
        let lacking = [Lacking { column: 0, amount: 10 }];
        assert_eq!(estimates.closest(&lacking), [0]);
        estimates.swap_remove(0);
        assert_eq!(estimates.closest(&lacking), [0]);
        estimates.swap_remove(0);
        assert_eq!(estimates.closest(&lacking), [0]);
        assert_eq!(estimates.freed, [[1.0]]);
    }
}
