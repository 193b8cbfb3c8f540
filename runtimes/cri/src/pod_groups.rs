//! The control groups of pods: they show whether anything of a pod runs while its runtime does not answer.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use winddown_host::{cgroup_named, kernel};
use winddown_shared::{PodUid, RuntimeError};

use super::failed;

/// How the name of the cgroup begins in which CRI-O's monitor of a container runs; it outlives the container by a moment.
const MONITOR: &str = "crio-conmon-";

/// The cgroups of a pod, in each hierarchy: those above its containers'.
pub(super) fn above(of_containers: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let above = |group: PathBuf| group.parent().map(Path::to_owned);
    let mut groups: Vec<PathBuf> = of_containers.into_iter().filter_map(above).collect();
    groups.sort();
    groups.dedup();
    groups
}

/// The cgroups of the container with this ID, in each hierarchy, from `/proc/PID/cgroup` of one of its processes.
pub(super) fn of_container(mount: &Path, id: &str, text: &str) -> Vec<PathBuf> {
    let own = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let own = Path::new(cgroup_named(path, id)?);
        let hierarchy = match controllers.strip_prefix("name=").unwrap_or(controllers) {
            "" => mount.to_owned(),
            controllers => mount.join(controllers),
        };
        Some(hierarchy.join(own.strip_prefix("/").unwrap_or(own)))
    };
    text.lines().filter_map(own).collect()
}

/// Whether the cgroup is one of this pod alone, by its name, in which systemd has the dashes of a UID replaced.
pub(super) fn is_of(group: &Path, pod: &PodUid) -> bool {
    let name = group.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.replace('_', "-").contains(&*pod.as_str().replace('_', "-"))
}

/// Whether nothing but the sandboxes and CRI-O's monitors runs in any of the cgroups. False if none of them exists.
/// Blocking.
pub(super) fn are_empty(groups: &[PathBuf], sandboxes: &[Arc<str>]) -> bool {
    let is_of_runtime = |name: &str| {
        let is_sandbox = |sandbox: &Arc<str>| !sandbox.is_empty() && name.contains(&**sandbox);
        name.starts_with(MONITOR) || sandboxes.iter().any(is_sandbox)
    };
    all_empty(groups, &is_of_runtime)
}

/// Whether nothing runs in any of a container's own cgroups, to those below which a pod may give any name. False if none of
/// them exists. Blocking.
pub(super) fn have_left(groups: &[PathBuf]) -> bool {
    all_empty(groups, &|_| false)
}

fn all_empty(groups: &[PathBuf], is_left_out: &dyn Fn(&str) -> bool) -> bool {
    let seen: Vec<&PathBuf> = groups.iter().filter(|group| group.is_dir()).collect();
    !seen.is_empty() && seen.iter().all(|group| is_empty(group, is_left_out))
}

/// Says that the pod's known containers have exited, and that its cgroups are not empty.
pub(super) fn unknown(uid: &PodUid) -> RuntimeError {
    failed(format!(
        "the known containers of pod {uid} have exited, and the container runtime does not report whether others run"
    ))
}

/// Whether nothing runs in the cgroup but below it in one of such a name. Those further down a pod may have made itself.
fn is_empty(group: &Path, is_left_out: &dyn Fn(&str) -> bool) -> bool {
    let runs = kernel::read_to_string(group.join("cgroup.procs"));
    let is_quiet = runs.is_ok_and(|pids| pids.trim().is_empty());
    let is_empty_below = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            is_left_out(&entry.file_name().to_string_lossy())
                || !entry.path().is_dir()
                || is_empty(&entry.path(), &|_| false)
        })
    };
    is_quiet && fs::read_dir(group).is_ok_and(|mut below| below.all(is_empty_below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_group_is_the_one_above_its_containers_in_each_hierarchy() {
        let mount = Path::new("/sys/fs/cgroup");
        for (text, expected) in [
            (
                "0::/w.slice/w-podu.slice/crio-aa.scope\n",
                &["/sys/fs/cgroup/w.slice/w-podu.slice"][..],
            ),
            (
                "0::/w.slice/w-podu.slice/crio-aa.scope/container\n",
                &["/sys/fs/cgroup/w.slice/w-podu.slice"],
            ),
            (
                "5:cpu,cpuacct:/w/podu/aa\n1:name=systemd:/w/podu/aa\n0::/\n",
                &["/sys/fs/cgroup/cpu,cpuacct/w/podu", "/sys/fs/cgroup/systemd/w/podu"],
            ),
            ("0::/w.slice/w-podu.slice/crio-bb.scope\n", &[]),
            ("", &[]),
        ] {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(above(of_container(mount, "aa", text)), expected, "{text}");
        }
    }

    #[test]
    fn a_pods_own_group_has_its_uid_in_its_name() {
        let pod = PodUid::new("0d5e-a1");
        for (group, expected) in [
            ("/sys/fs/cgroup/kubepods/burstable/pod0d5e-a1", true),
            ("/sys/fs/cgroup/kubepods.slice/kubepods-besteffort-pod0d5e_a1.slice", true),
            ("/sys/fs/cgroup/systemd/k8s.io", false),
            ("/", false),
        ] {
            assert_eq!(is_of(Path::new(group), &pod), expected, "{group}");
        }
    }

    #[test]
    fn a_pods_groups_are_empty_only_if_there_are_any_and_nothing_but_a_sandbox_is_in_them() {
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("podu");
        let procs = |below: &str, pids: &str| {
            let group = pod.join(below);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("cgroup.procs"), pids).unwrap();
        };
        let groups = [pod.clone()];
        let sandboxes: [Arc<str>; 1] = ["aaa".into()];
        assert!(!are_empty(&groups, &sandboxes), "no group tells nothing");
        procs("", "");
        procs("cri-containerd-aaa.scope", "12\n");
        assert!(are_empty(&groups, &sandboxes));
        procs("bbb", "13\n");
        assert!(!are_empty(&groups, &sandboxes));
        procs("bbb", "");
        procs("crio-conmon-bbb.scope", "14\n");
        assert!(are_empty(&groups, &sandboxes));
        // A container with cgroups of its own chooses their names.
        for name in ["crio-conmon-x", "aaa"] {
            let own = format!("bbb/{name}");
            procs(&own, "15\n");
            assert!(!are_empty(&groups, &sandboxes), "{name}");
            assert!(!have_left(&[pod.join("bbb")]), "{name}");
            procs(&own, "");
            assert!(have_left(&[pod.join("bbb")]));
        }
    }
}
