//! Checks whether a pod fits on a node next to the pods that are already there.

use super::affinity;
use super::failure::{AdmissionFailure, FitFailures};
use super::node_view::NodeView;
use super::ports::{self, HostPorts};
use super::taints;
use crate::{Pod, Requests, ResourceName};

/// The resources and ports of a node that its pods use.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NodeUse {
    /// The number of pods.
    pub pods: i64,
    /// The sum of their requests.
    pub requests: Requests,
    /// The host ports that they use.
    pub ports: HostPorts,
}

impl NodeUse {
    /// The usage of `pods` that matters for `new`: without `new` itself, which does not compete with itself when it is
    /// checked again, and without ports that it does not request. Terminating pods still count. Visits every pod, so it
    /// takes time proportional to their number.
    #[must_use]
    pub fn without<'a>(new: &Pod, pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut sum = Self::default();
        let asked = ports::numbers(new);
        for pod in pods.into_iter().filter(|pod| pod.uid() != new.uid()) {
            sum.pods = sum.pods.saturating_add(1);
            sum.requests.accumulate(pod.fit_requests());
            if !asked.is_empty() {
                sum.ports.add_where(pod, |port| asked.contains(&port));
            }
        }
        sum
    }

    /// Adds a pod.
    pub fn add(&mut self, pod: &Pod) {
        self.pods = self.pods.saturating_add(1);
        self.requests.accumulate(pod.fit_requests());
        self.ports.add(pod);
    }

    /// Raises each amount to that of `other`, which uses no further ports.
    pub(super) fn raise_to(&mut self, other: &Self) {
        self.pods = self.pods.max(other.pods);
        self.requests.raise_to(&other.requests);
    }

    /// The same usage for a pod that requests these host ports: all other ports are left out.
    pub(super) fn for_ports(&self, asked: &[i32]) -> Self {
        let Self { pods, requests, ports } = self;
        Self { pods: *pods, requests: requests.clone(), ports: ports.only(asked) }
    }

    fn amount(&self, name: &ResourceName) -> i64 {
        match name {
            ResourceName::Pods => self.pods,
            _ => self.requests.get(name),
        }
    }
}

/// All reasons why the pod does not fit: `pods`, cpu, memory, ephemeral storage, other resources by
/// name; then node affinity and selector, node name, host ports; then, unless the pod is static, a
/// `NoExecute` taint that it does not tolerate.
///
/// The order is that of the kubelet, which reports the first failure, except that the kubelet checks
/// other resources in random order.
#[must_use]
pub fn fit_failures(pod: &Pod, node: &NodeView, used: &NodeUse) -> FitFailures {
    let predicates = [
        (!affinity::matches(pod, node), AdmissionFailure::NODE_AFFINITY),
        (!is_on(pod, node), AdmissionFailure::NODE_NAME),
        (used.ports.conflict(pod).is_some(), AdmissionFailure::NODE_PORTS),
        (!pod.is_static() && !taints::tolerates(pod, node), AdmissionFailure::TAINT_TOLERATION),
    ];
    let failed = predicates.into_iter().filter_map(|(fails, failure)| fails.then_some(failure));
    lacking(pod, node, used).chain(failed).collect()
}

fn lacking<'a>(
    pod: &'a Pod,
    node: &'a NodeView,
    used: &'a NodeUse,
) -> impl Iterator<Item = AdmissionFailure> + 'a {
    let requests = pod.fit_requests().iter().filter(|(name, _)| is_counted_here(name, node));
    std::iter::once((ResourceName::Pods, 1)).chain(requests).filter_map(|(resource, requested)| {
        let (used, capacity) = (used.amount(&resource), node.allocatable.get(&resource));
        let fits = requested <= capacity.saturating_sub(used);
        (!fits).then_some(AdmissionFailure::InsufficientResource {
            resource,
            requested,
            used,
            capacity,
        })
    })
}

/// Whether the resource is checked against the node's allocatable amounts.
///
/// An extended resource that the node does not list belongs to the cluster and is counted
/// elsewhere. One of a device class (KEP-5004) is allocated by its resource claim. Any other
/// counts, even if the node does not list it: a misspelt `hugepages-2M` does not fit.
fn is_counted_here(name: &ResourceName, node: &NodeView) -> bool {
    let ResourceName::Other(text) = name else { return true };
    if text.starts_with("deviceclass.resource.kubernetes.io/") {
        return false;
    }
    !is_extended(text) || node.allocatable.knows(name)
}

/// Whether the resource is defined by a third party.
fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native && !name.starts_with("requests.")
}

fn is_on(pod: &Pod, node: &NodeView) -> bool {
    let asked = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    asked.is_empty() || *asked == *node.name
}
