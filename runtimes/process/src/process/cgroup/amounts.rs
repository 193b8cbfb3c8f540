//! The values written to the files of a cgroup: shares and limits, calculated as the kubelet does.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use winddown_engine::amounts::{self, CPU_PERIOD_MICROS, amount, shares, weight};
use winddown_shared::{Pod, Quantity};

use super::place::Controller;

/// A file of a cgroup, and the value to write. It is `optional` if the kernel may lack the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CgroupWrite {
    pub(super) file: &'static str,
    pub(super) text: String,
    pub(super) optional: bool,
}

/// The limits of a container, and its weight relative to the other containers of its pod.
pub(super) fn of_container(
    container: &api::Container,
    controller: Controller,
    is_v2: bool,
) -> Vec<CgroupWrite> {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|r| r.limits.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    match controller {
        Controller::Cpu => {
            let limit = limit(limits, "cpu");
            let milli = |quantity: Option<Quantity>| quantity.map_or(0, Quantity::milli_value);
            // A limit without a request also sets the request.
            let mut entries = share(milli(amount(requests, "cpu").or(limit)), is_v2);
            let quota = amounts::quota(milli(limit));
            entries.extend(match (limit, is_v2) {
                (None, _) => Vec::new(),
                (Some(_), true) => vec![entry("cpu.max", format!("{quota} {CPU_PERIOD_MICROS}"))],
                (Some(_), false) => vec![
                    entry("cpu.cfs_period_us", CPU_PERIOD_MICROS.to_string()),
                    entry("cpu.cfs_quota_us", quota.to_string()),
                ],
            });
            entries
        }
        Controller::Memory => {
            let limit = limit(limits, "memory").map(|q| q.value().to_string());
            match (limit, is_v2) {
                (None, _) => Vec::new(),
                (Some(limit), true) => vec![
                    entry("memory.max", limit),
                    // Otherwise the excess over the limit is swapped to disk, which slows down the whole node.
                    optional("memory.swap.max", "0".to_owned()),
                    // A container that lost one of its processes to an OOM kill does not work any more.
                    optional("memory.oom.group", "1".to_owned()),
                ],
                (Some(limit), false) => vec![
                    entry("memory.limit_in_bytes", limit.clone()),
                    optional("memory.memsw.limit_in_bytes", limit),
                ],
            }
        }
        Controller::Pids => Vec::new(),
    }
}

/// A pod's weight relative to other pods, from its requests.
pub(super) fn of_pod(pod: &Pod, controller: Controller, is_v2: bool) -> Vec<CgroupWrite> {
    match controller {
        Controller::Cpu => share(pod.fit_requests().cpu_milli(), is_v2),
        Controller::Memory | Controller::Pids => Vec::new(),
    }
}

/// The weight of all BestEffort pods together: the lowest possible.
pub(super) fn of_best_effort(controller: Controller, is_v2: bool) -> Vec<CgroupWrite> {
    match controller {
        Controller::Cpu => share(0, is_v2),
        Controller::Memory | Controller::Pids => Vec::new(),
    }
}

/// The limits of all pods together: nine tenths of the node's `tasks`. The rest is for people who have to log in and
/// investigate.
pub(super) fn of_all(controller: Controller, tasks: Option<u64>) -> Vec<CgroupWrite> {
    match (controller, tasks) {
        (Controller::Pids, Some(tasks)) => {
            vec![entry("pids.max", (tasks - tasks / 10).to_string())]
        }
        _ => Vec::new(),
    }
}

/// The limits of a container, each with the controller that enforces it.
pub(super) fn limits(
    container: &api::Container,
) -> impl Iterator<Item = (&'static str, Controller)> {
    let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
    let has = move |name: &str| limit(limits, name).is_some();
    [("cpu", Controller::Cpu), ("memory", Controller::Memory)]
        .into_iter()
        .filter(move |(name, _)| has(name))
}

fn share(milli: i64, is_v2: bool) -> Vec<CgroupWrite> {
    vec![match is_v2 {
        true => entry("cpu.weight", weight(shares(milli)).to_string()),
        false => entry("cpu.shares", shares(milli).to_string()),
    }]
}

fn entry(file: &'static str, text: String) -> CgroupWrite {
    CgroupWrite { file, text, optional: false }
}

fn optional(file: &'static str, text: String) -> CgroupWrite {
    CgroupWrite { file, text, optional: true }
}

/// A limit of zero counts as no limit.
fn limit(map: Option<&BTreeMap<String, Text>>, name: &str) -> Option<Quantity> {
    amount(map, name).filter(|quantity| quantity.milli_value() > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_and_requests_become_what_the_kernel_reads_on_both_versions() {
        let of = |resources: &serde_json::Value, is_v2| {
            let container = json!({"name": "main", "resources": resources});
            let container = serde_json::from_value(container).unwrap();
            let all = Controller::ALL.iter().flat_map(|c| of_container(&container, *c, is_v2));
            all.map(|e| format!("{}={}", e.file, e.text)).collect::<Vec<_>>().join(", ")
        };
        let both =
            json!({"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "500m"}});
        for (resources, is_v2, expected) in [
            (
                &both,
                true,
                "cpu.weight=20, cpu.max=150000 100000, memory.max=67108864, memory.swap.max=0, memory.oom.group=1",
            ),
            (
                &both,
                false,
                "cpu.shares=512, cpu.cfs_period_us=100000, cpu.cfs_quota_us=150000, memory.limit_in_bytes=67108864, memory.memsw.limit_in_bytes=67108864",
            ),
            (&json!({}), true, "cpu.weight=1"),
            // Zero is no limit, as for the kubelet.
            (&json!({"limits": {"cpu": "0", "memory": "0"}}), true, "cpu.weight=1"),
            (&json!({}), false, "cpu.shares=2"),
            (&json!({"limits": {"cpu": "1m"}}), true, "cpu.weight=1, cpu.max=1000 100000"),
        ] {
            assert_eq!(of(resources, is_v2), expected);
        }
    }

    #[test]
    fn a_pods_share_is_that_of_all_it_asks_for() {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let object = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [container("500m"), container("500m")]},
        });
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        let text = |is_v2| of_pod(&pod, Controller::Cpu, is_v2)[0].text.clone();
        assert_eq!((text(true).as_str(), text(false).as_str()), ("39", "1024"));
    }
}
