//! Finds what the API server would refuse, and what only it could provide.
//!
//! A pod from a file does not pass through an API server, so these checks are made here: those whose failure would
//! otherwise show later, as a container that cannot start or a limit that is not enforced.

mod container;
mod handler;
mod resources;
mod volume;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;

use super::{defaults, identity};
use winddown_yaml::{Check, Shortened, names};

const LABEL_RULE: &str = "write lower-case letters, digits and `-`, at most 63";
const SUBDOMAIN_RULE: &str = "use lower-case letters, digits, `-`, `.`; at most 253";
const NEEDS_API_SERVER: &str =
    "needs an API server; manifest pods have none: use a hostPath volume or plain values";

/// Reports all problems of `pod`.
pub(super) fn pod(check: &mut Check<'_>, pod: &api::Pod, node_name: &str) {
    check.key("metadata", |check| metadata(check, pod, node_name));
    // `kubectl create --dry-run -o yaml` writes an empty status.
    if pod.status.as_ref().is_some_and(|status| *status != api::PodStatus::default()) {
        check.fail_at("status", "is what the agent reports: remove it");
    }
    match &pod.spec {
        Some(spec) => check.key("spec", |check| self::spec(check, spec, node_name)),
        None => check.fail_at("spec", "is missing: a pod needs a spec with containers"),
    }
}

/// Reports a non-empty text that is not one of `allowed`.
fn one_of(check: &mut Check<'_>, key: &str, value: Option<&String>, allowed: &[&str]) {
    let wrong = |text: &&String| !text.is_empty() && !allowed.contains(&text.as_str());
    if let Some(text) = value.filter(wrong) {
        let what = format!("`{}` is unknown: write {}", Shortened(text), either(allowed));
        check.fail_at(key, what);
    }
}

fn either(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Reports a number that is there and less than `least`.
fn at_least<T: Into<i64> + Copy>(check: &mut Check<'_>, key: &str, value: Option<T>, least: i64) {
    if let Some(number) = value.map(Into::into).filter(|number| *number < least) {
        check.fail_at(key, format!("is {number}: write {least} or more"));
    }
}

fn metadata(check: &mut Check<'_>, pod: &api::Pod, node_name: &str) {
    let meta = &pod.metadata;
    match meta.name.as_deref().filter(|name| !name.is_empty()) {
        None => check.fail_at("name", "is missing: a pod from a file needs a name"),
        Some(name) if !names::is_dns_subdomain(name) => {
            let what = format!("`{}` is not a pod name: {SUBDOMAIN_RULE}", Shortened(name));
            check.fail_at("name", what);
        }
        Some(name) => {
            let full = identity::full_name(name, node_name);
            if !names::is_dns_subdomain(&full) {
                let what = format!(
                    "with the node's name `{}` behind it, it is {} characters long: write a \
                     shorter one, 253 is the most",
                    Shortened(node_name),
                    full.len()
                );
                check.fail_at("name", what);
            }
        }
    }
    if let Some(namespace) = meta.namespace.as_deref().filter(|n| !names::is_dns_label(n)) {
        let what = format!("`{}` is no namespace: {LABEL_RULE}", Shortened(namespace));
        check.fail_at("namespace", what);
    }
    let uid_rule = |uid: &&str| {
        let valid = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        uid.len() > 64 || !uid.bytes().all(valid)
    };
    if let Some(uid) = meta.uid.as_deref().filter(uid_rule) {
        // The UID becomes the name of a directory.
        let what = format!(
            "`{}` is no UID: remove it, or write letters, digits and `-`, at most 64",
            Shortened(uid)
        );
        check.fail_at("uid", what);
    }
    labels(check, "labels", meta.labels.as_ref());
    for key in meta.annotations.iter().flatten().map(|(key, _)| key) {
        if !names::is_qualified_name(key) {
            check.key("annotations", |check| bad_key(check, key));
        }
    }
    let managed = [
        ("deletionTimestamp", meta.deletion_timestamp.is_some()),
        ("ownerReferences", meta.owner_references.as_ref().is_some_and(|list| !list.is_empty())),
        ("finalizers", meta.finalizers.as_ref().is_some_and(|list| !list.is_empty())),
        ("generateName", meta.generate_name.as_ref().is_some_and(|name| !name.is_empty())),
    ];
    for (key, _) in managed.iter().filter(|(_, set)| *set) {
        check.fail_at(key, "needs an API server: remove it");
    }
}

fn labels(check: &mut Check<'_>, key: &str, labels: Option<&BTreeMap<String, String>>) {
    for (name, value) in labels.into_iter().flatten() {
        check.key(key, |check| {
            if !names::is_qualified_name(name) {
                bad_key(check, name);
            }
            if !names::is_label_value(value) {
                let what = format!(
                    "`{}` is no label value: write at most 63 letters, digits, `-`, `_` and `.`, \
                     a letter or digit at both ends",
                    Shortened(value)
                );
                check.fail_at(name, what);
            }
        });
    }
}

fn bad_key(check: &mut Check<'_>, key: &str) {
    let what = "is no key: write at most 63 letters, digits, `-`, `_` and `.`, \
                with a DNS name and / before it if you like";
    check.fail_at(key, what);
}

fn spec(check: &mut Check<'_>, spec: &api::PodSpec, node_name: &str) {
    one_of(check, "restartPolicy", spec.restart_policy.as_ref(), &["Always", "OnFailure", "Never"]);
    let dns = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    one_of(check, "dnsPolicy", spec.dns_policy.as_ref(), &dns);
    let preemption = ["PreemptLowerPriority", "Never"];
    one_of(check, "preemptionPolicy", spec.preemption_policy.as_ref(), &preemption);
    let grace = spec.termination_grace_period_seconds;
    at_least(check, "terminationGracePeriodSeconds", grace, 0);
    at_least(check, "activeDeadlineSeconds", spec.active_deadline_seconds, 1);
    priority(check, spec);
    if let Some(name) = spec.node_name.as_deref().filter(|n| !n.is_empty() && *n != node_name) {
        let what = format!("is `{}`, this node is `{node_name}`: remove it", Shortened(name));
        check.fail_at("nodeName", what);
    }
    let bad = |name: &&str| !name.is_empty() && !names::is_dns_label(name);
    if let Some(name) = spec.hostname.as_deref().filter(bad) {
        let what = format!("`{}` is no host name: {LABEL_RULE}", Shortened(name));
        check.fail_at("hostname", what);
    }
    if spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()) {
        check.fail_at("ephemeralContainers", "can only be added to a running pod: remove it");
    }
    needs_api_server(check, spec);
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        check.key("tolerations", |check| {
            check.index(index, |check| self::toleration(check, toleration));
        });
    }
    let volumes = volume::all(check, spec);
    container::all(check, spec, &volumes);
}

fn priority(check: &mut Check<'_>, spec: &api::PodSpec) {
    let class = spec.priority_class_name.as_deref().filter(|class| !class.is_empty());
    let Some(class) = class else { return };
    match (defaults::class_priority(class), spec.priority) {
        (Some(value), Some(priority)) if value != priority => {
            let what = format!("is {priority}, but {class} is {value}: remove one of the two");
            check.fail_at("priority", what);
        }
        (None, None) => {
            let what =
                format!("no API server resolves `{}`: set spec.priority too", Shortened(class));
            check.fail_at("priorityClassName", what);
        }
        _ => {}
    }
}

/// Reports fields that need an API server. The kubelet refuses them in a pod from a file too.
fn needs_api_server(check: &mut Check<'_>, spec: &api::PodSpec) {
    let set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let filled = |length: Option<usize>| length.is_some_and(|length| length > 0);
    let fields = [
        ("serviceAccountName", set(&spec.service_account_name)),
        ("serviceAccount", set(&spec.service_account)),
        ("imagePullSecrets", filled(spec.image_pull_secrets.as_ref().map(Vec::len))),
        ("resourceClaims", filled(spec.resource_claims.as_ref().map(Vec::len))),
        ("schedulingGates", filled(spec.scheduling_gates.as_ref().map(Vec::len))),
    ];
    for (key, _) in fields.iter().filter(|(_, set)| *set) {
        check.fail_at(key, "needs an API server; manifest pods have none: remove it");
    }
}

fn toleration(check: &mut Check<'_>, toleration: &api::Toleration) {
    one_of(check, "operator", toleration.operator.as_ref(), &["Exists", "Equal"]);
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    one_of(check, "effect", toleration.effect.as_ref(), &effects);
}
