//! Computes the resources of a pod from those of its containers.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{
    self as api, Container, ContainerStatus, PodSpec, PodStatus, ResourceRequirements,
};

use super::Pod;
use super::amounts::{Amounts, QuantityMap};
use crate::ContainerKind;

/// Whether a pod's `spec.resources` may contain the resource.
pub(super) fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// The requests of a pod that must fit on a node.
pub(super) fn fit(pod: &Pod) -> Amounts<'_> {
    let Some(spec) = &pod.spec else { return Amounts::default() };
    let resizes = Resizes::of(pod.status.as_ref());
    let mut total = over_containers(spec, |container| {
        let wanted = container.resources.as_ref().and_then(|found| found.requests.as_ref());
        resizes.requests(container, wanted)
    });
    let whole = spec.resources.as_ref().and_then(|found| found.requests.as_ref());
    replace_pod_level(&mut total, whole);
    total.add(&Amounts::of(spec.overhead.as_ref()));
    total
}

/// The requests of its containers, without pod-level requests.
pub(super) fn of_containers(pod: &api::Pod) -> Amounts<'_> {
    let Some(spec) = &pod.spec else { return Amounts::default() };
    over_containers(spec, |container| {
        Amounts::of(container.resources.as_ref().and_then(|found| found.requests.as_ref()))
    })
}

/// The requests of a pod with which pods are ranked.
pub(super) fn accounted(pod: &api::Pod) -> Amounts<'_> {
    let Some(spec) = &pod.spec else { return Amounts::default() };
    let mut total = match spec.resources.as_ref().filter(|found| are_set(found)) {
        Some(whole) => {
            let mut total = Amounts::default();
            replace_pod_level(&mut total, whole.requests.as_ref());
            total
        }
        None => of_containers(pod),
    };
    add_where_present(&mut total, &Amounts::of(spec.overhead.as_ref()));
    total
}

pub(super) fn limits(pod: &Pod) -> Amounts<'_> {
    let Some(spec) = &pod.spec else { return Amounts::default() };
    let mut total = over_containers(spec, |container| {
        Amounts::of(container.resources.as_ref().and_then(|found| found.limits.as_ref()))
    });
    let whole = spec.resources.as_ref().and_then(|found| found.limits.as_ref());
    replace_pod_level(&mut total, whole);
    add_where_present(&mut total, &Amounts::of(spec.overhead.as_ref()));
    total
}

/// The largest sum that the containers use at any time, per resource.
///
/// An init container runs at the same time as the sidecars that were started before it, the
/// containers at the same time as all sidecars. Ephemeral containers cannot request resources.
fn over_containers<'a>(
    spec: &'a PodSpec,
    amounts_of: impl Fn(&'a Container) -> Amounts<'a>,
) -> Amounts<'a> {
    let mut sidecars = Amounts::default();
    let mut peak = Amounts::default();
    for container in spec.init_containers.iter().flatten() {
        let mut own = amounts_of(container);
        if ContainerKind::of_init(container) == ContainerKind::Sidecar {
            sidecars.add(&own);
            peak.raise_to(&sidecars);
        } else {
            own.add(&sidecars);
            peak.raise_to(&own);
        }
    }
    let mut total = sidecars;
    for container in &spec.containers {
        total.add(&amounts_of(container));
    }
    total.raise_to(&peak);
    total
}

fn are_set(whole: &ResourceRequirements) -> bool {
    let maps = [&whole.requests, &whole.limits];
    maps.into_iter().flatten().flatten().any(|(name, _)| is_pod_level(name))
}

fn replace_pod_level<'a>(total: &mut Amounts<'a>, whole: Option<&'a QuantityMap>) {
    for (name, quantity) in whole.into_iter().flatten().filter(|(name, _)| is_pod_level(name)) {
        *total.slot(name) = super::amounts::nanos(quantity);
    }
}

fn add_where_present<'a>(total: &mut Amounts<'a>, more: &Amounts<'a>) {
    let add = |amount: &mut i128, more: i128| {
        if *amount != 0 {
            *amount = amount.saturating_add(more);
        }
    };
    add(&mut total.cpu, more.cpu);
    add(&mut total.memory, more.memory);
    add(&mut total.ephemeral_storage, more.ephemeral_storage);
    for (name, amount) in &more.other {
        add(total.slot(name), *amount);
    }
}

/// Containers whose resources are being, or have been, resized in place.
struct Resizes<'a> {
    containers: Statuses<'a>,
    init_containers: Statuses<'a>,
    /// The node cannot satisfy the spec, so the spec is ignored.
    infeasible: bool,
}

/// The statuses that report resources, by container name.
type Statuses<'a> = HashMap<&'a str, &'a ContainerStatus>;

impl<'a> Resizes<'a> {
    fn of(status: Option<&'a PodStatus>) -> Self {
        let reporting = |statuses: Option<&'a Vec<ContainerStatus>>| {
            let statuses = statuses.into_iter().flatten();
            let reporting = statuses.filter(|status| status.resources.is_some());
            reporting.map(|status| (status.name.as_str(), status)).collect()
        };
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let pending =
            conditions.into_iter().flatten().find(|found| found.type_ == "PodResizePending");
        Self {
            containers: reporting(status.and_then(|status| status.container_statuses.as_ref())),
            init_containers: reporting(
                status.and_then(|status| status.init_container_statuses.as_ref()),
            ),
            infeasible: pending.and_then(|found| found.reason.as_deref()) == Some("Infeasible"),
        }
    }

    fn requests(&self, container: &Container, wanted: Option<&'a QuantityMap>) -> Amounts<'a> {
        let Some(status) = self.status(container) else { return Amounts::of(wanted) };
        let actual = status.resources.as_ref().and_then(|found| found.requests.as_ref());
        let mut amounts = Amounts::of(actual);
        amounts.raise_to(&Amounts::of(status.allocated_resources.as_ref()));
        if !self.infeasible {
            amounts.raise_to(&Amounts::of(wanted));
        }
        amounts
    }

    /// An ordinary init container is never resized.
    fn status(&self, container: &Container) -> Option<&'a ContainerStatus> {
        let name = container.name.as_str();
        let found = self.containers.get(name);
        let is_sidecar = ContainerKind::of_init(container) == ContainerKind::Sidecar;
        found.or_else(|| self.init_containers.get(name).filter(|_| is_sidecar)).copied()
    }
}
