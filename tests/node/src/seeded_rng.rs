//! Reproducible random numbers.

use crate::skip::is_long_form;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// A SplitMix64 generator, which is good enough to choose pods.
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// The sequence for `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random seed, short enough to be typed.
    #[must_use]
    pub fn seed() -> u64 {
        RandomState::new().build_hasher().finish() % 1_000_000
    }

    /// The seed for this test run: `WINDDOWN_SEED` if set; a random one in the long form (`WINDDOWN_LONG`); otherwise
    /// none, so that no change fails because of an older bug.
    ///
    /// # Errors
    /// `WINDDOWN_SEED` is not a number.
    pub fn seed_of_run() -> Result<Option<u64>, std::num::ParseIntError> {
        match std::env::var("WINDDOWN_SEED") {
            Ok(seed) => seed.parse().map(Some),
            Err(_) => Ok(is_long_form().then(Self::seed)),
        }
    }

    /// A number from `low` to `high`, inclusive.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        let span = u64::from(high.saturating_sub(low)) + 1;
        low + u32::try_from(self.next() % span).unwrap_or(0)
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.between(1, n) == 1
    }

    /// One of `choices`, which must not be empty.
    pub fn one_of<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        const { assert!(N > 0) }
        let last = u32::try_from(N - 1).unwrap_or(0);
        choices[usize::try_from(self.between(0, last)).unwrap_or(0)]
    }

    /// Brings `items` into another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let most = u32::try_from(last).unwrap_or(u32::MAX);
            items.swap(last, usize::try_from(self.between(0, most)).unwrap_or(0));
        }
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::SeededRng;

    #[test]
    fn one_seed_gives_one_sequence_inside_its_bounds() {
        let draw = |seed| {
            let mut rng = SeededRng::new(seed);
            (0..1000).map(|_| rng.between(5, 20)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!((5..=20).all(|n| draw(7).contains(&n)));
        assert!(draw(7).iter().all(|n| (5..=20).contains(n)));
    }
}
