//! Which differences between two pods matter.
//!
//! Kubernetes allows few changes to an existing pod, so only these are compared, and by meaning: an
//! absent list equals an empty one, quantities are compared by value, and the order of tolerations
//! does not matter. What was resolved for the node (environment, volumes) can therefore never look like a change.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use winddown_shared::{Quantity, status};

#[cfg(test)]
mod tests;

/// Whether the node's copy of a pod needs nothing from the API's: `false` means an update.
pub fn is_up_to_date(ours: &api::Pod, api: &api::Pod) -> bool {
    let same_text =
        |ours: &Option<_>, api: &Option<_>| same_map(ours.as_ref(), api.as_ref(), String::eq);
    same_text(&ours.metadata.labels, &api.metadata.labels)
        && same_text(&ours.metadata.annotations, &api.metadata.annotations)
        && match (&ours.spec, &api.spec) {
            (Some(ours), Some(api)) => same_spec(ours, api),
            (ours, api) => ours.is_none() && api.is_none(),
        }
}

/// Whether the change from one object to the next with the same name requires an action.
///
/// A change of the status never does: only the node reports what a pod does, also while it terminates. The
/// exception, a running pod that another client marks as terminated, is not seen here.
pub fn matters(old: &api::Pod, new: &api::Pod) -> bool {
    old.metadata.uid != new.metadata.uid
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || old.metadata.deletion_grace_period_seconds != new.metadata.deletion_grace_period_seconds
        || !is_up_to_date(old, new)
}

/// Whether the pod's phase in the API is terminal.
pub fn is_terminal(pod: &api::Pod) -> bool {
    pod.status.as_ref().is_some_and(status::is_terminal)
}

/// Returns the node's copy with all mutable fields taken from the API's object.
///
/// Everything else stays as it was when the pod was created: its references have been resolved, and
/// are not resolved again. Its resources stay, too: whether it gets others is decided.
pub fn with_changes(ours: &api::Pod, api: &api::Pod) -> api::Pod {
    let mut pod = ours.clone();
    pod.metadata.labels.clone_from(&api.metadata.labels);
    pod.metadata.annotations.clone_from(&api.metadata.annotations);
    pod.metadata.resource_version.clone_from(&api.metadata.resource_version);
    pod.metadata.generation = api.metadata.generation;
    let (Some(spec), Some(new)) = (&mut pod.spec, &api.spec) else { return pod };
    spec.active_deadline_seconds = new.active_deadline_seconds;
    spec.termination_grace_period_seconds = new.termination_grace_period_seconds;
    spec.tolerations.clone_from(&new.tolerations);
    spec.ephemeral_containers = with_new(spec.ephemeral_containers.take(), new);
    for_each_container(spec, new, |ours, new| ours.image.clone_from(&new.image));
    pod
}

/// The ephemeral containers of `api`: those of `ours` as they are, because they cannot be changed, only added.
fn with_new(
    ours: Option<Vec<api::EphemeralContainer>>,
    api: &api::PodSpec,
) -> Option<Vec<api::EphemeralContainer>> {
    let mut all = api.ephemeral_containers.clone()?;
    for own in ours.into_iter().flatten() {
        if let Some(one) = all.iter_mut().find(|one| one.name == own.name) {
            *one = own;
        }
    }
    Some(all)
}

/// Returns the node's copy with the resources of the API's object; `None` if it has them.
pub fn resized(ours: &api::Pod, api: &api::Pod) -> Option<api::Pod> {
    let mut pod = ours.clone();
    let (spec, new) = (pod.spec.as_mut()?, api.spec.as_ref()?);
    let mut differs = !same_resources(spec.resources.as_ref(), new.resources.as_ref());
    spec.resources.clone_from(&new.resources);
    for_each_container(spec, new, |ours, new| {
        differs |= !same_resources(ours.resources.as_ref(), new.resources.as_ref());
        ours.resources.clone_from(&new.resources);
    });
    differs.then_some(pod)
}

fn for_each_container(
    ours: &mut api::PodSpec,
    new: &api::PodSpec,
    mut change: impl FnMut(&mut api::Container, &api::Container),
) {
    let own = ours.init_containers.iter_mut().flatten().chain(&mut ours.containers);
    let news = || new.init_containers.iter().flatten().chain(&new.containers);
    for container in own {
        if let Some(new) = news().find(|new| new.name == container.name) {
            change(container, new);
        }
    }
}

fn same_spec(ours: &api::PodSpec, api: &api::PodSpec) -> bool {
    ours.active_deadline_seconds == api.active_deadline_seconds
        && ours.termination_grace_period_seconds == api.termination_grace_period_seconds
        && same_containers(&ours.containers, &api.containers)
        && same_containers(
            ours.init_containers.as_deref().unwrap_or_default(),
            api.init_containers.as_deref().unwrap_or_default(),
        )
        && same_ephemeral(
            ours.ephemeral_containers.as_deref().unwrap_or_default(),
            api.ephemeral_containers.as_deref().unwrap_or_default(),
        )
        && same_tolerations(
            ours.tolerations.as_deref().unwrap_or_default(),
            api.tolerations.as_deref().unwrap_or_default(),
        )
        && same_resources(ours.resources.as_ref(), api.resources.as_ref())
}

/// Containers can neither be added nor removed, so they are compared in order.
fn same_containers(ours: &[api::Container], api: &[api::Container]) -> bool {
    ours.len() == api.len()
        && ours.iter().zip(api).all(|(ours, api)| {
            ours.name == api.name
                && ours.image == api.image
                && same_resources(ours.resources.as_ref(), api.resources.as_ref())
        })
}

/// Ephemeral containers can only be added.
fn same_ephemeral(ours: &[api::EphemeralContainer], api: &[api::EphemeralContainer]) -> bool {
    ours.len() == api.len()
        && ours.iter().zip(api).all(|(ours, api)| ours.name == api.name && ours.image == api.image)
}

/// Compares tolerations in any order; there are few. An absent operator means `Equal`.
fn same_tolerations(ours: &[api::Toleration], api: &[api::Toleration]) -> bool {
    let count = |all: &[api::Toleration], one: &api::Toleration| {
        all.iter().filter(|other| same_toleration(other, one)).count()
    };
    ours.len() == api.len() && ours.iter().all(|one| count(ours, one) == count(api, one))
}

fn same_toleration(a: &api::Toleration, b: &api::Toleration) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let operator = |t: &api::Toleration| t.operator.clone().unwrap_or_else(|| "Equal".to_owned());
    a == b
        || (text(&a.key) == text(&b.key)
            && operator(a) == operator(b)
            && text(&a.value) == text(&b.value)
            && text(&a.effect) == text(&b.effect)
            && a.toleration_seconds == b.toleration_seconds)
}

fn same_resources(
    ours: Option<&api::ResourceRequirements>,
    api: Option<&api::ResourceRequirements>,
) -> bool {
    let part = |of: fn(&api::ResourceRequirements) -> Option<&BTreeMap<String, Written>>| {
        same_map(ours.and_then(of), api.and_then(of), same_amount)
    };
    part(|r| r.requests.as_ref()) && part(|r| r.limits.as_ref())
}

/// Whether two written amounts are the same amount; those that cannot be read are compared as text.
pub fn same_amount(ours: &Written, api: &Written) -> bool {
    ours == api
        || match (ours.0.parse::<Quantity>(), api.0.parse::<Quantity>()) {
            (Ok(ours), Ok(api)) => ours == api,
            _ => false,
        }
}

/// An absent map equals an empty one.
fn same_map<T>(
    ours: Option<&BTreeMap<String, T>>,
    api: Option<&BTreeMap<String, T>>,
    same: fn(&T, &T) -> bool,
) -> bool {
    let none = BTreeMap::new();
    let (ours, api) = (ours.unwrap_or(&none), api.unwrap_or(&none));
    let is_same = |(name, one)| api.get(name).is_some_and(|api| same(one, api));
    ours.len() == api.len() && ours.iter().all(is_same)
}
