//! Probes and lifecycle hooks.

use serde_json::json;

use super::{group, plain};
use crate::table::{Group, harmless, no, rows, yes};

pub(super) fn groups() -> Vec<Group> {
    let probe = json!({"exec": {"command": ["true"]}});
    vec![
        group(
            "Probe",
            "spec.containers[0].livenessProbe",
            probe,
            rows! {
                exec = {"command": ["true"]} => yes("hooks_and_probes_are_units_of_their_own_and_none_is_left"), yes("hooks_and_probes_run_in_the_container");
                failureThreshold = 2 => yes("a_verdict_needs_enough_results_in_a_row"), yes("a_verdict_needs_enough_results_in_a_row");
                grpc = {"port": 80} with {"exec": null} => no(), yes("a_grpc_probe_asks_the_health_service");
                httpGet = {"port": 80} with {"exec": null} => yes("an_http_probe_takes_the_status_for_an_answer"), yes("a_server_sees_one_request_whatever_the_spec_says");
                initialDelaySeconds = 2 => yes("what_a_probe_leaves_out_is_kubernetes_default"), yes("what_a_probe_leaves_out_is_kubernetes_default");
                periodSeconds = 2 => yes("what_a_probe_leaves_out_is_kubernetes_default"), yes("what_a_probe_leaves_out_is_kubernetes_default");
                successThreshold = 1 => yes("a_verdict_needs_enough_results_in_a_row"), yes("a_verdict_needs_enough_results_in_a_row");
                tcpSocket = {"port": 80} with {"exec": null} => yes("a_liveness_probe_that_fails_has_the_container_started_again"), yes("a_liveness_probe_that_fails_has_the_container_started_again");
                terminationGracePeriodSeconds = 5 => yes("a_probe_that_fails_ends_the_container_within_its_own_grace"), yes("a_probe_that_fails_ends_the_container_within_its_own_grace");
                timeoutSeconds = 2 => yes("what_a_probe_leaves_out_is_kubernetes_default"), yes("what_a_probe_leaves_out_is_kubernetes_default");
            },
        ),
        plain(
            "Lifecycle",
            "spec.containers[0].lifecycle",
            rows! {
                postStart = {"exec": {"command": ["true"]}} => yes("a_container_whose_post_start_hook_fails_is_restarted"), yes("a_container_whose_post_start_hook_fails_is_started_again");
                preStop = {"exec": {"command": ["true"]}} => yes("the_pre_stop_hook_runs_as_the_container_before_sigterm"), yes("hooks_and_probes_run_in_the_container");
                stopSignal = "SIGUSR1" => yes("a_container_may_choose_the_signal_that_ends_it").but(json!("SIGRTMIN+3")), yes("a_container_has_the_terminal_and_the_signal_that_it_asks_for").but(json!("SIGNOPE"));
            },
        ),
        plain(
            "LifecycleHandler",
            "spec.containers[0].lifecycle.preStop",
            rows! {
                exec = {"command": ["true"]} => yes("the_pre_stop_hook_runs_as_the_container_before_sigterm"), yes("hooks_and_probes_run_in_the_container");
                httpGet = {"port": 80} => yes("a_server_sees_one_request_whatever_the_spec_says"), yes("a_server_sees_one_request_whatever_the_spec_says");
                sleep = {"seconds": 1} => yes("a_pre_stop_sleep_is_inside_the_grace"), yes("a_pre_stop_sleep_is_inside_the_grace");
                tcpSocket = {"port": 80} => yes("a_socket_is_asked_at_its_own_host_or_the_pods"), yes("a_socket_is_asked_at_its_own_host_or_the_pods");
            },
        ),
        plain(
            "ExecAction",
            "spec.containers[0].lifecycle.preStop.exec",
            rows! {
                command = ["true"] => yes("the_pre_stop_hook_runs_as_the_container_before_sigterm").but(json!([])), yes("hooks_and_probes_run_in_the_container").but(json!([]));
            },
        ),
        group(
            "HTTPGetAction",
            "spec.containers[0].livenessProbe.httpGet",
            json!({"port": 80}),
            rows! {
                host = "example.org" => yes("an_address_of_version_6_stands_in_brackets").but(json!("user@host")), yes("an_address_of_version_6_stands_in_brackets").but(json!("user@host"));
                httpHeaders = [{"name": "X-A", "value": "1"}] => yes("a_header_of_the_spec_replaces_ours"), yes("a_header_of_the_spec_replaces_ours");
                path = "/health" => yes("a_path_is_sent_as_the_kubelet_sends_it").but(json!("/a\nb")), yes("a_path_is_sent_as_the_kubelet_sends_it").but(json!("/a\nb"));
                port = 81 => yes("a_port_is_a_number_or_a_name_of_the_container").but(json!("unnamed")), yes("a_port_is_a_number_or_a_name_of_the_container").but(json!("unnamed"));
                protocol = "HTTP2" => no(), no();
                scheme = "HTTPS" => yes("a_server_with_a_certificate_of_its_own_is_asked_over_https").but(json!("GOPHER")), yes("a_server_with_a_certificate_of_its_own_is_asked_over_https").but(json!("GOPHER"));
            },
        ),
        group(
            "HTTPHeader",
            "spec.containers[0].livenessProbe.httpGet.httpHeaders[0]",
            json!({"name": "X-A", "value": "1"}),
            rows! {
                name = "Host" => yes("a_header_of_the_spec_replaces_ours").but(json!("A: b")), yes("a_header_of_the_spec_replaces_ours").but(json!("A: b"));
                value = "2" => yes("a_header_of_the_spec_replaces_ours").but(json!("a\nb")), yes("a_header_of_the_spec_replaces_ours").but(json!("a\nb"));
            },
        ),
        group(
            "TCPSocketAction",
            "spec.containers[0].livenessProbe.tcpSocket",
            json!({"port": 80}),
            rows! {
                host = "example.org" => yes("a_socket_is_asked_at_its_own_host_or_the_pods"), yes("a_socket_is_asked_at_its_own_host_or_the_pods");
                port = 81 => yes("a_port_is_a_number_or_a_name_of_the_container").but(json!(0)), yes("a_port_is_a_number_or_a_name_of_the_container").but(json!(0));
            },
        ),
        plain(
            "SleepAction",
            "spec.containers[0].lifecycle.preStop.sleep",
            rows! {
                seconds = 2 => yes("a_pre_stop_sleep_is_inside_the_grace"), yes("a_pre_stop_sleep_is_inside_the_grace");
            },
        ),
        group(
            "GRPCAction",
            "spec.containers[0].livenessProbe.grpc",
            json!({"port": 80}),
            rows! {
                mode = "Plaintext" => no(), harmless("it is so by default").but(json!("TLS"));
                port = 81 => no(), yes("a_grpc_probe_asks_the_health_service");
                service = "well" => no(), yes("a_grpc_probe_asks_the_health_service");
            },
        ),
    ]
}
