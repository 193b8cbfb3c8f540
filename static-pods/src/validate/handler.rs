//! Probes and lifecycle hooks.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use winddown_engine::probe_client::Unsendable;

use super::{at_least, one_of};
use winddown_yaml::{Check, Shortened};

/// Reports problems of a container's probes and hooks. `runs_once` means that it is an init container, which has
/// neither.
pub(super) fn all(check: &mut Check<'_>, container: &api::Container, runs_once: bool) {
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
    let Some(lifecycle) = &container.lifecycle else { return };
    check.key("lifecycle", |check| {
        for (key, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)]
        {
            let Some(hook) = hook else { continue };
            match runs_once {
                true => check.fail_at(key, "is not for init containers: remove it"),
                false => check.key(key, |check| self::hook(check, hook)),
            }
        }
    });
}

fn probe(check: &mut Check<'_>, key: &str, probe: &api::Probe) {
    let handlers = [
        probe.exec.is_some(),
        probe.http_get.is_some(),
        probe.tcp_socket.is_some(),
        probe.grpc.is_some(),
    ];
    exactly_one(check, handlers, "exec, httpGet, tcpSocket and grpc");
    actions(check, probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref());
    at_least(check, "initialDelaySeconds", probe.initial_delay_seconds, 0);
    at_least(check, "timeoutSeconds", probe.timeout_seconds, 0);
    at_least(check, "periodSeconds", probe.period_seconds, 0);
    at_least(check, "successThreshold", probe.success_threshold, 0);
    at_least(check, "failureThreshold", probe.failure_threshold, 0);
    at_least(check, "terminationGracePeriodSeconds", probe.termination_grace_period_seconds, 1);
    if key != "readinessProbe" && probe.success_threshold.is_some_and(|count| count > 1) {
        check.fail_at("successThreshold", "has to be 1 here: remove it");
    }
}

fn hook(check: &mut Check<'_>, hook: &api::LifecycleHandler) {
    let handlers = [
        hook.exec.is_some(),
        hook.http_get.is_some(),
        hook.tcp_socket.is_some(),
        hook.sleep.is_some(),
    ];
    exactly_one(check, handlers, "exec, httpGet, tcpSocket and sleep");
    actions(check, hook.exec.as_ref(), hook.http_get.as_ref(), hook.tcp_socket.as_ref());
    if let Some(sleep) = &hook.sleep {
        check.key("sleep", |check| at_least(check, "seconds", Some(sleep.seconds), 0));
    }
}

fn exactly_one(check: &mut Check<'_>, handlers: [bool; 4], names: &str) {
    match handlers.iter().filter(|there| **there).count() {
        1 => {}
        0 => check.fail(format!("does nothing: write one of {names}")),
        _ => check.fail(format!("does several things: write only one of {names}")),
    }
}

fn actions(
    check: &mut Check<'_>,
    exec: Option<&api::ExecAction>,
    http: Option<&api::HTTPGetAction>,
    tcp: Option<&api::TCPSocketAction>,
) {
    if exec.is_some_and(|exec| exec.command.as_ref().is_none_or(Vec::is_empty)) {
        check.key("exec", |check| check.fail_at("command", "is missing: write what to run"));
    }
    if let Some(http) = http {
        check.key("httpGet", |check| {
            one_of(check, "scheme", http.scheme.as_ref(), &["HTTP", "HTTPS"]);
            port(check, &http.port);
            winddown_engine::probe_client::unsendable(http)
                .into_iter()
                .for_each(|field| unsendable(check, field));
        });
    }
    if let Some(tcp) = tcp {
        check.key("tcpSocket", |check| port(check, &tcp.port));
    }
}

fn unsendable(check: &mut Check<'_>, field: Unsendable) {
    let what = format!("{}: write another", field.why());
    match field {
        Unsendable::Path => check.fail_at("path", what),
        Unsendable::Host => check.fail_at("host", what),
        Unsendable::HeaderName(index) => {
            check.key("httpHeaders", |check| {
                check.index(index, |check| check.fail_at("name", what));
            });
        }
        Unsendable::HeaderValue(index) => {
            check.key("httpHeaders", |check| {
                check.index(index, |check| check.fail_at("value", what));
            });
        }
    }
}

fn port(check: &mut Check<'_>, port: &IntOrString) {
    let what = match port {
        IntOrString::Int(number) if (1..=65535).contains(number) => return,
        IntOrString::String(name) if winddown_yaml::names::is_port_name(name) => return,
        IntOrString::Int(number) => format!("is {number}"),
        IntOrString::String(name) => format!("is `{}`", Shortened(name)),
    };
    check.fail_at("port", format!("{what}: write a port from 1 to 65535, or a port's name"));
}
