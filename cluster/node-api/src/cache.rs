//! A cache whose entries expire.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::Mutex;

/// A cache of at most `most` answers; the oldest is evicted for the newest.
pub(crate) struct Cache<K, V> {
    most: usize,
    kept: Mutex<CachedAnswer<K, V>>,
}

struct CachedAnswer<K, V> {
    answers: HashMap<K, (V, Instant)>,
    /// The keys in the order in which they were first inserted.
    order: VecDeque<K>,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        let kept = CachedAnswer { answers: HashMap::new(), order: VecDeque::new() };
        Self { most, kept: Mutex::new(kept) }
    }

    /// Returns the answer unless it has expired.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let kept = self.kept.lock();
        let (answer, until) = kept.answers.get(key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    /// Stores an answer, which expires after `keep`.
    pub(crate) fn put(&self, key: K, answer: V, keep: Duration) {
        let mut kept = self.kept.lock();
        let CachedAnswer { answers, order } = &mut *kept;
        if answers.insert(key.clone(), (answer, Instant::now() + keep)).is_none() {
            order.push_back(key);
        }
        while answers.len() > self.most
            && let Some(oldest) = order.pop_front()
        {
            answers.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let kept = self.kept.lock();
        assert_eq!(kept.answers.len(), kept.order.len());
        kept.answers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_for_its_time_and_the_oldest_makes_way() {
        let cache = Cache::new(2);
        cache.put("a", 1, Duration::from_secs(10));
        cache.put("a", 2, Duration::from_secs(30));
        cache.put("b", 3, Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!((cache.get(&"a"), cache.get(&"b")), (Some(2), None));
        cache.put("c", 4, Duration::from_secs(10));
        assert_eq!((cache.len(), cache.get(&"a"), cache.get(&"c")), (2, None, Some(4)));
    }
}
