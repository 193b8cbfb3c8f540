//! The agent's configuration: one YAML file, read strictly.
//!
//! A file is either ours (`apiVersion: winddown.dev/v1alpha1`, `kind: Configuration`) or a kubelet's own
//! `KubeletConfiguration`. Fields that both have use the kubelet's names. All problems of a file are reported together,
//! each with line, column and field.

mod changes;
mod cluster;
mod emit;
mod eviction;
mod kubelet_fields;
mod notices;
mod origin;
mod print;
mod read;
pub mod reference;
mod schema;
mod shutdown;
mod sockets;
#[cfg(test)]
mod tests;
mod trust;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use changes::{Changes, FieldChange};
pub use cluster::{
    ClusterSettings, CompanionSettings, EndedPods, Mode, NodeTaint, OrphanedPods, WithoutApi,
};
pub use emit::scalar;
pub use eviction::EvictionSettings;
pub use notices::NoticesConfig;
pub use origin::{LAST_IN_FORCE, Loaded, Origin, load};
pub use reference::default_yaml;
pub use schema::schema;
pub use shutdown::{
    GuardedNamespace, InPlaceNamespace, PriorityPeriod, ShutdownOrder, ShutdownPeriods,
    ShutdownSettings,
};

pub use sockets::{answers, runtime_endpoints, with_scheme};
pub use trust::{Exposed, Exposure, Trust, TrustedPath, exposed};
use winddown_yaml::{Problem, Problems};

/// The default path of the configuration.
pub const DEFAULT_FILE: &str = "/etc/winddown/config.yaml";

/// `apiVersion` of our own configuration.
pub const API_VERSION: &str = "winddown.dev/v1alpha1";
/// `kind` of our own configuration.
pub const KIND: &str = "Configuration";

/// The validated configuration. [`Config::default`] equals an empty file of ours.
///
/// Each field is the value of the option of that name; [`mod@reference`] documents its purpose and range.
// Over the limit because each field is an option of the file, or the options of one part.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `mode`.
    pub mode: Mode,
    /// `kubeconfig` and the other options that only matter with an API server.
    pub cluster: ClusterSettings,
    /// `companionEvictionTimeout` and the other options of companion mode.
    pub companion: CompanionSettings,
    /// `runtime`.
    pub runtime: RuntimeKind,
    /// `nodeName`; `None` means the machine's host name, see [`Config::node_name_or`].
    pub node_name: Option<String>,
    /// `staticPodPath`; `None` when it is set to the empty text.
    pub static_pod_path: Option<PathBuf>,
    /// `fileCheckFrequency`.
    pub file_check_frequency: Duration,
    /// `shutdownGracePeriod` and the other options that divide the time before a shutdown.
    pub shutdown: ShutdownSettings,
    /// `shutdownNotices`.
    pub notices: NoticesConfig,
    /// `reportsKept`.
    pub reports_kept: u32,
    /// `shutdownGuard`: the namespaces whose pods may block shutdowns; each only once.
    pub shutdown_guard: Vec<GuardedNamespace>,
    /// `startGroupTimeout`: how long a group of pods may take to become ready after a boot; with zero, all start at
    /// once.
    pub start_group_timeout: Duration,
    /// `evictionHard` and the other options of eviction.
    pub eviction: EvictionSettings,
    /// `containerRuntimeEndpoint`: `unix://` and an absolute path.
    pub container_runtime_endpoint: String,
    /// `systemReserved`: resource name to quantity, both validated.
    pub system_reserved: BTreeMap<String, String>,
    /// `kubeReserved`: resource name to quantity, both validated.
    pub kube_reserved: BTreeMap<String, String>,
    /// `maxPods`.
    pub max_pods: u32,
    /// `extendedResources`: resource name to whole quantity, both validated.
    pub extended_resources: BTreeMap<String, String>,
    /// `nodeLabels`, validated.
    pub node_labels: BTreeMap<String, String>,
    /// `allowedUnsafeSysctls`: kernel parameters that pods may set in addition to the safe ones; a `*` at the end makes
    /// it a prefix.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// `preemptionStrategy`.
    pub preemption_strategy: winddown_preemption::Strategy,
    /// `nodeStatusUpdateFrequency`.
    pub node_status_update_frequency: Duration,
    /// `resolvConf`.
    pub resolv_conf: PathBuf,
    /// `podLogsDir`.
    pub pod_logs_dir: PathBuf,
    /// `containerLogMaxSize`, in bytes.
    pub container_log_max_size: u64,
    /// `containerLogMaxFiles`.
    pub container_log_max_files: u32,
    /// `stateDirectory`.
    pub state_directory: PathBuf,
    /// `controlSocket`.
    pub control_socket: PathBuf,
    /// `controlSocketGroup`; `None` restricts the socket to root.
    pub control_socket_group: Option<String>,
    /// `metricsAddress`; with `None`, metrics are served on the control socket only.
    pub metrics_address: Option<SocketAddr>,
}

/// The runtime of the containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuntimeKind {
    /// Supervised processes on the host.
    #[default]
    Process,
    /// A container runtime, over its CRI socket.
    Cri,
    /// Transient services of systemd.
    Systemd,
}

/// A warning about something in a configuration that was accepted, but may not be intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The configuration file.
    pub file: PathBuf,
    /// The field, its position and the message.
    pub problem: Problem,
}

/// Why a configuration is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The content is invalid. Displays every problem on a line of its own.
    #[error("{0}")]
    Invalid(Problems),
}

// === impl Config ===

impl Config {
    /// Reads and validates the file at `path`. Blocks on the file system.
    ///
    /// # Errors
    /// The file cannot be read, or its content is invalid; see [`ConfigError`].
    pub fn load(path: &Path) -> Result<(Self, Vec<Warning>), ConfigError> {
        let Loaded { config, warnings, .. } = load(Path::new("/"), Some(path))?;
        Ok((config, warnings))
    }

    /// Validates the text of a configuration file. `path` names it in errors, and relative paths in a kubelet's file are
    /// below its directory.
    ///
    /// # Errors
    /// The text is invalid; see [`ConfigError::Invalid`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<(Self, Vec<Warning>), ConfigError> {
        let wrong = |list| ConfigError::Invalid(Problems::new(path, list));
        let text = winddown_yaml::text(bytes).map_err(|problem| wrong(vec![problem]))?;
        let (root, ignored) = read::tree(text).map_err(|problem| wrong(vec![problem]))?;
        let (config, mut warnings) = read::read(path, &root).map_err(wrong)?;
        warnings.extend(ignored);
        let warning = |problem| Warning { file: path.to_owned(), problem };
        Ok((config, warnings.into_iter().map(warning).collect()))
    }

    /// Returns the node's name: `nodeName`, or else `host_name`, converted like the kubelet does.
    pub fn node_name_or(&self, host_name: &str) -> String {
        match &self.node_name {
            Some(name) => name.clone(),
            None => host_name.trim().to_ascii_lowercase(),
        }
    }

    /// Returns the configuration with its paths below `root`. `/` changes nothing.
    #[must_use]
    pub fn rooted(mut self, root: &Path) -> Self {
        let under = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        self.static_pod_path = self.static_pod_path.map(|path| under(&path));
        self.notices.file = self.notices.file.map(|path| under(&path));
        let cluster = &mut self.cluster;
        for path in [
            &mut cluster.kubeconfig,
            &mut cluster.bootstrap_kubeconfig,
            &mut cluster.client_ca_file,
            &mut cluster.tls_cert_file,
            &mut cluster.tls_private_key_file,
        ] {
            *path = path.take().map(|path| under(&path));
        }
        for path in [
            &mut self.companion.kubelet_root_dir,
            &mut self.resolv_conf,
            &mut self.pod_logs_dir,
            &mut self.state_directory,
            &mut self.control_socket,
        ] {
            *path = under(path);
        }
        if let Some(socket) = self.container_runtime_endpoint.strip_prefix("unix://") {
            self.container_runtime_endpoint =
                format!("unix://{}", under(Path::new(socket)).display());
        }
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Standalone,
            cluster: ClusterSettings::default(),
            companion: CompanionSettings::default(),
            runtime: RuntimeKind::Process,
            node_name: None,
            static_pod_path: Some(PathBuf::from("/etc/winddown/pods")),
            file_check_frequency: Duration::from_secs(20),
            shutdown: ShutdownSettings::default(),
            notices: NoticesConfig::default(),
            reports_kept: 20,
            shutdown_guard: Vec::new(),
            start_group_timeout: Duration::ZERO,
            eviction: EvictionSettings::default(),
            container_runtime_endpoint: "unix:///run/containerd/containerd.sock".to_owned(),
            system_reserved: BTreeMap::new(),
            kube_reserved: BTreeMap::new(),
            max_pods: 110,
            extended_resources: BTreeMap::new(),
            node_labels: BTreeMap::new(),
            allowed_unsafe_sysctls: Vec::new(),
            preemption_strategy: winddown_preemption::Strategy::default(),
            node_status_update_frequency: Duration::from_secs(10),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            pod_logs_dir: PathBuf::from("/var/log/winddown"),
            container_log_max_size: 10 * 1024 * 1024,
            container_log_max_files: 5,
            state_directory: PathBuf::from("/var/lib/winddown"),
            control_socket: PathBuf::from("/run/winddown/winddown.sock"),
            control_socket_group: None,
            metrics_address: None,
        }
    }
}

// === impl RuntimeKind ===

impl RuntimeKind {
    /// Returns the runtime's name in the configuration.
    pub fn as_str(self) -> &'static str {
        reference::word(self)
    }
}

impl std::fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Warning ===

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.problem.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.problem)
    }
}

// === impl ConfigError ===

impl ConfigError {
    /// Whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns what to do next, as text for users; empty if the error suffices.
    pub fn hint(&self) -> String {
        let Self::Read { path, source } = self else { return String::new() };
        match source.kind() {
            io::ErrorKind::NotFound => {
                format!("`winddown config default > {}` writes one to start from", path.display())
            }
            _ if path.is_dir() => {
                format!("name the file: {}", path.join("config.yaml").display())
            }
            _ => file_hint(source).to_owned(),
        }
    }
}

/// Returns what to do about a file or directory that could not be read or created; empty if the error suffices.
pub fn file_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run it as root; to try winddown as another user: `winddown drill`"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is where a directory has to be: move it away, or write another path into the \
             configuration"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "make the file system writable, or write another path into the configuration; `winddown \
             doctor` names what the unit's sandbox closes"
        }
        io::ErrorKind::StorageFull => {
            "make room on that disk; `df -h` and `df -i` show what is left"
        }
        _ => "",
    }
}

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
