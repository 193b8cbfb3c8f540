//! Which mount a file is on.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, makedev, statx};

/// The mount and the device that a file is on.
///
/// Another device is no sign of a mount: on btrfs each subvolume has a device number, and every user can make a subvolume
/// where a directory can be made. The same device is no sign against one: a part of a file system can be mounted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// None before Linux 5.8.
    mount: Option<u64>,
    device: u64,
}

impl FilePlace {
    /// The place of `name` in `directory`, or of `directory` itself if the name is empty. A link is not followed, and nothing
    /// is mounted on demand. Blocking.
    ///
    /// # Errors
    /// There is no such file, or it cannot be looked at.
    pub fn of(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found = statx(directory, name, flags, StatxFlags::MNT_ID)?;
        let has_mount = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Ok(Self {
            mount: has_mount.then_some(found.stx_mnt_id),
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
        })
    }

    /// Whether both are on the same mount. Where mounts have no numbers, on the same device.
    pub fn is_on_mount_of(self, other: Self) -> bool {
        match (self.mount, other.mount) {
            (Some(own), Some(others)) => own == others,
            (None, _) | (_, None) => self.is_on_device_of(other),
        }
    }

    /// Whether both are on the same device, which is the same subvolume on btrfs.
    pub fn is_on_device_of(self, other: Self) -> bool {
        self.device == other.device
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::fs::{CWD, Mode, openat};

    use super::*;
    use crate::regular::OPEN;

    #[test]
    fn a_subvolume_is_no_mount_and_a_mounted_part_of_the_same_device_is_one() {
        let place = |mount, device| FilePlace { mount, device };
        for (one, other, expected) in [
            (place(Some(1), 7), place(Some(1), 7), true),
            (place(Some(1), 7), place(Some(1), 8), true),
            (place(Some(1), 7), place(Some(2), 7), false),
            (place(None, 7), place(None, 7), true),
            (place(None, 7), place(None, 8), false),
        ] {
            assert_eq!(one.is_on_mount_of(other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_is_mounted_in_a_directory_is_not_on_its_mount() {
        let open = |path: &str| openat(CWD, path, OPEN, Mode::empty()).unwrap();
        let (root, proc) = (open("/"), open("/proc"));
        let of = |name| FilePlace::of(root.as_fd(), name).unwrap();
        assert_eq!(of(c"proc"), FilePlace::of(proc.as_fd(), c"").unwrap());
        assert!(!of(c"proc").is_on_mount_of(of(c"")));
        assert!(FilePlace::of(proc.as_fd(), c"self").unwrap().is_on_mount_of(of(c"proc")));
        assert!(FilePlace::of(root.as_fd(), c"no such file").is_err());
    }
}
