//! Probes and lifecycle hooks.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use winddown_shared::http_fields;
use winddown_yaml::{FieldCheck, Shortened};

use super::{names, rules};

/// Reports problems of a container's probes and hooks. Of the init containers, only sidecars have any.
pub(super) fn all(
    check: &mut FieldCheck<'_>,
    container: &api::Container,
    is_init: bool,
    spec: &api::PodSpec,
) {
    let runs_once = is_init && container.restart_policy.as_deref() != Some("Always");
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (key, probe) in probes {
        let Some(probe) = probe else { continue };
        match runs_once {
            true => check.fail_at(key, "is not for init containers: remove it"),
            false => check.key(key, |check| self::probe(check, key, probe)),
        }
    }
    match &container.lifecycle {
        Some(_) if runs_once => {
            check.fail_at("lifecycle", "is not for init containers: remove it");
        }
        Some(lifecycle) => check.key("lifecycle", |check| self::lifecycle(check, lifecycle, spec)),
        None => {}
    }
}

fn probe(check: &mut FieldCheck<'_>, key: &str, probe: &api::Probe) {
    let handlers = [
        probe.exec.is_some(),
        probe.http_get.is_some(),
        probe.tcp_socket.is_some(),
        probe.grpc.is_some(),
    ];
    exactly_one(check, handlers, "exec, httpGet, tcpSocket and grpc");
    actions(check, probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref());
    if let Some(grpc) = &probe.grpc {
        check.key("grpc", |check| rules::port(check, "port", grpc.port));
    }
    rules::at_least(check, "initialDelaySeconds", probe.initial_delay_seconds, 0);
    rules::at_least(check, "timeoutSeconds", probe.timeout_seconds, 0);
    rules::at_least(check, "periodSeconds", probe.period_seconds, 0);
    rules::at_least(check, "successThreshold", probe.success_threshold, 0);
    rules::at_least(check, "failureThreshold", probe.failure_threshold, 0);
    let grace = probe.termination_grace_period_seconds;
    rules::at_least(check, "terminationGracePeriodSeconds", grace, 1);
    if key == "readinessProbe" && grace.is_some() {
        let what = "has no effect here: a readiness probe terminates nothing: remove it";
        check.fail_at("terminationGracePeriodSeconds", what);
    }
    if key != "readinessProbe" && probe.success_threshold.is_some_and(|count| count > 1) {
        check.fail_at("successThreshold", "has to be 1 here: remove it");
    }
}

fn lifecycle(check: &mut FieldCheck<'_>, lifecycle: &api::Lifecycle, spec: &api::PodSpec) {
    for (key, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        if let Some(hook) = hook {
            let grace = spec.termination_grace_period_seconds.unwrap_or(30);
            check.key(key, |check| self::hook(check, hook, grace));
        }
    }
    let Some(signal) = &lifecycle.stop_signal else { return };
    if spec.os.is_none() {
        check.fail_at("stopSignal", "needs `os: {name: linux}` in the pod's spec");
    } else if !names::is_signal(signal) {
        let what = format!("`{}` is no signal: write, for example, SIGINT", Shortened(signal));
        check.fail_at("stopSignal", what);
    }
}

fn hook(check: &mut FieldCheck<'_>, hook: &api::LifecycleHandler, grace: i64) {
    let handlers = [
        hook.exec.is_some(),
        hook.http_get.is_some(),
        hook.tcp_socket.is_some(),
        hook.sleep.is_some(),
    ];
    exactly_one(check, handlers, "exec, httpGet, tcpSocket and sleep");
    actions(check, hook.exec.as_ref(), hook.http_get.as_ref(), hook.tcp_socket.as_ref());
    let Some(sleep) = &hook.sleep else { return };
    check.key("sleep", |check| {
        rules::at_least(check, "seconds", Some(sleep.seconds), 0);
        if sleep.seconds > grace {
            let what = format!(
                "is {}, longer than terminationGracePeriodSeconds, which is {grace}: write less",
                sleep.seconds
            );
            check.fail_at("seconds", what);
        }
    });
}

fn exactly_one(check: &mut FieldCheck<'_>, handlers: [bool; 4], names: &str) {
    match handlers.iter().filter(|there| **there).count() {
        1 => {}
        0 => check.fail(format!("does nothing: write one of {names}")),
        _ => check.fail(format!("does several things: write only one of {names}")),
    }
}

fn actions(
    check: &mut FieldCheck<'_>,
    exec: Option<&api::ExecAction>,
    http: Option<&api::HTTPGetAction>,
    tcp: Option<&api::TCPSocketAction>,
) {
    if exec.is_some_and(|exec| exec.command.as_ref().is_none_or(Vec::is_empty)) {
        check.key("exec", |check| check.fail_at("command", "is missing: write what to run"));
    }
    if let Some(http) = http {
        check.key("httpGet", |check| self::http(check, http));
    }
    if let Some(tcp) = tcp {
        check.key("tcpSocket", |check| port(check, &tcp.port));
    }
}

fn http(check: &mut FieldCheck<'_>, http: &api::HTTPGetAction) {
    rules::word_if_any(check, "scheme", http.scheme.as_ref(), &["HTTP", "HTTPS"]);
    port(check, &http.port);
    let another = |why| format!("{why}: write another");
    if let Some(Err(why)) = http.path.as_deref().map(http_fields::path) {
        check.fail_at("path", another(why));
    }
    if let Some(Err(why)) = http.host.as_deref().map(http_fields::host) {
        check.fail_at("host", another(why));
    }
    for (index, one) in http.http_headers.iter().flatten().enumerate() {
        if let Err(why) = http_fields::header_value(&one.value) {
            header(check, index, "value", &another(why));
        }
        // Fewer than a request can hold.
        if !names::is_header(&one.name) {
            header(check, index, "name", "is not a header name: write another");
        }
    }
}

fn header(check: &mut FieldCheck<'_>, index: usize, key: &str, what: &str) {
    check.key("httpHeaders", |check| check.index(index, |check| check.fail_at(key, what)));
}

fn port(check: &mut FieldCheck<'_>, port: &IntOrString) {
    let what = match port {
        IntOrString::Int(number) if (1..=65535).contains(number) => return,
        IntOrString::String(name) if winddown_yaml::names::is_port_name(name) => return,
        IntOrString::Int(number) => format!("is {number}"),
        IntOrString::String(name) => format!("is `{}`", Shortened(name)),
    };
    check.fail_at("port", format!("{what}: write a port from 1 to 65535, or a port's name"));
}
