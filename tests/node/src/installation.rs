//! An installation that is made once and copied to every node: installing takes a debug build seconds.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::Runtime;
use super::stage::SECONDS;
use super::strike::NOTICE;
use crate::scenario::{Setup, TestResult};
use crate::{Node, programs};

/// Where an agent of a cluster looks for its access.
pub(super) const KUBECONFIG: &str = "/etc/winddown/kubeconfig";

const CONFIG: &str = "etc/winddown/config.yaml";

/// The files of winddown's installations, one for each kind of unit, in a folder of the caller's.
#[derive(Debug)]
pub(super) struct Template {
    folder: PathBuf,
}

// === impl Template ===

impl Template {
    /// Installs into folders below `folder`, for each of these runtimes.
    ///
    /// # Errors
    /// What could not be built, written or run.
    pub(super) async fn make(folder: &Path, runtimes: &[Runtime]) -> TestResult<Self> {
        let programs = programs().await?;
        for runtime in runtimes {
            let root = folder.join(unit(*runtime));
            std::fs::create_dir_all(root.join("etc/winddown"))?;
            // The unit's time to stop follows from it.
            std::fs::write(root.join(CONFIG), config(*runtime))?;
            let output = Command::new(programs.join("winddown"))
                .args(["install", "--no-enable", "--runtime", unit(*runtime), "--root"])
                .arg(&root)
                .output()
                .await?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
            }
        }
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// Installs winddown in a node that is off.
    ///
    /// # Errors
    /// What could not be copied or written.
    pub(super) async fn install(&self, node: &Node, runtime: Runtime) -> TestResult {
        node.copy_tree(&self.folder.join(unit(runtime))).await?;
        node.write(&format!("/{CONFIG}"), config(runtime), 0o644)?;
        Ok(())
    }
}

fn config(runtime: Runtime) -> String {
    let mut more = format!("shutdownNotices:\n  file: {NOTICE}\n");
    if runtime == Runtime::Cluster {
        more.push_str(&format!("mode: cluster\nkubeconfig: {KUBECONFIG}\n"));
    }
    Setup { seconds: SECONDS, more, ..Setup::default() }.config(unit(runtime))
}

/// What the configuration and the unit call the runtime.
fn unit(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Process | Runtime::Cluster => "process",
        Runtime::Containerd => "cri",
    }
}
