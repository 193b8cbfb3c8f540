//! Properties that every patch has, whatever the API has.

use k8s_openapi::api::core::v1 as api;
use winddown_shared::WallTime;
use winddown_shared::status::PodPhase;

use super::apply::apply;
use super::{ReportedStatus, patch};

/// Checks the patch from `in_api`, the API's pod, to `said`, the node's status. Panics if a property does not hold.
pub(crate) fn laws(in_api: &api::Pod, said: &api::PodStatus) {
    for last in [false, true] {
        let reported = ReportedStatus {
            status: said,
            last,
            generation: Some(3),
            host_ips: &["192.0.2.1".to_owned()],
            now: WallTime::UNIX_EPOCH,
        };
        let Some(change) = patch(in_api, &reported) else { continue };
        let parts: Vec<&String> = change.as_object().into_iter().flat_map(|o| o.keys()).collect();
        assert_eq!(parts, ["metadata", "status"], "nothing else is ever written");
        // An API server does not keep a list with the same key twice.
        if is_ordinary(in_api.status.as_ref()) && is_ordinary(Some(said)) {
            let after = apply(in_api, &change);
            assert!(after.is_some(), "a server takes it: {change}");
            after.iter().for_each(|after| promised(in_api, after, &reported));
        }
    }
}

fn promised(before: &api::Pod, after: &api::Pod, reported: &ReportedStatus<'_>) {
    assert_eq!(patch(after, reported), None, "once is enough");
    assert_eq!(before.spec, after.spec);
    let phase = |pod: &api::Pod| pod.status.as_ref().and_then(PodPhase::of);
    if let Some(had) = phase(before).filter(|phase| phase.is_terminal()) {
        assert_eq!(phase(after), Some(had), "a terminal phase stays");
    }
    let ready =
        |condition: &api::PodCondition| condition.type_ == "Ready" && condition.status == "True";
    if phase(after).is_some_and(PodPhase::is_terminal) {
        let mut all = after.status.iter().flat_map(|s| s.conditions.iter().flatten());
        assert!(!all.any(ready), "what has ended is not ready");
    }
}

/// Whether no condition, address or container occurs twice.
fn is_ordinary(status: Option<&api::PodStatus>) -> bool {
    let Some(status) = status else { return true };
    let conditions = status.conditions.iter().flatten().map(|one| one.type_.as_str());
    let addresses = status.pod_ips.iter().flatten().map(|one| one.ip.as_str());
    let hosts = status.host_ips.iter().flatten().map(|one| one.ip.as_str());
    let containers = status.container_statuses.iter().flatten().map(|one| one.name.as_str());
    let init = status.init_container_statuses.iter().flatten().map(|one| one.name.as_str());
    is_once(conditions)
        && is_once(addresses)
        && is_once(hosts)
        && is_once(containers)
        && is_once(init)
}

fn is_once<'a>(all: impl Iterator<Item = &'a str>) -> bool {
    let mut seen = std::collections::HashSet::new();
    let mut all = all;
    all.all(|one| seen.insert(one))
}
