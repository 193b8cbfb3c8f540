//! Connects a node to a Kubernetes cluster: takes its pods, and reports their statuses, the node and events.
//!
//! Each module can be used on its own in another node agent:
//!
//! * [`pods`]: a source of the pods bound to this node, which also removes them from the API.
//! * [`status`]: reports pod statuses until the API server has confirmed them.
//! * [`node`]: the Node object, its lease, its conditions and its cordon.
//! * [`events`]: decisions as Kubernetes Events.
//! * [`mirror`]: mirror pods, which show static pods in the API.
//! * [`after_boot`]: pods that this node terminated before it went down.
//! * [`after_nodes`]: nodes that go down before this one.

pub mod after_boot;
pub mod after_nodes;
pub mod events;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod mirror;
pub mod node;
pub mod pods;
pub mod status;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
