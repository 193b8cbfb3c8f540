//! The parts of an installation: every file with its path and content.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use winddown_config::Config;
use winddown_shared::seconds_up;

use super::Runtime;

macro_rules! unit_file {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../systemd/units/", $name))
    };
}

pub(super) const UNIT: &str = "/etc/systemd/system/winddown.service";
/// The unit of a package. If it exists, the package owns the programs and the units.
pub(super) const PACKAGED_UNIT: &str = "/usr/lib/systemd/system/winddown.service";
/// The programs, in the order of installation: a program comes before those that start it.
pub(super) const PROGRAMS: [&str; 3] = ["winddown-shim", "winddownd", "winddown"];
/// The directory of a package's programs.
pub(super) const PACKAGED_PROGRAMS: &str = "/usr/bin";
pub(super) const PROCESS_DROP_IN: &str =
    "/etc/systemd/system/winddown.service.d/10-process-runtime.conf";
/// The stop timeout of a package's unit, if it has to be longer than the package's.
pub(super) const STOP_TIME_DROP_IN: &str =
    "/etc/systemd/system/winddown.service.d/20-stop-time.conf";
pub(super) const WANTS: &str = "/etc/systemd/system/multi-user.target.wants/winddown.service";
/// The agent's drop-in for logind. The agent writes it when logind gives less time than the configuration needs, and
/// removes it when logind gives enough without it.
pub(super) const LOGIND_DROP_IN: &str = "/etc/systemd/logind.conf.d/zz-winddown.conf";
/// The agent's drop-in for logind while `/etc` is read-only.
pub(super) const VOLATILE_LOGIND_DROP_IN: &str = "/run/systemd/logind.conf.d/zz-winddown.conf";
/// The slice of all pods, the parent of each pod's slice.
pub(super) const SLICE: &str = "/etc/systemd/system/winddown.slice";
pub(super) const SURVIVORS: &str = "/etc/systemd/system/winddown-survivors.slice";
/// What the agent stops before, and does not wait for as it starts.
pub(super) const ORDER: &str = "/etc/systemd/system/winddown-order.target";
/// The kubelet's unit, where its name is none of those in the target.
pub(super) const KUBELET_DROP_IN: &str =
    "/etc/systemd/system/winddown-order.target.d/50-kubelet.conf";
pub(super) const SYSUSERS: &str = "/etc/sysusers.d/winddown.conf";
pub(super) const TMPFILES: &str = "/etc/tmpfiles.d/winddown.conf";
pub(super) const CONFIG: &str = "/etc/winddown/config.yaml";
pub(super) const MANIFESTS: &str = "/etc/winddown/pods";
pub(super) const STATE: &str = "/var/lib/winddown";
pub(super) const LOGS: &str = "/var/log/winddown";
pub(super) const VOLATILE: &str = "/run/winddown";

/// needrestart's settings for the services of pods.
const NEEDRESTART: &str = "/etc/needrestart/conf.d/winddown.conf";

/// The target of a link that masks a file of the same name.
pub(super) const MASK: &str = "/dev/null";

/// The prefixes of the scopes in which container runtimes run containers.
const SCOPES: [&str; 2] = ["cri-containerd-", "crio-"];

/// The time between the end of the budget and systemd's SIGKILL, for writing the report and killing the last pods.
const STOP_SLACK: Duration = Duration::from_secs(30);
/// The shortest stop timeout: systemd's default.
const STOP_AT_LEAST: Duration = Duration::from_secs(90);

/// A file, link or directory to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asset {
    pub(super) path: String,
    pub(super) kind: AssetKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AssetKind {
    Directory { mode: u32 },
    Link { target: &'static str },
    File { mode: u32, body: Body, owner: FileOwner },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Text(String),
    /// A copy of a file on this machine (not below the root).
    Copy {
        from: CopySource,
        sha256: String,
    },
}

/// A file to copy. It is opened once: what is copied is what was looked at, whatever takes its name meanwhile.
#[derive(Clone, Debug)]
pub(super) struct CopySource {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
}

impl PartialEq for CopySource {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for CopySource {}

/// A file that may be replaced once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OldFile {
    pub(super) sha256: String,
    /// Whether it is kept beside the new one.
    pub(super) keep: bool,
}

/// Who may change a file once it is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileOwner {
    /// Only `install` may change it.
    Install,
    /// `install` creates it, or replaces this file, then leaves it alone. `uninstall` removes it unless it was edited.
    Once { instead_of: Option<OldFile> },
    /// The operator owns it: `install` only creates it if it is missing.
    Operator,
}

/// The choices that determine the parts of an installation.
#[derive(Clone, Debug)]
pub(super) struct Choices {
    /// Whether a package owns the programs and the units.
    pub(super) packaged: bool,
    pub(super) runtime: Runtime,
    pub(super) enable: bool,
    /// The directory of the programs, without the root; checked to be safe in a unit file.
    pub(super) bin_dir: String,
    pub(super) programs: Vec<Program>,
    /// The initial text of the configuration, and the owner of the file.
    pub(super) config: (String, FileOwner),
    /// The file that has this text, if one was named.
    pub(super) given: Option<CopySource>,
    /// The longest time that the configuration allows for a shutdown.
    pub(super) budget: Duration,
    /// The configured directory of the agent's records.
    pub(super) state: PathBuf,
    /// The unit of the kubelet that terminates the pods, if there is one.
    pub(super) kubelet: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) from: CopySource,
    pub(super) sha256: String,
}

/// Lists everything to install: directories before their content, and the unit after everything it needs.
pub(super) fn items(choices: &Choices) -> Vec<Asset> {
    let mut items = vec![
        // Pods of other users must reach their termination log, but not list the directory.
        directory(STATE, 0o711),
        directory(LOGS, 0o750),
        directory("/etc/winddown", 0o755),
        directory(MANIFESTS, 0o755),
        file(CONFIG, 0o644, choices.config.1.clone(), choices.config.0.clone()),
        // The unit's sandbox makes this directory writable for the agent's drop-in.
        directory("/etc/systemd/logind.conf.d", 0o755),
    ];
    items.extend(choices.kubelet.as_deref().and_then(before_kubelet));
    if choices.runtime == Runtime::Systemd {
        let text = unit_file!("needrestart.d/winddown.conf").to_owned();
        items.push(file(NEEDRESTART, 0o644, FileOwner::Install, text));
    }
    if choices.packaged {
        items.extend(beside_a_package(choices));
        return items;
    }
    items.extend(choices.programs.iter().map(|program| {
        let body = Body::Copy { from: program.from.clone(), sha256: program.sha256.clone() };
        let path = format!("{}/{}", choices.bin_dir, program.name);
        Asset { path, kind: AssetKind::File { mode: 0o755, body, owner: FileOwner::Install } }
    }));
    for (path, text) in [
        (SYSUSERS, unit_file!("sysusers.d/winddown.conf")),
        (TMPFILES, unit_file!("tmpfiles.d/winddown.conf")),
        (SLICE, unit_file!("winddown.slice")),
        (SURVIVORS, unit_file!("winddown-survivors.slice")),
        (ORDER, unit_file!("winddown-order.target")),
    ] {
        items.push(file(path, 0o644, FileOwner::Install, text.to_owned()));
    }
    match choices.runtime {
        Runtime::Process => items.push(file(
            PROCESS_DROP_IN,
            0o644,
            FileOwner::Install,
            unit_file!("winddown.service.d/10-process-runtime.conf").to_owned(),
        )),
        // The transient services set their order to the agent's unit themselves.
        Runtime::Systemd => {}
        Runtime::Cri => items.extend(SCOPES.map(|prefix| {
            let path = format!("/etc/systemd/system/{prefix}.scope.d/50-winddown.conf");
            let text = unit_file!("scope.d/50-winddown.conf").to_owned();
            file(&path, 0o644, FileOwner::Install, text)
        })),
    }
    items.push(file(UNIT, 0o644, FileOwner::Install, unit(&choices.bin_dir, choices.budget)));
    if choices.enable {
        items.push(Asset { path: WANTS.to_owned(), kind: AssetKind::Link { target: UNIT } });
    }
    items
}

/// Lists what a package does not do: its unit is for the process runtime and the default grace periods, and not enabled.
fn beside_a_package(choices: &Choices) -> Vec<Asset> {
    let link =
        |path: &str, target| Asset { path: path.to_owned(), kind: AssetKind::Link { target } };
    let mut items = Vec::new();
    if choices.runtime != Runtime::Process {
        // Mask the drop-in in /usr.
        items.push(link(PROCESS_DROP_IN, MASK));
    }
    let packaged = stop_time(super::stop_budget(&Config::default().shutdown));
    let stop = stop_time(choices.budget);
    if stop > packaged {
        let text = format!(
            "# The shutdown budget of the configuration plus 30 s. Installed by \"winddown install\".\n\n\
             [Service]\nTimeoutStopSec={}s\n",
            seconds_up(stop)
        );
        items.push(file(STOP_TIME_DROP_IN, 0o644, FileOwner::Install, text));
    }
    if choices.enable {
        items.push(link(WANTS, PACKAGED_UNIT));
    }
    items
}

/// Has the agent stop before this unit, unless it does so already: the kubelet is needed until the pods have terminated.
fn before_kubelet(unit: &str) -> Option<Asset> {
    let target = unit_file!("winddown-order.target").lines();
    let mut named =
        target.filter_map(|line| line.strip_prefix("After=")).flat_map(str::split_whitespace);
    let is_name = |c: char| c.is_ascii_alphanumeric() || ":_.\\@-".contains(c);
    if named.any(|name| name == unit) || !unit.chars().all(is_name) {
        return None;
    }
    let text = format!(
        "# winddown: the kubelet's unit. Installed by \"winddown install --companion\".\n\n[Unit]\nAfter={unit}\n"
    );
    Some(file(KUBELET_DROP_IN, 0o644, FileOwner::Install, text))
}

fn stop_time(budget: Duration) -> Duration {
    budget.saturating_add(STOP_SLACK).max(STOP_AT_LEAST)
}

fn unit(bin_dir: &str, budget: Duration) -> String {
    let stop = stop_time(budget);
    unit_file!("winddown.service")
        .replace("@BIN_DIR@", bin_dir)
        .replace("@TIMEOUT_STOP@", &format!("{}s", seconds_up(stop)))
}

fn directory(path: &str, mode: u32) -> Asset {
    Asset { path: path.to_owned(), kind: AssetKind::Directory { mode } }
}

fn file(path: &str, mode: u32, owner: FileOwner, text: String) -> Asset {
    Asset { path: path.to_owned(), kind: AssetKind::File { mode, body: Body::Text(text), owner } }
}
