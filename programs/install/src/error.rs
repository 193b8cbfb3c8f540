//! Errors of `install` and `uninstall`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use winddown_companion::kubelet::KubeletProblem;
use winddown_host::{path_word, shell_word};
use winddown_shared::display::clean;

use super::next_step::NextStep;
use super::untrusted::Untrusted;

/// Why `install` or `uninstall` stopped.
///
/// Nothing is rolled back: what was done is recorded, and running the same command again continues
/// from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Foreign files exist at paths of ours. Nothing was changed.
    #[error("{} in the way, nothing was changed:{}", files(.0.len()), listed("\n  ", .0))]
    Conflicts(Vec<Conflict>),
    /// Users other than root, and than the one who runs the command, could decide what the agent runs or believes.
    /// Nothing was changed.
    #[error("other users could decide what root runs, nothing was changed:{}", listed("\n  ", .0))]
    OthersMayWrite(Vec<Untrusted>),
    /// A file could not be written, read or removed.
    #[error("cannot {action} {}{}", .path.display(), limits(.source))]
    File {
        /// `write`, `read`, `remove`, …
        action: &'static str,
        /// The file, including the root.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The record of the installation cannot be parsed.
    #[error(
        "the list of installed files {} is damaged", .path.display()
    )]
    Record {
        /// The record.
        path: PathBuf,
        /// The error.
        source: serde_json::Error,
    },
    /// A program to install does not exist.
    #[error("a program to install, {}, is not a regular file", .path.display())]
    Program {
        /// The path where it should be.
        path: PathBuf,
    },
    /// A program to install is not of the version of the one that runs. Nothing was changed.
    #[error(
        "{} {}, and this is winddown {}",
        .path.display(), of_version(.version.as_deref()), env!("CARGO_PKG_VERSION")
    )]
    OtherVersion {
        /// The program.
        path: PathBuf,
        /// Its version; `None` if it names none.
        version: Option<String>,
    },
    /// Once the companion is gone, nothing would end the kubelet's pods at a shutdown. Nothing was changed.
    #[error(
        "without winddown nothing would terminate the kubelet's pods at a shutdown; nothing was changed{}\nFirst:{}\n\
         --force uninstalls all the same",
        listed("\n  seen: ", .seen.iter().map(|one| clean(one))),
        listed("\n  ", .first.iter().map(|one| clean(one)))
    )]
    LeavesPods {
        /// What keeps the kubelet from it.
        seen: Vec<String>,
        /// The steps by which the kubelet ends its pods itself again, and the uninstallation.
        first: Vec<NextStep>,
    },
    /// The agent could not be stopped. Nothing was changed.
    #[error("the agent cannot be stopped, nothing was changed")]
    NotStopped {
        /// The error of the command.
        source: HostError,
    },
    /// The unit's sandbox hides the directory of the programs. Nothing was changed.
    #[error("{} is hidden from the unit, which would not start, nothing was changed", .path.display())]
    HiddenPrograms {
        /// The directory that was given.
        path: PathBuf,
    },
    /// A file system is mounted read-only. Nothing was changed.
    #[error("{} is on a read-only file system, nothing was changed", .path.display())]
    ReadOnly {
        /// What cannot be written, including the root.
        path: PathBuf,
        /// Whether it is a program, which can be elsewhere.
        is_program: bool,
    },
    /// A path cannot be written into a unit file.
    #[error("{} cannot be named in a unit file", .path.display())]
    ProgramDirectory {
        /// The directory that was given.
        path: PathBuf,
    },
    /// The configuration to use is invalid.
    #[error("the configuration {} is not usable", .path.display())]
    Config {
        /// The file, including the root.
        path: PathBuf,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The choice is ambiguous. Nothing was changed.
    #[error("more than one {what} is here: {}", clean(&.found.join(", ")))]
    Ambiguous {
        /// The kind of thing found more than once.
        what: &'static str,
        /// All of them.
        found: Vec<String>,
        /// The option that chooses one.
        flag: &'static str,
    },
    /// There is no kubelet, or its credentials cannot be found. Nothing was changed.
    #[error(
        "{}no kubelet found: none runs as a service of this machine, no unit starts one, and there is no kubeconfig at a \
         usual place{}", .because, listed("; ", .strangers.iter().map(|one| clean(one)))
    )]
    NoKubelet {
        /// Why one is looked for, before the rest of the text, if that was not asked for.
        because: String,
        /// Processes that have a kubelet's name and are not this machine's kubelet, and why not.
        strangers: Vec<String>,
    },
    /// The kubelet that was named does not exist. Nothing was changed.
    #[error("there is no kubelet {} here{}{}", clean(.name), if .found.is_empty() { ", and no other".to_owned() } else { format!("; there is {}", clean(&.found.join(", "))) }, listed("; ", .strangers.iter().map(|one| clean(one))))]
    NoSuchKubelet {
        /// The name that was given.
        name: String,
        /// The kubelets that exist.
        found: Vec<String>,
        /// As in [`Self::NoKubelet`].
        strangers: Vec<String>,
    },
    /// The kubelet's configuration cannot be read. Nothing was changed.
    #[error("the kubelet's configuration {} cannot be read: {}", clean(&.problem.place()), clean(&.problem.why))]
    KubeletConfiguration {
        /// The file and the error.
        problem: KubeletProblem,
    },
    /// winddown refuses a value that the kubelet has, or that the operator gave. Nothing was changed.
    #[error("{}: {}", clean(.origin), clean(.why))]
    KubeletValue {
        /// The file and line, or the option.
        origin: String,
        /// What is wrong.
        why: String,
    },
    /// What the kubelet is started with is not known. Nothing was changed.
    #[error("the arguments of {} are not known: {}", clean(.kubelet), clean(.why))]
    KubeletArguments {
        /// The unit or process.
        kubelet: String,
        /// The file or program, and the error.
        why: String,
    },
    /// A path that the kubelet's arguments or the operator name must not be used. Nothing was changed.
    #[error("{what} {} is not used: {}", clean(.path), clean(.why))]
    KubeletPath {
        /// What is there.
        what: &'static str,
        /// The path, without the root.
        path: String,
        /// The reason, and what to do.
        why: String,
    },
    /// Something is mounted below a directory to be removed. Nothing was changed.
    #[error(
        "{} is mounted below {}, nothing was changed", .mount.display(), .directory.display()
    )]
    Mounted {
        /// The directory to be removed.
        directory: PathBuf,
        /// The mount point.
        mount: PathBuf,
    },
    /// Processes use files below a directory to be removed, as those of pods that run do. Nothing was changed.
    #[error("{} is in use by {}, nothing was changed", .directory.display(), clean(.processes))]
    InUse {
        /// The directory to be removed.
        directory: PathBuf,
        /// The processes.
        processes: String,
    },
    /// A path has too many symbolic links, probably a loop.
    #[error("{} leads through too many symbolic links", .path.display())]
    LinkLoop {
        /// The path before resolving links, including the root.
        path: PathBuf,
    },
    /// Only root can do it on this machine. Nothing was changed.
    #[error("only root can {action} winddown on this machine (--root takes a directory of yours)")]
    NotRoot {
        /// `install` or `uninstall`.
        action: &'static str,
    },
    /// A removal failed after the agent was stopped.
    #[error(
        "the agent is stopped, and nothing terminates the pods in order, but it is not removed"
    )]
    Unfinished {
        /// What failed.
        source: Box<InstallError>,
    },
    /// The configuration that is there is not one for a companion. Nothing was changed.
    #[error("the configuration {} is not usable", .path.display())]
    NoCompanion {
        /// The file, including the root.
        path: PathBuf,
        /// Its differences to the one that would be written.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The files are in place, but a systemd command failed.
    #[error("the files are in place, but systemd does not use them yet")]
    Systemd {
        /// The error of the command.
        source: HostError,
    },
}

/// A foreign file at a path of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The path, without the root.
    pub path: String,
    /// What the path is, and what to do about it.
    pub why: &'static str,
}

/// A command on the host failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The command could not be started.
    #[error("{command} could not be started")]
    Start {
        /// The command with its arguments.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// The command exited with an error.
    #[error("{command} failed ({status}): {output}")]
    Failed {
        /// The command with its arguments.
        command: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The beginning of its standard error.
        output: String,
    },
    /// The command timed out and was killed.
    #[error("{command} did not exit within {after:?} and was killed")]
    Timeout {
        /// The command with its arguments.
        command: String,
        /// The timeout.
        after: Duration,
    },
}

impl HostError {
    /// Formats the error and its cause in one line.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Start { source, .. } => format!("{self}: {source}"),
            Self::Failed { .. } | Self::Timeout { .. } => self.to_string(),
        }
    }
}

impl InstallError {
    /// Whether this user lacks the permission.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::NotRoot { .. } => true,
            Self::File { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }

    /// Whether it is about what a configuration says, of winddown or of a kubelet.
    pub fn is_of_configuration(&self) -> bool {
        matches!(
            self,
            Self::Config { .. }
                | Self::NoCompanion { .. }
                | Self::KubeletConfiguration { .. }
                | Self::KubeletValue { .. }
        )
    }

    /// What to do next, as text for users.
    pub fn hint(&self) -> String {
        const ELSEWHERE: &str = "install the programs elsewhere:";
        let text = match self {
            Self::Conflicts(_) => "do what its line says, then run the same command again",
            Self::OthersMayWrite(_) => "type these commands; --force trusts them as they are",
            Self::File { path, source, .. } => return next_for(path, source),
            Self::Record { .. } => "move it away and run `winddown install` again",
            Self::Program { .. } => {
                "unpack the whole package: winddown, winddownd and winddown-shim are needed in one directory"
            }
            Self::OtherVersion { .. } => "unpack one package whole, and run its winddown",
            Self::LeavesPods { .. } => "type these lines in their order",
            Self::NotStopped { .. } => {
                "`systemctl status winddown` shows why; --force uninstalls all the same"
            }
            Self::HiddenPrograms { .. } => return format!("{ELSEWHERE} --bin-dir /usr/local/bin"),
            Self::ReadOnly { is_program: true, .. } => {
                return format!("{ELSEWHERE} --bin-dir /opt/winddown/bin");
            }
            Self::ReadOnly { .. } => "make it writable, then run the same command again",
            Self::ProgramDirectory { .. } => {
                "use an absolute path of letters, digits and ._-/+: --bin-dir /usr/local/bin"
            }
            Self::Config { path, .. } => {
                return format!(
                    "`winddown config check {}` says when it is right; then run the same command again",
                    path_word(path)
                );
            }
            Self::Unfinished { source } => {
                return format!("{}, or install it again", source.hint());
            }
            Self::NoCompanion { path, .. } => return change_or_move(path),
            Self::Ambiguous { found, flag, .. } => {
                let first = found.first().map_or("", String::as_str);
                let first = shell_word(first);
                return format!("choose one: `winddown install --companion {flag} {first}`");
            }
            Self::NoKubelet { .. } => "name one: `winddown install --companion --kubeconfig FILE`",
            Self::NoSuchKubelet { found, .. } if found.is_empty() => {
                "where a kubelet is to come: --kubeconfig FILE"
            }
            Self::NoSuchKubelet { .. } => "name one of these with --kubelet",
            Self::KubeletConfiguration { .. } | Self::KubeletValue { .. } => {
                "correct it and run the same command again"
            }
            Self::KubeletArguments { .. } => {
                "name what is needed with --kubeconfig FILE and --container-runtime-endpoint ADDRESS"
            }
            Self::KubeletPath { .. } => {
                "correct it, or name another with --kubeconfig or --container-runtime-endpoint"
            }
            Self::Mounted { mount, .. } => return unmount(mount),
            Self::InUse { .. } => "`winddown drain` first; --force deletes what running pods use",
            Self::LinkLoop { .. } => "`namei -l` shows them; remove the one that leads back",
            Self::NotRoot { .. } => "run it again with sudo",
            Self::Systemd { .. } => "run the same command again",
        };
        text.to_owned()
    }

    pub(super) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}

fn of_version(version: Option<&str>) -> String {
    version.map_or_else(
        || "names no version".to_owned(),
        |version| format!("is of version {}", clean(version)),
    )
}

fn files(count: usize) -> String {
    if count == 1 { "a file is".to_owned() } else { format!("{count} files are") }
}

/// Why a file cannot be written, where the system's error does not say it.
fn limits(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => " (only root may; --root takes a directory of yours)",
        _ => "",
    }
}

fn change_or_move(path: &Path) -> String {
    let file = path_word(path);
    format!(
        "change these lines, or move it away: `mv {file} {file}.standalone`; then run the same command again"
    )
}

fn unmount(mount: &Path) -> String {
    format!(
        "terminate the pods with `winddown drain`, then `umount {}`, and run the same command again",
        path_word(mount)
    )
}

/// What to do about a file.
fn next_for(path: &Path, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room and run the same command again; the files already in place are kept"
                .to_owned()
        }
        io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            format!("check the name: ls {}", path_word(folder.unwrap_or(Path::new("."))))
        }
        _ => "correct that, then run the same command again".to_owned(),
    }
}

/// All of them, each after `lead`.
fn listed(lead: &str, all: impl IntoIterator<Item: fmt::Display>) -> String {
    all.into_iter().map(|one| format!("{lead}{one}")).collect()
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.why)
    }
}
