//! The limit on the work of a search.

/// The most pods that the searches of one choice may examine: a millisecond or two of work.
const MAX_EXAMINED_PODS: u64 = 80_000;

/// The work so far, and its limit.
#[derive(Debug)]
pub(super) struct Effort {
    spent: u64,
    /// What the searches may still spend.
    left: u64,
}

impl Effort {
    pub(super) fn new(spent: u64) -> Self {
        Self { spent, left: MAX_EXAMINED_PODS }
    }

    pub(super) fn spent(&self) -> u64 {
        self.spent
    }

    /// Counts work that is limited in some other way.
    pub(super) fn add(&mut self, pods: usize) {
        self.spent = self.spent.saturating_add(u64::try_from(pods).unwrap_or(u64::MAX));
    }

    /// Counts one step of a search. Returns false once the limit is reached.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        self.spent += 1;
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}
