//! Finds what another process has mounted below a directory, which it may know by other paths. Pure.

use std::path::{Path, PathBuf};

use winddown_host::Mount;

/// The mounts of `theirs` below the directory that is `root` in the namespace of `own`, with their paths there: an agent in
/// a container has the directory by another path if it is a link on the machine. `None` if `theirs` lacks the directory.
pub(super) fn mounts_below(root: &Path, own: &[Mount], theirs: &[Mount]) -> Option<Vec<Mount>> {
    let on = top(own, root)?;
    let inside = on.root.join(root.strip_prefix(&on.point).ok()?);
    let place = |mount: &Mount| {
        let place = mount.point.join(inside.strip_prefix(&mount.root).ok()?);
        // Another mount may hide it.
        let is_seen = top(theirs, &place).is_some_and(|top| std::ptr::eq(top, mount));
        is_seen.then_some(place)
    };
    let of_same = theirs.iter().filter(|mount| mount.device == on.device);
    let places: Vec<PathBuf> = of_same.filter_map(place).collect();
    let by_own_path = |mount: &Mount| {
        let below = places.iter().find_map(|place| mount.point.strip_prefix(place).ok())?;
        let mut mount = mount.clone();
        mount.point = root.join(below);
        Some(mount)
    };
    (!places.is_empty()).then(|| theirs.iter().filter_map(by_own_path).collect())
}

/// The mount that has this path: the deepest, and of two at the same point the later.
fn top<'a>(all: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let around = all.iter().filter(|mount| path.starts_with(&mount.point));
    around.max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_directory_that_the_other_does_not_have_is_no_directory_without_mounts() {
        let own = table(&[("8:1", "/", "/"), ("8:2", "/", "/var/lib/kubelet")]);
        for theirs in [&[][..], &[("8:1", "/", "/")], &[("8:2", "/", "/mnt"), ("8:3", "/", "/mnt")]]
        {
            assert_eq!(mounts_below(Path::new("/var/lib/kubelet"), &own, &table(theirs)), None);
        }
    }
}
