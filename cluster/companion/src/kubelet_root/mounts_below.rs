//! Finds what another process has mounted below a directory, which it may know by other paths. Pure.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use winddown_host::Mount;

/// The mounts of `theirs` below the directory that is `root` in the namespace of `own`, with their paths there: an agent in
/// a container has the directory by another path if it is a link on the machine. `None` if `theirs` lacks the directory.
pub(super) fn mounts_below(root: &Path, own: &[Mount], theirs: &[Mount]) -> Option<Vec<Mount>> {
    let on = Tops::of(own).find(root)?;
    let inside = on.root.join(root.strip_prefix(&on.point).ok()?);
    let tops = Tops::of(theirs);
    let place = |mount: &Mount| {
        let place = mount.point.join(inside.strip_prefix(&mount.root).ok()?);
        // Another mount may hide it.
        let is_seen = tops.find(&place).is_some_and(|top| std::ptr::eq(top, mount));
        is_seen.then_some(place)
    };
    let of_same = theirs.iter().filter(|mount| mount.device == on.device);
    let mut places: HashMap<PathBuf, usize> = HashMap::new();
    for place in of_same.filter_map(place) {
        let order = places.len();
        places.entry(place).or_insert(order);
    }
    let by_own_path = |mount: &Mount| {
        let around = mount.point.ancestors();
        let (_, place) = around.filter_map(|one| Some((places.get(one)?, one))).min()?;
        let mut found = mount.clone();
        found.point = root.join(mount.point.strip_prefix(place).ok()?);
        Some(found)
    };
    (!places.is_empty()).then(|| theirs.iter().filter_map(by_own_path).collect())
}

/// What is mounted at each point: of several mounts the last. A pod may have thousands, so none is compared with all
/// others.
struct Tops<'a>(HashMap<&'a Path, &'a Mount>);

impl<'a> Tops<'a> {
    fn of(all: &'a [Mount]) -> Self {
        Self(all.iter().map(|mount| (mount.point.as_path(), mount)).collect())
    }

    /// The mount that has this path: the deepest.
    fn find(&self, path: &Path) -> Option<&'a Mount> {
        path.ancestors().find_map(|point| self.0.get(point).copied())
    }
}

#[cfg(test)]
mod tests {
    use rustix::time::{ClockId, clock_gettime};
    use winddown_host::mounts;

    use super::*;

    /// Lines of a device, the part of it that is mounted, and where.
    fn table(lines: &[(&str, &str, &str)]) -> Vec<Mount> {
        let line = |(device, root, point): &(&str, &str, &str)| {
            format!("1 2 {device} {root} {point} rw - ext4 x rw\n")
        };
        mounts(lines.iter().map(line).collect::<String>().as_bytes()).collect()
    }

    #[test]
    fn what_is_mounted_below_a_directory_is_found_by_whatever_path_the_other_has_it() {
        let disk = ("8:1", "/", "/");
        let in_container = ("8:1", "/data/kubelet", "/var/lib/kubelet");
        let volume = |at: &'static str| ("8:9", "/", at);
        let ostree = "/ostree/deploy/var/lib/kubelet";
        let found = Some("/var/lib/kubelet/pods/u1");
        for (what, own, theirs, wanted) in [
            ("the same", vec![disk], vec![disk, volume("/var/lib/kubelet/pods/u1")], found),
            ("elsewhere", vec![disk], vec![disk, volume("/var/lib/other/pods/u1")], None),
            (
                "a link, seen from a container",
                vec![("0:30", "/", "/"), in_container],
                vec![disk, volume("/data/kubelet/pods/u1")],
                found,
            ),
            (
                "a bind mount of a part, and the whole",
                vec![("0:30", "/", "/"), ("8:1", ostree, "/var/lib/kubelet")],
                vec![
                    ("8:1", "/", "/sysroot"),
                    ("8:1", "/ostree/deploy/var", "/var"),
                    volume("/var/lib/kubelet/pods/u1"),
                ],
                found,
            ),
            (
                "mounted on itself",
                vec![disk],
                vec![
                    disk,
                    ("8:1", "/var/lib/kubelet", "/var/lib/kubelet"),
                    volume("/var/lib/kubelet/pods/u1"),
                ],
                found,
            ),
        ] {
            let root = Path::new("/var/lib/kubelet");
            let mounts = mounts_below(root, &table(&own), &table(&theirs)).unwrap();
            let points = mounts.iter().filter(|mount| mount.device == Some((8, 9)));
            let points: Vec<_> = points.map(|mount| mount.point.to_str().unwrap()).collect();
            assert_eq!(points, Vec::from_iter(wanted), "{what}");
        }
    }

    /// Each compared with all others, they would take a minute.
    #[test]
    fn thousands_of_mounts_of_one_device_are_looked_through_once() {
        let lines: Vec<_> = (0..10_000).map(|i| format!("/var/lib/kubelet/pods/u/v{i}")).collect();
        let mut theirs = vec![("8:1", "/", "/")];
        theirs.extend(lines.iter().map(|point| ("8:1", "/", &**point)));
        let (own, theirs) = (table(&theirs[..1]), table(&theirs));
        let cpu_seconds = || clock_gettime(ClockId::ThreadCPUTime).tv_sec;
        let began = cpu_seconds();
        let found = mounts_below(Path::new("/var/lib/kubelet"), &own, &theirs).unwrap();
        assert_eq!(found.len(), 10_000);
        assert!(cpu_seconds() - began < 5);
    }

    #[test]
    fn a_directory_that_the_other_does_not_have_is_no_directory_without_mounts() {
        let own = table(&[("8:1", "/", "/"), ("8:2", "/", "/var/lib/kubelet")]);
        for theirs in [&[][..], &[("8:1", "/", "/")], &[("8:2", "/", "/mnt"), ("8:3", "/", "/mnt")]]
        {
            assert_eq!(mounts_below(Path::new("/var/lib/kubelet"), &own, &table(theirs)), None);
        }
    }
}
