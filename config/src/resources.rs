//! What the node has for pods, and how room is made on it.

use std::collections::BTreeMap;
use std::str::FromStr;

use winddown_preemption::Strategy;
use winddown_shared::Quantity;

use winddown_yaml::{Fields, Key, Located, Node, Scalar, Value, names};

const EXTENDED: &str = "extendedResources";
const LABELS: &str = "nodeLabels";
const STRATEGY: &str = "preemptionStrategy";

/// `systemReserved` or `kubeReserved`.
pub(super) fn reserved(fields: &mut Fields<'_, '_>, key: &'static str) -> BTreeMap<String, String> {
    entries(fields, key, "a quantity", |name, text| {
        let known = matches!(name, "cpu" | "memory" | "ephemeral-storage" | "pid")
            || name.starts_with("hugepages-");
        if !known {
            return Err("is not a resource that can be reserved: write cpu, memory, \
                        ephemeral-storage, pid or hugepages-<size>"
                .to_owned());
        }
        quantity(text).map(|_| ())
    })
}

/// `extendedResources`.
pub(super) fn extended(fields: &mut Fields<'_, '_>) -> BTreeMap<String, String> {
    entries(fields, EXTENDED, "a whole number", |name, text| {
        let domain = name.split_once('/').map(|(domain, _)| domain);
        let own = domain.is_some_and(|domain| {
            !domain.contains("kubernetes.io") && !domain.starts_with("requests.")
        });
        if !own || !names::is_qualified_name(name) {
            return Err("is no extended resource: write a domain of your own and a name, for \
                        example example.com/dongle"
                .to_owned());
        }
        let amount = quantity(text)?;
        let whole = amount.as_nanos() == Quantity::new(amount.value(), amount.format()).as_nanos();
        match whole {
            true => Ok(()),
            false => Err(format!("`{text}` is not whole: extended resources are counted in units")),
        }
    })
}

/// `nodeLabels`.
pub(super) fn labels(fields: &mut Fields<'_, '_>) -> BTreeMap<String, String> {
    entries(fields, LABELS, "a text", |name, text| {
        if !names::is_qualified_name(name) {
            return Err(
                "is no label: write letters, digits, `-`, `_` and `.`, at most 63, with a \
                        domain and `/` before them if you like"
                    .to_owned(),
            );
        }
        if matches!(name, "kubernetes.io/os" | "kubernetes.io/arch") {
            return Err("is what the machine says itself: remove it".to_owned());
        }
        match names::is_label_value(text) {
            true => Ok(()),
            false => Err(format!(
                "`{text}` is no label's value: write letters, digits, `-`, `_` and `.`, at most 63"
            )),
        }
    })
}

/// `preemptionStrategy`.
pub(super) fn strategy(fields: &mut Fields<'_, '_>) -> Option<Strategy> {
    let Located { value, at } = fields.text(STRATEGY)?;
    let strategy = Strategy::from_str(value).ok();
    if strategy.is_none() {
        fields.fail(STRATEGY, at, format!("`{value}` is unknown: write distance or minimal"));
    }
    strategy
}

/// The amount, 0 or more.
fn quantity(text: &str) -> Result<Quantity, String> {
    match text.parse::<Quantity>() {
        Ok(quantity) if quantity.is_negative() => {
            Err(format!("`{text}` is negative: write 0 or more"))
        }
        Ok(quantity) => Ok(quantity),
        Err(error) => Err(error.to_string()),
    }
}

/// A mapping from names to texts, each of which `check` accepts or says what is wrong with.
fn entries(
    fields: &mut Fields<'_, '_>,
    key: &'static str,
    wanted: &str,
    check: impl Fn(&str, &str) -> Result<(), String>,
) -> BTreeMap<String, String> {
    let mut result = BTreeMap::new();
    let Some(found) = fields.node(key) else { return result };
    let Value::Map(entries) = &found.value.value else {
        let what = format!("needs a mapping, this is {}", found.value.describe());
        fields.fail(key, found.at, what);
        return result;
    };
    for (name, node) in entries {
        match entry(name, node, wanted, &check) {
            Ok(text) => {
                result.insert(name.text.to_string(), text.to_owned());
            }
            Err(what) => fields.fail_below(key, &name.text, name.at, what),
        }
    }
    result
}

fn entry<'n>(
    name: &Key,
    node: &'n Node,
    wanted: &str,
    check: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<&'n str, String> {
    let Value::Scalar(Scalar { text, .. }) = &node.value else {
        return Err(format!("needs {wanted}, this is {}", node.describe()));
    };
    check(&name.text, text).map(|()| &**text)
}
