//! Selectors of labels.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use winddown_yaml::{FieldCheck, Shortened, names};

use super::{metadata, rules};

pub(super) fn check(check: &mut FieldCheck<'_>, key: &str, selector: Option<&LabelSelector>) {
    let Some(selector) = selector else { return };
    check.key(key, |check| {
        metadata::labels(check, "matchLabels", selector.match_labels.as_ref());
        let expressions = selector.match_expressions.iter().flatten();
        check.each("matchExpressions", expressions, |check, one| {
            rules::qualified(check, "key", &one.key);
            let values = one.values.as_deref().unwrap_or_default();
            match one.operator.as_str() {
                "In" | "NotIn" => some_values(check, values),
                "Exists" | "DoesNotExist" => no_values(check, values),
                operator => {
                    let known = ["In", "NotIn", "Exists", "DoesNotExist"];
                    rules::word(check, "operator", operator, &known);
                }
            }
            label_values(check, values);
        });
    });
}

pub(super) fn some_values(check: &mut FieldCheck<'_>, values: &[String]) {
    if values.is_empty() {
        check.fail_at("values", "is missing: write at least one");
    }
}

pub(super) fn no_values(check: &mut FieldCheck<'_>, values: &[String]) {
    if !values.is_empty() {
        check.fail_at("values", "has no effect with this operator: remove it");
    }
}

pub(super) fn label_values(check: &mut FieldCheck<'_>, values: &[String]) {
    check.key("values", |check| {
        for (index, value) in values.iter().enumerate() {
            if !names::is_label_value(value) {
                let what = format!("`{}` is no label value", Shortened(value));
                check.index(index, |check| check.fail(what));
            }
        }
    });
}

/// Reports wrong keys of labels whose values are the pod's own, `matchLabelKeys` and `mismatchLabelKeys`.
pub(super) fn keys_of_own_labels(
    check: &mut FieldCheck<'_>,
    matching: Option<&Vec<String>>,
    other: Option<&Vec<String>>,
    selector: Option<&LabelSelector>,
) {
    let list = |keys: Option<&Vec<String>>| keys.cloned().unwrap_or_default();
    let (matching, other) = (list(matching), list(other));
    for (key, keys) in [("matchLabelKeys", &matching), ("mismatchLabelKeys", &other)] {
        if !keys.is_empty() && selector.is_none() {
            check.fail_at(key, "needs a labelSelector beside it");
        }
        check.each(key, keys, |check, name| {
            if !names::is_qualified_name(name) {
                check.fail(format!("`{}` {}", Shortened(name), rules::KEY));
            }
        });
    }
    let twice = |key: &String| other.contains(key) || is_selected_twice(selector, key);
    for (index, _) in matching.iter().enumerate().filter(|(_, key)| twice(key)) {
        let what = "is selected by another field too: write it once";
        check.key("matchLabelKeys", |check| check.index(index, |check| check.fail(what)));
    }
}

/// Whether a selector has an expression about the key after it named it already.
fn is_selected_twice(selector: Option<&LabelSelector>, key: &str) -> bool {
    let Some(selector) = selector else { return false };
    let by_label = selector.match_labels.as_ref().is_some_and(|labels| labels.contains_key(key));
    let expressions = selector.match_expressions.iter().flatten();
    let count = expressions.filter(|one| one.key == key).count();
    count > usize::from(!by_label)
}
