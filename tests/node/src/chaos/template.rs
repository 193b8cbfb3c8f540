//! An installation that is made once and copied to every node: installing takes a debug build seconds.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::Runtime;
use super::stage::SECONDS;
use crate::agent_binary;
use crate::scenario::{Setup, TestResult};

/// Where an agent of a cluster looks for its access.
pub(super) const KUBECONFIG: &str = "/etc/winddown/kubeconfig";

/// The files of winddown's installations, one for each runtime, in a folder of the caller's.
#[derive(Debug)]
pub(super) struct Template {
    folder: PathBuf,
}

// === impl Template ===

impl Template {
    /// Installs into folders below `folder`, for each of the runtimes.
    ///
    /// # Errors
    /// What could not be built, written or run.
    pub(super) async fn make(folder: &Path, runtimes: &[Runtime]) -> TestResult<Self> {
        let template = Self { folder: folder.to_path_buf() };
        let agent = agent_binary().await?;
        for runtime in runtimes {
            let root = template.root(*runtime);
            let more = match runtime {
                Runtime::Cluster => format!("mode: cluster\nkubeconfig: {KUBECONFIG}\n"),
                Runtime::Process | Runtime::Containerd => String::new(),
            };
            let setup = Setup { seconds: SECONDS, more };
            std::fs::create_dir_all(root.join("etc/winddown"))?;
            std::fs::write(root.join("etc/winddown/config.yaml"), setup.config(unit(*runtime)))?;
            let output = Command::new(&agent)
                .args(["install", "--no-enable", "--runtime", unit(*runtime), "--root"])
                .arg(&root)
                .output()
                .await?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
            }
        }
        Ok(template)
    }

    /// What a node with this runtime is laid over with.
    pub(super) fn root(&self, runtime: Runtime) -> PathBuf {
        self.folder.join(format!("{runtime:?}"))
    }
}

/// What the configuration and the unit call the runtime.
fn unit(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Process | Runtime::Cluster => "process",
        Runtime::Containerd => "cri",
    }
}
