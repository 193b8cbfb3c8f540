//! The layout of a node's files.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use tokio::process::Command;
use tokio::sync::OnceCell;

use super::NodeError;
use crate::Base;

/// Exists in bases on which containers will run.
const CONTAINERD: &str = "/usr/bin/containerd";

/// Generators and units that run at each boot (generators also at each reload) but have nothing to do in any node. They
/// take a third of a boot's time, or half of it if the node has its own kernel.
const GENERATORS: [&str; 15] = [
    "systemd-bless-boot-generator",
    "systemd-cryptsetup-generator",
    "systemd-debug-generator",
    "systemd-factory-reset-generator",
    "systemd-getty-generator",
    "systemd-gpt-auto-generator",
    "systemd-hibernate-resume-generator",
    "systemd-import-generator",
    "systemd-integritysetup-generator",
    "systemd-rc-local-generator",
    "systemd-ssh-generator",
    "systemd-system-update-generator",
    "systemd-sysv-generator",
    "systemd-tpm2-generator",
    "systemd-veritysetup-generator",
];
const UNITS: [&str; 19] = [
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "kmod-static-nodes.service",
    "ldconfig.service",
    "modprobe@.service",
    "run-lock.mount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-random-seed.service",
    "systemd-sysctl.service",
    "systemd-tmpfiles-setup-dev-early.service",
    "systemd-update-done.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-update-utmp.service",
    "systemd-user-sessions.service",
];

/// Where the node's own files are in its temporary folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// `upper/` contains the differences from the base.
    Overlay,
    /// `root/` is a copy of the base, if overlays do not work.
    Copy,
}

impl Layout {
    /// Creates the files of a node in `dir`.
    pub(super) async fn prepare(base: &Base, dir: &Path) -> Result<Self, NodeError> {
        if in_root(base.root(), CONTAINERD).exists() {
            // boot.sh mounts it: containerd's own overlays cannot be on an overlay.
            let path = dir.join("containers");
            fs::create_dir(&path).map_err(|source| NodeError::File { path, source })?;
        }
        let layout = match overlay_works(base, dir).await? {
            true => Self::Overlay,
            false => {
                copy(base.root(), &dir.join("root")).await?;
                Self::Copy
            }
        };
        let units = layout.written(dir).join("etc/systemd");
        for (kind, names) in [("system-generators", &GENERATORS[..]), ("system", &UNITS)] {
            let kind = units.join(kind);
            let masked = fs::create_dir_all(&kind).and_then(|()| {
                names.iter().try_for_each(|name| symlink("/dev/null", kind.join(name)))
            });
            masked.map_err(|source| NodeError::File { path: kind, source })?;
        }
        Ok(layout)
    }

    /// The folder that receives what a node writes.
    pub(super) fn written(self, dir: &Path) -> PathBuf {
        match self {
            Self::Overlay => dir.join("upper"),
            Self::Copy => dir.join("root"),
        }
    }

    /// The path of a file of a node that is off: the node's own file, or else the base's.
    pub(super) fn find(self, base: &Base, dir: &Path, path: &str) -> PathBuf {
        let own = in_root(&self.written(dir), path);
        if own.exists() { own } else { in_root(base.root(), path) }
    }
}

/// The path under `root` of a node's absolute `path`.
pub(super) fn in_root(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Whether an overlay over `base` can be mounted in `dir`; if so, leaves its folders there. This is tested only once,
/// because all nodes of a process are on the same disks.
async fn overlay_works(base: &Base, dir: &Path) -> Result<bool, NodeError> {
    static WORKS: OnceCell<bool> = OnceCell::const_new();
    for name in ["upper", "work", "root"] {
        let path = dir.join(name);
        fs::create_dir(&path).map_err(|source| NodeError::File { path, source })?;
    }
    // The upper folder is the node's "/": it must be accessible to all users of the node.
    let upper = dir.join("upper");
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o755))
        .map_err(|source| NodeError::File { path: upper.clone(), source })?;
    if !*WORKS.get_or_try_init(|| try_overlay(base, dir)).await? {
        // boot.sh mounts an overlay if upper/ exists.
        fs::remove_dir(&upper).map_err(|source| NodeError::File { path: upper, source })?;
        return Ok(false);
    }
    Ok(true)
}

async fn try_overlay(base: &Base, dir: &Path) -> Result<bool, NodeError> {
    let mount =
        "mount -t overlay overlay -o \"lowerdir=$1,upperdir=$2/upper,workdir=$2/work\" \"$2/root\"";
    let tried = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", mount, "sh"])
        .arg(base.root())
        .arg(dir)
        .output()
        .await
        .map_err(|source| NodeError::Start { program: "unshare".to_owned(), source })?;
    Ok(tried.status.success())
}

/// Copies the folder `from` to `to`.
async fn copy(from: &Path, to: &Path) -> Result<(), NodeError> {
    let output = Command::new("cp")
        .args(["--archive", "--reflink=auto", "--no-target-directory"])
        .args([from, to])
        .output()
        .await
        .map_err(|source| NodeError::Start { program: "cp".to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    Err(NodeError::Command {
        command: format!("cp --archive {} {}", from.display(), to.display()),
        status: output.status,
        stdout: String::new(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
