//! QoS classes.

use std::fmt;

use k8s_openapi::api::core::v1::{self as api, Container, PodSpec, ResourceRequirements};

use super::Pod;
use super::amounts::{QuantityMap, nanos};

#[cfg(test)]
mod tests;

/// The QoS class of a pod: how strictly its resources are guaranteed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum QosClass {
    /// No requests and no limits.
    BestEffort,
    /// Some requests or limits.
    Burstable,
    /// Requests equal limits everywhere.
    Guaranteed,
}

impl QosClass {
    /// The name as in Kubernetes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Pod {
    /// The pod's QoS class: `status.qosClass`, or the class that follows from its spec if that is unset or invalid.
    #[inline]
    #[must_use]
    pub fn qos(&self) -> QosClass {
        self.0.facts.qos
    }
}

pub(super) fn class(pod: &api::Pod) -> QosClass {
    let recorded = pod.status.as_ref().and_then(|status| status.qos_class.as_deref());
    match recorded {
        Some("BestEffort") => QosClass::BestEffort,
        Some("Burstable") => QosClass::Burstable,
        Some("Guaranteed") => QosClass::Guaranteed,
        _ => pod.spec.as_ref().map_or(QosClass::BestEffort, class_of),
    }
}

/// Amounts of cpu and memory, the only resources that count here, in nano-units. Zero is equivalent to absent.
#[derive(Clone, Copy, Default, PartialEq)]
struct Computes {
    cpu: i128,
    memory: i128,
}

impl Computes {
    fn of(quantities: Option<&QuantityMap>) -> Self {
        let amount = |name| quantities.and_then(|map| map.get(name)).map_or(0, nanos);
        Self { cpu: amount("cpu"), memory: amount("memory") }
    }

    fn add(&mut self, other: Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
    }

    fn is_complete(self) -> bool {
        self.cpu > 0 && self.memory > 0
    }
}

fn class_of(spec: &PodSpec) -> QosClass {
    let (mut requests, mut limits) = (Computes::default(), Computes::default());
    let mut all_limited = true;
    let mut count = |resources: Option<&ResourceRequirements>| {
        let own_limits = Computes::of(resources.and_then(|found| found.limits.as_ref()));
        requests.add(Computes::of(resources.and_then(|found| found.requests.as_ref())));
        limits.add(own_limits);
        all_limited &= own_limits.is_complete();
    };
    if let Some(resources) = &spec.resources {
        // Pod-level resources count alone, even when they are empty.
        count(Some(resources));
    } else {
        let init_containers = spec.init_containers.iter().flatten();
        for Container { resources, .. } in spec.containers.iter().chain(init_containers) {
            count(resources.as_ref());
        }
    }
    if requests == Computes::default() && limits == Computes::default() {
        QosClass::BestEffort
    } else if all_limited && requests == limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}
