//! What the pods from some place on can do at most, or cost at least.

/// Table entries up to which there is a row for every place. Above it one row serves for all: a
/// weaker bound.
const MOST: usize = 1 << 16;

/// For every place in a list and every number: the sum of that many of the best values from there on.
#[derive(Debug)]
pub(super) struct Suffix<T> {
    sums: Vec<T>,
    numbers: usize,
    single: bool,
}

impl<T: Copy + Ord + Default + std::ops::Add<Output = T>> Suffix<T> {
    /// Sums of the greatest values, up to `most` of them.
    pub(super) fn greatest(values: &[T], most: usize) -> Self {
        Self::new(values, most, |new, old| new > old)
    }

    /// Sums of the least values, up to `most` of them. Fewer than asked for count as all there are.
    pub(super) fn least(values: &[T], most: usize) -> Self {
        Self::new(values, most, |new, old| new < old)
    }

    fn new(values: &[T], most: usize, better: fn(T, T) -> bool) -> Self {
        let numbers = most + 1;
        let single = numbers.saturating_mul(values.len() + 1) > MOST;
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

    /// The sum of the best `number` values from `place` on, or a bound of it.
    #[inline]
    pub(super) fn sum(&self, place: usize, number: usize) -> T {
        self.sums[if self.single { number } else { place * self.numbers + number }]
    }
}
