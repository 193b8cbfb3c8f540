//! The facts about this machine in the Node object.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ContainerImage, NodeAddress, NodeCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use winddown_cluster::node::{CLEAN_SHUTDOWN, NodeFacts, condition};
use winddown_control::api::{Protection, ProtectionState};
use winddown_pod_references::NodeAmounts;
use winddown_shared::{Allocatable, Quantity, QuantityFormat, ResourceName};

/// The condition of a node whose shutdown would not terminate the pods in order; true once that has lasted a minute.
pub const UNPROTECTED: &str = "winddown.dev/Unprotected";

/// The condition of a node whose pods hold shutdowns, so that it must not be restarted now. Absent while none does.
pub(super) const SHUTDOWN_HELD: &str = "winddown.dev/ShutdownHeld";

/// The type of an address at which others in the cluster reach the node.
const INTERNAL_IP: &str = "InternalIP";

/// The facts that change while the agent runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changing {
    /// Labels from the machine and the configuration; `None` while unknown.
    pub(crate) labels: Option<BTreeMap<String, String>>,
    /// Capacity and allocatable resources of the machine.
    pub(crate) amounts: Option<(Allocatable, Allocatable)>,
    /// The addresses of the machine, the primary one first; empty until there are any.
    pub(crate) addresses: Vec<IpAddr>,
    /// The runtime; `None` while unknown.
    pub(crate) runtime: Option<NodeRuntime>,
    /// How the node went down last, or is going down now.
    pub(crate) clean: Clean,
    /// Whether a shutdown would terminate the pods in order; `None` until that is known.
    pub(crate) protection: Option<Protection>,
    /// The pods that hold shutdowns, for display.
    pub(crate) held: Option<String>,
    /// Whether the agent is being stopped on a node that stays up.
    pub(crate) stopped: bool,
}

/// The facts about the runtime in the Node object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRuntime {
    /// The runtime's name and version (`containerd://1.6.20`).
    pub name: String,
    /// The images to report; empty while unknown.
    pub images: Vec<ContainerImage>,
}

/// Whether the node went down cleanly, so that its volumes can be attached elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Clean {
    /// The node is up. Holds how it went down before this boot, for display.
    Up(String),
    /// The node has ended its pods and is going down.
    Down {
        /// Whether every pod has ended and nothing is mounted.
        clean: bool,
    },
}

impl Default for Clean {
    fn default() -> Self {
        Self::Up(String::new())
    }
}

/// Combines the `fixed` facts with those that change.
pub(crate) fn facts(fixed: &NodeFacts, changing: &Changing) -> NodeFacts {
    let mut facts = fixed.clone();
    if let Some(labels) = &changing.labels {
        facts.labels.clone_from(labels);
    }
    if let Some((whole, allocatable)) = &changing.amounts {
        facts.capacity = quantities(whole);
        facts.allocatable = quantities(allocatable);
    }
    let own = |ip: &IpAddr| NodeAddress { type_: INTERNAL_IP.into(), address: ip.to_string() };
    facts.addresses.splice(0..0, changing.addresses.iter().map(own));
    if !facts.addresses.iter().any(|one| one.type_ == INTERNAL_IP) {
        // As with the kubelet, the Node object keeps the addresses that it has.
        facts.addresses.clear();
    }
    if let Some(runtime) = &changing.runtime {
        facts.info.container_runtime_version.clone_from(&runtime.name);
        facts.images.clone_from(&runtime.images);
    }
    facts.conditions = vec![
        clean(&changing.clean, &facts.info.boot_id),
        unprotected(changing.protection.as_ref()),
    ];
    facts.conditions.push(held(changing.held.as_deref()));
    if changing.stopped {
        facts.conditions.iter_mut().for_each(unknown);
    }
    facts
}

/// Without an agent nobody would correct what the condition says.
fn unknown(condition: &mut NodeCondition) {
    condition.status = "Unknown".to_owned();
    condition.reason = Some("AgentStopped".to_owned());
    condition.message = Some("The agent was stopped.".to_owned());
}

/// The boot's id says until when the condition counts: the agent may not come back to take it away.
fn clean(clean: &Clean, boot_id: &str) -> NodeCondition {
    let down = format!(
        "In boot {boot_id} all pods have terminated, and none of their volumes is mounted."
    );
    let (on, reason, message) = match clean {
        Clean::Up(last) if last.is_empty() => (false, "NodeIsUp", "The node is up."),
        Clean::Up(last) => (false, "NodeIsUp", &**last),
        Clean::Down { clean: true } => (true, "PodsEnded", &*down),
        Clean::Down { clean: false } => {
            (false, "PodsLeft", "Pods or mounts were left when the lock was released.")
        }
    };
    condition(CLEAN_SHUTDOWN, on, reason, message)
}

/// There whether a pod holds a shutdown or not, so that no earlier agent's stays true.
fn held(why: Option<&str>) -> NodeCondition {
    match why {
        Some(why) => condition(SHUTDOWN_HELD, true, "PodsHold", why),
        None => condition(SHUTDOWN_HELD, false, "NoPodHolds", "No pod holds a shutdown."),
    }
}

fn unprotected(verdict: Option<&Protection>) -> NodeCondition {
    let text = verdict.map_or("It is not known yet.", |verdict| &*verdict.text);
    match verdict.map_or(ProtectionState::Unknown, |verdict| verdict.state) {
        ProtectionState::Protected | ProtectionState::Limited => {
            condition(UNPROTECTED, false, "Protected", text)
        }
        ProtectionState::Unprotected => condition(UNPROTECTED, true, "NotProtected", text),
        ProtectionState::Unknown => NodeCondition {
            status: "Unknown".to_owned(),
            ..condition(UNPROTECTED, false, "NotKnown", text)
        },
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

/// The amounts that containers without limits may use.
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
