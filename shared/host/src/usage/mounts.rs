//! Finds the file system of a path in `/proc/self/mountinfo`.

use std::path::Path;

use crate::mounts;

/// The device, as `(major, minor)`, of the file system that `path` (absolute, without symbolic links) is on.
///
/// Two directories with the same device share their space; st_dev would distinguish parts (subvolumes) of one file
/// system.
pub(super) fn device_of(mountinfo: &[u8], path: &Path) -> Option<(u32, u32)> {
    let mut best: Option<(usize, (u32, u32))> = None;
    for mount in mounts(mountinfo) {
        let Some(device) = mount.device else { continue };
        let point = &mount.point;
        if !point.is_absolute() || !path.starts_with(point) {
            continue;
        }
        let depth = point.components().count();
        // Of two mounts at the same place, the later one is on top.
        if best.is_none_or(|(known, _)| depth >= known) {
            best = Some((depth, device));
        }
    }
    best.map(|(_, device)| device)
}

#[cfg(test)]
mod tests {

    use super::*;

    const TEXT: &[u8] = b"21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
        22 21 0:21 / /proc rw - proc proc rw\n\
        30 21 8:17 / /var/lib rw - ext4 /dev/sdb1 rw\n\
        31 30 8:33 / /var/lib/contain\\040erd rw - xfs /dev/sdc1 rw\n\
        32 21 8:49 / /var/lib rw - ext4 /dev/sdd1 rw\n\
        33 21 8:1 /data /srv rw - ext4 /dev/sda1 rw\n";

    #[test]
    fn a_path_is_on_the_mount_that_is_deepest_and_uppermost() {
        let device = |path: &str| device_of(TEXT, Path::new(path));
        assert_eq!(device("/"), Some((8, 1)));
        assert_eq!(device("/var/library"), Some((8, 1)));
        assert_eq!(device("/var/lib/winddown"), Some((8, 49)), "mounted over the other");
        assert_eq!(device("/var/lib/contain erd/x"), Some((8, 33)));
        assert_eq!(device("/srv/pods"), Some((8, 1)), "a part of the first disk");
        assert_eq!(device("relative"), None);
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        for text in ["", "x", "1 2 3 4", "1 2 a:b / /", "1 2 8: / /", "1 2 8:1 / relative"] {
            assert_eq!(device_of(text.as_bytes(), Path::new("/a")), None, "{text:?}");
        }
    }
}
