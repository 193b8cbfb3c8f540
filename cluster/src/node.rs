//! The Node object, its lease, its conditions and its cordon.
//!
//! [`NodeController`] registers the node, keeps its labels, taints, resources and conditions as
//! [`NodeFacts`] and the [`NodeHandle`] say, renews its lease and cordons it while it goes down. It
//! owns what it wrote and nothing else: whatever people and other controllers put on the Node object
//! stays, also what they do to it while this agent is away.
//!
//! # Behaviour
//! - State in, state out: the controller takes how things are, compares that with the node as the
//!   server has it, and writes the difference. What it was told while the server was away is one
//!   difference when it is back.
//! - The start of a shutdown is written at once: Ready, both conditions of KEP-6249 in one request, and
//!   the cordon after it. It interrupts whatever is under way. Nothing that ends pods waits for it;
//!   [`NodeHandle::flush`] does, until a deadline.
//! - Beside a kubelet a taint of our own comes with the cordon: DaemonSets pay no heed to a cordon.
//! - Status, cordon, labels and taints are requests of their own. An API server that refuses a node
//!   its own labels or taints still gets its status.
//! - A dispute with another writer over something that is ours is carried on ever more slowly.
//! - An idle node wakes once for each renewal of the lease, and allocates nothing for it.

mod attempt;
mod conditions;
mod controller;
mod cordon;
mod desired;
mod events;
mod fault;
mod handle;
mod lease;
mod managed_keys;
mod patch;
mod ping;
mod server;
mod ticker;

#[cfg(test)]
mod tests;

pub use conditions::{
    CLEAN_SHUTDOWN, DRAIN_IN_PROGRESS, DRAINED, Draining, Health, Pressure, READY,
    SHUTDOWN_IN_PROGRESS, condition,
};
pub use controller::{
    NodeController, NodeControllerBuilder, NodeScope, NodeSettings, NodeSettingsError, Registration,
};
pub use cordon::{CORDONED_BY, CordonReason, TAINT, TAINTED_BY};
pub use desired::NodeFacts;
pub use handle::{NodeHandle, NodeState, NotDelivered};
pub use lease::{LEASE_NAMESPACE, LeaseError, LeaseTimes, LeaseTimesError};
pub use managed_keys::LAST_APPLIED;
pub use ping::{NoPing, Ping, PingTimes};
