//! The pods' CPU shares under contention, according to their requests.
//!
//! A container's weight only counts against the other containers of its pod. So each pod's cgroup gets the
//! weight of the pod's request, and each QoS class's cgroup that of the pods in it, as with the kubelet:
//! all pods without requests together get the weight of the smallest request. Pods of class Guaranteed are
//! siblings of the two classes.
//!
//! Where systemd manages control groups of version 2, it is told the weights: what is written to the files of its groups
//! lasts only until somebody reloads it, as each installation of a package does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use winddown_engine::amounts;
use winddown_host::kernel;
use winddown_host::service_units::UnitError;
use winddown_shared::{Pod, PodUid, QosClass, error_chain};

use super::config::{CgroupDriver, CriConfig};
use super::pod::{self, PodEntry};
use super::slices::PodSlices;
use super::{CriContext, kernel_limits, spec};

/// How long systemd may take to accept a weight. A pod's start waits for it.
const SYSTEMD_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A cgroup and its CPU shares.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    /// Path below the hierarchy's root.
    group: PathBuf,
    shares: i64,
}

/// Makes the pod's slice with its weight, where systemd manages cgroups: before the runtime makes the pod's first
/// container, with which an unweighted one would come.
pub(super) async fn prepare(context: &CriContext, entry: &PodEntry, pod: &Pod) {
    let Some((slices, root)) = by_systemd(context).await else { return };
    let slice = spec::cgroup_parent(root, CgroupDriver::Systemd, entry.uid(), pod.qos());
    let weight = weight(amounts::shares(pod.fit_requests().cpu_milli()));
    accepted(entry, slices.make(slice, format!("Pod {}", pod.pod_ref()), weight)).await;
}

/// Gives the weights again after a container was started, if the pod's cgroup was not there before: CRI-O makes it
/// with the pod's first container.
pub(super) async fn give_late(context: &Arc<CriContext>, entry: &PodEntry) {
    if !entry.lock().own.weighed {
        give(context, entry).await;
    }
}

/// Sets the weights of the pod's cgroup and of the QoS classes' cgroups. If that fails, pods run without
/// them: each cgroup has the same weight.
pub(super) async fn give(context: &Arc<CriContext>, entry: &PodEntry) {
    let (Some(root), Ok(Some(driver))) =
        (context.config.cgroups.parent.clone(), context.driver.get(context).await)
    else {
        return;
    };
    let mut burstable = 0;
    for other in context.pods.all() {
        let state = other.lock();
        let Some(pod) = state.pod.as_ref().filter(|_| state.own.sandbox().is_some()) else {
            continue;
        };
        if pod.qos() == QosClass::Burstable {
            burstable = i64::saturating_add(burstable, pod.fit_requests().cpu_milli());
        }
    }
    if let Some((slices, root)) = by_systemd(context).await {
        for Share { group, shares } in shares(root, driver, entry.uid(), None, burstable) {
            let weight = weight(shares);
            let file = context.config.cgroups.mount.join(&group).join("cpu.weight");
            let is_as_wanted = read(&file) == i64::try_from(weight).ok();
            if let Some(slice) = group.file_name().filter(|_| !is_as_wanted) {
                accepted(entry, slices.weigh(slice.to_string_lossy().into_owned(), weight)).await;
            }
        }
        entry.lock().own.weighed = true;
        return;
    }
    let own = entry.lock().pod.as_ref().map(|pod| (pod.qos(), pod.fit_requests().cpu_milli()));
    let shares = shares(&root, driver, entry.uid(), own, burstable);
    let config = context.config.clone();
    let written = tokio::task::spawn_blocking(move || write(&config, &shares)).await;
    match written {
        Ok(Ok(is_there)) => entry.lock().own.weighed = is_there,
        Ok(Err(error)) => {
            tracing::debug!(
                pod = %pod::title(entry), error = error_chain(&error),
                "cannot set the CPU weight of a pod's control group"
            );
        }
        // The agent exits.
        Err(_) => {}
    }
}

/// The slices and the name of the root cgroup, if weights are systemd's: it manages control groups of version 2, and
/// those have weights.
async fn by_systemd(context: &CriContext) -> Option<(&dyn PodSlices, &str)> {
    let (slices, root) =
        (context.config.cgroups.slices.as_deref()?, context.config.cgroups.parent.as_deref()?);
    let has_weights = kernel_limits::has_controller(&context.config.cgroups.mount, "cpu");
    let is_systemds = matches!(context.driver.get(context).await, Ok(Some(CgroupDriver::Systemd)));
    (has_weights && is_systemds).then_some((slices, root))
}

/// Waits until systemd has accepted a weight.
async fn accepted(entry: &PodEntry, request: impl Future<Output = Result<(), UnitError>>) {
    let late = || UnitError::Silent { call: "CPUWeight", why: "it is late".to_owned() };
    let answer = tokio::time::timeout(SYSTEMD_ANSWER_TIMEOUT, request).await;
    if let Err(error) = answer.unwrap_or_else(|_| Err(late())) {
        tracing::debug!(
            pod = %pod::title(entry), error = error_chain(&error),
            "cannot set the CPU weight of a pod's slice"
        );
    }
}

/// The weight in control groups of version 2.
fn weight(shares: i64) -> u64 {
    u64::try_from(amounts::weight(shares)).unwrap_or(1)
}

/// The cgroups whose weight changes when a pod starts or is cleaned up. `own` is the pod's class and CPU request in
/// millicores, `burstable` the sum of the requests of all Burstable pods.
fn shares(
    root: &str,
    driver: CgroupDriver,
    uid: &PodUid,
    own: Option<(QosClass, i64)>,
    burstable: i64,
) -> Vec<Share> {
    let class = |qos, milli| {
        let group = spec::class_cgroup(root, driver, qos)?;
        Some(Share { group, shares: amounts::shares(milli) })
    };
    let mut all: Vec<Share> =
        [class(QosClass::Burstable, burstable), class(QosClass::BestEffort, 0)]
            .into_iter()
            .flatten()
            .collect();
    if let Some((qos, milli)) = own {
        let group = spec::pod_cgroup(root, driver, uid, qos);
        all.push(Share { group, shares: amounts::shares(milli) });
    }
    all
}

/// Writes the weights of the cgroups that exist. Returns whether the last one does.
fn write(config: &CriConfig, shares: &[Share]) -> io::Result<bool> {
    let mut is_there = false;
    for Share { group, shares } in shares {
        is_there = false;
        let at = |hierarchy: &str, file: &str| {
            config.cgroups.mount.join(hierarchy).join(group).join(file)
        };
        let unified = (at("", "cpu.weight"), amounts::weight(*shares));
        let v1 = ["cpu", "cpu,cpuacct"].map(|hierarchy| (at(hierarchy, "cpu.shares"), *shares));
        for (path, value) in std::iter::once(unified).chain(v1) {
            let Some(found) = read(&path) else { continue };
            is_there = true;
            if found != value {
                fs::write(&path, value.to_string())?;
            }
        }
    }
    Ok(is_there)
}

/// The weight in a cgroup's file; `None` if there is no such cgroup.
fn read(file: &Path) -> Option<i64> {
    kernel::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use super::*;

    #[test]
    fn a_pods_group_weighs_what_the_pod_asks_for_and_its_class_what_all_in_it_do() {
        let uid = PodUid::new("1a-2b");
        for (driver, hierarchy, groups) in [
            (
                CgroupDriver::Cgroupfs,
                "cpu",
                ["winddown/burstable", "winddown/besteffort", "winddown/burstable/pod1a-2b"],
            ),
            (
                CgroupDriver::Systemd,
                "",
                [
                    "winddown.slice/winddown-burstable.slice",
                    "winddown.slice/winddown-besteffort.slice",
                    "winddown.slice/winddown-burstable.slice/winddown-burstable-pod1a_2b.slice",
                ],
            ),
        ] {
            let mount = tempfile::tempdir().unwrap();
            let mut config = CriConfig::below(mount.path());
            config.cgroups.mount = mount.path().to_owned();
            let (file, usual, expected) = match hierarchy {
                "" => ("cpu.weight", "100\n", ["59", "1", "10"]),
                _ => ("cpu.shares", "1024\n", ["1536", "2", "256"]),
            };
            let paths = groups.map(|group| mount.path().join(hierarchy).join(group).join(file));
            for path in &paths {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, usual).unwrap();
            }
            let all = shares("winddown", driver, &uid, Some((QosClass::Burstable, 250)), 1500);
            assert!(write(&config, &all).unwrap(), "the pod's is there");
            let found = paths.each_ref().map(|path| fs::read_to_string(path).unwrap());
            assert_eq!(found, expected, "{driver:?}");
            fs::remove_file(&paths[2]).unwrap();
            assert!(!write(&config, &all).unwrap(), "it is not there yet");
        }
    }

    #[test]
    fn a_pod_with_all_it_needs_stands_beside_the_classes_and_one_that_is_gone_is_left_out() {
        let of = |own| {
            shares("winddown", CgroupDriver::Cgroupfs, &PodUid::new("u"), own, 0)
                .into_iter()
                .map(|share| (share.group.display().to_string(), share.shares))
                .collect::<Vec<_>>()
        };
        let classes = [("winddown/burstable".to_owned(), 2), ("winddown/besteffort".to_owned(), 2)];
        assert_eq!(of(None), classes);
        let own = ("winddown/podu".to_owned(), 2048);
        assert_eq!(of(Some((QosClass::Guaranteed, 2000)))[2], own);
    }
}
