//! `spec`: PodSpec.

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::{FieldCheck, Shortened};

use super::{
    affinity, container, metadata, network, resources, rules, scheduling, security, spread, volume,
};
use crate::defaults;

pub(super) fn all(check: &mut FieldCheck<'_>, spec: &api::PodSpec, node_name: &str) {
    words(check, spec);
    priority(check, spec);
    node(check, spec, node_name);
    needs_api_server(check, spec);
    system(check, spec);
    network::all(check, spec);
    namespaces(check, spec);
    check.each("tolerations", spec.tolerations.iter().flatten(), scheduling::toleration);
    scheduling::groups_and_gates(check, spec);
    affinity::all(check, spec.affinity.as_ref());
    spread::all(check, spec.topology_spread_constraints.as_deref().unwrap_or_default());
    security::pod(check, spec);
    let volumes = volume::all(check, spec);
    container::all(check, spec, &volumes);
    resources::pod(check, spec);
}

fn words(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let restarts = ["Always", "OnFailure", "Never"];
    rules::word(check, "restartPolicy", &text(&spec.restart_policy), &restarts);
    let dns = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    rules::word(check, "dnsPolicy", &text(&spec.dns_policy), &dns);
    let preemption = ["PreemptLowerPriority", "Never"];
    rules::word_if_any(check, "preemptionPolicy", spec.preemption_policy.as_ref(), &preemption);
    let most = i64::from(i32::MAX);
    rules::within(check, "activeDeadlineSeconds", spec.active_deadline_seconds, 1..=most);
    if let Some(class) = &spec.runtime_class_name {
        rules::subdomain(check, "runtimeClassName", class, "runtime class");
    }
    metadata::labels(check, "nodeSelector", spec.node_selector.as_ref());
}

fn priority(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    let class = spec.priority_class_name.as_deref().filter(|class| !class.is_empty());
    let Some(class) = class else { return };
    rules::subdomain(check, "priorityClassName", class, "priority class");
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

fn node(check: &mut FieldCheck<'_>, spec: &api::PodSpec, node_name: &str) {
    if let Some(name) = spec.node_name.as_deref().filter(|n| !n.is_empty() && *n != node_name) {
        let what = format!("is `{}`, this node is `{node_name}`: remove it", Shortened(name));
        check.fail_at("nodeName", what);
    }
    if spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()) {
        check.fail_at("ephemeralContainers", "can only be added to a running pod: remove it");
    }
}

fn needs_api_server(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    let set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let filled = |length: Option<usize>| length.is_some_and(|length| length > 0);
    let secrets = spec.image_pull_secrets.iter().flatten().any(|secret| !secret.name.is_empty());
    let fields = [
        ("serviceAccountName", set(&spec.service_account_name)),
        ("serviceAccount", set(&spec.service_account)),
        ("imagePullSecrets", secrets),
        ("resourceClaims", filled(spec.resource_claims.as_ref().map(Vec::len))),
        ("schedulingGates", filled(spec.scheduling_gates.as_ref().map(Vec::len))),
    ];
    for (key, _) in fields.iter().filter(|(_, set)| *set) {
        check.fail_at(key, "needs an API server; manifest pods have none: remove it");
    }
}

/// The rules about `os`, and about what only Windows has.
fn system(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    let Some(os) = &spec.os else { return };
    check.key("os", |check| match os.name.as_str() {
        "windows" => check.fail_at("name", "programs of Windows do not run here: write linux"),
        name => rules::word(check, "name", name, &["linux"]),
    });
}

/// The rules about the namespaces that a pod shares with its host.
fn namespaces(check: &mut FieldCheck<'_>, spec: &api::PodSpec) {
    let hosts = [
        ("hostNetwork", spec.host_network),
        ("hostPID", spec.host_pid),
        ("hostIPC", spec.host_ipc),
    ];
    for (key, _) in hosts.iter().filter(|(_, shared)| *shared == Some(true)) {
        if spec.host_users == Some(false) {
            check.fail_at(key, "cannot be together with `hostUsers: false`: remove one of the two");
        }
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let what = "cannot be together with `hostPID: true`: remove one of the two";
        check.fail_at("shareProcessNamespace", what);
    }
}
