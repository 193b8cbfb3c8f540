//! Limits the number of simultaneous unauthenticated connections.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use winddown_shared::Mutex;

/// Limits the connections of one server whose clients have not been authorized yet. When all slots are taken, the
/// address that has most of them loses its oldest: connections that were opened and left idle keep no client out, and
/// a client with one connection never makes way for an address that has more.
pub struct ConnectionLimiter {
    most: usize,
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
    /// Allows at most `most` connections at the same time.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// Takes a slot for a connection from `address`.
    pub fn take_slot(self: &Arc<Self>, address: IpAddr) -> ConnectionSlot {
        let from = site(address);
        let leave = CancellationToken::new();
        let mut open = self.open.lock();
        if open.connections.len() >= self.most {
            open.make_way(from);
        }
        let id = open.next;
        open.next += 1;
        open.connections.push_back(Connection { id, from, leave: leave.clone() });
        ConnectionSlot { limiter: Arc::clone(self), id, leave }
    }
}

// === impl Open ===

impl Open {
    /// Closes the oldest connection of the address that has most, counting the new one of `newcomer`, which comes
    /// before others with as many.
    fn make_way(&mut self, newcomer: IpAddr) {
        let mut held: HashMap<IpAddr, usize> = HashMap::from([(newcomer, 1)]);
        for connection in &self.connections {
            *held.entry(connection.from).or_default() += 1;
        }
        let rank = |address: IpAddr| (held.get(&address), address == newcomer);
        let most = self.connections.iter().map(|other| rank(other.from)).max();
        let oldest = self.connections.iter().position(|other| Some(rank(other.from)) == most);
        if let Some(other) = oldest.and_then(|at| self.connections.remove(at)) {
            other.leave.cancel();
        }
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// Releases the slot: the client is authorized, and never has to make way.
    pub fn release(&self) {
        self.limiter.open.lock().connections.retain(|other| other.id != self.id);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.release();
    }
}

/// Groups IPv6 addresses by /64 prefix: a client that has one address usually has the whole prefix. A program of this
/// machine has all of 127.0.0.0/8.
fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
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
    fn the_oldest_connection_of_the_address_that_has_most_makes_way() {
        let limiter = ConnectionLimiter::new(4);
        let take = |address| limiter.take_slot(from(address));
        let other = take("192.0.2.2");
        let idle: Vec<ConnectionSlot> = (0..3).map(|_| take("192.0.2.1")).collect();
        let new = take("192.0.2.1");
        let stranger = take("192.0.2.3");
        let left: Vec<_> = idle.iter().map(|slot| slot.leave.is_cancelled()).collect();
        assert_eq!(left, [true, true, false]);
        assert!([&other, &new, &stranger].iter().all(|slot| !slot.leave.is_cancelled()));
        // Among addresses with as many, the newcomer's own comes first.
        let second = take("192.0.2.3");
        assert!(stranger.leave.is_cancelled() && !second.leave.is_cancelled());
        // A connection that made way releases a slot that is no longer its own.
        drop(idle);
        assert_eq!(limiter.open.lock().connections.len(), 3);
    }

    #[test]
    fn idle_guests_of_one_address_or_many_keep_no_client_out() {
        let limiter = ConnectionLimiter::new(128);
        let take = |address| limiter.take_slot(address);
        let other = take(from("192.0.2.2"));
        let idle: Vec<ConnectionSlot> = (0..500).map(|_| take(from("192.0.2.1"))).collect();
        assert_eq!(idle.len() - left(&idle), 127);
        assert!(!other.leave.is_cancelled() && !idle[499].leave.is_cancelled());
        let site = |n| from(&format!("2001:db8:0:{n:x}::1"));
        let crowd: Vec<ConnectionSlot> = (0..500).map(|n| take(site(n))).collect();
        assert!(!crowd[499].leave.is_cancelled());
        assert_eq!(limiter.open.lock().connections.len(), 128);
        drop((other, idle, crowd));
        assert!(limiter.open.lock().connections.is_empty());
    }

    #[test]
    fn idle_guests_of_five_addresses_keep_no_sixth_out() {
        let limiter = ConnectionLimiter::new(64);
        let crowd = |n: usize| limiter.take_slot(from(&format!("192.0.2.{}", n % 5 + 1)));
        let mut idle: Vec<ConnectionSlot> = (0..200).map(crowd).collect();
        let client = limiter.take_slot(from("192.0.2.6"));
        // However long the client takes for its request, and however many they open meanwhile.
        idle.extend((0..1000).map(crowd));
        idle.extend(
            (0..1000).map(|n| limiter.take_slot(from(&format!("127.0.{}.{}", n / 250, n % 250)))),
        );
        assert!(!client.leave.is_cancelled());
        assert_eq!(idle.len() - left(&idle), 63);
    }

    #[test]
    fn the_addresses_of_one_prefix_are_one_client() {
        let table = [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("127.1.2.3", "127.0.0.1"),
            ("2001:db8::1:2:3:4", "2001:db8::"),
            ("2001:db8:0:1::9", "2001:db8:0:1::"),
        ];
        for (address, wanted) in table {
            assert_eq!(site(from(address)), from(wanted), "{address}");
        }
    }
}
