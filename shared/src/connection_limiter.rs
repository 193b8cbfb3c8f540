//! Limits the number of simultaneous unauthenticated connections.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Limits the connections of one server whose clients have not been authorized yet. The oldest makes way for the
/// newest, of its own address first, so that connections that were opened and left idle keep no client out.
pub struct ConnectionLimiter {
    most: usize,
    per_address: usize,
    open: Mutex<Open>,
}

/// The slot of one connection; released on drop.
pub struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    id: u64,
    /// Cancelled when the connection has to make way.
    pub leave: CancellationToken,
}

#[derive(Default)]
struct Open {
    /// The oldest comes first.
    connections: VecDeque<Connection>,
    next: u64,
}

struct Connection {
    id: u64,
    from: IpAddr,
    leave: CancellationToken,
}

// === impl ConnectionLimiter ===

impl ConnectionLimiter {
    /// Allows at most `most` connections at the same time, and `per_address` from one address.
    pub fn new(most: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self { most, per_address, open: Mutex::default() })
    }

    /// Takes a slot for a connection from `address`.
    pub fn take_slot(self: &Arc<Self>, address: IpAddr) -> ConnectionSlot {
        let from = site(address);
        let leave = CancellationToken::new();
        let mut open = self.open();
        let own = open.connections.iter().filter(|other| other.from == from).count();
        let makes_way = match open.connections.iter().position(|other| other.from == from) {
            Some(oldest) if own >= self.per_address => Some(oldest),
            _ => (open.connections.len() >= self.most).then_some(0),
        };
        if let Some(other) = makes_way.and_then(|at| open.connections.remove(at)) {
            other.leave.cancel();
        }
        let id = open.next;
        open.next += 1;
        open.connections.push_back(Connection { id, from, leave: leave.clone() });
        ConnectionSlot { limiter: Arc::clone(self), id, leave }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// Releases the slot: the client is authorized, and never has to make way.
    pub fn release(&self) {
        self.limiter.open().connections.retain(|other| other.id != self.id);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.release();
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

    fn left(slots: &[ConnectionSlot]) -> usize {
        slots.iter().filter(|slot| slot.leave.is_cancelled()).count()
    }

    #[test]
    fn the_oldest_connection_of_an_address_makes_way_for_its_newest() {
        let limiter = ConnectionLimiter::new(6, 3);
        let take = |address| limiter.take_slot(from(address));
        let other = take("192.0.2.2");
        let idle: Vec<ConnectionSlot> = (0..3).map(|_| take("192.0.2.1")).collect();
        let new = take("192.0.2.1");
        assert!(!new.leave.is_cancelled());
        let left: Vec<_> = idle.iter().map(|slot| slot.leave.is_cancelled()).collect();
        assert_eq!(left, [true, false, false]);
        assert!(!other.leave.is_cancelled());
        // A connection that made way releases a slot that is no longer its own.
        drop(idle);
        assert_eq!(limiter.open().connections.len(), 2);
    }

    #[test]
    fn idle_guests_of_one_address_or_many_keep_no_client_out() {
        let limiter = ConnectionLimiter::new(128, 48);
        let take = |address| limiter.take_slot(address);
        let other = take(from("192.0.2.2"));
        let idle: Vec<ConnectionSlot> = (0..500).map(|_| take(from("192.0.2.1"))).collect();
        assert_eq!(idle.len() - left(&idle), 48);
        assert!(!other.leave.is_cancelled() && !idle[499].leave.is_cancelled());
        let site = |n| from(&format!("2001:db8:0:{n:x}::1"));
        let crowd: Vec<ConnectionSlot> = (0..500).map(|n| take(site(n))).collect();
        assert_eq!(crowd.len() - left(&crowd), 128);
        assert_eq!(limiter.open().connections.len(), 128);
        drop((idle, crowd));
        assert!(limiter.open().connections.is_empty());
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
