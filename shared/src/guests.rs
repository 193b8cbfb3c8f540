//! Limits the number of simultaneous unauthenticated connections.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The guests of one server: clients that have not been authorized yet. The oldest makes way for the newest, of its own
/// address first, so that connections that were opened and left idle keep no client out.
pub struct Guests {
    most: usize,
    per_address: usize,
    seated: Mutex<Seated>,
}

/// A guest's seat; given back on drop.
pub struct Seat {
    guests: Arc<Guests>,
    id: u64,
    /// Cancelled when the guest has to make way.
    pub leave: CancellationToken,
}

#[derive(Default)]
struct Seated {
    /// The oldest comes first.
    guests: VecDeque<Guest>,
    next: u64,
}

struct Guest {
    id: u64,
    from: IpAddr,
    leave: CancellationToken,
}

// === impl Guests ===

impl Guests {
    /// Allows at most `most` guests at the same time, and `per_address` from one address.
    pub fn new(most: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self { most, per_address, seated: Mutex::default() })
    }

    /// Seats a guest from `address`.
    pub fn seat(self: &Arc<Self>, address: IpAddr) -> Seat {
        let from = site(address);
        let leave = CancellationToken::new();
        let mut seated = self.seated();
        let own = seated.guests.iter().filter(|guest| guest.from == from).count();
        let makes_way = match seated.guests.iter().position(|guest| guest.from == from) {
            Some(oldest) if own >= self.per_address => Some(oldest),
            _ => (seated.guests.len() >= self.most).then_some(0),
        };
        if let Some(guest) = makes_way.and_then(|at| seated.guests.remove(at)) {
            guest.leave.cancel();
        }
        let id = seated.next;
        seated.next += 1;
        seated.guests.push_back(Guest { id, from, leave: leave.clone() });
        Seat { guests: Arc::clone(self), id, leave }
    }

    fn seated(&self) -> MutexGuard<'_, Seated> {
        self.seated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Seat ===

impl Seat {
    /// Gives the seat back: the client is no longer a guest, and never has to make way.
    pub fn give_back(&self) {
        self.guests.seated().guests.retain(|guest| guest.id != self.id);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Groups IPv6 addresses by /64 prefix: a client that has one address usually has the whole prefix.
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

    fn left(seats: &[Seat]) -> usize {
        seats.iter().filter(|seat| seat.leave.is_cancelled()).count()
    }

    #[test]
    fn the_oldest_connection_of_an_address_makes_way_for_its_newest() {
        let guests = Guests::new(6, 3);
        let other = guests.seat(from("192.0.2.2"));
        let idle: Vec<Seat> = (0..3).map(|_| guests.seat(from("192.0.2.1"))).collect();
        let new = guests.seat(from("192.0.2.1"));
        assert!(!new.leave.is_cancelled());
        let left: Vec<_> = idle.iter().map(|seat| seat.leave.is_cancelled()).collect();
        assert_eq!(left, [true, false, false]);
        assert!(!other.leave.is_cancelled());
        // A guest that made way gives back a seat that is no longer its own.
        drop(idle);
        assert_eq!(guests.seated().guests.len(), 2);
    }

    #[test]
    fn idle_guests_of_one_address_or_many_keep_no_client_out() {
        let guests = Guests::new(128, 48);
        let other = guests.seat(from("192.0.2.2"));
        let idle: Vec<Seat> = (0..500).map(|_| guests.seat(from("192.0.2.1"))).collect();
        assert_eq!(idle.len() - left(&idle), 48);
        assert!(!other.leave.is_cancelled() && !idle[499].leave.is_cancelled());
        let site = |n| from(&format!("2001:db8:0:{n:x}::1"));
        let crowd: Vec<Seat> = (0..500).map(|n| guests.seat(site(n))).collect();
        assert_eq!(crowd.len() - left(&crowd), 128);
        assert_eq!(guests.seated().guests.len(), 128);
        drop((idle, crowd));
        assert!(guests.seated().guests.is_empty());
    }

    #[test]
    fn the_addresses_of_one_prefix_are_one_client() {
        let table = [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1:2:3:4", "2001:db8::"),
            ("2001:db8:0:1::9", "2001:db8:0:1::"),
        ];
        for (address, wanted) in table {
            assert_eq!(site(from(address)), from(wanted), "{address}");
        }
    }
}
