//! The agent's configuration: one YAML file, read strictly.
//!
//! A file is either ours (`apiVersion: winddown.dev/v1alpha1`, `kind: Configuration`) or a kubelet's own
//! `KubeletConfiguration`. Fields that both have use the kubelet's names. All problems of a file are reported together,
//! each with line, column and field.
//!
//! # Design
//!
//! An option is one field of a struct, which does not compile without a text, a default, whether a reload applies it,
//! and where it has an [`Effect`]; its bounds follow, and for a path what root does with it ([`Trust`]). [`mod@reference`] is the table of these
//! fields. Reading, printing, reloads and [`Config::rooted`] walk it; the default file, winddown.yaml(5) and the schema
//! are generated from it.
//!
//! # Adding an option
//!
//! Take the kubelet's name if the kubelet has the option. Add one field to the `options!` of its section: the manual's
//! text as its doc comment, type, default, `live` or `at_restart`, its [`Effect`], bounds, and for a path what root does with it
//! (`trusted`). Its `check` checks the option's own text; the section's `relate` checks options against each other. Add a
//! broken value to the table of bad input (`programs/tests/data/bad`) and, if the kubelet has the option, a row to the
//! options in `docs/differences.md`.

mod access;
mod changes;
mod cluster;
mod effect;
mod emit;
mod eviction;
mod kubelet_fields;
mod node;
mod notices;
mod origin;
mod pods;
mod print;
mod read;
pub mod reference;
mod schema;
mod shutdown;
mod sockets;
#[cfg(test)]
mod tests;
mod trust;

use std::io;
use std::path::{Path, PathBuf};

pub use access::AccessSettings;
pub use changes::{Changes, FieldChange};
pub use cluster::{
    ClusterSettings, CompanionSettings, EndedPods, NodeTaint, OrphanedPods, WithoutApi,
};
pub use effect::Effect;
pub use emit::{scalar, yaml};
pub use eviction::EvictionSettings;
pub use node::{Mode, NodeOptions, RuntimeKind};
pub use notices::NoticesConfig;
pub use origin::{LAST_IN_FORCE, LAST_IS_USED, Loaded, Origin, load};
pub use pods::PodSettings;
pub use reference::default_yaml;
use reference::sections;
pub use schema::schema;
pub use shutdown::{
    GuardedNamespace, InPlaceNamespace, PriorityPeriod, ShutdownOrder, ShutdownPeriods,
    ShutdownSettings,
};

pub use sockets::{answers, runtime_endpoints, with_scheme};
pub use trust::{Exposed, Exposure, Trust, TrustedPath, exposed};
use winddown_host::path_word;
use winddown_yaml::{Problem, Problems};

/// The default path of the configuration.
pub const DEFAULT_FILE: &str = "/etc/winddown/config.yaml";

/// Has the agent take over a new configuration, whether it runs already or not: it reads most of it only as it starts, and
/// `enable --now` leaves one that runs alone.
pub const ENABLE_AND_RESTART: &str = "systemctl enable winddown && systemctl restart winddown";

/// `apiVersion` of our own configuration.
pub const API_VERSION: &str = "winddown.dev/v1alpha1";
/// `kind` of our own configuration.
pub const KIND: &str = "Configuration";

sections! {
    /// The validated configuration. [`Config::default`] equals an empty file of ours.
    ///
    /// Each field of a part is the option of that name; [`mod@reference`] has its range, and whether a reload applies it.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Config {
        "The node", node::relate => {
            /// The node: its identity, its resources, and what is reserved.
            node: NodeOptions,
        }
        "In a cluster (mode cluster or companion)", cluster::relate => {
            /// What only matters with an API server.
            cluster: ClusterSettings,
            /// What only matters in companion mode.
            companion: CompanionSettings,
        }
        "Pods from manifests", |_, _, _| {} => {
            /// Pods from manifests.
            pods: PodSettings,
        }
        "Shutdown", shutdown::relate => {
            /// The time and order of a shutdown.
            shutdown: ShutdownSettings,
        }
        "Eviction", eviction::relate => {
            /// Eviction.
            eviction: EvictionSettings,
        }
        "Logs, state, access", access::relate => {
            /// Logs, state and access to the agent.
            access: AccessSettings,
        }
    }
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
        match &self.node.name {
            Some(name) => name.clone(),
            None => host_name.trim().to_ascii_lowercase(),
        }
    }

    /// Returns the directories that an agent writes to, each with the field that names it or what is in it.
    pub fn written_directories(&self) -> Vec<(&'static str, &Path)> {
        // Beside a kubelet, the containers' logs are the kubelet's.
        let logs = (self.node.mode != Mode::Companion).then_some(&*self.access.pod_logs_dir);
        let all = [
            ("stateDirectory", Some(&*self.access.state_directory)),
            ("podLogsDir", logs),
            ("controlSocket", self.access.control_socket.parent()),
        ];
        all.into_iter().filter_map(|(field, path)| Some((field, path?))).collect()
    }

    /// Returns the configuration with its paths below `root`. `/` changes nothing.
    #[must_use]
    pub fn rooted(mut self, root: &Path) -> Self {
        reference::rooted(&mut self, root);
        self
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

    /// Returns what to do next, as text for users; empty if the error suffices. Blocks on the file system.
    pub fn hint(&self) -> String {
        let Self::Read { path, source } = self else { return String::new() };
        match source.kind() {
            // The defaults would make it another node.
            io::ErrorKind::NotFound => match origin::put_back(path) {
                Some(command) => format!("{command} puts back what was last in effect"),
                None => {
                    format!(
                        "`winddown config default > {}` writes one to start from",
                        path_word(path)
                    )
                }
            },
            _ if path.is_dir() => {
                let usual = Some(path.join("config.yaml")).filter(|file| file.is_file());
                usual.map(|file| format!("name the file: {}", file.display())).unwrap_or_default()
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
