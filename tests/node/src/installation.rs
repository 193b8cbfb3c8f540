//! winddown as `winddown install` leaves it, made once for each configuration and laid into every node:
//! installing sums up and writes a hundred megabytes of debug programs, which costs as much as a boot.

use std::fs::{self, Permissions};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::Command;

use crate::scenario::TestResult;
use crate::{Node, programs};

const CONFIG: &str = "etc/winddown/config.yaml";
const UNIT: &str = "/etc/systemd/system/winddown.service";
/// What systemd starts at boot.
const WANTS: &str = "etc/systemd/system/multi-user.target.wants";
const PROGRAMS: &str = "usr/bin";

/// Everything that one installation wrote, but the programs, which nodes share with the host.
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
    /// What is installed for this runtime with the text of a configuration file.
    ///
    /// # Errors
    /// What could not be built, written or run.
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
        // Those that are there already are not winddown's to remove.
        for folder in ["etc/winddown", WANTS, "etc/tmpfiles.d", PROGRAMS, "var/lib", "var/log"] {
            fs::create_dir_all(root.join(folder))?;
        }
        // The unit's time to stop follows from it.
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

    /// Puts it into a node that is off. The agent is not started at boot.
    ///
    /// # Errors
    /// What could not be written.
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

    /// Has a node that is on start the agent at its next boots.
    ///
    /// # Errors
    /// As [`Node::run`].
    pub(crate) async fn enable(node: &Node) -> TestResult {
        let enable = format!("ln -s {UNIT} /{WANTS}/ && systemctl daemon-reload");
        node.run(&["sh", "-c", &enable]).await?;
        Ok(())
    }
}

/// Reads everything in a folder of `root`, each folder before what is in it.
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
