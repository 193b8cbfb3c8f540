//! Beside a kubelet: it runs the pods, this agent ends them.
//!
//! [`KubeletRuntime`] is a [`Runtime`](winddown_shared::Runtime) that starts nothing. Its pods are those
//! that the API server has for this node; their containers are what the kubelet says of them. To stop
//! a pod is to ask the API server for it, and to wait until the kubelet has done it.
//!
//! # Behaviour
//! - A pod is evicted first, with the consent of its disruption budgets; while the node goes down, one that
//!   no budget selects is deleted at once. What they refuse is asked
//!   again for a share of the grace, and then the pod is deleted: a node that goes down takes its pods
//!   along in any case, and in order is better.
//! - A pod with eviction responders is asked to end by an `EvictionRequest` (KEP-4563) before that, where the API
//!   server serves it. They share the time of the budgets.
//! - A grace that is shortened meanwhile reaches the API server as another deletion.
//! - A pod is gone when the kubelet, told to end it, has taken its sandbox down; or when the API server
//!   says that its containers have ended, and the container runtime agrees. A runtime that cannot be asked
//!   is not waited for. While the node goes down, the ends of its containers are enough, as the kernel tells them.
//! - A pod is clean when nothing of its volumes is mounted or staged any more, memory aside, and none of its
//!   claims on devices is prepared.
//! - While the node goes down, containers are stopped through the container runtime when the API
//!   server is away for too long ([`WithoutApi`]), and when a kubelet has not ended them in time.
//! - The pod of a manifest file (a mirror pod) cannot be ended through the API server. It comes last,
//!   through the container runtime, and only while the node goes down.
//! - A kubelet starts again what it was not told to end. So it is stopped itself before the first such
//!   pod is, where it is a service of its own, but not before it has unmounted what the others had; and
//!   started again if the shutdown is called off. What is
//!   started again all the same is ended again.
//! - Nothing is written to a pod's status: that is the kubelet's.
//! - An API server that is away changes nothing: the pods are those that were last known.

mod api;
mod api_outage;
mod budgets;
mod config;
mod eviction_requests;
mod facts;
mod follow;
mod known;
mod kubelet_hold;
mod kubelet_root;
mod local_node;
mod looks;
mod recent;
mod rights;
mod runtime;
mod shared_look;
mod started_again;
mod stop;
#[cfg(test)]
mod tests;
mod unused_volumes;

#[cfg(debug_assertions)]
#[doc(hidden)]
pub use kubelet_root::fuzzing;

pub use config::{CompanionConfig, WithoutApi};
pub use follow::Follower;
pub use kubelet_root::{KubeletHolds, KubeletRoot};
pub use local_node::{Inside, LocalNode, NoLocalNode, Unasked};
pub use rights::{
    NEEDS, Need, READ_BUDGETS, REQUEST_EVICTIONS, RightsUnknown, may, may_taint,
    missing_for_requests, missing_rights,
};
pub use runtime::{KubeletRuntime, companion};
pub use shared_look::SharedLook;
