//! The node's allocatable resources.

use std::collections::BTreeMap;

use winddown_shared::{Allocatable, Quantity, QuantityFormat, ResourceName};

use crate::{Capacity, ThresholdValue};

#[cfg(test)]
mod tests;

/// Resources reserved from the pods, and facts that the machine does not report.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatableConfig {
    /// `systemReserved` and `kubeReserved` together: cpu in thousandths, all else in base units.
    pub reserved: BTreeMap<ResourceName, i64>,
    /// `evictionHard[memory.available]`; below 0 counts as 0.
    pub memory_available: ThresholdValue,
    /// `evictionHard[nodefs.available]`; below 0 counts as 0.
    pub nodefs_available: ThresholdValue,
    /// The maximum number of pods.
    pub max_pods: i64,
    /// Resources that only the configuration defines, in whole units.
    pub extended: BTreeMap<ResourceName, i64>,
}

/// Nothing is reserved, and there may be 110 pods.
impl Default for AllocatableConfig {
    fn default() -> Self {
        Self {
            reserved: BTreeMap::new(),
            memory_available: ThresholdValue::ZERO,
            nodefs_available: ThresholdValue::ZERO,
            max_pods: 110,
            extended: BTreeMap::new(),
        }
    }
}

impl AllocatableConfig {
    /// The part of `capacity` that is available to pods; no amount is below 0.
    ///
    /// As the kubelet computes it: capacity minus reservations, minus the hard eviction thresholds
    /// of memory and of the node's file system, minus, for memory, huge pages.
    #[must_use]
    pub fn allocatable(&self, capacity: &Capacity) -> Allocatable {
        let mut amounts = self.whole(capacity);
        for (name, amount) in &mut amounts {
            let kept = self.reserved.get(name).copied().unwrap_or(0);
            let threshold = match name {
                ResourceName::Memory => self.memory_available.of(capacity.memory).value(),
                ResourceName::EphemeralStorage => {
                    self.nodefs_available.of(capacity.ephemeral_storage).value()
                }
                _ => 0,
            }
            .max(0);
            *amount = amount.saturating_sub(kept).saturating_sub(threshold).max(0);
        }
        if let Some(memory) = amounts.get_mut(&ResourceName::Memory) {
            let set_aside = capacity.huge_pages.values().fold(0_i64, |a, b| a.saturating_add(*b));
            *memory = memory.saturating_sub(set_aside).max(0);
        }
        amounts.into_iter().collect()
    }

    /// The node's capacity of each resource a pod can request, before reservations.
    #[must_use]
    pub fn capacity(&self, capacity: &Capacity) -> Allocatable {
        self.whole(capacity).into_iter().collect()
    }

    fn whole(&self, capacity: &Capacity) -> BTreeMap<ResourceName, i64> {
        let mut amounts = self.extended.clone();
        amounts.insert(ResourceName::Pods, self.max_pods);
        amounts.insert(ResourceName::Cpu, capacity.cpu_milli);
        amounts.insert(ResourceName::Memory, capacity.memory);
        amounts.insert(ResourceName::EphemeralStorage, capacity.ephemeral_storage);
        for (size, bytes) in &capacity.huge_pages {
            amounts.insert(huge_pages(*size), *bytes);
        }
        amounts
    }
}

/// The resource's name for huge pages of `size` bytes: `hugepages-2Mi`.
fn huge_pages(size: i64) -> ResourceName {
    let size = Quantity::new(size, QuantityFormat::BinarySi);
    ResourceName::from(&*format!("hugepages-{size}"))
}
