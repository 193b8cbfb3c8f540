//! A node in a Kubernetes cluster: its pods in; their statuses, the node and its events out.
//!
//! Each module stands on its own and can be taken into another node agent:
//!
//! * [`pods`]: the pods bound to this node, a source of pods, and taken out of the API again.
//! * [`status`]: what pods do, told to the API server until it has said that it knows.
//! * [`node`]: the Node object, its lease, its conditions and its cordon.
//! * [`events`]: decisions as Kubernetes Events.
//! * [`mirror`]: the API's picture of static pods.
//! * [`after_boot`]: pods that this node ended before it went down.
//! * [`after_nodes`]: nodes that go down before this one.

pub mod after_boot;
pub mod after_nodes;
pub mod events;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod fuzzing;
pub mod mirror;
pub mod node;
pub mod pods;
pub mod status;
