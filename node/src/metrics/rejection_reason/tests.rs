//! The cases of the kubelet's `TestRecordAdmissionRejection`.

use winddown_shared::{AdmissionFailure, ResourceName};

use super::*;

fn insufficient(name: &str) -> AdmissionFailure {
    let resource = ResourceName::from(name);
    AdmissionFailure::InsufficientResource { resource, requested: 1, used: 1, capacity: 1 }
}

#[test]
fn a_rejection_counts_under_one_of_a_fixed_set_of_reasons() {
    // The kubelet counts a reason as `theirs`. The rows with `ours` are the predicates that it counts as `Other`
    // and that are fixed here.
    for (reason, theirs, ours) in [
        ("AppArmor", "AppArmor", None),
        ("PodOSSelectorNodeLabelDoesNotMatch", "PodOSSelectorNodeLabelDoesNotMatch", None),
        ("PodOSNotSupported", "PodOSNotSupported", None),
        ("InvalidNodeInfo", "InvalidNodeInfo", None),
        ("InitContainerRestartPolicyForbidden", "InitContainerRestartPolicyForbidden", None),
        ("SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicyNotSupported", None),
        ("UnexpectedAdmissionError", "UnexpectedAdmissionError", None),
        ("UnknownReason", "UnknownReason", None),
        ("UnexpectedPredicateFailureType", "UnexpectedPredicateFailureType", None),
        (
            "node(s) had taints that the pod didn't tolerate",
            "node(s) had taints that the pod didn't tolerate",
            Some("TaintToleration"),
        ),
        ("Evicted", "Evicted", None),
        ("SysctlForbidden", "SysctlForbidden", None),
        ("TopologyAffinityError", "TopologyAffinityError", None),
        ("NodeShutdown", "NodeShutdown", None),
        ("PodLevelResourcesNotSupported", "PodLevelResourcesNotSupported", None),
        ("PodFeatureUnsupported", "PodFeatureUnsupported", None),
        ("OutOfcpu", "OutOfcpu", None),
        ("OutOfmemory", "OutOfmemory", None),
        ("OutOfephemeral-storage", "OutOfephemeral-storage", None),
        ("OutOfpods", "OutOfpods", None),
        ("OutOfgpu", "OutOfExtendedResources", None),
        ("OtherReason", "Other", None),
        // Not among the kubelet's cases.
        ("VolumeAttachmentLimitExceeded", "VolumeAttachmentLimitExceeded", None),
        ("TaintToleration", "Other", Some("TaintToleration")),
        ("NodeAffinity", "Other", Some("NodeAffinity")),
        ("NodeName", "Other", Some("NodeName")),
        ("NodePorts", "Other", Some("NodePorts")),
        ("OutOfExtendedResources", "OutOfExtendedResources", None),
        ("my-own\n\"reason\"", "Other", None),
        ("", "Other", None),
    ] {
        assert_eq!(rejection_reason(reason), ours.unwrap_or(theirs), "{reason}");
    }
}

#[test]
fn every_rejection_of_the_fit_counts_under_its_own_reason() {
    for failure in [
        AdmissionFailure::NODE_AFFINITY,
        AdmissionFailure::NODE_NAME,
        AdmissionFailure::NODE_PORTS,
        AdmissionFailure::TAINT_TOLERATION,
        insufficient("cpu"),
        insufficient("pods"),
    ] {
        assert_eq!(rejection_reason(&failure.reason()), failure.reason());
    }
    let gpu = insufficient("example.com/gpu");
    assert_eq!(rejection_reason(&gpu.reason()), "OutOfExtendedResources");
}
