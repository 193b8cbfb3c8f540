//! The result of `winddown install`, which is created once per configuration and copied into every node: installing
//! hashes and writes a hundred megabytes of debug programs, which takes as long as a boot.

use std::fs::{self, Permissions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::Command;

use crate::scenario::TestResult;
use crate::{Node, programs};

const CONFIG: &str = "etc/winddown/config.yaml";
const UNIT: &str = "/etc/systemd/system/winddown.service";
/// The links to units that systemd starts at boot.
const WANTS: &str = "etc/systemd/system/multi-user.target.wants";
const PROGRAMS: &str = "usr/bin";

/// Everything that an installation wrote except the programs, which nodes share with the host.
#[derive(Debug)]
pub(crate) struct Installation {
    runtime: String,
    config: String,
    programs: PathBuf,
    files: Vec<(PathBuf, Permissions, Kind)>,
}

#[derive(Debug)]
enum Kind {
    Directory,
    File(Vec<u8>),
    Link(PathBuf),
}

// === impl Installation ===

impl Installation {
    /// Returns the installation for this runtime and this text of the configuration file, creating it if necessary.
    ///
    /// # Errors
    /// Something could not be built, written or run.
    pub(crate) async fn of(runtime: &str, config: &str) -> TestResult<Arc<Self>> {
        static MADE: Mutex<Vec<Arc<Installation>>> = Mutex::new(Vec::new());
        let made = || MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |one: &&Arc<Self>| one.runtime == runtime && one.config == config;
        let known = made().iter().find(is_it).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let new = Arc::new(Self::make(runtime, config).await?);
        made().push(Arc::clone(&new));
        Ok(new)
    }

    async fn make(runtime: &str, config: &str) -> TestResult<Self> {
        let programs = programs().await?;
        let root = tempfile::tempdir()?;
        let root = root.path();
        // Existing folders are not recorded as winddown's, so that it does not remove them.
        for folder in ["etc/winddown", WANTS, "etc/tmpfiles.d", PROGRAMS, "var/lib", "var/log"] {
            fs::create_dir_all(root.join(folder))?;
        }
        // The configuration determines the unit's stop timeout.
        fs::write(root.join(CONFIG), config)?;
        let output = Command::new(programs.join("winddown"))
            .args(["install", "--runtime", runtime, "--root"])
            .arg(root)
            .output()
            .await?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        let mut files = Vec::new();
        read(root, Path::new(""), &mut files)?;
        Ok(Self { runtime: runtime.to_owned(), config: config.to_owned(), programs, files })
    }

    /// Copies the installation into a node that is off. The agent is not started at boot.
    ///
    /// # Errors
    /// A file could not be written.
    pub(crate) fn lay_into(&self, node: &Node) -> TestResult {
        let root = node.host_path("/");
        for (path, permissions, kind) in &self.files {
            let there = root.join(path);
            match kind {
                Kind::Directory => fs::create_dir_all(&there)?,
                Kind::File(bytes) => fs::write(&there, bytes)?,
                Kind::Link(_) if path.starts_with(WANTS) => {}
                Kind::Link(target) => symlink(target, &there)?,
            }
            if !matches!(kind, Kind::Link(_)) {
                fs::set_permissions(&there, permissions.clone())?;
            }
        }
        node.install_programs(&self.programs, &format!("/{PROGRAMS}"))?;
        Ok(())
    }

    /// Makes a running node start the agent at its next boots.
    ///
    /// # Errors
    /// Same as for [`Node::run`].
    pub(crate) async fn enable(node: &Node) -> TestResult {
        let enable = format!("ln -s {UNIT} /{WANTS}/ && systemctl daemon-reload");
        node.run(&["sh", "-c", &enable]).await?;
        Ok(())
    }
}

/// Reads everything in a folder of `root`, each folder before its contents.
fn read(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, Permissions, Kind)>) -> TestResult {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let metadata = entry.metadata()?;
        let permissions = metadata.permissions();
        if metadata.is_symlink() {
            files.push((path, permissions, Kind::Link(fs::read_link(entry.path())?)));
        } else if metadata.is_dir() {
            files.push((path.clone(), permissions, Kind::Directory));
            read(root, &path, files)?;
        } else if !path.starts_with(PROGRAMS) {
            files.push((path, permissions, Kind::File(fs::read(entry.path())?)));
        }
    }
    Ok(())
}
