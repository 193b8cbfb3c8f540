//! A bound on the work.

/// Pods that may be looked at in searches for one choice: a millisecond or two.
const MOST: u64 = 80_000;

/// The work so far, and its limit.
#[derive(Debug)]
pub(super) struct Effort {
    spent: u64,
    /// For the search alone.
    left: u64,
}

impl Effort {
    pub(super) fn new(spent: u64) -> Self {
        Self { spent, left: MOST }
    }

    pub(super) fn spent(&self) -> u64 {
        self.spent
    }

    /// Counts work that has a bound of its own.
    pub(super) fn add(&mut self, pods: usize) {
        self.spent = self.spent.saturating_add(u64::try_from(pods).unwrap_or(u64::MAX));
    }

    /// Whether one more pod may be looked at in a search.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        self.spent += 1;
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}
