//! A disk of its own, to try what happens when a disk fails.

use std::path::{Path, PathBuf};

/// A disk with a file system. It is unmounted when it is dropped.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// A disk in the directory `below`, mounted at `disk`.
    ///
    /// # Errors
    /// Why this machine cannot mount one.
    pub(crate) fn new(below: &Path) -> Result<Self, String> {
        let (image, mounted) = (below.join("image"), below.join("disk"));
        std::fs::create_dir(&mounted).unwrap();
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image.as_ref()])?;
        run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), mounted.as_ref()])?;
        Ok(Self(mounted))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Blocks writes from now on: a writer is in uninterruptible sleep, and SIGKILL has no effect until the disk continues.
    pub(crate) fn freeze(&self) {
        run("fsfreeze", &["--freeze".as_ref(), self.0.as_ref()]).unwrap();
    }

    /// Lets writers go on.
    pub(crate) fn thaw(&self) {
        run("fsfreeze", &["--unfreeze".as_ref(), self.0.as_ref()]).unwrap();
    }

    /// Lets no file be opened for writing from now on, as a disk with errors does.
    pub(crate) fn refuse_writes(&self) {
        // A mount of its own, because no other may have files open for writing.
        run("mount", &["--bind".as_ref(), self.0.as_ref(), self.0.as_ref()]).unwrap();
        run("mount", &["-o".as_ref(), "remount,bind,ro".as_ref(), self.0.as_ref()]).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("fsfreeze", &["--unfreeze".as_ref(), self.0.as_ref()]);
        // A writer that waited may still have it open.
        while run("umount", &["--lazy".as_ref(), self.0.as_ref()]).is_ok() {}
    }
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> Result<(), String> {
    let output = std::process::Command::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
