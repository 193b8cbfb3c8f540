//! Containers, their environment, ports and resources.

use serde_json::json;

use super::{group, plain};
use crate::table::{Group, harmless, no, rows, yes};

pub(super) fn groups() -> Vec<Group> {
    vec![
        plain(
            "Container",
            "spec.containers[0]",
            rows! {
                args = ["-v"] => yes("a_container_runs_with_its_environment_and_ends_with_its_exit_code"), yes("a_containers_words_and_environment_are_its_specs");
                command = ["true"] => yes("a_container_runs_with_its_environment_and_ends_with_its_exit_code").but(json!([])), yes("a_containers_words_and_environment_are_its_specs");
                env = [{"name": "A", "value": "1"}] => yes("a_container_runs_with_its_environment_and_ends_with_its_exit_code"), yes("a_containers_words_and_environment_are_its_specs");
                envFrom = [{"configMapRef": {"name": "c"}}] => no().resolved("all_that_a_container_refers_to_becomes_literal"), no().resolved("all_that_a_container_refers_to_becomes_literal");
                image = "app:2" => harmless("not pulled: `command` is a program of the host"), yes("a_containers_words_and_environment_are_its_specs").but(json!(""));
                imagePullPolicy = "Always" => harmless("no image is pulled"), yes("the_pull_policy_follows_the_tag_unless_it_is_given");
                lifecycle = {"preStop": {"sleep": {"seconds": 1}}} => yes("a_pre_stop_sleep_is_inside_the_grace"), yes("a_pre_stop_sleep_is_inside_the_grace");
                livenessProbe = {"tcpSocket": {"port": 80}} => yes("a_probe_that_fails_ends_the_container_within_its_own_grace"), yes("a_liveness_probe_that_fails_has_the_container_started_again");
                name = "web" => yes("nothing_is_left_of_a_pod_that_was_forgotten").but(json!("..")), yes("a_container_runs_and_ends_with_its_exit_code").but(json!(".."));
                ports = [{"containerPort": 80}] => yes("on_the_hosts_network_a_containers_port_is_the_hosts"), yes("a_sandbox_carries_the_pods_identity_whatever_its_labels_say");
                readinessProbe = {"tcpSocket": {"port": 80}} => yes("an_http_probe_takes_the_status_for_an_answer"), yes("hooks_and_probes_run_in_the_container");
                resizePolicy = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] => harmless(NO_RESIZE), harmless(NO_RESIZE);
                resources = {"requests": {"cpu": "1"}} => yes("a_pods_share_is_that_of_all_it_asks_for"), yes("a_pods_slice_weighs_what_the_pod_asks_for"), yes("cpu_becomes_shares_and_quota");
                restartPolicyRules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}] => no(), no();
                securityContext = {"runAsUser": 1000} => yes("a_container_runs_as_the_user_and_group_it_asks_for"), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images");
                startupProbe = {"tcpSocket": {"port": 80}} => yes("a_startup_probe_holds_up_what_comes_after_a_sidecar"), yes("the_other_probes_rest_until_the_startup_probe_has_passed");
                stdin = true => no(), yes("a_container_has_the_terminal_and_the_signal_that_it_asks_for");
                stdinOnce = true => harmless("has no effect without `stdin`"), yes("a_container_has_the_terminal_and_the_signal_that_it_asks_for");
                terminationMessagePath = "/dev/termination-log" => yes("a_container_runs_as_the_user_and_group_it_asks_for").but(json!("/tmp/message")), yes("a_mount_is_what_its_spec_says").but(json!("message"));
                terminationMessagePolicy = "FallbackToLogsOnError" => yes("the_end_of_the_log_stands_in_for_an_empty_message"), yes("the_end_of_the_log_stands_in_for_an_empty_message");
                tty = true => no(), yes("a_container_has_the_terminal_and_the_signal_that_it_asks_for");
                volumeDevices = [{"name": "disk", "devicePath": "/dev/disk"}] => no(), no();
                volumeMounts = [{"name": "data", "mountPath": "/data"}] => no(), yes("a_container_finds_what_its_spec_promises");
                workingDir = "/srv" => yes("a_container_runs_with_its_environment_and_ends_with_its_exit_code"), yes("a_containers_words_and_environment_are_its_specs");
            },
        ),
        group(
            "Container",
            "spec.initContainers[0]",
            json!({"name": "first", "image": "app:1", "command": ["true"]}),
            rows! {
                restartPolicy = "Always" => yes("init_containers_come_first_and_sidecars_go_last").but(json!("Never")), yes("init_containers_come_first_and_sidecars_go_last").but(json!("Never"));
            },
        ),
        group(
            "EnvVar",
            "spec.containers[0].env[0]",
            json!({"name": "A"}),
            rows! {
                name = "B" => yes("a_variable_sees_those_before_it_and_not_those_after_it"), yes("a_variable_sees_those_before_it_and_not_those_after_it");
                value = "1" => yes("references_are_replaced_as_kubernetes_does"), yes("references_are_replaced_as_kubernetes_does");
                valueFrom = {"fieldRef": {"fieldPath": "metadata.name"}} => yes("fields_of_the_pod_and_the_node_have_values"), yes("fields_of_the_pod_and_the_node_have_values");
            },
        ),
        plain(
            "EnvVarSource",
            "spec.containers[0].env[0].valueFrom",
            rows! {
                configMapKeyRef = {"name": "c", "key": "k"} => no().resolved("all_that_a_container_refers_to_becomes_literal"), no().resolved("all_that_a_container_refers_to_becomes_literal");
                fieldRef = {"fieldPath": "metadata.name"} => yes("fields_of_the_pod_and_the_node_have_values"), yes("fields_of_the_pod_and_the_node_have_values");
                fileKeyRef = {"volumeName": "v", "path": "env", "key": "A"} => no(), no();
                resourceFieldRef = {"resource": "limits.cpu"} => yes("resources_are_given_in_units_of_the_divisor_and_rounded_up"), yes("resources_are_given_in_units_of_the_divisor_and_rounded_up");
                secretKeyRef = {"name": "s", "key": "k"} => no().resolved("all_that_a_container_refers_to_becomes_literal"), no().resolved("all_that_a_container_refers_to_becomes_literal");
            },
        ),
        group(
            "ObjectFieldSelector",
            "spec.containers[0].env[0].valueFrom.fieldRef",
            json!({"fieldPath": "metadata.name"}),
            rows! {
                apiVersion = "v1" => harmless("there is no other than `v1`"), harmless("there is no other than `v1`");
                fieldPath = "status.podIP" => yes("fields_of_the_pod_and_the_node_have_values").but(json!("spec.priority")), yes("a_containers_words_and_environment_are_its_specs").but(json!("spec.priority"));
            },
        ),
        group(
            "ResourceFieldSelector",
            "spec.containers[0].env[0].valueFrom.resourceFieldRef",
            json!({"resource": "limits.cpu"}),
            rows! {
                containerName = "main" => yes("what_is_not_known_here_is_refused_by_its_field").but(json!("other")), yes("what_is_not_known_here_is_refused_by_its_field").but(json!("other"));
                divisor = "1m" => yes("resources_are_given_in_units_of_the_divisor_and_rounded_up"), yes("resources_are_given_in_units_of_the_divisor_and_rounded_up");
                resource = "requests.memory" => yes("a_limit_that_is_not_set_is_the_pods_or_what_the_node_has_for_pods").but(json!("nothing")), yes("a_limit_that_is_not_set_is_the_pods_or_what_the_node_has_for_pods").but(json!("nothing"));
            },
        ),
        group(
            "ContainerPort",
            "spec.containers[0].ports[0]",
            json!({"containerPort": 80}),
            rows! {
                containerPort = 81 => yes("on_the_hosts_network_a_containers_port_is_the_hosts"), yes("ports_are_mapped_as_they_are_written");
                hostIP = "192.0.2.1" => yes("a_port_is_taken_per_protocol_and_address"), yes("ports_are_mapped_as_they_are_written");
                hostPort = 80 => yes("a_port_is_taken_per_protocol_and_address"), yes("ports_are_mapped_as_they_are_written");
                name = "web" => yes("a_port_is_a_number_or_a_name_of_the_container"), yes("a_port_is_a_number_or_a_name_of_the_container");
                protocol = "UDP" => yes("a_port_is_taken_per_protocol_and_address"), yes("ports_are_mapped_as_they_are_written");
            },
        ),
        plain(
            "ResourceRequirements",
            "spec.containers[0].resources",
            rows! {
                claims = [{"name": "card"}] => no(), no();
                limits = {"cpu": "1", "memory": "1Gi"} =>
                    yes("limits_hold_on_cgroup_v2_and_stay_over_a_restart_of_the_agent").but(json!({"hugepages-2Mi": "2Mi"})).note("refused where the agent's unit was not given control groups; other resources are counted where the node has them, and no device is given"),
                    yes("a_containers_limits_become_its_units").but(json!({"hugepages-2Mi": "2Mi"})).note(COUNTED),
                    yes("cpu_becomes_shares_and_quota").note(COUNTED);
                requests = {"cpu": "1"} => yes("a_pods_share_is_that_of_all_it_asks_for").note("counts between pods where the agent's unit was given control groups"), yes("a_pods_slice_weighs_what_the_pod_asks_for"), yes("cpu_becomes_shares_and_quota");
            },
        ),
    ]
}

const COUNTED: &str = "other resources are counted where the node has them, and no device is given";
const NO_RESIZE: &str = "no container is resized while it runs; the API server refuses pods/resize";
