//! Exact sums of quantities, for computing the totals of a pod.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::Quantity;

/// Quantities by resource name, as API objects hold them.
pub(super) type QuantityMap = BTreeMap<String, ApiQuantity>;

/// Nano-units of a quantity in an API object.
///
/// A quantity that cannot be parsed, or is negative, counts as 0: manifests are validated when they are read, the API
/// server validates its objects, and a pod that slipped through must still be terminated in its turn.
pub(super) fn nanos(quantity: &ApiQuantity) -> i128 {
    quantity.0.parse::<Quantity>().map_or(0, |quantity| quantity.as_nanos().max(0))
}

/// Nano-units per resource. An amount of zero is equivalent to none.
#[derive(Clone, Debug, Default)]
pub(super) struct Amounts<'a> {
    pub(super) cpu: i128,
    pub(super) memory: i128,
    pub(super) ephemeral_storage: i128,
    /// A list, because a few entries are searched faster than a map.
    pub(super) other: Vec<(&'a str, i128)>,
}

impl<'a> Amounts<'a> {
    pub(super) fn of(quantities: Option<&'a QuantityMap>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in quantities.into_iter().flatten() {
            *amounts.slot(name) = nanos(quantity);
        }
        amounts
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.merge(more, i128::saturating_add);
    }

    pub(super) fn raise_to(&mut self, floor: &Self) {
        self.merge(floor, i128::max);
    }

    /// A mutable reference to the amount of `name`.
    pub(super) fn slot(&mut self, name: &'a str) -> &mut i128 {
        match name {
            "cpu" => &mut self.cpu,
            "memory" => &mut self.memory,
            "ephemeral-storage" => &mut self.ephemeral_storage,
            _ => {
                let known = self.other.iter().position(|(other, _)| *other == name);
                let index = known.unwrap_or(self.other.len());
                if index == self.other.len() {
                    self.other.push((name, 0));
                }
                &mut self.other[index].1
            }
        }
    }

    fn merge(&mut self, more: &Self, with: impl Fn(i128, i128) -> i128) {
        self.cpu = with(self.cpu, more.cpu);
        self.memory = with(self.memory, more.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, more.ephemeral_storage);
        for (name, amount) in &more.other {
            let slot = self.slot(name);
            *slot = with(*slot, *amount);
        }
    }
}
