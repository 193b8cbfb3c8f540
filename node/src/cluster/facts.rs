//! What the Node object says of this machine.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerImage, NodeCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use winddown_cluster::node::{CLEAN_SHUTDOWN, NodeFacts, condition};
use winddown_pod_references::NodeAmounts;
use winddown_shared::{Allocatable, Quantity, QuantityFormat, ResourceName};

/// A shutdown of the machine would not wait for the pods, and that has been so for a minute.
pub const UNPROTECTED: &str = "winddown.dev/Unprotected";

/// Pods hold shutdowns: the node is not to be restarted now. Absent while none does.
pub(super) const SHUTDOWN_HELD: &str = "winddown.dev/ShutdownHeld";

/// What of the node changes while the agent runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changing {
    /// Labels of the machine and the configuration; none while they are not known.
    pub(crate) labels: Option<BTreeMap<String, String>>,
    /// What the machine has, and what of it pods may have.
    pub(crate) amounts: Option<(Allocatable, Allocatable)>,
    /// What runs the pods; none while that is not known.
    pub(crate) runtime: Option<RuntimeFacts>,
    /// How the node went down last, or goes down now.
    pub(crate) clean: Clean,
    /// Why a shutdown would not wait.
    pub(crate) unprotected: Option<String>,
    /// Which pods hold shutdowns.
    pub(crate) held: Option<String>,
}

/// What the Node object says of what runs the pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeFacts {
    /// Its name and version (`containerd://1.6.20`).
    pub name: String,
    /// The images that it has, as many as are to be told; empty while that is not known.
    pub images: Vec<ContainerImage>,
}

/// Whether the node's volumes can be attached elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Clean {
    /// The node is up; how it went down before this boot, for people.
    Up(String),
    /// It has ended its pods and goes down now.
    Down {
        /// Every pod ended and nothing is mounted.
        clean: bool,
    },
}

impl Default for Clean {
    fn default() -> Self {
        Self::Up(String::new())
    }
}

/// The facts as they are now: `fixed`, and what changes.
pub(crate) fn facts(fixed: &NodeFacts, changing: &Changing) -> NodeFacts {
    let mut facts = fixed.clone();
    if let Some(labels) = &changing.labels {
        facts.labels.clone_from(labels);
    }
    if let Some((whole, allocatable)) = &changing.amounts {
        facts.capacity = quantities(whole);
        facts.allocatable = quantities(allocatable);
    }
    if let Some(runtime) = &changing.runtime {
        facts.info.container_runtime_version.clone_from(&runtime.name);
        facts.images.clone_from(&runtime.images);
    }
    facts.conditions = vec![clean(&changing.clean), unprotected(changing.unprotected.as_deref())];
    let held = changing.held.as_deref();
    facts.conditions.extend(held.map(|why| condition(SHUTDOWN_HELD, true, "PodsHold", why)));
    facts
}

fn clean(clean: &Clean) -> NodeCondition {
    let (on, reason, message) = match clean {
        Clean::Up(last) if last.is_empty() => (false, "NodeIsUp", "The node is up."),
        Clean::Up(last) => (false, "NodeIsUp", &**last),
        Clean::Down { clean: true } => {
            (true, "PodsEnded", "All pods have ended, and nothing of theirs is mounted.")
        }
        Clean::Down { clean: false } => {
            (false, "PodsLeft", "Pods or mounts were left when the lock was released.")
        }
    };
    condition(CLEAN_SHUTDOWN, on, reason, message)
}

fn unprotected(why: Option<&str>) -> NodeCondition {
    match why {
        Some(why) => condition(UNPROTECTED, true, "NoShutdownLock", why),
        None => condition(
            UNPROTECTED,
            false,
            "Protected",
            "A shutdown of the machine waits for the pods.",
        ),
    }
}

fn quantities(amounts: &Allocatable) -> BTreeMap<String, ApiQuantity> {
    let quantity = |(name, amount): (&ResourceName, i64)| {
        let text = match name {
            ResourceName::Cpu if amount % 1000 == 0 => (amount / 1000).to_string(),
            ResourceName::Cpu => format!("{amount}m"),
            ResourceName::Memory | ResourceName::EphemeralStorage => bytes(amount),
            other if other.as_str().starts_with("hugepages-") => bytes(amount),
            _ => amount.to_string(),
        };
        (name.as_str().to_owned(), ApiQuantity(text))
    };
    amounts.iter().map(quantity).collect()
}

/// What containers without limits may use.
pub(crate) fn for_pods(allocatable: &Allocatable) -> NodeAmounts {
    NodeAmounts {
        cpu_milli: allocatable.get(&ResourceName::Cpu),
        memory_bytes: allocatable.get(&ResourceName::Memory),
        ephemeral_storage_bytes: allocatable.get(&ResourceName::EphemeralStorage),
    }
}

fn bytes(amount: i64) -> String {
    Quantity::new(amount, QuantityFormat::BinarySi).to_string()
}

#[cfg(test)]
mod tests;
