//! How many connections there are at the same time.
//!
//! A client that has not shown its right is a guest: the oldest makes way for the newest, of its own address
//! first, so that connections which were opened and left alone keep no client out. One that has shown it moves to a
//! place of its own, for as long as it is answered.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Guests at the same time, and of one address.
const GUESTS: usize = 128;
const PER_ADDRESS: usize = 48;
/// Clients that are answered at the same time. A follower of a log takes two descriptors of the agent's 16 384.
pub(crate) const ANSWERED: usize = 2048;

pub(crate) struct Places {
    guests: Arc<Mutex<Guests>>,
    answered: Arc<Semaphore>,
}

#[derive(Default)]
struct Guests {
    /// The oldest first.
    there: VecDeque<Guest>,
    next: u64,
}

struct Guest {
    id: u64,
    from: IpAddr,
    leave: CancellationToken,
}

/// A guest's place; given back on drop.
pub(crate) struct Seat {
    guests: Arc<Mutex<Guests>>,
    id: u64,
    /// Cancelled when it has to make way.
    pub(crate) leave: CancellationToken,
}

impl Places {
    pub(crate) fn new() -> Self {
        Self { guests: Arc::default(), answered: Arc::new(Semaphore::new(ANSWERED)) }
    }

    pub(crate) fn seat(&self, address: IpAddr) -> Seat {
        let from = site(address);
        let leave = CancellationToken::new();
        let mut guests = lock(&self.guests);
        let own = guests.there.iter().filter(|guest| guest.from == from).count();
        let makes_way = match guests.there.iter().position(|guest| guest.from == from) {
            Some(oldest) if own >= PER_ADDRESS => Some(oldest),
            _ => (guests.there.len() >= GUESTS).then_some(0),
        };
        if let Some(guest) = makes_way.and_then(|at| guests.there.remove(at)) {
            guest.leave.cancel();
        }
        let id = guests.next;
        guests.next += 1;
        guests.there.push_back(Guest { id, from, leave: leave.clone() });
        Seat { guests: Arc::clone(&self.guests), id, leave }
    }

    /// A place for one that has shown its right; none when all are taken.
    pub(crate) fn answer(&self, seat: &Seat) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.answered).try_acquire_owned().ok()?;
        seat.leave();
        Some(place)
    }
}

impl Seat {
    fn leave(&self) {
        lock(&self.guests).there.retain(|guest| guest.id != self.id);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

fn lock(guests: &Mutex<Guests>) -> MutexGuard<'_, Guests> {
    guests.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who has one address of version 6 has the 64 bits behind the prefix as well.
fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn idle_guests_of_one_address_or_many_keep_no_client_out() {
        let places = Places::new();
        let other = places.seat(from("192.0.2.2"));
        let idle: Vec<Seat> = (0..500).map(|_| places.seat(from("192.0.2.1"))).collect();
        assert_eq!(idle.iter().filter(|seat| !seat.leave.is_cancelled()).count(), PER_ADDRESS);
        assert!(!other.leave.is_cancelled() && !idle[499].leave.is_cancelled());
        let crowd: Vec<Seat> =
            (0..500).map(|n| places.seat(from(&format!("2001:db8:0:{n:x}::1")))).collect();
        assert_eq!(crowd.iter().filter(|seat| !seat.leave.is_cancelled()).count(), GUESTS);
        assert_eq!(lock(&places.guests).there.len(), GUESTS);
        drop((idle, crowd));
        assert!(lock(&places.guests).there.is_empty());
    }

    #[test]
    fn who_is_answered_makes_way_for_no_guest_and_there_are_only_so_many() {
        let places = Places::new();
        let seat = places.seat(from("192.0.2.1"));
        let answered: Vec<_> = std::iter::from_fn(|| places.answer(&seat)).collect();
        assert_eq!(answered.len(), ANSWERED);
        let _crowd: Vec<Seat> = (0..500).map(|_| places.seat(from("192.0.2.1"))).collect();
        assert!(!seat.leave.is_cancelled());
        drop(answered);
        assert!(places.answer(&seat).is_some());
    }
}
