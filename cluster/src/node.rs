//! The Node object, its lease, its conditions and its cordon.
//!
//! [`NodeController`] registers the node, keeps its labels, taints, resources and conditions as
//! [`NodeFacts`] and the [`NodeControllerHandle`] specify, renews its lease and cordons it while it goes down. It
//! owns only what it wrote: whatever people and other controllers put on the Node object stays,
//! including changes that they make while this agent is down.
//!
//! # Behaviour
//! - Level-triggered: the controller compares the desired state with the node on the server, and writes
//!   the difference. Changes during an outage of the server become one difference when it is back.
//! - The start of a shutdown is written immediately: Ready and both conditions of KEP-6249 in one
//!   request, then the cordon. It interrupts any request in progress. Nothing that stops pods waits for
//!   it; [`NodeControllerHandle::flush`] does, until a deadline.
//! - Next to a kubelet the cordon comes with a taint of this agent, because DaemonSets ignore a cordon.
//! - Status, cordon, labels and taints are separate requests. An API server that refuses a node's own
//!   labels or taints still gets its status.
//! - A dispute with another writer over a field that this agent owns is continued ever more slowly.
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
    CLEAN_SHUTDOWN, DRAIN_IN_PROGRESS, DRAINED, DrainingNode, NodeHealth, READY,
    SHUTDOWN_IN_PROGRESS, condition,
};
pub use controller::{
    NodeController, NodeControllerBuilder, NodeScope, NodeSettings, NodeSettingsError, Registration,
};
pub use cordon::{CORDONED_BY, CordonReason, TAINT, TAINTED_BY};
pub use desired::NodeFacts;
pub use handle::{NodeControllerHandle, NodeState, NotDelivered};
pub use lease::{LEASE_NAMESPACE, LeaseTimes, LeaseTimesError};
pub use managed_keys::LAST_APPLIED;
pub use ping::{NoPing, Ping, PingTimes};
