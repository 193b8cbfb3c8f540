//! What a pod asks for as a whole.

use serde_json::json;

use super::{group, plain};
use crate::table::{Group, harmless, left, no, rows, yes};

pub(super) fn groups() -> Vec<Group> {
    vec![
        plain(
            "PodSpec",
            "spec",
            rows! {
                activeDeadlineSeconds = 60 => yes("the_time_counts_from_the_start_and_a_clock_that_is_set_changes_nothing"), yes("a_deadline_counts_from_the_pods_start_over_a_restart_of_the_agent");
                affinity = {"nodeAffinity": {}} => harmless(ADMISSION), harmless(ADMISSION);
                automountServiceAccountToken = true => harmless("the API server makes a volume of it"), harmless("the API server makes a volume of it");
                containers = [{"name": "main", "image": "app:1", "command": ["true"]}] => yes("a_container_runs_and_ends_with_its_exit_code"), yes("a_container_runs_and_ends_with_its_exit_code");
                dnsConfig = {"nameservers": ["192.0.2.1"]} => no(), yes("what_the_pod_asks_for_is_added_and_its_options_win");
                dnsPolicy = "Default" => harmless("the host's resolver is used").but(json!("None")).but(json!("ClusterFirstWithHostNet")), yes("the_policy_decides_whom_a_pod_asks");
                enableServiceLinks = true => yes("a_pod_without_service_links_hears_of_the_api_server_alone_and_lists_nothing"), yes("a_pod_without_service_links_hears_of_the_api_server_alone_and_lists_nothing");
                ephemeralContainers = [{"name": "debug", "image": "app:1"}] => left(), yes("a_container_to_look_into_a_running_pod_runs_once");
                evictionResponders = [{"name": "example.com/database", "priority": 500}] => harmless(RESPONDERS), harmless(RESPONDERS);
                hostAliases = [{"ip": "192.0.2.1", "hostnames": ["a.example"]}] => no(), yes("the_hosts_file_has_the_pods_name_or_the_nodes_file_and_the_aliases");
                hostIPC = true => harmless(HOST), yes("namespaces_are_shared_as_the_pod_says");
                hostNetwork = true => harmless("a process of the host is on its network").but(json!(false)), yes("a_pod_on_the_nodes_network_has_the_nodes_name_and_ports");
                hostPID = true => harmless(HOST), yes("namespaces_are_shared_as_the_pod_says");
                hostUsers = true => harmless("it is so by default").but(json!(false)), harmless("it is so by default").but(json!(false));
                hostname = "web" => no(), yes("the_hosts_file_has_the_pods_name_or_the_nodes_file_and_the_aliases").note("a pod on the host's network has the host's");
                hostnameOverride = "web" => no(), yes("an_overriding_host_name_is_taken_whole_and_has_no_domain");
                imagePullSecrets = [{"name": "registry"}] => harmless(NO_IMAGE), harmless("the container runtime has the registry's credentials; an event says that the Secrets are not read");
                initContainers = [{"name": "first", "image": "app:1", "command": ["true"]}] => yes("init_containers_come_first_and_sidecars_go_last"), yes("init_containers_come_first_and_sidecars_go_last");
                nodeName = "node" => yes("fields_of_the_pod_and_the_node_have_values"), yes("fields_of_the_pod_and_the_node_have_values");
                nodeSelector = {"disk": "fast"} => harmless(ADMISSION), harmless(ADMISSION);
                os = {"name": "linux"} => yes("the_os_field_of_a_pod_must_be_that_of_the_machine").but(json!({"name": "windows"})), yes("the_os_field_of_a_pod_must_be_that_of_the_machine").but(json!({"name": "windows"}));
                overhead = {"cpu": "100m"} => yes("ranking_adds_overhead_only_to_what_is_requested_and_fit_adds_it_always"), yes("ranking_adds_overhead_only_to_what_is_requested_and_fit_adds_it_always");
                preemptionPolicy = "Never" => harmless("the scheduler's"), harmless("the scheduler's");
                priority = 5 => yes("critical_preempts_ordinary_and_otherwise_the_higher_priority_wins"), yes("critical_preempts_ordinary_and_otherwise_the_higher_priority_wins");
                priorityClassName = "system-node-critical" => yes("the_two_classes_every_cluster_has_give_their_priority"), yes("the_two_classes_every_cluster_has_give_their_priority");
                readinessGates = [{"conditionType": "example.com/ready"}] => yes("a_closed_readiness_gate_keeps_the_pod_unready"), yes("a_closed_readiness_gate_keeps_the_pod_unready");
                resourceClaims = [{"name": "card"}] => no(), no();
                resources = {"requests": {"cpu": "1"}} => yes("requests_of_a_whole_pod_are_honoured_and_all_else_is_named"), yes("requests_of_a_whole_pod_are_honoured_and_all_else_is_named");
                restartPolicy = "OnFailure" => yes("a_container_that_crashes_is_started_again_after_a_while"), yes("the_rules_follow_the_spec");
                runtimeClassName = "kata" => no(), yes("the_runtime_class_is_the_handler_of_the_sandbox");
                schedulerName = "other" => harmless("the API server's and the scheduler's"), harmless("the API server's and the scheduler's");
                schedulingGates = [{"name": "example.com/wait"}] => harmless("a pod that is on a node has none left"), harmless("a pod that is on a node has none left");
                schedulingGroup = {"podGroupName": "g"} => harmless("the scheduler's"), harmless("the scheduler's");
                securityContext = {"runAsUser": 1000} => yes("a_container_runs_as_the_user_and_group_it_asks_for"), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images");
                serviceAccount = "builder" => harmless("the old name of `serviceAccountName`, which the API server fills in"), harmless("the old name of `serviceAccountName`, which the API server fills in");
                serviceAccountName = "builder" => yes("fields_of_the_pod_and_the_node_have_values"), yes("fields_of_the_pod_and_the_node_have_values");
                setHostnameAsFQDN = true => no(), no();
                shareProcessNamespace = true => harmless(HOST), yes("namespaces_are_shared_as_the_pod_says").note("not together with `hostPID`");
                subdomain = "db" => no(), yes("the_hosts_file_has_the_pods_name_or_the_nodes_file_and_the_aliases");
                terminationGracePeriodSeconds = 60 => yes("pods_with_a_shorter_grace_of_their_own_keep_it"), yes("pods_with_a_shorter_grace_of_their_own_keep_it");
                tolerations = [{"operator": "Exists"}] => harmless(ADMISSION), harmless(ADMISSION);
                topologySpreadConstraints = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}] => harmless("the scheduler's"), harmless("the scheduler's");
                volumes = [{"name": "scratch", "emptyDir": {}}] => no(), yes("a_container_finds_what_its_spec_promises");
            },
        ),
        plain(
            "PodDNSConfig",
            "spec.dnsConfig",
            rows! {
                nameservers = ["192.0.2.1"] => no(), yes("what_the_pod_asks_for_is_added_and_its_options_win");
                options = [{"name": "ndots", "value": "2"}] => no(), yes("what_the_pod_asks_for_is_added_and_its_options_win");
                searches = ["a.example"] => no(), yes("what_the_pod_asks_for_is_added_and_its_options_win");
            },
        ),
        plain(
            "PodDNSConfigOption",
            "spec.dnsConfig.options[0]",
            rows! {
                name = "rotate" => no(), yes("what_the_pod_asks_for_is_added_and_its_options_win");
                value = "2" with {"name": "ndots"} => no(), yes("what_the_pod_asks_for_is_added_and_its_options_win");
            },
        ),
        group(
            "HostAlias",
            "spec.hostAliases[0]",
            json!({"ip": "192.0.2.1"}),
            rows! {
                hostnames = ["a.example"] => no(), yes("the_hosts_file_has_the_pods_name_or_the_nodes_file_and_the_aliases");
                ip = "192.0.2.2" => no(), yes("the_hosts_file_has_the_pods_name_or_the_nodes_file_and_the_aliases");
            },
        ),
        plain(
            "PodOS",
            "spec.os",
            rows! {
                name = "linux" => yes("the_os_field_of_a_pod_must_be_that_of_the_machine").but(json!("windows")), yes("the_os_field_of_a_pod_must_be_that_of_the_machine").but(json!("windows"));
            },
        ),
        plain(
            "PodReadinessGate",
            "spec.readinessGates[0]",
            rows! {
                conditionType = "example.com/ready" => yes("a_closed_readiness_gate_keeps_the_pod_unready"), yes("a_closed_readiness_gate_keeps_the_pod_unready");
            },
        ),
        plain(
            "ResourceRequirements",
            "spec.resources",
            rows! {
                claims = [{"name": "card"}] => no(), no();
                limits = {"cpu": "1"} => no(), no();
                requests = {"cpu": "1"} => yes("requests_of_a_whole_pod_are_honoured_and_all_else_is_named").but(json!({"ephemeral-storage": "1Gi"})), yes("requests_of_a_whole_pod_are_honoured_and_all_else_is_named").but(json!({"ephemeral-storage": "1Gi"}));
            },
        ),
    ]
}

const ADMISSION: &str = "the scheduler and the agent's admission decide by it";
const HOST: &str = "a process of the host has what the host has, whatever is written";
const RESPONDERS: &str = "for those who answer an Eviction of the API";
const NO_IMAGE: &str = "no image is pulled";
