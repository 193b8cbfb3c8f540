//! Messages about an evicted pod, byte for byte the kubelet's.
//!
//! Every sentence ends with a space; tools that match these texts rely on it.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{Pod, PodStats, Quantity, QuantityFormat};

use crate::conditions::Conditions;
use crate::observation::signed;
use crate::signal::Resource;

#[cfg(test)]
mod tests;

/// `status.reason` of an evicted pod, of a pod that is refused under pressure, and of the Event.
pub const EVICTED: &str = "Evicted";

/// Annotation of the Event: the containers that use more than they requested, separated by commas.
pub const OFFENDING_CONTAINERS: &str = "offending_containers";
/// Annotation of the Event: the usage of these containers, in the same order.
pub const OFFENDING_CONTAINERS_USAGE: &str = "offending_containers_usage";
/// Annotation of the Event: the name of the pod, if it has a pod-level memory request.
pub const OFFENDING_POD: &str = "offending_pod";
/// Annotation of the Event: the usage of that pod.
pub const OFFENDING_POD_USAGE: &str = "offending_pod_usage";
/// Annotation of the Event: the resource that ran short.
pub const STARVED_RESOURCE: &str = "starved_resource";

/// A pod's status message and the annotations of the Event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The message.
    pub text: String,
    /// The annotations.
    pub annotations: Vec<(&'static str, String)>,
}

/// The message for a pod that is refused under pressure.
#[must_use]
pub fn node_had_condition(conditions: Conditions) -> String {
    format!("The node had condition: {conditions}. ")
}

/// The message for a pod that is evicted because `resource` is short. `met` is the threshold and the available amount.
#[must_use]
pub fn node_was_low(
    resource: Resource,
    met: (Quantity, Quantity),
    pod: &Pod,
    stats: Option<&PodStats>,
) -> Message {
    let (threshold, available) = met;
    let mut text = format!("The node was low on resource: {resource}. ");
    let _ = write!(text, "Threshold quantity: {threshold}, available: {available}. ");
    let mut message = Message { text, annotations: Vec::new() };
    if let Some(stats) = stats {
        message.blame_pod(resource, pod, stats);
        message.blame_containers(resource, pod, stats);
    }
    message
}

/// The message for a pod that is evicted for the size of an `emptyDir` volume.
#[must_use]
pub fn empty_dir_over(volume: &str, limit: Quantity) -> String {
    format!("Usage of EmptyDir volume {volume:?} exceeds the limit \"{limit}\". ")
}

/// The message for a pod that is evicted for its total local storage usage.
#[must_use]
pub fn pod_over(limit: Quantity) -> String {
    format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ")
}

/// The message for a pod that is evicted for the local storage usage of one container.
#[must_use]
pub fn container_over(container: &str, limit: Quantity) -> String {
    format!("Container {container} exceeded its local ephemeral storage limit \"{limit}\". ")
}

/// An amount of bytes as these messages print it.
#[must_use]
pub(crate) fn bytes(amount: u64) -> Quantity {
    Quantity::new(signed(amount), QuantityFormat::BinarySi)
}

impl Message {
    fn blame_pod(&mut self, resource: Resource, pod: &Pod, stats: &PodStats) {
        let resources = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        let request = resources.and_then(|whole| whole.requests.as_ref()?.get(resource.as_str()));
        let (Some(request), Some(usage)) = (request, (resource.row().blamed_pod)(stats)) else {
            return;
        };
        let usage = bytes(usage);
        let (name, request) = (pod.name(), canonical(request));
        let _ = write!(
            self.text,
            "Pod {name} was using {usage}, request is {request}, has larger consumption of {resource}. "
        );
        self.annotations.push((OFFENDING_POD, name.to_string()));
        self.annotations.push((OFFENDING_POD_USAGE, usage.to_string()));
    }

    fn blame_containers(&mut self, resource: Resource, pod: &Pod, stats: &PodStats) {
        let (mut names, mut usages) = (Vec::new(), Vec::new());
        for found in &stats.containers {
            let Some(container) = container(pod, &found.name) else { continue };
            let Some(usage) = (resource.row().blamed)(found).map(bytes) else { continue };
            let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
            let request = requests.and_then(|requests| requests.get(resource.as_str()));
            let request = request.map_or(Quantity::ZERO, canonical);
            if usage <= request {
                continue;
            }
            let name = &container.name;
            let _ = write!(
                self.text,
                "Container {name} was using {usage}, request is {request}, has larger consumption \
                 of {resource}. "
            );
            names.push(name.as_str());
            usages.push(usage.to_string());
        }
        self.annotations.push((OFFENDING_CONTAINERS, names.join(",")));
        self.annotations.push((OFFENDING_CONTAINERS_USAGE, usages.join(",")));
        self.annotations.push((STARVED_RESOURCE, resource.as_str().to_owned()));
    }
}

/// A regular, init or sidecar container; ephemeral containers are never blamed, as they have no requests.
fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a api::Container> {
    let spec = pod.spec.as_ref()?;
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    all.into_iter().find(|container| container.name == name)
}

fn canonical(quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Quantity {
    quantity.0.parse().unwrap_or(Quantity::ZERO)
}
