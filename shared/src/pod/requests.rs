//! The requests and limits of a whole pod.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;

use super::Pod;
use super::amounts::Amounts;
use super::totals;
use crate::{Quantity, QuantityFormat};

#[cfg(test)]
mod tests;

/// Name of a resource. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceName {
    /// `pods`: every pod takes one.
    Pods,
    /// `cpu`, counted in thousandths.
    Cpu,
    /// `memory`, counted in bytes.
    Memory,
    /// `ephemeral-storage`, counted in bytes.
    EphemeralStorage,
    /// Any other: huge pages in bytes, extended resources in units.
    Other(Arc<str>),
}

/// Whole amounts per resource: cpu in thousandths, all else in base units. Never negative.
///
/// Computed from exact sums that were rounded up once. A resource that is not requested reads as 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    cpu_milli: i64,
    memory: i64,
    ephemeral_storage: i64,
    /// Sorted by name, without zeros.
    other: Vec<(ResourceName, i64)>,
}

// === impl ResourceName ===

impl ResourceName {
    /// The name as in Kubernetes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pods => "pods",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Other(name) => name,
        }
    }

    /// Whether a pod's `spec.resources` may contain it: cpu, memory and huge pages.
    #[must_use]
    pub fn is_pod_level(&self) -> bool {
        totals::is_pod_level(self.as_str())
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        match name {
            "pods" => Self::Pods,
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::EphemeralStorage,
            _ => Self::Other(Arc::from(name)),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Requests ===

impl Requests {
    /// CPU in thousandths.
    #[must_use]
    pub const fn cpu_milli(&self) -> i64 {
        self.cpu_milli
    }

    /// Memory in bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> i64 {
        self.memory
    }

    /// Node-local storage in bytes.
    #[must_use]
    pub const fn ephemeral_storage_bytes(&self) -> i64 {
        self.ephemeral_storage
    }

    /// The amount of one resource; [`ResourceName::Pods`] is 1 for any pod.
    #[inline]
    #[must_use]
    pub fn get(&self, name: &ResourceName) -> i64 {
        match name {
            ResourceName::Pods => 1,
            ResourceName::Cpu => self.cpu_milli,
            ResourceName::Memory => self.memory,
            ResourceName::EphemeralStorage => self.ephemeral_storage,
            ResourceName::Other(_) => {
                let found = self.other.iter().find(|(other, _)| other == name);
                found.map_or(0, |(_, amount)| *amount)
            }
        }
    }

    /// Every resource with a nonzero amount, in the order in which a fit is reported: cpu, memory,
    /// ephemeral storage, then the others by name. `pods` is not included.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceName, i64)> + '_ {
        let named = [
            (ResourceName::Cpu, self.cpu_milli),
            (ResourceName::Memory, self.memory),
            (ResourceName::EphemeralStorage, self.ephemeral_storage),
        ];
        let others = self.other.iter().cloned();
        named.into_iter().filter(|(_, amount)| *amount != 0).chain(others)
    }

    /// Adds the requests of another pod, saturating, for the sum over a node.
    pub fn accumulate(&mut self, more: &Self) {
        self.join(more, i64::saturating_add);
    }

    /// Raises each amount to that of `other`.
    pub fn raise_to(&mut self, other: &Self) {
        self.join(other, i64::max);
    }

    fn join(&mut self, more: &Self, joined: impl Fn(i64, i64) -> i64) {
        self.cpu_milli = joined(self.cpu_milli, more.cpu_milli);
        self.memory = joined(self.memory, more.memory);
        self.ephemeral_storage = joined(self.ephemeral_storage, more.ephemeral_storage);
        for (name, amount) in &more.other {
            match self.other.binary_search_by(|(other, _)| other.cmp(name)) {
                Ok(index) => self.other[index].1 = joined(self.other[index].1, *amount),
                Err(index) => self.other.insert(index, (name.clone(), *amount)),
            }
        }
    }

    fn rounded_up(amounts: &Amounts<'_>) -> Self {
        let exact = |nanos| Quantity::from_nanos(nanos, QuantityFormat::DecimalSi);
        let mut other: Vec<_> = amounts
            .other
            .iter()
            .filter(|(name, nanos)| *nanos != 0 && *name != "pods")
            .map(|(name, nanos)| (ResourceName::from(*name), exact(*nanos).value()))
            .collect();
        other.sort_unstable();
        Self {
            cpu_milli: exact(amounts.cpu).milli_value(),
            memory: exact(amounts.memory).value(),
            ephemeral_storage: exact(amounts.ephemeral_storage).value(),
            other,
        }
    }
}

pub(super) fn accounted(pod: &api::Pod) -> Requests {
    Requests::rounded_up(&totals::accounted(pod))
}

// === impl Pod ===

impl Pod {
    /// The requests that must fit on a node, as the scheduler counts them. Computed once per object.
    ///
    /// Containers run at the same time as each other and as sidecars, init containers one after the
    /// other: the larger of the two counts, per resource. A container that is being resized in
    /// place counts with the largest of its desired, allocated and actual resources. A pod-level
    /// request replaces the containers' for that resource; the overhead is always added.
    #[must_use]
    pub fn fit_requests(&self) -> &Requests {
        self.0.fit.get_or_init(|| Requests::rounded_up(&totals::fit(self)))
    }

    /// The requests with which pods are ranked for preemption or eviction.
    ///
    /// Differs from [`fit_requests`](Self::fit_requests) as the kubelet's two helpers do: if there
    /// are any pod-level requests or limits, those of the containers are ignored, for every
    /// resource; the overhead is added only to resources that are requested; the status is ignored.
    #[inline]
    #[must_use]
    pub fn accounted_requests(&self) -> &Requests {
        &self.0.facts.accounted
    }

    /// The largest sum of the containers' requests at any time, without pod-level requests and
    /// overhead. Computed on every call.
    #[must_use]
    pub fn container_requests(&self) -> Requests {
        Requests::rounded_up(&totals::of_containers(self))
    }

    /// The limits of the pod; 0 for a resource without one. Computed on every call.
    ///
    /// Summed like requests. A container without a limit adds nothing, a pod-level limit replaces
    /// the containers' for that resource, and the overhead is added only to an existing limit.
    #[must_use]
    pub fn accounted_limits(&self) -> Requests {
        Requests::rounded_up(&totals::limits(self))
    }
}
