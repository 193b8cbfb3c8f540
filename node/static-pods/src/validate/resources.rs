//! Requests and limits, of a container and of a pod.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource;
use winddown_shared::{Pod, Quantity, Requests, ResourceName};
use winddown_yaml::{FieldCheck, Shortened, names};

use super::rules;

type Amounts = BTreeMap<String, resource::Quantity>;

const HUGE: &str = "hugepages-";

pub(super) fn container(check: &mut FieldCheck<'_>, resources: &api::ResourceRequirements) {
    let (limits, requests) = (resources.limits.as_ref(), resources.requests.as_ref());
    both(check, limits, requests, is_of_container);
    huge_alone(check, limits.into_iter().chain(requests));
    if resources.claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        check.fail_at("claims", rules::NEEDS_API_SERVER);
    }
}

/// The pod's own resources, and its overhead.
pub(super) fn pod(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    if let Some(overhead) = &spec.overhead {
        amounts(check, "overhead", overhead, is_of_container);
        check.key("overhead", |check| huge_alone(check, [overhead].into_iter()));
    }
    let Some(resources) = &spec.resources else { return };
    check.key("resources", |check| {
        if resources.claims.is_some() {
            check.fail_at("claims", "is for containers: remove it");
        }
        let (limits, requests) = (resources.limits.as_ref(), resources.requests.as_ref());
        both(check, limits, requests, is_of_pod);
        let asked = asked_by_containers(spec).unwrap_or_default();
        let limited = limits.is_some_and(|limits| !limits.is_empty());
        if !limited || asked.cpu_milli() == 0 && asked.memory_bytes() == 0 {
            huge_alone(check, limits.into_iter().chain(requests));
        }
        of_containers(check, spec, resources, &asked);
    });
}

/// What the containers ask for together; `None` if that cannot be read.
fn asked_by_containers(spec: &api::PodSpec) -> Option<Requests> {
    let mut pod = api::Pod { spec: Some(spec.clone()), ..api::Pod::default() };
    pod.metadata.name = Some("pod".to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    pod.metadata.uid = Some("pod".to_owned());
    Pod::new(pod).ok().map(|pod| pod.container_requests())
}

/// Compares the pod's own resources with those of its containers.
fn of_containers(
    check: &mut FieldCheck<'_>,
    spec: &api::PodSpec,
    of_pod: &api::ResourceRequirements,
    asked: &Requests,
) {
    let limits = of_pod.limits.clone().unwrap_or_default();
    let requests = of_pod.requests.clone().unwrap_or_default();
    for (list, amounts) in [("requests", &requests), ("limits", &limits)] {
        for (name, amount) in amounts {
            // A request of the pod stands for those of its containers.
            let replaced = list == "limits" && requests.contains_key(name);
            let asked = asked.get(&ResourceName::from(name.as_str()));
            if !replaced && read(amount).is_some_and(|amount| counted(name, amount) < asked) {
                let what = "is less than its containers request together: write more";
                check.key(list, |check| check.fail_at(name, what));
            }
        }
    }
    let of_each = spec.containers.iter().filter_map(|one| one.resources.as_ref()?.limits.as_ref());
    for (name, limit) in of_each.flatten() {
        let most = limits.get(name).and_then(read);
        let more = |most| read(limit).is_some_and(|limit| rounded(limit) > rounded(most));
        if most.is_some_and(more) {
            let what = "is less than the limit of one of its containers: write more";
            check.key("limits", |check| check.fail_at(name, what));
        }
    }
}

fn both(
    check: &mut FieldCheck<'_>,
    limits: Option<&Amounts>,
    requests: Option<&Amounts>,
    is_known: fn(&str) -> bool,
) {
    let (none, limits, requests) = (Amounts::new(), limits, requests);
    let (limits, mut requests) = (limits.unwrap_or(&none), requests.cloned().unwrap_or_default());
    let known = amounts(check, "limits", limits, is_known);
    // What is missing has become the limit: its problems are the limit's.
    requests.retain(|name, request| limits.get(name) != Some(request));
    for (name, request) in amounts(check, "requests", &requests, is_known) {
        let what = match known.get(name) {
            Some(limit) if !is_native(name) || name.starts_with(HUGE) => {
                if rounded(request) == rounded(*limit) {
                    continue;
                }
                format!("is {request}, but has to be the limit of {limit}")
            }
            Some(limit) if rounded(request) > rounded(*limit) => {
                format!("is {request}, more than the limit of {limit}: write at most that")
            }
            Some(_) => continue,
            None if is_native(name) && !name.starts_with(HUGE) || limits.contains_key(name) => {
                continue;
            }
            None => "needs a limit of the same amount beside it".to_owned(),
        };
        check.key("requests", |check| check.fail_at(name, what));
    }
}

/// Huge pages are only counted beside other resources.
fn huge_alone<'a>(check: &mut FieldCheck<'_>, lists: impl Iterator<Item = &'a Amounts>) {
    let names: Vec<&str> = lists.flat_map(|list| list.keys().map(String::as_str)).collect();
    let others = names.iter().any(|name| matches!(*name, "cpu" | "memory"));
    if names.iter().any(|name| name.starts_with(HUGE)) && !others {
        check.fail("has huge pages alone: write cpu or memory too");
    }
}

/// Parses one quantity, and reports what is wrong with it.
pub(super) fn quantity(check: &mut FieldCheck<'_>, key: &str, text: &str) -> Option<Quantity> {
    match text.parse::<Quantity>() {
        Ok(quantity) if quantity.sign() == Ordering::Less => {
            let what = format!("`{}` is negative: write 0 or more", Shortened(text));
            check.fail_at(key, what);
            None
        }
        Ok(quantity) => Some(quantity),
        Err(error) => {
            check.fail_at(key, error);
            None
        }
    }
}

fn amounts<'a>(
    check: &mut FieldCheck<'_>,
    key: &str,
    amounts: &'a Amounts,
    is_known: fn(&str) -> bool,
) -> BTreeMap<&'a str, Quantity> {
    let mut read = BTreeMap::new();
    check.key(key, |check| {
        for (name, amount) in amounts {
            if !is_known(name) {
                let what = "is no resource: write cpu, memory, ephemeral-storage, \
                            hugepages-<size> or a name with a domain, as example.com/gpu";
                check.fail_at(name, what);
            }
            let Some(quantity) = quantity(check, name, &amount.0) else { continue };
            if !is_native(name) && rounded(quantity) % 1000 != 0 {
                check.fail_at(name, format!("is {quantity}: write a whole number"));
            }
            if let Some(size) = name.strip_prefix(HUGE).filter(|size| !is_multiple(quantity, size))
            {
                check.fail_at(name, format!("is {quantity}: write a multiple of {size}"));
            }
            read.insert(name.as_str(), quantity);
        }
    });
    read
}

fn is_multiple(quantity: Quantity, size: &str) -> bool {
    let size = size.parse::<Quantity>().map_or(0, Quantity::value);
    size > 0 && quantity.value() % size == 0
}

fn read(amount: &resource::Quantity) -> Option<Quantity> {
    amount.0.parse().ok()
}

/// The amount as requests are counted: CPU in thousandths, all else in whole units.
fn counted(name: &str, amount: Quantity) -> i64 {
    if name == "cpu" { amount.milli_value() } else { amount.value() }
}

/// The amount as Kubernetes keeps it, in thousandths.
fn rounded(amount: Quantity) -> i64 {
    amount.milli_value()
}

/// Whether the resource is one of Kubernetes' own: others are whole, and their request is the limit.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_of_container(name: &str) -> bool {
    match name.contains('/') {
        true if is_native(name) => names::is_qualified_name(name),
        true => {
            !name.starts_with("requests.")
                && names::is_qualified_name(name)
                && names::is_qualified_name(&format!("requests.{name}"))
        }
        false => name == "ephemeral-storage" || is_of_pod(name),
    }
}

fn is_of_pod(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with(HUGE) && names::is_qualified_name(name)
}
