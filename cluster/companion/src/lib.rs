//! Runs next to a kubelet: the kubelet runs the pods, this agent stops them.
//!
//! [`KubeletRuntime`] is a [`Runtime`](winddown_shared::Runtime) that starts nothing. Its pods are those
//! that the API server has for this node, with containers as the kubelet reports them. To stop
//! a pod, it asks the API server to evict or delete the pod, and waits until the kubelet has stopped it.
//!
//! # Behaviour
//! - A pod is evicted first, so that its disruption budgets are respected; while the node goes down, a pod that
//!   no budget selects is deleted at once. A refused eviction is
//!   repeated for a share of the grace period, and then the pod is deleted: a node that goes down stops its pods
//!   in any case, and it is better to do so in order.
//! - Before that, a pod with eviction responders is asked to stop by an `EvictionRequest` (KEP-4563), if the API
//!   server serves it. Responders and budgets share the same time.
//! - A grace period that is shortened meanwhile is sent to the API server as another deletion.
//! - An API server that refuses a connection is away; so is one that answers nothing, not even a probe, for
//!   300 ms (1 s if it has just answered and more than eight requests are under way).
//! - A pod is gone when a kubelet that was asked to stop it has stopped its sandbox; or when the API server
//!   reports that its containers have terminated, and the container runtime agrees. A runtime that cannot be queried
//!   is not waited for. While the node goes down, it is enough that the kernel reports the exits of its containers.
//! - A pod is clean when none of its volumes is mounted or staged any more, apart from those in memory, and none of its
//!   device claims is prepared.
//! - While the node goes down, containers are stopped through the container runtime as soon as the API server tells the
//!   pod's end to those that watch its pods: a kubelet that sees an exit before that starts the pod again. Pods with
//!   preStop hooks are left to the kubelet, unless the API server is away ([`CompanionConfig::waits_for_api`]) or the
//!   kubelet is stopped: then winddown runs the hooks. `stop/plan.rs` is the whole rule.
//! - A pod of the API server counts as a mirror pod only if the container runtime confirms it: any tenant may write the
//!   annotations.
//! - The pod of a manifest file (a mirror pod) cannot be stopped through the API server. It is stopped last,
//!   through the container runtime, and only while the node goes down. Other requests to stop it are refused.
//! - A kubelet restarts containers that it was not asked to stop. So the kubelet itself is stopped before the
//!   first pod is stopped without it, if it is a service of its own, but not before hooks that it runs have ended, nor
//!   for a manifest's pod before it has unmounted the volumes of other pods (at most half of the grace period).
//!   It is started again if the shutdown is cancelled. Containers that are restarted regardless
//!   are stopped again, and the report says so of each pod.
//! - A pod has completed when its phase says so: until then the kubelet may start its containers again, or stops what is
//!   left of it. Nothing is requested for it.
//! - A pod that the kubelet runs again after a cancelled shutdown is left alone until the next one.
//! - Nothing is written to a pod's status, which belongs to the kubelet.
//! - While the API server is away, the last known pods remain. Until it has listed them for the first time, the pods are
//!   those that the container runtime has, as far as the kubelet recorded them there ([`LocalContainers::pods`]). While the
//!   node goes down, these are stopped at once through the container runtime. A first list without any pod counts only if
//!   the API server has a node of this name.
//!
//! # Design
//!
//! `companion` is a runtime. `KubeletRuntime` starts nothing, knows its pods from the API's watch (until its first list
//! from what the kubelet recorded in the container runtime, `found.rs`), and stops a pod by evicting it, then deleting
//! it; a pod with responders first gets an `EvictionRequest` (`eviction_requests.rs`). A pod is gone when the kubelet has
//! taken its sandbox down, or when the API says so and the container runtime agrees (`runtime_poller.rs`: one query for
//! all pods). Annotations make no mirror pod: `mirror.rs` (pure) compares what a pod says of itself with the sandboxes.
//! `kubelet_root.rs` reads from the kubelet's own directory what it still holds for a pod. `kubelet_hold.rs` stops the
//! kubelet's service before winddown stops pods that the kubelet was not told to end. The companion writes only
//! conditions, the cordon and its own taint to the Node object: cordon and taint are two barriers of one kind, each with
//! its annotation (`cluster/src/node/cordon.rs`).

mod api;
mod api_outage;
mod budgets;
mod config;
mod eviction_requests;
mod facts;
mod follow;
mod found;
mod known;
pub mod kubelet;
mod kubelet_hold;
mod kubelet_root;
mod local_node;
mod mirror;
mod recent;
mod restart_guard;
mod rights;
mod runtime;
mod runtime_poller;
mod shared_look;
mod stop;
#[cfg(test)]
mod tests;
mod unused_volumes;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use kubelet_root::fuzzing;

pub use config::CompanionConfig;
pub use follow::KubeletFollower;
pub use kubelet_root::{KubeletHolds, KubeletRoot};
pub use local_node::{
    ContainerStop, KubeletHost, LocalContainers, LocalHolds, LocalHooks, LocalKubelet, NodeError,
    RuntimePodState,
};
pub use rights::{
    NEEDS, Need, READ_BUDGETS, REQUEST_EVICTIONS, RightsUnknown, kubelet_elsewhere, may, may_taint,
    missing_for_requests, missing_rights,
};
pub use runtime::{KubeletRuntime, companion};
pub use shared_look::SharedLook;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
