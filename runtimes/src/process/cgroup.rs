//! One cgroup v2 per container, where a delegated one is there.
//!
//! `ROOT/pod-UID/CONTAINER.ATTEMPT`. Limits are applied if the root has the controllers for CPU and
//! memory; otherwise it is said that they are not, and the cgroup serves to end its processes at once.

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
pub(crate) struct Cgroups {
    /// None if there is no cgroup to use.
    root: Option<PathBuf>,
    controllers: Vec<String>,
    /// Whether limits are applied; if not, why.
    limits: Result<(), String>,
}

impl Cgroups {
    /// Looks at what was delegated, and makes `root` if only its parent is there.
    pub(crate) fn new(root: Option<&Path>) -> Self {
        let without = |why: String| Self { root: None, controllers: Vec::new(), limits: Err(why) };
        let Some(root) = root else { return without("no cgroup is configured".to_owned()) };
        let named = |why: String| format!("{}: {why}", root.display());
        if let Err(why) = make_root(root) {
            return without(named(why));
        }
        let controllers = available(root);
        let is_missing = |name: &&str| !controllers.iter().any(|c| c == name);
        let missing: Vec<&str> = ["cpu", "memory"].into_iter().filter(is_missing).collect();
        let limits = match enable(root, &controllers) {
            _ if !missing.is_empty() => {
                Err(named(format!("the controllers {} are not delegated", missing.join(", "))))
            }
            Err(e) => Err(named(format!("controllers cannot be enabled: {e}"))),
            Ok(()) => Ok(()),
        };
        Self { root: Some(root.to_owned()), controllers, limits }
    }

    /// Whether limits are applied; if not, why.
    pub(crate) fn enforced(&self) -> Result<(), String> {
        self.limits.clone()
    }

    /// Where they are, from the root of the hierarchy; none without a delegated root.
    pub(crate) fn path(&self) -> Option<String> {
        let root = self.root.as_ref()?;
        let is_cgroup =
            |dir: &&Path| rustix::fs::statfs(*dir).is_ok_and(|found| found.f_type == CGROUP2);
        let mount = root.ancestors().take_while(is_cgroup).last()?;
        Some(format!("/{}", root.strip_prefix(mount).ok()?.display()))
    }

    /// Makes the cgroup of one attempt and sets its limits; none without a delegated root.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn make(
        &self,
        pod: &Pod,
        container: &api::Container,
        attempt: u32,
    ) -> Result<Option<PathBuf>, RuntimeError> {
        let Some(root) = &self.root else { return Ok(None) };
        let of_pod = pod_dir(root, pod.uid());
        // One for each attempt: the kernel's count of out-of-memory kills is never taken back.
        let dir = of_pod.join(format!("{}.{attempt}", container.name));
        let made = make_dir(&of_pod)
            .and_then(|()| enable(&of_pod, &self.controllers))
            .and_then(|()| make_dir(&dir))
            .and_then(|()| if self.limits.is_ok() { limit(&dir, container) } else { Ok(()) });
        made.map_err(|e| caused(format!("cannot make cgroup {}", dir.display()), e))?;
        Ok(Some(dir))
    }

    /// Removes the pod's cgroups, which must be empty.
    ///
    /// # Errors
    /// A process is still in one of them.
    pub(crate) fn remove_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let Some(root) = &self.root else { return Ok(()) };
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

fn make_root(root: &Path) -> Result<(), String> {
    let parent = root.parent().unwrap_or(root);
    for dir in [parent, root] {
        if dir == root {
            make_dir(root).map_err(|e| e.to_string())?;
        }
        let kind = rustix::fs::statfs(dir).map_err(|e| e.to_string())?.f_type;
        if kind != CGROUP2 {
            return Err("not a cgroup v2 directory".to_owned());
        }
    }
    Ok(())
}

fn available(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    let wanted = |name: &&str| matches!(*name, "cpu" | "memory" | "pids");
    text.split_whitespace().filter(wanted).map(str::to_owned).collect()
}

fn enable(dir: &Path, controllers: &[String]) -> io::Result<()> {
    if controllers.is_empty() {
        return Ok(());
    }
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
pub(crate) fn weight(milli: i64) -> i64 {
    let shares = (milli.saturating_mul(1024) / 1000).clamp(2, 262_144);
    1 + ((shares - 2) * 9999) / 262_142
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_requests_map_to_weights_as_the_kubelet_maps_them() {
        for (milli, expected) in
            [(0, 1), (100, 4), (500, 20), (1000, 39), (4000, 157), (i64::MAX, 10_000)]
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
