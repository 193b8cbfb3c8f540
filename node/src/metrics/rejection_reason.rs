//! The label of a rejection in `kubelet_admission_rejections_total`.

/// Reasons that are counted under their own name. With arbitrary reasons, a pod's author could choose label values.
#[rustfmt::skip]
const KNOWN: [&str; 25] = [
    "AppArmor", "Evicted", "InitContainerRestartPolicyForbidden", "InvalidNodeInfo", "NodeAffinity", "NodeName",
    "NodePorts", "NodeShutdown", "OutOfcpu", "OutOfephemeral-storage", "OutOfmemory", "OutOfpods",
    "PodFeatureUnsupported", "PodLevelResourcesNotSupported", "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden", TAINT_TOLERATION,
    "TopologyAffinityError", "UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason", EXTENDED,
    "VolumeAttachmentLimitExceeded",
];
const TAINT_TOLERATION: &str = "TaintToleration";
const EXTENDED: &str = "OutOfExtendedResources";
const OTHER: &str = "Other";
/// The entry of the taint predicate in the kubelet's list of known reasons, which has its description for its name.
const TAINT_DESCRIPTION: &str = "node(s) had taints that the pod didn't tolerate";

/// Returns the label value of a rejection with this reason: one of a fixed set.
///
/// The values are the kubelet's, with one difference. Its list names the taint predicate by description
/// while rejections carry the predicate's name, and it lacks the other three predicates, so the
/// kubelet counts all four as `Other`. Here each is counted under its own name.
pub(super) fn rejection_reason(reason: &str) -> &'static str {
    if let Some(known) = KNOWN.iter().find(|known| **known == reason) {
        return known;
    }
    if reason == TAINT_DESCRIPTION {
        TAINT_TOLERATION
    } else if reason.starts_with("OutOf") {
        EXTENDED
    } else {
        OTHER
    }
}

#[cfg(test)]
mod tests;
