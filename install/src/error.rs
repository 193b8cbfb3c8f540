//! What can go wrong while installing or uninstalling.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why an installation or its removal stopped.
///
/// Nothing is rolled back: what is in place by then is recorded, and running the same command again
/// goes on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Foreign files are where ours belong. Nothing was changed.
    #[error("{} in the way, nothing was changed:{}", files(.0.len()), Lines(.0))]
    Conflicts(Vec<Conflict>),
    /// A file could not be written, read or removed.
    #[error("cannot {action} {}{}", .path.display(), hint(.source))]
    File {
        /// `write`, `read`, `remove`, …
        action: &'static str,
        /// The file, with the root in front.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The list of what was installed cannot be understood.
    #[error(
        "the list of installed files {} is damaged: move it away and run winddown install again",
        .path.display()
    )]
    Record {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A program to install is not there.
    #[error("a program to install, {}, is not a regular file: winddown, winddownd and winddown-shim are needed in one directory", .path.display())]
    Program {
        /// Where it should be.
        path: PathBuf,
    },
    /// A path needs to be written into a unit file and cannot be.
    #[error("{} cannot be named in a unit file: use an absolute path of letters, digits and ._-/+", .path.display())]
    ProgramDirectory {
        /// The directory that was given.
        path: PathBuf,
    },
    /// The configuration that is to be used has an error.
    #[error("the configuration {} is not usable: fix it and run winddown install again", .path.display())]
    Config {
        /// The file, with the root in front.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// More than one thing could be meant. Nothing was changed.
    #[error("more than one {what} is here: {}; choose with {flag}, as in: winddown install --companion {flag} {}", .found.join(", "), .found.first().map_or("", String::as_str))]
    Ambiguous {
        /// What there is more than one of.
        what: &'static str,
        /// All of them.
        found: Vec<String>,
        /// The option that chooses one.
        flag: &'static str,
    },
    /// There is no kubelet, or nothing says where its credentials are. Nothing was changed.
    #[error(
        "no kubelet found: no running one has a readable --kubeconfig, and there is no kubelet.service, k3s.service, \
         k3s-agent.service or kubeconfig at a usual place; name one with --kubeconfig FILE"
    )]
    NoKubelet,
    /// The kubelet that was named is not here. Nothing was changed.
    #[error("there is no kubelet {name} here; there is {}", if .found.is_empty() { "none".to_owned() } else { .found.join(", ") })]
    NoSuchKubelet {
        /// What was named.
        name: String,
        /// What there is.
        found: Vec<String>,
    },
    /// What the kubelet's configuration says is not known. Nothing was changed.
    #[error("the kubelet's configuration {} cannot be read: {why}", .file.display())]
    KubeletConfiguration {
        /// The file, without the root.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// Something is mounted where all files are to be removed. Nothing was changed.
    #[error(
        "{} is mounted below {}, nothing was changed: end the pods with winddown drain, then \
         umount {}, and run the same command again",
        .mount.display(), .directory.display(), .mount.display()
    )]
    Mounted {
        /// The directory that was to go.
        directory: PathBuf,
        /// What is mounted there.
        mount: PathBuf,
    },
    /// Symbolic links lead nowhere.
    #[error("{} leads through too many symbolic links", .path.display())]
    LinkLoop {
        /// The path as it was asked for, with the root in front.
        path: PathBuf,
    },
    /// The files are in place and systemd did not do what it was asked.
    #[error(
        "the files are in place, but systemd does not use them yet: run the same command again"
    )]
    Systemd {
        /// The command that did not succeed.
        source: HostError,
    },
}

/// One foreign file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The path, without the root.
    pub path: String,
    /// What is there, and what to do about it.
    pub why: &'static str,
}

/// A command of the host that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// It could not be started.
    #[error("{command} could not be started")]
    Start {
        /// The command with its arguments.
        command: String,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// It ended with a failure.
    #[error("{command} failed ({status}): {output}")]
    Failed {
        /// The command with its arguments.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said on its standard error.
        output: String,
    },
    /// It did not end in time and was killed.
    #[error("{command} did not end within {after:?} and was killed")]
    Timeout {
        /// The command with its arguments.
        command: String,
        /// How long it was given.
        after: Duration,
    },
}

impl HostError {
    /// In one line, with its cause.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Start { source, .. } => format!("{self}: {source}"),
            Self::Failed { .. } | Self::Timeout { .. } => self.to_string(),
        }
    }
}

impl InstallError {
    pub(super) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}

fn files(count: usize) -> String {
    if count == 1 { "a file is".to_owned() } else { format!("{count} files are") }
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            " (for a read-only /usr, choose another place for the programs with --bin-dir; the \
             files already in place are kept)"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (make room and run the same command again; the files already in place are kept)"
        }
        io::ErrorKind::PermissionDenied => {
            " (run it as root, or into a directory of yours with --root)"
        }
        _ => "",
    }
}

struct Lines<'a>(&'a [Conflict]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Conflict { path, why } in self.0 {
            write!(f, "\n  {path}: {why}")?;
        }
        Ok(())
    }
}
