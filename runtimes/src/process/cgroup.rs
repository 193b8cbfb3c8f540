//! One cgroup v2 per container, where a delegated one is there.
//!
//! `ROOT/pod-UID/CONTAINER`. Limits are applied with the controllers that the root has; which are
//! missing is said, and the pod runs without those limits.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{Pod, PodUid, Quantity, RuntimeError};

use super::caused;

/// `cgroup2`'s magic number in statfs.
const CGROUP2: i64 = 0x6367_7270;
/// Length of a CPU period, in microseconds; the kernel's default.
const PERIOD: i64 = 100_000;

/// The cgroups below one delegated directory.
#[derive(Debug)]
pub(crate) struct Cgroups(Result<PathBuf, String>);

impl Cgroups {
    /// Looks at what was delegated.
    pub(crate) fn new(root: Option<&Path>) -> Self {
        let Some(root) = root else {
            return Self(Err("no cgroup is configured".to_owned()));
        };
        Self(check(root).map(|()| root.to_owned()).map_err(|why| format!("{}: {why}", root.display())))
    }

    /// Whether limits are applied; if not, why.
    pub(crate) fn enforced(&self) -> Result<(), String> {
        self.0.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Makes the container's cgroup and sets its limits; none without a delegated root.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn make(
        &self,
        pod: &Pod,
        container: &api::Container,
    ) -> Result<Option<PathBuf>, RuntimeError> {
        let Ok(root) = &self.0 else { return Ok(None) };
        let of_pod = pod_dir(root, pod.uid());
        let dir = of_pod.join(&container.name);
        let made = make_dir(&of_pod)
            .and_then(|()| enable(&of_pod, &available(root)))
            .and_then(|()| make_dir(&dir))
            .and_then(|()| limit(&dir, container));
        made.map_err(|e| caused(format!("cannot make cgroup {}", dir.display()), e))?;
        Ok(Some(dir))
    }

    /// Removes the pod's cgroups, which must be empty.
    ///
    /// # Errors
    /// A process is still in one of them.
    pub(crate) fn remove_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let Ok(root) = &self.0 else { return Ok(()) };
        let dir = pod_dir(root, uid);
        let inner = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let inner = inner.map(|entry| entry.path()).filter(|path| path.is_dir());
        for path in inner.chain([dir.clone()]) {
            match std::fs::remove_dir(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(caused(format!("cannot remove cgroup {}", path.display()), e));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn pod_dir(root: &Path, uid: &PodUid) -> PathBuf {
    root.join(format!("pod-{uid}"))
}

fn check(root: &Path) -> Result<(), String> {
    let kind = rustix::fs::statfs(root).map_err(|e| e.to_string())?.f_type;
    if kind != CGROUP2 {
        return Err("not a cgroup v2 directory".to_owned());
    }
    let controllers = available(root);
    let missing: Vec<&str> =
        ["cpu", "memory"].into_iter().filter(|c| !controllers.iter().any(|a| a == c)).collect();
    if !missing.is_empty() {
        return Err(format!("the controllers {} are not delegated", missing.join(", ")));
    }
    enable(root, &controllers).map_err(|e| format!("controllers cannot be enabled: {e}"))
}

fn available(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    let wanted = |name: &&str| matches!(*name, "cpu" | "memory" | "pids");
    text.split_whitespace().filter(wanted).map(str::to_owned).collect()
}

fn enable(dir: &Path, controllers: &[String]) -> io::Result<()> {
    let line = controllers.iter().map(|c| format!("+{c}")).collect::<Vec<_>>().join(" ");
    std::fs::write(dir.join("cgroup.subtree_control"), line)
}

fn make_dir(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Writes the container's limits. The same arithmetic as the kubelet's.
fn limit(dir: &Path, container: &api::Container) -> io::Result<()> {
    let resources = container.resources.as_ref();
    let amount = |map: Option<&std::collections::BTreeMap<String, _>>, name: &str| {
        let quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity = map?.get(name)?;
        quantity.0.parse::<Quantity>().ok()
    };
    let limits = resources.and_then(|r| r.limits.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let max = amount(limits, "memory").map_or("max".to_owned(), |q| q.value().to_string());
    std::fs::write(dir.join("memory.max"), max)?;
    let quota = amount(limits, "cpu")
        .map(|q| q.milli_value().saturating_mul(PERIOD) / 1000)
        .map_or("max".to_owned(), |us| us.max(1000).to_string());
    std::fs::write(dir.join("cpu.max"), format!("{quota} {PERIOD}"))?;
    let cpu = amount(requests, "cpu").or_else(|| amount(limits, "cpu"));
    let weight = weight(cpu.map_or(0, Quantity::milli_value));
    std::fs::write(dir.join("cpu.weight"), weight.to_string())
}

/// CPU shares (1024 per CPU, 2..=262144) mapped to a weight (1..=10000).
fn weight(milli: i64) -> i64 {
    let shares = (milli.saturating_mul(1024) / 1000).clamp(2, 262_144);
    1 + ((shares - 2) * 9999) / 262_142
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_requests_map_to_weights_as_the_kubelet_maps_them() {
        for (milli, expected) in [(0, 1), (100, 4), (500, 20), (1000, 39), (4000, 157), (i64::MAX, 10_000)]
        {
            assert_eq!(weight(milli), expected, "{milli} m");
        }
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_named_as_the_reason_for_missing_limits() {
        let dir = tempfile::tempdir().unwrap();
        let why = Cgroups::new(Some(dir.path())).enforced().unwrap_err();
        assert!(why.ends_with("not a cgroup v2 directory"), "{why}");
        let why = Cgroups::new(None).enforced().unwrap_err();
        assert_eq!(why, "no cgroup is configured");
    }
}
