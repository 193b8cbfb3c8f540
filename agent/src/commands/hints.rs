//! What to do next when a command that needs no agent, or the agent itself, cannot go on.

use std::io;
use std::path::Path;

use winddown_config::ConfigError;
use winddown_control::SocketError;
use winddown_daemon::service::StartError;

/// What to do about a configuration; empty where the error says it all.
pub(super) fn of_config(error: &ConfigError) -> String {
    let ConfigError::Read { path, source } = error else { return String::new() };
    match source.kind() {
        io::ErrorKind::NotFound => {
            format!("winddown config default > {} writes one to start from", path.display())
        }
        io::ErrorKind::IsADirectory => {
            format!("name the file: {}", path.join("config.yaml").display())
        }
        _ => of_file(source),
    }
}

/// What to do about an agent that cannot start; empty where the error says it all.
pub(super) fn of_start(error: &StartError) -> String {
    match error {
        StartError::Config(error) => of_config(error),
        StartError::Directory { source, .. } => of_file(source),
        StartError::Socket(SocketError::InUse { .. }) => {
            "winddown status shows the agent that runs; systemctl restart winddown starts it anew, \
             and no pod ends"
                .to_owned()
        }
        StartError::Cluster(_) => {
            "`winddown config show` prints the paths in force; a kubeconfig of \
             this node comes from the cluster's administrator, or is asked for with \
             bootstrapKubeconfig"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// What to do about a file or directory that could not be read or made.
pub(super) fn of_file(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run it as root; to try winddown as somebody else: winddown drill"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is where a directory has to be: move it away, or write another path into the \
             configuration"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "make the file system writable, or write another path into the configuration"
        }
        io::ErrorKind::StorageFull => "make room on that disk: df -h, df -i",
        _ => "",
    }
    .to_owned()
}

/// What to do about manifests that are not there.
pub(super) fn of_manifests(path: &Path) -> String {
    format!("give a manifest, or a directory with some: ls {}", path.display())
}
