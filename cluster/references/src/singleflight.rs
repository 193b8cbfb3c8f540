//! One request at a time per key: concurrent callers share the answer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use winddown_shared::Mutex;

/// The number of answers below which none are removed.
const PRUNE_FROM_ANSWERS: usize = 64;

/// The most bytes of answers that are kept: for the newest ones, which pods that share an object ask for soon.
const MOST_BYTES: usize = 8 << 20;

/// Answers by key, kept for a while.
#[derive(Debug)]
pub(crate) struct SingleFlight<K, V> {
    state: Arc<Mutex<FlightState<K, V>>>,
    /// How long an answer is kept.
    keep: Duration,
}

#[derive(Debug)]
struct FlightState<K, V> {
    entries: HashMap<K, FlightEntry<V>>,
    look_at: usize,
}

#[derive(Debug)]
enum FlightEntry<V> {
    Asking { answer: watch::Receiver<Option<V>>, asked_at: Instant },
    Known { answer: V, bytes: usize, asked_at: Instant },
}

// === impl SingleFlight ===

impl<K, V> SingleFlight<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(keep: Duration) -> Self {
        let state = FlightState { entries: HashMap::new(), look_at: PRUNE_FROM_ANSWERS };
        Self { state: Arc::new(Mutex::new(state)), keep }
    }

    /// Returns the answer for `key`, at most `max_age` old, and calls `ask` if there is none: where a request is under way
    /// that was sent before that, after it. `None` only if the request does not complete (the runtime shuts down).
    /// `kept_bytes` is how much memory an answer takes; one for which it is `None` is not kept.
    ///
    /// Dropping the future does not cancel the request, for which others may wait.
    pub(crate) async fn get<F>(
        &self,
        key: &K,
        max_age: Duration,
        kept_bytes: fn(&V) -> Option<usize>,
        ask: impl FnOnce() -> F,
    ) -> Option<V>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let asked = Instant::now();
        while let Some(mut older) = self.older(key, asked, max_age) {
            let _ = older.wait_for(Option::is_some).await;
        }
        let mut answer = {
            let now = Instant::now();
            let mut state = self.state.lock();
            match state.entries.get(key) {
                Some(FlightEntry::Known { answer, asked_at, .. })
                    if now.saturating_duration_since(*asked_at) < max_age =>
                {
                    return Some(answer.clone());
                }
                Some(FlightEntry::Asking { answer, .. }) => answer.clone(),
                _ => {
                    let (tx, rx) = watch::channel(None);
                    state.forget_old(now, self.keep);
                    let entry = FlightEntry::Asking { answer: rx.clone(), asked_at: now };
                    state.entries.insert(key.clone(), entry);
                    let (all, key, asked) = (Arc::clone(&self.state), key.clone(), ask());
                    let landing = Landing { all, key, answer: None };
                    tokio::spawn(landing.wait_for(asked, now, kept_bytes, tx));
                    rx
                }
            }
        };
        let found = answer.wait_for(Option::is_some).await.ok()?;
        found.clone()
    }

    /// A request under way whose answer would be older, for a question of the time `asked`, than `max_age`.
    fn older(
        &self,
        key: &K,
        asked: Instant,
        max_age: Duration,
    ) -> Option<watch::Receiver<Option<V>>> {
        match self.state.lock().entries.get(key)? {
            FlightEntry::Asking { answer, asked_at } => {
                let age = asked.saturating_duration_since(*asked_at);
                (age > max_age).then(|| answer.clone())
            }
            FlightEntry::Known { .. } => None,
        }
    }
}

/// Removes the entry if the request does not complete.
struct Landing<K: Clone + Eq + Hash, V> {
    all: Arc<Mutex<FlightState<K, V>>>,
    key: K,
    answer: Option<FlightEntry<V>>,
}

impl<K: Clone + Eq + Hash, V: Clone> Landing<K, V> {
    async fn wait_for(
        mut self,
        asked: impl Future<Output = V>,
        asked_at: Instant,
        kept_bytes: fn(&V) -> Option<usize>,
        tx: watch::Sender<Option<V>>,
    ) {
        let answer = asked.await;
        // One that is larger by itself would take the place of all others.
        let kept = kept_bytes(&answer).filter(|bytes| *bytes <= MOST_BYTES);
        self.answer = kept.map(|bytes| {
            let answer = answer.clone();
            FlightEntry::Known { answer, bytes, asked_at }
        });
        drop(self);
        tx.send_replace(Some(answer));
    }
}

impl<K: Clone + Eq + Hash, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        match (self.answer.take(), state.entries.get_mut(&self.key)) {
            (Some(known), Some(entry)) => *entry = known,
            _ => drop(state.entries.remove(&self.key)),
        }
        state.keep_within(MOST_BYTES);
    }
}

// === impl FlightState ===

impl<K: Clone + Eq + Hash, V> FlightState<K, V> {
    /// Removes the oldest answers until the rest takes no more than this.
    fn keep_within(&mut self, most: usize) {
        let known = |(key, entry): (&K, &FlightEntry<V>)| match entry {
            FlightEntry::Known { bytes, asked_at, .. } => Some((*asked_at, *bytes, key.clone())),
            FlightEntry::Asking { .. } => None,
        };
        let mut all: usize = self.entries.iter().filter_map(known).map(|(_, bytes, _)| bytes).sum();
        while all > most {
            let oldest = self.entries.iter().filter_map(known).min_by_key(|(at, ..)| *at);
            let Some((_, bytes, key)) = oldest else { return };
            self.entries.remove(&key);
            all -= bytes;
        }
    }

    /// Removes old answers, but only once there are twice as many as the last removal left.
    fn forget_old(&mut self, now: Instant, keep: Duration) {
        if self.entries.len() < self.look_at {
            return;
        }
        self.entries.retain(|_, entry| match entry {
            FlightEntry::Asking { .. } => true,
            FlightEntry::Known { asked_at, .. } => now.saturating_duration_since(*asked_at) < keep,
        });
        self.look_at = (2 * self.entries.len()).max(PRUNE_FROM_ANSWERS);
    }
}

#[cfg(test)]
mod tests;
