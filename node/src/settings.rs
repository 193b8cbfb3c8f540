//! The settings of a node, apart from those of its plug-ins.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use winddown_host::AllocatableConfig;
use winddown_shared::WallTime;

/// The settings of a node, which may change while it runs.
#[derive(Clone)]
pub struct Settings {
    /// The source of the settings, for display.
    pub source: SettingsSource,
    /// Short name of the runtime, for display.
    pub runtime: String,
    /// The manifests directory, for display.
    pub manifests: Option<PathBuf>,
    /// The addresses of the node, which pods on the host's network share.
    pub host_ips: Arc<dyn Fn() -> Vec<IpAddr> + Send + Sync>,
    /// How often they are read again for the Node object, where there is one.
    pub status_update_frequency: Duration,
    /// What is reserved from the pods of the machine, and how many there may be.
    pub reserved: AllocatableConfig,
    /// Labels of the node in addition to those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Unsafe sysctls that pods may set: names, or prefixes followed by `*`.
    pub unsafe_sysctls: Vec<String>,
}

/// The source of settings.
#[derive(Clone, Debug, Default)]
pub struct SettingsSource {
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// When the file was read.
    pub loaded_at: Option<WallTime>,
    /// The fields whose new values take effect when the agent is restarted.
    pub at_restart: Vec<String>,
    /// Warnings about the file, for display.
    pub warnings: Vec<String>,
    /// The whole configuration as YAML.
    pub yaml: String,
}

/// Settings that do not change.
impl From<Settings> for watch::Receiver<Settings> {
    fn from(settings: Settings) -> Self {
        watch::Sender::new(settings).subscribe()
    }
}

/// Reserves nothing from the pods, and allows 110 of them.
impl Default for Settings {
    fn default() -> Self {
        Self {
            source: SettingsSource::default(),
            runtime: String::new(),
            manifests: None,
            host_ips: Arc::new(Vec::new),
            status_update_frequency: Duration::from_secs(10),
            reserved: AllocatableConfig::default(),
            labels: BTreeMap::new(),
            unsafe_sysctls: Vec::new(),
        }
    }
}
