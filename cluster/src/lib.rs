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
//!
//! # Design
//!
//! `node/src/cluster` joins `winddown-cluster` to the node. The API's pods are desired pods like those of manifests.
//! `PodController` is a source of the node, all sources form one set (`node/src/source.rs`), the intake and the workers do
//! the rest, and statuses go from the status store to the outbox. The pods that run here are recorded in `/run` for the
//! boot, so a restart needs no API server. A shutdown waits for the API only in its last work (`ShutdownWork`), between the
//! last pod's end and the report, within the reserve.
//!
//! * `pods`: a pod of the API is identified by its UID and has one entry: what the API says, and what the node was
//!   given (`pods/known.rs`). Each step follows from what the API wants and what the node reports (`pods/next_step.rs`,
//!   pure), so the controller can be killed at any point. One queue per direction handles a UID at most once at a time.
//!   A running pod that a list lacks is looked up before it is ended. An object is removed only when nothing of its pod
//!   runs and the API has its final status.
//! * `status` has two halves. `patch` is a pure function from the API's status and the node's to the one patch that is
//!   needed; property tests check its guarantees (no lower phase, no terminal phase together with Ready, others' conditions
//!   untouched, idempotent). `Outbox` has one entry per pod, in which the latest status wins, and retries until the API has
//!   it. Final statuses are written to disk before they are sent, and after a boot they are sent first. Mirror pods show
//!   static pods; deleting a mirror never affects the static pod.
//! * `node` receives the desired state of the Node object, compares it with the server's, and writes the difference;
//!   nothing that ends pods waits for it. It owns the keys it recorded on the Node object and nothing else. Status, cordon,
//!   labels and taints are separate requests, so the refusal of one affects no other. A lease is never renewed for a node
//!   that the API wrongly believes to be ready.
//! * `events` turns decisions into Kubernetes Events with the kubelet's reasons. A bounded queue never blocks; one writer
//!   sends events of several objects at once, and those of each object in order. A shutdown waits for them at its end,
//!   decisions first.

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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
