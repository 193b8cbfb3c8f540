//! Observations of files. Everything blocks.

use std::fs::{self, Metadata};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use winddown_shared::{WallTime, error_chain};
use winddown_shutdown::{FileError, ReportStore};

use super::{ObservedNode, not_observed};
use crate::facts::{
    ConfigFact, ConfigRead, DOCKERS_SCOPES, Fact, InPlaceOfLogs, Installed, NotObserved,
    RUNTIME_UNITS, ShutdownCommand, SocketFile, StateDirectory, UNIT,
};
use winddown_companion::kubelet::UNIT_DIRECTORIES;
use winddown_config::{Config, ConfigError, Origin};
use winddown_control::api::ReportList;
use winddown_host::{FreeSpace, if_exists, in_root, link_in_root, regular};
use winddown_node::reports;

/// Prefixes of the scopes that container runtimes create for containers.
const SCOPES: [&str; 3] = ["cri-containerd-", "crio-", DOCKERS_SCOPES];
const COMMANDS: [&str; 4] = ["shutdown", "reboot", "poweroff", "halt"];

/// The path of the configuration, including `root`: a fix for an image must not name the host's file.
pub(super) fn config_path(place: &ObservedNode) -> PathBuf {
    place.config.clone().unwrap_or_else(|| in_root(&place.root, winddown_config::DEFAULT_FILE))
}

pub(super) fn config(place: &ObservedNode) -> ConfigFact {
    let file = config_path(place);
    let (read, config) = match winddown_config::load(&place.root, place.config.as_deref()) {
        Ok(loaded) => {
            let read = match loaded.origin {
                Origin::File => {
                    ConfigRead::Valid(loaded.warnings.iter().map(ToString::to_string).collect())
                }
                Origin::LastInForce => {
                    let wrong = loaded.refused.iter().flat_map(|why| why.lines());
                    let wrong = wrong.map(str::to_owned).collect();
                    ConfigRead::LastInForce { copy: loaded.file, wrong }
                }
                Origin::Defaults => ConfigRead::Defaults,
            };
            (read, loaded.config)
        }
        Err(ConfigError::Read { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            (ConfigRead::Unread(NotObserved::Denied, source.to_string()), Config::default())
        }
        Err(error) => {
            let lines = error_chain(&error).lines().map(str::to_owned).collect();
            (ConfigRead::Invalid(lines), Config::default())
        }
    };
    let is_line = |line: &str| !line.starts_with(['{', '"', '\'']);
    let text = regular::read_to_string(&file, regular::MAX_CONFIGURATION_BYTES);
    let has_lines = text.is_ok_and(|text| text.lines().all(is_line));
    ConfigFact { file, read, config, has_lines }
}

pub(super) fn installed(root: &Path) -> Installed {
    let unit_there = |name: &str| {
        // The first directory that has it decides: a mask in /etc hides a package's file.
        let mut paths =
            UNIT_DIRECTORIES.iter().map(|directory| in_root(root, directory).join(name));
        let first = paths.find(|path| path.symlink_metadata().is_ok());
        let target = first.as_ref().and_then(|path| fs::read_link(path).ok());
        first.is_some() && target.is_none_or(|to| to != Path::new("/dev/null"))
    };
    let wants = in_root(root, "/etc/systemd/system/multi-user.target.wants").join(UNIT);
    let drop_in = |prefix: &&str| unit_there(&format!("{prefix}.scope.d/50-winddown.conf"));
    Installed {
        unit: unit_there(UNIT),
        enabled: wants.symlink_metadata().is_ok(),
        ordered_scopes: SCOPES.into_iter().filter(drop_in).collect(),
        runtime_units: RUNTIME_UNITS
            .iter()
            .flat_map(|(_, units)| *units)
            .copied()
            .filter(|unit| unit_there(unit))
            .collect(),
    }
}

/// Writes a file to the state directory, syncs it and removes it again.
pub(super) fn state(directory: &Path) -> Fact<StateDirectory> {
    let facts = match fs::metadata(directory) {
        Ok(facts) => facts,
        Err(error) => return not_observed(&error, directory),
    };
    if !facts.is_dir() {
        return not_observed(&std::io::ErrorKind::NotADirectory.into(), directory);
    }
    let unwritable = match write_something(directory) {
        Ok(()) => None,
        Err(error)
            if error.kind() == std::io::ErrorKind::PermissionDenied
                && !rustix::process::geteuid().is_root() =>
        {
            return not_observed(&error.kind().into(), directory);
        }
        // Without the path of the temporary file.
        Err(error) => error.to_string().split(" at path ").next().map(str::to_owned),
    };
    match FreeSpace::of(directory) {
        Ok(left) => Fact::Known(StateDirectory { path: directory.to_owned(), unwritable, left }),
        Err(error) => not_observed(&error, directory),
    }
}

pub(super) fn in_place_of_logs(logs: Option<PathBuf>) -> Fact<Option<InPlaceOfLogs>> {
    let Some(path) = logs else { return Fact::Known(None) };
    match regular::directory_below(&path, Path::new("")) {
        Ok(_) => Fact::Known(None),
        // The agent makes it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Fact::Known(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            let leads_to = fs::canonicalize(&path).ok().filter(|target| target.is_dir());
            Fact::Known(Some(InPlaceOfLogs { what: error.to_string(), leads_to, path }))
        }
        Err(error) => not_observed(&error, &path),
    }
}

pub(super) fn socket(path: &Path) -> Fact<SocketFile> {
    let look = |path: &Path| fs::symlink_metadata(path);
    let facts = match look(path) {
        Ok(facts) => facts,
        Err(error) => return not_observed(&error, path),
    };
    if !facts.file_type().is_socket() {
        return Fact::Unknown(NotObserved::Absent, format!("{}: no socket", path.display()));
    }
    let gid = nix::unistd::Gid::from_raw(facts.gid());
    let group = nix::unistd::Group::from_gid(gid).ok().flatten();
    Fact::Known(SocketFile {
        path: path.to_owned(),
        mode: facts.mode() & 0o7777,
        uid: facts.uid(),
        group: group.map_or_else(|| gid.to_string(), |group| group.name),
        directory_mode: path
            .parent()
            .and_then(|directory| fs::metadata(directory).ok())
            .map_or(0, |facts| facts.mode() & 0o7777),
    })
}

/// The newest timestamp of files that were certainly written in the past.
pub(super) fn newest(state: &Path) -> Option<(PathBuf, WallTime)> {
    let program = std::env::current_exe().ok();
    let reports = reports::directory(state);
    [program, Some(reports), Some(PathBuf::from(winddown_config::DEFAULT_FILE))]
        .into_iter()
        .flatten()
        .filter_map(|path| {
            let at = modified(&fs::metadata(&path).ok()?)?;
            Some((path, at))
        })
        .max_by_key(|(_, at)| *at)
}

pub(super) fn kept_reports(state: &Path) -> Fact<ReportList> {
    match listed(state) {
        Ok(list) => Fact::Known(list),
        Err(error) => not_observed(&error, &reports::directory(state)),
    }
}

/// Determines whether the last run on a machine that is up left a report.
pub(super) fn unreported(
    place: &ObservedNode,
    state: &Path,
    socket: &Path,
) -> Fact<Option<String>> {
    if !place.live {
        return Fact::Known(None);
    }
    let list = match listed(state) {
        Ok(list) => list,
        Err(error) => return not_observed(&error, &reports::directory(state)),
    };
    let this = winddown_host::machine::boot_id();
    let this = (&*this, winddown_host::machine::boot_clock().system_start());
    match reports::unreported(state, socket.parent(), this, &list) {
        Ok(what) => Fact::Known(what),
        Err(error) => {
            let kind = match &error {
                FileError::Io { source, .. } => super::kind(source),
                _ => NotObserved::Failed,
            };
            Fact::Unknown(kind, error_chain(&error))
        }
    }
}

/// Reads the list of reports; where no agent has made their directory, there are none.
fn listed(state: &Path) -> std::io::Result<ReportList> {
    let directory = reports::directory(state);
    match if_exists(fs::metadata(&directory))? {
        Some(_) => reports::list(&ReportStore::new(directory)),
        None => Ok(ReportList::default()),
    }
    .map_err(|error| std::io::Error::other(error.to_string()))
}

/// The commands that shut the machine down, with the paths that their links lead to.
pub(super) fn commands(root: &Path) -> Vec<ShutdownCommand> {
    COMMANDS
        .iter()
        .filter_map(|name| {
            let there =
                |directory: &&str| in_root(root, directory).join(name).symlink_metadata().is_ok();
            let directory = ["/usr/sbin", "/sbin", "/usr/bin"].into_iter().find(|d| there(d))?;
            let path = Path::new(directory).join(name);
            let leads_to = followed(root, &path);
            Some(ShutdownCommand { path, leads_to })
        })
        .collect()
}

/// Follows symbolic links below `root`, including absolute ones, for up to eight steps.
fn followed(root: &Path, path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..8 {
        let Ok(target) = fs::read_link(link_in_root(root, &path)) else { break };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    path
}

fn write_something(directory: &Path) -> std::io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".doctor-").tempfile_in(directory)?;
    file.write_all(b"can this be written?\n")?;
    file.as_file().sync_all()?;
    file.close()
}

fn modified(facts: &Metadata) -> Option<WallTime> {
    let at: SystemTime = facts.modified().ok()?;
    WallTime::try_from(at).ok()
}
