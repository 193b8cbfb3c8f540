//! Whether a pod fits on a node, beside the pods that are there.

use super::affinity;
use super::failure::{AdmissionFailure, FitFailures};
use super::node_view::NodeView;
use super::ports::{self, HostPorts};
use super::taints;
use crate::{Pod, Requests, ResourceName};

/// What the pods of a node hold of it, as far as it matters for one more.
#[derive(Clone, Debug, Default)]
pub struct NodeUse {
    /// How many there are.
    pub pods: i64,
    /// What they ask for together.
    pub requests: Requests,
    /// The host's ports they have.
    pub ports: HostPorts,
}

impl NodeUse {
    /// What `pods` hold that `new` may ask for. `new` itself is left out: it does not compete with
    /// itself when it is asked about again. Pods that are ending still hold their share.
    ///
    /// Good for `new` only: ports it does not ask for are left out. Looks at every pod, so its time
    /// grows with their number.
    #[must_use]
    pub fn beside<'a>(new: &Pod, pods: impl IntoIterator<Item = &'a Pod>) -> Self {
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

    /// The same for a pod that asks for these ports of the host: all others are left out.
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

/// Everything that keeps the pod off the node: `pods`, cpu, memory, ephemeral storage, other
/// resources by name; then node affinity and selector, the node's name, host ports; then, unless
/// the pod is static, a `NoExecute` taint it does not tolerate.
///
/// The order is that of the kubelet, which reports the first, save that it goes through other
/// resources at random.
#[must_use]
pub fn fit_failures(pod: &Pod, node: &NodeView, used: &NodeUse) -> FitFailures {
    let predicates = [
        (!affinity::matches(pod, node), AdmissionFailure::NODE_AFFINITY),
        (!is_on(pod, node), AdmissionFailure::NODE_NAME),
        (used.ports.conflict(pod), AdmissionFailure::NODE_PORTS),
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

/// Whether this node's amounts decide about the resource.
///
/// An extended resource that the node does not list is one of the cluster, counted elsewhere. One
/// of a device class (KEP-5004) is allocated by the claim that was made for it. Any other counts,
/// also when the node has never heard of it: a misspelt `hugepages-2M` does not fit.
fn is_counted_here(name: &ResourceName, node: &NodeView) -> bool {
    let ResourceName::Other(text) = name else { return true };
    if text.starts_with("deviceclass.resource.kubernetes.io/") {
        return false;
    }
    !is_extended(text) || node.allocatable.knows(name)
}

/// Whether another party than Kubernetes defines the resource.
fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native && !name.starts_with("requests.")
}

fn is_on(pod: &Pod, node: &NodeView) -> bool {
    let asked = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    asked.is_empty() || *asked == *node.name
}
