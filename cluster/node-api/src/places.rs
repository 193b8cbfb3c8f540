//! Limits on simultaneous connections.
//!
//! A client that is not authorized yet is a guest, whose connection may be closed to make way for another. An
//! authorized client moves to a place of its own for as long as it is answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
pub(crate) use winddown_host::ConnectionSlot;
use winddown_host::{ConnectionLimiter, Throttle};

/// The most guests at the same time.
const MAX_GUESTS: usize = 128;
/// How often a handshake begins: each takes the agent a millisecond of a processor. The last guest of all waits 0.6 s.
const HANDSHAKE_PACE: Duration = Duration::from_millis(5);
/// The most clients that are answered at the same time. A follower of a log takes three of the agent's 16 384 file
/// descriptors.
pub(crate) const MAX_ANSWERED_CLIENTS: usize = 2048;

pub(crate) struct ClientPlaces {
    pub(crate) guests: Arc<ConnectionLimiter>,
    pub(crate) handshakes: Throttle,
    answered: Arc<Semaphore>,
}

impl ClientPlaces {
    pub(crate) fn new() -> Self {
        Self {
            guests: ConnectionLimiter::new(MAX_GUESTS),
            handshakes: Throttle::new(HANDSHAKE_PACE),
            answered: Arc::new(Semaphore::new(MAX_ANSWERED_CLIENTS)),
        }
    }

    /// Moves an authorized client to a place of its own; `None` if all are taken.
    pub(crate) fn answer(&self, seat: &ConnectionSlot) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.answered).try_acquire_owned().ok()?;
        seat.release();
        Some(place)
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.answered.available_permits()
    }

    #[cfg(test)]
    pub(crate) fn take(&self, count: usize) -> OwnedSemaphorePermit {
        let count = count.try_into().unwrap();
        Arc::clone(&self.answered).try_acquire_many_owned(count).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn who_is_answered_makes_way_for_no_guest_and_there_are_only_so_many() {
        let places = ClientPlaces::new();
        let address = IpAddr::from([192, 0, 2, 1]);
        let seat = places.guests.take_slot(address);
        let answered: Vec<_> = std::iter::from_fn(|| places.answer(&seat)).collect();
        assert_eq!(answered.len(), MAX_ANSWERED_CLIENTS);
        let _crowd: Vec<ConnectionSlot> =
            (0..500).map(|_| places.guests.take_slot(address)).collect();
        assert!(!seat.leave.is_cancelled());
        drop(answered);
        assert!(places.answer(&seat).is_some());
    }
}
