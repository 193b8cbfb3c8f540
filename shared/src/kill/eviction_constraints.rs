//! The parties to ask before a pod is terminated, which may object.

/// The parties to ask about one pod, as far as a runtime knows. Empty where only the node decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionConstraints {
    /// The disruption budgets that count the pod.
    pub budgets: Vec<DisruptionBudget>,
    /// Its eviction responders (KEP-4563), in the order in which they are asked.
    pub responders: Vec<String>,
}

/// A `PodDisruptionBudget` in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisruptionBudget {
    /// `metadata.name`.
    pub name: String,
    /// `status.disruptionsAllowed`: how many of its pods may be disrupted now. `None`: not set by its controller yet.
    pub allowed: Option<u32>,
}

// === impl EvictionConstraints ===

impl EvictionConstraints {
    /// Whether only the node decides.
    pub const fn is_empty(&self) -> bool {
        self.budgets.is_empty() && self.responders.is_empty()
    }
}
