//! Keeps the runtime whose pods run. An agent with another runtime would not know them: they would run on without one that
//! terminates them, and beside a second instance of each.

use std::path::Path;
use std::sync::Arc;

use winddown_cri::CriConfig;
use winddown_runtimes::{process, systemd};
use winddown_shared::{WallClock, error_chain};

use winddown_config::{Config, Mode, RuntimeKind};
use winddown_node::Configuration;

use super::control_loop::at_restart;
use super::slices::units_of_pods;

/// Every runtime.
const RUNTIMES: [RuntimeKind; 3] = [RuntimeKind::Process, RuntimeKind::Systemd, RuntimeKind::Cri];

/// Returns the configuration with the runtime whose pods run, and with a warning if that is another than the configured
/// one. Beside a kubelet, which runs the pods, as it is.
pub(super) async fn kept(configuration: Configuration, wall: &WallClock) -> Configuration {
    let config = &configuration.config;
    let Some(former) = former(config, wall).await else { return configuration };
    let mut kept = Config::clone(config);
    kept.node.runtime = former;
    let warning = at_restart("runtime");
    tracing::warn!(runtime = %former, "pods of the runtime before it still run: {warning}");
    let mut warnings = configuration.warnings.clone();
    warnings.push(warning);
    Configuration { config: Arc::new(kept), warnings, ..configuration }
}

async fn former(config: &Config, wall: &WallClock) -> Option<RuntimeKind> {
    let configured = config.node.runtime;
    if config.node.mode == Mode::Companion {
        return None;
    }
    for kind in RUNTIMES.into_iter().filter(|kind| *kind != configured) {
        // Without records its agent has never started a pod.
        let directory = config.access.state_directory.join(kind.to_string());
        if directory.join("pods").is_dir() && has_running(kind, config, &directory, wall).await {
            return Some(kind);
        }
    }
    None
}

/// Whether pods of this runtime run. If that cannot be seen, they count as running.
async fn has_running(
    kind: RuntimeKind,
    config: &Config,
    directory: &Path,
    wall: &WallClock,
) -> bool {
    let seen = match kind {
        RuntimeKind::Process => {
            process::has_running(Path::new("/proc"), directory).map_err(|error| error_chain(&error))
        }
        RuntimeKind::Systemd => {
            let seen = systemd::has_running(&units_of_pods()).await;
            seen.map_err(|error| error_chain(&error))
        }
        RuntimeKind::Cri => {
            let endpoint = &*config.node.container_runtime_endpoint;
            let logs = &config.access.pod_logs_dir;
            let cri = CriConfig::new(endpoint, directory, logs, wall.clone());
            winddown_cri::has_running(&cri).map_err(|error| error_chain(&error))
        }
    };
    seen.unwrap_or_else(|error| {
        tracing::warn!(runtime = %kind, error, "whether its pods still run is unknown");
        true
    })
}
