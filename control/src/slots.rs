//! Who may have how many connections at the same time.
//!
//! Root, the other users and the network have places of their own, so that none of them can take
//! another's. Among the users each has a share. On the network, where a client is only an address, the
//! oldest connection of an address makes way for its newest: a client that asks at once is answered
//! beside any number that were opened and left alone.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{Limits, Peer};

/// The places of one server.
pub(super) struct Slots {
    limits: Limits,
    taken: Mutex<Taken>,
    roots_watchers: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
}

#[derive(Default)]
struct Taken {
    root: usize,
    users: HashMap<u32, usize>,
    /// Connections of the network, the oldest first.
    guests: VecDeque<Guest>,
    next: u64,
}

struct Guest {
    id: u64,
    from: IpAddr,
    leave: CancellationToken,
}

/// One connection's place; gives it back on drop.
pub(super) struct Slot {
    slots: Arc<Slots>,
    place: Place,
    /// There is a place to be told in that there are too many, and no more.
    pub(super) refused: bool,
    /// Cancelled when the connection has to make way for a newer one.
    pub(super) leave: CancellationToken,
}

#[derive(Clone, Copy)]
enum Place {
    Root,
    User(u32),
    Network(u64),
}

impl Slots {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            taken: Mutex::default(),
            roots_watchers: Arc::new(Semaphore::new(limits.watchers)),
            watchers: Arc::new(Semaphore::new(limits.watchers)),
        }
    }

    /// A place for a connection of `peer`; none when there are so many that it cannot even be told.
    pub(super) fn take(slots: &Arc<Self>, peer: Peer) -> Option<Slot> {
        let leave = CancellationToken::new();
        let (place, refused) = match peer {
            Peer::Local { uid: 0, .. } => (Place::Root, slots.take_roots()?),
            Peer::Local { uid, .. } => (Place::User(uid), slots.take_users(uid)?),
            Peer::Network(address) => {
                (Place::Network(slots.take_networks(address, leave.clone())), false)
            }
        };
        Some(Slot { slots: Arc::clone(slots), place, refused, leave })
    }

    /// A place to watch the status in.
    pub(super) fn watch(&self, peer: Peer) -> Option<OwnedSemaphorePermit> {
        let watchers = match peer {
            Peer::Local { uid: 0, .. } => &self.roots_watchers,
            _ => &self.watchers,
        };
        Arc::clone(watchers).try_acquire_owned().ok()
    }

    /// Whether it can only be told that there are too many; none if not even that.
    fn take_roots(&self) -> Option<bool> {
        let mut taken = self.taken();
        let refused = is_refused(taken.root, self.limits.root)?;
        taken.root += 1;
        Some(refused)
    }

    fn take_users(&self, uid: u32) -> Option<bool> {
        let mut taken = self.taken();
        let all = is_refused(taken.users.values().sum(), self.limits.users)?;
        let mine = taken.users.get(&uid).copied().unwrap_or(0);
        let own = is_refused(mine, self.limits.per_user)?;
        taken.users.insert(uid, mine + 1);
        Some(all || own)
    }

    fn take_networks(&self, address: IpAddr, leave: CancellationToken) -> u64 {
        let Limits { network, per_address, .. } = self.limits;
        let from = site(address);
        let mut taken = self.taken();
        let oldest_of_its_own = taken.guests.iter().position(|guest| guest.from == from);
        let own = taken.guests.iter().filter(|guest| guest.from == from).count();
        let makes_way = match oldest_of_its_own {
            Some(oldest) if own >= per_address => Some(oldest),
            _ if taken.guests.len() >= network => Some(0),
            _ => None,
        };
        if let Some(guest) = makes_way.and_then(|index| taken.guests.remove(index)) {
            guest.leave.cancel();
        }
        let id = taken.next;
        taken.next += 1;
        taken.guests.push_back(Guest { id, from, leave });
        id
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        match self.place {
            Place::Root => taken.root = taken.root.saturating_sub(1),
            Place::User(uid) => {
                if let Some(count) = taken.users.get_mut(&uid) {
                    *count -= 1;
                    if *count == 0 {
                        taken.users.remove(&uid);
                    }
                }
            }
            Place::Network(id) => taken.guests.retain(|guest| guest.id != id),
        }
    }
}

/// Whether one more than `there` is beyond `share`; none if it is so by more than a quarter.
fn is_refused(there: usize, share: usize) -> Option<bool> {
    (there < share + share / 4).then_some(there >= share)
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

    fn slots() -> Arc<Slots> {
        let limits = Limits {
            root: 4,
            users: 8,
            per_user: 4,
            network: 6,
            per_address: 3,
            ..Limits::default()
        };
        Arc::new(Slots::new(limits))
    }

    fn user(uid: u32) -> Peer {
        Peer::Local { uid, pid: None, may_change: true }
    }

    fn from(address: &str) -> Peer {
        Peer::Network(address.parse().unwrap())
    }

    fn take(slots: &Arc<Slots>, peer: Peer, many: usize) -> Vec<Slot> {
        (0..many).filter_map(|_| Slots::take(slots, peer)).collect()
    }

    #[test]
    fn users_and_the_network_take_no_place_of_roots() {
        let slots = slots();
        let mut theirs = Vec::new();
        for uid in 1000..1020 {
            theirs.extend(take(&slots, user(uid), 10));
        }
        theirs.extend(take(&slots, from("192.0.2.1"), 100));
        assert_eq!(theirs.iter().filter(|slot| slot.refused).count(), 3);
        let roots = take(&slots, user(0), 10);
        assert_eq!(roots.len(), 5, "and one to be told in");
        assert_eq!(roots.iter().filter(|slot| !slot.refused).count(), 4);
        assert!(slots.watch(user(1000)).is_some());
    }

    #[test]
    fn one_user_leaves_places_for_the_others() {
        let slots = slots();
        let first = take(&slots, user(1000), 100);
        assert_eq!(first.len(), 5);
        let second = Slots::take(&slots, user(1001)).unwrap();
        assert!(!second.refused);
        drop(first);
        assert!(!Slots::take(&slots, user(1000)).unwrap().refused, "the places are free again");
    }

    #[test]
    fn watchers_of_other_users_take_no_place_of_roots() {
        let slots = slots();
        let held: Vec<_> = (0..100).map_while(|_| slots.watch(user(1000))).collect();
        assert_eq!(held.len(), Limits::default().watchers);
        assert!(slots.watch(user(0)).is_some());
    }

    #[test]
    fn the_oldest_connection_of_an_address_makes_way_for_its_newest() {
        let slots = slots();
        let other = Slots::take(&slots, from("192.0.2.2")).unwrap();
        let idle = take(&slots, from("192.0.2.1"), 3);
        let new = Slots::take(&slots, from("192.0.2.1")).unwrap();
        assert!(!new.refused && !new.leave.is_cancelled());
        let left: Vec<_> = idle.iter().map(|slot| slot.leave.is_cancelled()).collect();
        assert_eq!(left, [true, false, false]);
        assert!(!other.leave.is_cancelled());
        // What made way gives back a place that is another's by now.
        drop(idle);
        assert_eq!(slots.taken().guests.len(), 2);
    }

    #[test]
    fn many_addresses_together_have_no_more_places_than_there_are() {
        let slots = slots();
        let crowd: Vec<_> =
            (0..100).map(|n| Slots::take(&slots, from(&format!("192.0.2.{n}"))).unwrap()).collect();
        assert_eq!(crowd.iter().filter(|slot| !slot.leave.is_cancelled()).count(), 6);
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
            let (address, wanted): (IpAddr, IpAddr) =
                (address.parse().unwrap(), wanted.parse().unwrap());
            assert_eq!(site(address), wanted, "{address}");
        }
    }
}
