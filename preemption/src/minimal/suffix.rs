//! Bounds on what the pods from some index on can free at most, or cost at least.

/// The largest table, in entries, that has a row for every index. If it would be larger, one row serves
/// for all, which gives a weaker bound.
const MAX_TABLE_ENTRIES: usize = 1 << 16;

/// For every index of a list and every number, the sum of that many of the best values from there on.
#[derive(Debug)]
pub(super) struct Suffix<T> {
    sums: Vec<T>,
    numbers: usize,
    single: bool,
}

impl<T: Copy + Ord + Default + std::ops::Add<Output = T>> Suffix<T> {
    /// Computes sums of up to `most` of the greatest values.
    pub(super) fn greatest(values: &[T], most: usize) -> Self {
        Self::new(values, most, |new, old| new > old)
    }

    /// Computes sums of up to `most` of the least values. If there are fewer, all of them are summed.
    pub(super) fn least(values: &[T], most: usize) -> Self {
        Self::new(values, most, |new, old| new < old)
    }

    fn new(values: &[T], most: usize, better: fn(T, T) -> bool) -> Self {
        let numbers = most + 1;
        let single = numbers.saturating_mul(values.len() + 1) > MAX_TABLE_ENTRIES;
        let rows = if single { 1 } else { values.len() + 1 };
        let mut sums = vec![T::default(); rows * numbers];
        let mut best: Vec<T> = Vec::with_capacity(numbers);
        for (place, value) in values.iter().enumerate().rev() {
            let at = best.partition_point(|old| !better(*value, *old));
            if at < most {
                best.truncate(most.saturating_sub(1));
                best.insert(at, *value);
            }
            if !single || place == 0 {
                let row = &mut sums[if single { 0 } else { place * numbers }..][..numbers];
                let mut sum = T::default();
                for (number, place) in row.iter_mut().enumerate().skip(1) {
                    sum = best.get(number - 1).map_or(sum, |value| sum + *value);
                    *place = sum;
                }
            }
        }
        Self { sums, numbers, single }
    }

    /// The sum of the best `number` values from index `place` on, or a bound on it.
    #[inline]
    pub(super) fn sum(&self, place: usize, number: usize) -> T {
        self.sums[if self.single { number } else { place * self.numbers + number }]
    }
}
