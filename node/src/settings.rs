//! What a node goes by, apart from its plug-ins.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use winddown_machine::{AllocatableConfig, Capacity};
use winddown_shared::WallTime;

/// What a node goes by, and may be told anew while it runs.
#[derive(Clone)]
pub struct Settings {
    /// What is shown of where they came from.
    pub source: SettingsSource,
    /// What runs the containers, in one word.
    pub runtime: String,
    /// The directory that the manifests are read from, as it is shown.
    pub manifests: Option<PathBuf>,
    /// The addresses of the node, which its pods on the host's network have.
    pub host_ips: Arc<dyn Fn() -> Vec<IpAddr> + Send + Sync>,
    /// What is kept from the pods of a machine that has so much.
    pub reserved: Arc<dyn Fn(&Capacity) -> AllocatableConfig + Send + Sync>,
    /// Labels of the node beside those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Kernel parameters beside the safe ones that pods may set: names, or beginnings with a `*` behind them.
    pub unsafe_sysctls: Vec<String>,
}

/// Where settings came from.
#[derive(Clone, Debug, Default)]
pub struct SettingsSource {
    /// The file; none when there is none.
    pub file: Option<PathBuf>,
    /// When it was read.
    pub loaded_at: Option<WallTime>,
    /// What was noticed in it.
    pub warnings: Vec<String>,
    /// All of it, as YAML.
    pub yaml: String,
}

/// A node that keeps nothing from its pods, and has room for 110 of them.
impl Default for Settings {
    fn default() -> Self {
        Self {
            source: SettingsSource::default(),
            runtime: String::new(),
            manifests: None,
            host_ips: Arc::new(Vec::new),
            reserved: Arc::new(|_| AllocatableConfig {
                reserved: BTreeMap::new(),
                memory_available: 0,
                nodefs_available: 0,
                max_pods: 110,
                extended: BTreeMap::new(),
            }),
            labels: BTreeMap::new(),
            unsafe_sysctls: Vec::new(),
        }
    }
}
