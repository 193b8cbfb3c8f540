//! Limits how many connections each client may have at the same time.
//!
//! Root, the other users and the network have separate slots, so that none can take another's. Among the users, each
//! has a share. A client on the network is a guest: it is answered even if other addresses have any number of idle
//! connections open.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use winddown_host::{ConnectionLimiter, ConnectionSlot, Throttle};

use super::{Limits, Peer};

use winddown_shared::Mutex;

/// How often a client on the network is given the metrics.
const SCRAPE_PACE: Duration = Duration::from_millis(20);

/// The connection slots of one server.
pub(super) struct Slots {
    limits: Limits,
    taken: Mutex<Taken>,
    guests: Arc<ConnectionLimiter>,
    /// Of clients on the network: each looks at the whole node.
    pub(super) scrapes: Throttle,
    roots_watchers: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    roots_manifests: Semaphore,
    manifests: Semaphore,
}

#[derive(Default)]
struct Taken {
    root: usize,
    users: HashMap<u32, usize>,
}

/// The slot of one connection, which is freed on drop.
pub(super) struct Slot {
    slots: Arc<Slots>,
    place: SlotPlace,
    /// Whether this slot only serves to tell the client that there are too many connections.
    pub(super) refused: bool,
    /// Cancelled when the connection has to give way to a newer one.
    pub(super) leave: CancellationToken,
}

enum SlotPlace {
    Root,
    User(u32),
    /// The guest's seat, which frees itself.
    Network(#[expect(dead_code, reason = "held")] ConnectionSlot),
}

impl Slots {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            taken: Mutex::default(),
            guests: ConnectionLimiter::new(limits.network),
            scrapes: Throttle::new(SCRAPE_PACE),
            roots_watchers: Arc::new(Semaphore::new(limits.watchers)),
            watchers: Arc::new(Semaphore::new(limits.watchers)),
            roots_manifests: Semaphore::new(limits.manifests),
            manifests: Semaphore::new(limits.manifests),
        }
    }

    /// Takes a slot for a connection of `peer`; none if there are so many that the client cannot even be told.
    pub(super) fn take(slots: &Arc<Self>, peer: Peer) -> Option<Slot> {
        let mut leave = CancellationToken::new();
        let (place, refused) = match peer {
            Peer::Local { uid: 0, .. } => (SlotPlace::Root, slots.take_roots()?),
            Peer::Local { uid, .. } => (SlotPlace::User(uid), slots.take_users(uid)?),
            Peer::Network(address) => {
                let seat = slots.guests.take_slot(address);
                leave = seat.leave.clone();
                (SlotPlace::Network(seat), false)
            }
        };
        Some(Slot { slots: Arc::clone(slots), place, refused, leave })
    }

    /// Takes a slot for a watcher of the status.
    pub(super) fn watch(&self, peer: Peer) -> Option<OwnedSemaphorePermit> {
        let watchers = match peer {
            Peer::Local { uid: 0, .. } => &self.roots_watchers,
            _ => &self.watchers,
        };
        Arc::clone(watchers).try_acquire_owned().ok()
    }

    /// The slots for manifests of clients such as `peer`.
    pub(super) fn manifests(&self, peer: Peer) -> &Semaphore {
        match peer {
            Peer::Local { uid: 0, .. } => &self.roots_manifests,
            _ => &self.manifests,
        }
    }

    /// Whether the connection can only be refused; none if there is not even a slot for that.
    fn take_roots(&self) -> Option<bool> {
        let mut taken = self.taken.lock();
        let refused = is_refused(taken.root, self.limits.root)?;
        taken.root += 1;
        Some(refused)
    }

    fn take_users(&self, uid: u32) -> Option<bool> {
        let mut taken = self.taken.lock();
        let all = is_refused(taken.users.values().sum(), self.limits.users)?;
        let mine = taken.users.get(&uid).copied().unwrap_or(0);
        let own = is_refused(mine, self.limits.per_user)?;
        taken.users.insert(uid, mine + 1);
        Some(all || own)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        match &self.place {
            SlotPlace::Root => taken.root = taken.root.saturating_sub(1),
            SlotPlace::User(uid) => {
                if let Some(count) = taken.users.get_mut(uid) {
                    *count -= 1;
                    if *count == 0 {
                        taken.users.remove(uid);
                    }
                }
            }
            SlotPlace::Network(_) => {}
        }
    }
}

/// Whether one more connection exceeds `share`; none if the share is already exceeded by a quarter.
fn is_refused(there: usize, share: usize) -> Option<bool> {
    (there < share + share / 4).then_some(there >= share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Arc<Slots> {
        let limits = Limits { root: 4, users: 8, per_user: 4, network: 6, ..Limits::default() };
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
    fn manifests_of_other_users_take_no_place_of_roots() {
        let slots = slots();
        let one = |uid| slots.manifests(user(uid)).try_acquire().ok();
        let held: Vec<_> = (1000..1100).map_while(one).collect();
        assert_eq!(held.len(), Limits::default().manifests);
        assert!(one(0).is_some());
    }

    #[test]
    fn many_addresses_together_have_no_more_places_than_there_are() {
        let slots = slots();
        let crowd: Vec<_> =
            (0..100).map(|n| Slots::take(&slots, from(&format!("192.0.2.{n}"))).unwrap()).collect();
        assert_eq!(crowd.iter().filter(|slot| !slot.leave.is_cancelled()).count(), 6);
    }
}
