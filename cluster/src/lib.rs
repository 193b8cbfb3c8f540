//! A node in a Kubernetes cluster: its pods in; their statuses, the node and its events out.
//!
//! The only crate that knows the Kubernetes API. Each module stands on its own and can be taken
//! into another node agent:
//!
//! * [`client`]: how the API server is reached, and with whose name.
//! * [`provider`]: the seam to whatever runs pods.
//! * [`pods`]: the pods bound to this node, brought to a provider and taken out of the API again.
//! * [`status`]: what pods do, told to the API server until it has said that it knows.
//! * [`node`]: the Node object, its lease, its conditions and its cordon.
//! * [`events`]: decisions as Kubernetes Events.
//! * [`resolve`]: what a pod refers to (ConfigMaps, Secrets, fields, services), made literal.
//! * [`mirror`]: the API's picture of static pods.
//! * [`after_boot`]: pods that this node ended before it went down.
//! * [`companion`]: a kubelet runs the pods, and this agent ends them.

pub mod after_boot;
mod backoff;
pub mod client;
pub mod companion;
pub mod events;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod mirror;
pub mod node;
pub mod pods;
pub mod provider;
mod refusal;
pub mod resolve;
pub mod status;

/// The example in README.md compiles and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
