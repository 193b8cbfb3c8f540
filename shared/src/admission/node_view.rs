//! The properties of a node that admission uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::{Quantity, ResourceName};

/// The label that names a node's operating system.
pub(super) const OS_LABEL: &str = "kubernetes.io/os";

/// A snapshot of a node that a pod has to fit on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.labels`. Read through [`label`](Self::label).
    pub labels: BTreeMap<String, String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `status.allocatable`.
    pub allocatable: Allocatable,
    /// The actual operating system, as Go names it: `linux`.
    pub os: Arc<str>,
    /// Whether the runtime can apply `supplementalGroupsPolicy: Strict`.
    pub supplemental_groups_policy: bool,
    /// Whether the kernel enforces AppArmor profiles. No Node object says so.
    pub app_armor: bool,
    /// Sysctls in addition to the safe ones that pods may set: names, or prefixes followed by `*`.
    pub unsafe_sysctls: Vec<String>,
}

/// The allocatable resources of a node: cpu in thousandths, everything else in base units.
///
/// A resource of which the node has none differs from one that the node does not list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocatable(BTreeMap<ResourceName, i64>);

// === impl NodeView ===

impl NodeView {
    /// Creates the view of a Node object, for a machine whose operating system is `os`.
    #[must_use]
    pub fn of_node(node: &Node, os: impl Into<Arc<str>>) -> Self {
        let status = node.status.as_ref();
        let features = status.and_then(|status| status.features.as_ref());
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        Self {
            name: node.metadata.name.as_deref().unwrap_or_default().into(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            allocatable: allocatable
                .into_iter()
                .flatten()
                .map(|(name, quantity)| (name.as_str(), quantity.0.as_str()))
                .collect(),
            os: os.into(),
            supplemental_groups_policy: features
                .and_then(|features| features.supplemental_groups_policy)
                .unwrap_or(false),
            app_armor: false,
            unsafe_sysctls: Vec::new(),
        }
    }

    /// The value of a label. `kubernetes.io/os` is always the actual [`os`](Self::os), whatever the Node object says.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        if key == OS_LABEL {
            return Some(&self.os);
        }
        self.labels.get(key).map(String::as_str)
    }
}

// === impl Allocatable ===

impl Allocatable {
    /// The amount of a resource; 0 if the node does not list it.
    #[must_use]
    pub fn get(&self, name: &ResourceName) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Whether the node lists the resource, even with an amount of 0.
    #[must_use]
    pub fn knows(&self, name: &ResourceName) -> bool {
        self.0.contains_key(name)
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, name: ResourceName, amount: i64) {
        self.0.insert(name, amount);
    }

    /// Every resource that the node lists.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, i64)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }
}

impl FromIterator<(ResourceName, i64)> for Allocatable {
    fn from_iter<I: IntoIterator<Item = (ResourceName, i64)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

/// Parses names and quantities. A quantity that cannot be parsed counts as 0: it is safer to refuse
/// a pod than to admit it on a guess.
impl<'a> FromIterator<(&'a str, &'a str)> for Allocatable {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(quantities: I) -> Self {
        let amounts = quantities.into_iter().map(|(name, text)| {
            let name = ResourceName::from(name);
            let quantity = text.parse::<Quantity>().unwrap_or(Quantity::ZERO);
            let amount = match name {
                ResourceName::Cpu => quantity.milli_value(),
                _ => quantity.value(),
            };
            (name, amount)
        });
        amounts.collect()
    }
}
