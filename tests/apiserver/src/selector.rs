//! Selectors of lists and watches.

use serde_json::Value;

use crate::kinds::Kind;
use crate::refusal::Refusal;
use crate::target::{Query, Target};

/// The namespace, label selector and field selector of a request.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    namespace: Option<String>,
    labels: Vec<LabelRule>,
    fields: Vec<FieldRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelRule {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Has(String),
    HasNot(String),
}

#[derive(Clone, Debug)]
struct FieldRule {
    pointer: String,
    value: String,
    equal: bool,
}

impl Selector {
    pub(crate) fn of(target: &Target, query: &Query) -> Result<Self, Refusal> {
        let mut fields = fields(target.kind, query.get("fieldSelector").unwrap_or_default())?;
        if let Some(name) = &target.name {
            // A watch of a single object by its path.
            fields.push(FieldRule {
                pointer: "/metadata/name".to_owned(),
                value: name.clone(),
                equal: true,
            });
        }
        Ok(Self {
            namespace: target.namespace.clone(),
            labels: labels(query.get("labelSelector").unwrap_or_default())?,
            fields,
        })
    }

    /// Whether it selects all objects of its namespaces.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        let label = |name: &str| labels.and_then(|l| l.get(name)).and_then(Value::as_str);
        self.labels.iter().all(|rule| match rule {
            LabelRule::In(name, values) => {
                label(name).is_some_and(|v| values.iter().any(|wanted| wanted == v))
            }
            LabelRule::NotIn(name, values) => {
                label(name).is_none_or(|v| values.iter().all(|barred| barred != v))
            }
            LabelRule::Has(name) => label(name).is_some(),
            LabelRule::HasNot(name) => label(name).is_none(),
        }) && self.fields.iter().all(|rule| {
            let value = match object.pointer(&rule.pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None if rule.pointer == "/spec/unschedulable" => {
                    "false".to_owned()
                }
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            };
            (value == rule.value) == rule.equal
        })
    }
}

/// Whether a `LabelSelector` object (`matchLabels`, `matchExpressions`) matches these labels. An empty one matches
/// everything.
pub(crate) fn object_selects(selector: &Value, labels: Option<&Value>) -> bool {
    let label = |name: &str| labels.and_then(|l| l.get(name)).and_then(Value::as_str);
    let pairs = selector.get("matchLabels").and_then(Value::as_object);
    let all_pairs =
        pairs.is_none_or(|pairs| pairs.iter().all(|(name, value)| label(name) == value.as_str()));
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    all_pairs
        && expressions.is_none_or(|expressions| {
            expressions.iter().all(|e| {
                let found = label(e.get("key").and_then(Value::as_str).unwrap_or_default());
                let values = e.get("values").and_then(Value::as_array);
                let listed = found.is_some_and(|v| {
                    values.is_some_and(|values| values.iter().any(|w| w.as_str() == Some(v)))
                });
                match e.get("operator").and_then(Value::as_str) {
                    Some("In") => listed,
                    Some("NotIn") => !listed,
                    Some("Exists") => found.is_some(),
                    Some("DoesNotExist") => found.is_none(),
                    _ => false,
                }
            })
        })
}

fn labels(text: &str) -> Result<Vec<LabelRule>, Refusal> {
    split_outside_parentheses(text).map(label_rule).collect()
}

fn label_rule(text: &str) -> Result<LabelRule, Refusal> {
    let own = |part: &str| part.trim().to_owned();
    if let Some(name) = text.strip_prefix('!') {
        return Ok(LabelRule::HasNot(own(name)));
    }
    if let Some((name, value)) = text.split_once("!=") {
        return Ok(LabelRule::NotIn(own(name), vec![own(value)]));
    }
    if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(LabelRule::In(own(name), vec![own(value)]));
    }
    if let Some((head, tail)) = text.split_once('(') {
        let values = tail.trim_end().trim_end_matches(')').split(',').map(own).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next()) {
            (Some(name), Some("in")) => Ok(LabelRule::In(own(name), values)),
            (Some(name), Some("notin")) => Ok(LabelRule::NotIn(own(name), values)),
            _ => Err(Refusal::bad_request(format!("unable to parse requirement: {text}"))),
        };
    }
    Ok(LabelRule::Has(own(text)))
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

fn fields(kind: &Kind, text: &str) -> Result<Vec<FieldRule>, Refusal> {
    let rules = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    rules.map(|rule| field_rule(kind, rule)).collect()
}

fn field_rule(kind: &Kind, rule: &str) -> Result<FieldRule, Refusal> {
    let (name, value, equal) = rule
        .split_once("!=")
        .map(|(name, value)| (name, value, false))
        .or_else(|| rule.split_once("==").map(|(name, value)| (name, value, true)))
        .or_else(|| rule.split_once('=').map(|(name, value)| (name, value, true)))
        .ok_or_else(|| Refusal::bad_request(format!("invalid selector: '{rule}'")))?;
    let name = name.trim();
    if !supported(kind).contains(&name) && !matches!(name, "metadata.name" | "metadata.namespace") {
        return Err(Refusal::bad_request(format!("field label not supported: {name}")));
    }
    Ok(FieldRule {
        pointer: format!("/{}", name.replace('.', "/")),
        value: value.trim().to_owned(),
        equal,
    })
}

/// The fields, in addition to name and namespace, that field selectors may use.
fn supported(kind: &Kind) -> &'static [&'static str] {
    match (kind.group, kind.plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reason",
            "reportingController",
            "type",
        ],
        ("certificates.k8s.io", _) => &["spec.signerName"],
        _ => &[],
    }
}
