//! Users, rights and profiles.

use serde_json::json;

use super::{group, plain};
use crate::table::{Group, harmless, no, rows, yes};

pub(super) fn groups() -> Vec<Group> {
    vec![
        plain(
            "PodSecurityContext",
            "spec.securityContext",
            rows! {
                appArmorProfile = {"type": "RuntimeDefault"} => no(), yes("profiles_and_labels_are_passed_on");
                fsGroup = 5 => no(), yes("a_container_finds_what_its_spec_promises").but(json!(-1));
                fsGroupChangePolicy = "OnRootMismatch" => harmless("there are no volumes"), harmless("for volumes of storage drivers, which are refused");
                runAsGroup = 5 => yes("a_container_runs_as_the_user_and_group_it_asks_for").but(json!(-1)), yes("a_container_finds_what_its_spec_promises").but(json!(-1));
                runAsNonRoot = true with {"runAsUser": 5} => yes("each_field_that_cannot_be_honoured_is_named"), yes("run_as_non_root_is_checked_against_the_images_user");
                runAsUser = 5 => yes("a_container_runs_as_the_user_and_group_it_asks_for").but(json!(-1)), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images").but(json!(-1));
                seLinuxChangePolicy = "Recursive" => harmless("has no effect without `seLinuxOptions`"), harmless("for volumes of storage drivers, which are refused");
                seLinuxOptions = {"level": "s0"} => no(), yes("profiles_and_labels_are_passed_on");
                seccompProfile = {"type": "RuntimeDefault"} => no(), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images");
                supplementalGroups = [5] => yes("a_container_runs_as_the_user_and_group_it_asks_for").but(json!([-1])), yes("a_container_finds_what_its_spec_promises").but(json!([-1]));
                supplementalGroupsPolicy = "Strict" => yes("a_container_runs_as_the_user_and_group_it_asks_for").but(json!("Merge")), no();
                sysctls = [{"name": "kernel.shm_rmid_forced", "value": "1"}] => no(), yes("a_sandbox_carries_the_pods_identity_whatever_its_labels_say");
                windowsOptions = {} => no(), no();
            },
        ),
        plain(
            "SecurityContext",
            "spec.containers[0].securityContext",
            rows! {
                allowPrivilegeEscalation = false => yes("a_container_runs_as_the_user_and_group_it_asks_for"), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images").note("not together with `privileged`");
                appArmorProfile = {"type": "RuntimeDefault"} => no(), yes("profiles_and_labels_are_passed_on");
                capabilities = {"drop": ["ALL"]} => no(), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images");
                privileged = true => yes("with_the_process_runtime_pods_inherit_no_sandbox"), harmless("a service has all that its user may"), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images");
                procMount = "Default" => harmless("the host's /proc is used").but(json!("Unmasked")), yes("profiles_and_labels_are_passed_on").but(json!("Odd"));
                readOnlyRootFilesystem = true => no(), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images");
                runAsGroup = 5 => yes("a_container_runs_as_the_user_and_group_it_asks_for").but(json!(-1)), yes("a_container_finds_what_its_spec_promises").but(json!(-1));
                runAsNonRoot = true with {"runAsUser": 5} => yes("each_field_that_cannot_be_honoured_is_named"), yes("run_as_non_root_is_checked_against_the_images_user");
                runAsUser = 5 => yes("a_container_runs_as_the_user_and_group_it_asks_for").but(json!(-1)), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images").but(json!(-1));
                seLinuxOptions = {"level": "s0"} => no(), yes("profiles_and_labels_are_passed_on");
                seccompProfile = {"type": "RuntimeDefault"} => no(), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images");
                windowsOptions = {} => no(), no();
            },
        ),
        group(
            "AppArmorProfile",
            "spec.containers[0].securityContext.appArmorProfile",
            json!({"type": "Localhost", "localhostProfile": "app"}),
            rows! {
                localhostProfile = "audit" => no(), yes("profiles_and_labels_are_passed_on").but(json!(""));
                type = "Localhost" => no(), yes("profiles_and_labels_are_passed_on").but(json!("localhost"));
            },
        ),
        plain(
            "Capabilities",
            "spec.containers[0].securityContext.capabilities",
            rows! {
                add = ["NET_ADMIN"] => no(), yes("profiles_and_labels_are_passed_on");
                drop = ["ALL"] => no(), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images");
            },
        ),
        plain(
            "SELinuxOptions",
            "spec.containers[0].securityContext.seLinuxOptions",
            rows! {
                level = "s0:c1" => no(), yes("profiles_and_labels_are_passed_on");
                role = "object_r" => no(), yes("profiles_and_labels_are_passed_on");
                type = "spc_t" => no(), yes("profiles_and_labels_are_passed_on");
                user = "system_u" => no(), yes("profiles_and_labels_are_passed_on");
            },
        ),
        group(
            "SeccompProfile",
            "spec.containers[0].securityContext.seccompProfile",
            json!({"type": "Localhost", "localhostProfile": "app.json"}),
            rows! {
                localhostProfile = "audit.json" => no(), yes("profiles_and_labels_are_passed_on").but(json!("../audit.json"));
                type = "RuntimeDefault" => no(), yes("a_containers_rights_are_its_own_before_its_pods_before_its_images").but(json!("runtimeDefault"));
            },
        ),
        group(
            "Sysctl",
            "spec.securityContext.sysctls[0]",
            json!({"name": "kernel.shm_rmid_forced", "value": "1"}),
            rows! {
                name = "kernel.shm_rmid_forced" => no(), yes("a_pod_sets_only_the_kernel_parameters_that_harm_no_other").note("one that the kubelet calls safe; admission refuses others as `SysctlForbidden`");
                value = "2" => no(), yes("a_sandbox_carries_the_pods_identity_whatever_its_labels_say");
            },
        ),
    ]
}
