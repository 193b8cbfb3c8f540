//! Where a node's files are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::NodeError;
use crate::Base;

/// Its presence in a base tells that containers will run.
const CONTAINERD: &str = "/usr/bin/containerd";

/// Where the node's own files are, inside its temporary folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// `upper/` holds what differs from the base.
    Overlay,
    /// `root/` is a copy of the base, where overlays do not work.
    Copy,
}

impl Layout {
    /// Lays out a node in `dir`.
    pub(super) async fn prepare(base: &Base, dir: &Path) -> Result<Self, NodeError> {
        if in_root(base.root(), CONTAINERD).exists() {
            // boot.sh mounts it there: containerd's own overlays cannot lie on an overlay.
            let path = dir.join("containers");
            fs::create_dir(&path).map_err(|source| NodeError::File { path, source })?;
        }
        if overlay_works(base, dir).await? {
            return Ok(Self::Overlay);
        }
        copy(base.root(), &dir.join("root")).await?;
        Ok(Self::Copy)
    }

    /// The folder that what a node writes ends up in.
    pub(super) fn written(self, dir: &Path) -> PathBuf {
        match self {
            Self::Overlay => dir.join("upper"),
            Self::Copy => dir.join("root"),
        }
    }

    /// Where a file of a node that is off is found: the node's own, or else the base's.
    pub(super) fn find(self, base: &Base, dir: &Path, path: &str) -> PathBuf {
        let own = in_root(&self.written(dir), path);
        if own.exists() { own } else { in_root(base.root(), path) }
    }
}

/// The path under `root` of what a node knows as the absolute `path`.
pub(super) fn in_root(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Whether an overlay over `base` can be mounted in `dir`; leaves its folders there if so.
async fn overlay_works(base: &Base, dir: &Path) -> Result<bool, NodeError> {
    for name in ["upper", "work", "root"] {
        let path = dir.join(name);
        fs::create_dir(&path).map_err(|source| NodeError::File { path, source })?;
    }
    // The upper folder is the node's "/": it must be open to all users of the node.
    let upper = dir.join("upper");
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o755))
        .map_err(|source| NodeError::File { path: upper.clone(), source })?;
    let mount =
        "mount -t overlay overlay -o \"lowerdir=$1,upperdir=$2/upper,workdir=$2/work\" \"$2/root\"";
    let tried = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", mount, "sh"])
        .arg(base.root())
        .arg(dir)
        .output()
        .await
        .map_err(|source| NodeError::Start { program: "unshare".to_owned(), source })?;
    if !tried.status.success() {
        // boot.sh takes the presence of upper/ for the sign that an overlay is wanted.
        fs::remove_dir(&upper).map_err(|source| NodeError::File { path: upper, source })?;
    }
    Ok(tried.status.success())
}

/// Copies a folder, so that `to` is what `from` is.
pub(super) async fn copy(from: &Path, to: &Path) -> Result<(), NodeError> {
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
