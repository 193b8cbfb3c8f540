//! Requests and limits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource;
use winddown_shared::Quantity;

use winddown_yaml::{Check, Shortened, names};

type Amounts = BTreeMap<String, resource::Quantity>;

pub(super) fn check(check: &mut Check<'_>, resources: &api::ResourceRequirements) {
    let limits = amounts(check, "limits", resources.limits.as_ref());
    let requests = amounts(check, "requests", resources.requests.as_ref());
    for (name, request) in &requests {
        let Some(limit) = limits.get(name).filter(|limit| request > limit) else { continue };
        let what = format!("is {request}, more than the limit of {limit}: write at most that");
        check.key("requests", |check| check.fail_at(name, what));
    }
    if resources.claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        check.fail_at("claims", super::NEEDS_API_SERVER);
    }
}

/// Parses one quantity, and reports what is wrong with it.
pub(super) fn quantity(check: &mut Check<'_>, key: &str, text: &str) -> Option<Quantity> {
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
    check: &mut Check<'_>,
    key: &str,
    amounts: Option<&'a Amounts>,
) -> BTreeMap<&'a str, Quantity> {
    let mut read = BTreeMap::new();
    check.key(key, |check| {
        for (name, amount) in amounts.into_iter().flatten() {
            if !is_resource(name) {
                let what = "is no resource: write cpu, memory, ephemeral-storage, \
                            hugepages-<size> or a name with a domain, as example.com/gpu";
                check.fail_at(name, what);
            }
            if let Some(quantity) = quantity(check, name, &amount.0) {
                read.insert(name.as_str(), quantity);
            }
        }
    });
    read
}

fn is_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || (name.contains('/') && names::is_qualified_name(name))
}
