//! Checks that no preemption can fix: the machine is of the wrong kind, or does not allow what the pod requests.

use k8s_openapi::api::core::v1 as k8s;

use super::Rejection;
use super::node_view::{NodeView, OS_LABEL};
use super::sysctls;
use crate::Pod;

/// Checks that the machine meets the pod's requirements: its `kubernetes.io/os` label, `spec.os`, sysctls, a strict
/// policy for supplementary groups, and AppArmor. Done before the fit, so that no pod is preempted for one that cannot run.
///
/// # Errors
/// The first requirement that is not met, with the kubelet's reason and message.
pub fn platform_fits(pod: &Pod, node: &NodeView) -> Result<(), Rejection> {
    let labelled = pod.metadata.labels.as_ref().and_then(|labels| labels.get(OS_LABEL));
    if labelled.is_some_and(|os| **os != *node.os) {
        return Err(never(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    let Some(spec) = &pod.spec else { return Ok(()) };
    if spec.os.as_ref().is_some_and(|os| *os.name != *node.os) {
        return Err(never(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ));
    }
    if let Some(why) = sysctls::forbidden(pod, &node.unsafe_sysctls) {
        return Err(never("SysctlForbidden", &why));
    }
    let groups = spec.security_context.as_ref();
    let groups = groups.and_then(|context| context.supplemental_groups_policy.as_deref());
    if groups == Some("Strict") && !node.supplemental_groups_policy {
        return Err(never(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ));
    }
    if !node.app_armor && is_confined_by_app_armor(spec) {
        let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        return Err(never("AppArmor", message));
    }
    Ok(())
}

/// Whether the pod or one of its containers names an AppArmor profile, which CRI-O ignores where the kernel has none.
fn is_confined_by_app_armor(spec: &k8s::PodSpec) -> bool {
    let is_confined = |profile: Option<&k8s::AppArmorProfile>| {
        profile.is_some_and(|profile| profile.type_ != "Unconfined")
    };
    let regular = spec.init_containers.iter().flatten().chain(&spec.containers);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mut contexts = regular
        .map(|container| &container.security_context)
        .chain(ephemeral.map(|container| &container.security_context));
    is_confined(spec.security_context.as_ref().and_then(|pod| pod.app_armor_profile.as_ref()))
        || contexts
            .any(|own| is_confined(own.as_ref().and_then(|own| own.app_armor_profile.as_ref())))
}

fn never(reason: &str, message: &str) -> Rejection {
    Rejection { reason: reason.into(), message: message.into(), retryable: false }
}
