//! `spec.containers[]` and `spec.initContainers[]`: Container.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as api;
use winddown_yaml::{FieldCheck, Shortened, names};

use super::volume::Volumes;
use super::{env, handler, mount, port, resources, restart, rules, security};

/// The names of the containers seen so far, each with its field.
type Names<'a> = BTreeMap<&'a str, String>;

pub(super) fn all(check: &mut FieldCheck<'_>, spec: &api::PodSpec, volumes: &Volumes<'_>) {
    if spec.containers.is_empty() {
        check.fail_at("containers", "is missing: a pod needs at least one container");
    }
    let mut names = Names::new();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (key, containers) in [("initContainers", init), ("containers", &spec.containers)] {
        // Init containers run one after the other, and can have the same ports.
        let mut ports = BTreeSet::new();
        check.key(key, |check| {
            for (index, container) in containers.iter().enumerate() {
                check.index(index, |check| {
                    name(check, container, &mut names, format!("spec.{key}[{index}]"));
                    let is_init = key == "initContainers";
                    if is_init {
                        ports.clear();
                    }
                    port::all(check, container, &mut ports);
                    if spec.host_network == Some(true) && !is_init {
                        port::same_on_host(check, container);
                    }
                    one(check, container, is_init, spec, volumes);
                    restart::all(check, container);
                    handler::all(check, container, is_init, spec);
                });
            }
        });
    }
}

fn name<'a>(
    check: &mut FieldCheck<'_>,
    container: &'a api::Container,
    names: &mut Names<'a>,
    place: String,
) {
    let name = container.name.as_str();
    if name.is_empty() {
        check.fail_at("name", "is missing: every container needs a name");
    } else if !names::is_dns_label(name) {
        let what = format!("`{}` is no container name: {}", Shortened(name), rules::LABEL);
        check.fail_at("name", what);
    } else if let Some(first) = names.get(name) {
        check.fail_at("name", format!("`{name}` is the name of {first} already: write another"));
    } else {
        names.insert(name, place);
    }
}

fn one(
    check: &mut FieldCheck<'_>,
    container: &api::Container,
    is_init: bool,
    spec: &api::PodSpec,
    volumes: &Volumes<'_>,
) {
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() && container.command.as_ref().is_none_or(Vec::is_empty) {
        check.fail("has neither `image` nor `command`: write what it runs");
    }
    if image.trim() != image {
        check.fail_at("image", "has a blank at its start or end: remove it");
    }
    if container.command.as_ref().and_then(|c| c.first()).is_some_and(String::is_empty) {
        check.fail_at("command", "starts with an empty string: write the program to run");
    }
    let pull = ["Always", "IfNotPresent", "Never"];
    let policy = container.image_pull_policy.as_ref().filter(|policy| !policy.is_empty());
    rules::word_if_any(check, "imagePullPolicy", policy, &pull);
    let policy = container.termination_message_policy.as_ref();
    let policies = ["File", "FallbackToLogsOnError"];
    rules::word_if_any(check, "terminationMessagePolicy", policy, &policies);
    env::all(check, container, volumes);
    mount::all(check, container, volumes);
    if let Some(requirements) = &container.resources {
        check.key("resources", |check| resources::container(check, requirements));
    }
    let runs_once = is_init && container.restart_policy.as_deref() != Some("Always");
    resizing(check, container, runs_once || spec.restart_policy.as_deref() == Some("Never"));
    security::container(check, container.security_context.as_ref(), spec);
}

/// `runs_once`: the container is not started again.
fn resizing(check: &mut FieldCheck<'_>, container: &api::Container, runs_once: bool) {
    let mut seen = BTreeSet::new();
    check.each("resizePolicy", container.resize_policy.iter().flatten(), |check, one| {
        rules::word(check, "resourceName", &one.resource_name, &["cpu", "memory"]);
        if !seen.insert(one.resource_name.as_str()) {
            check.fail_at("resourceName", "has an entry already: remove one of the two");
        }
        let policies: &[&str] =
            if runs_once { &["NotRequired"] } else { &["NotRequired", "RestartContainer"] };
        rules::word(check, "restartPolicy", &one.restart_policy, policies);
    });
}
