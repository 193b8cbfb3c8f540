//! Removes what an installation created.

use std::path::{Path, PathBuf};

use winddown_companion::kubelet::service;
use winddown_config::{AccessSettings, Config, LAST_IN_FORCE, Mode};
use winddown_host::{machine, path_word, regular};
use winddown_notices::drain_of_boot;

use super::assets::{
    CONFIG, LOGIND_DROP_IN, LOGS, MANIFESTS, STATE, SYSUSERS, UNIT, VOLATILE,
    VOLATILE_LOGIND_DROP_IN, WANTS,
};

use super::companion::{self, SwitchedOff};
use super::error::{HostError, InstallError};
use super::host::{Host, LiveHost, command_line, same_directory};
use super::next_step::NextStepKind;
use super::plan::{self, InstallWork, PlannedStep};
use super::record::{InstallRecord, InstalledEntry, RECORD};
use super::report::{ChangeAction, InstallReport, PathChange};
use super::tree::{FoundPath, Tree};
use super::trust;

/// The agent's drop-ins for logind.
const DROP_INS: [&str; 2] = [LOGIND_DROP_IN, VOLATILE_LOGIND_DROP_IN];

/// What a purge removes whole.
const PURGED: [&str; 3] = [STATE, LOGS, VOLATILE];

/// The options of [`uninstall`].
#[derive(Clone, Debug)]
pub struct UninstallOptions {
    /// The root of the machine or image; `/` is this machine.
    pub root: PathBuf,
    /// Whether to also remove the configuration, the state with its reports, and the logs. Pod
    /// manifests always stay, and so do directories that the configuration chose for state and logs.
    pub purge: bool,
    /// Whether to also remove our files that were edited, a companion whose kubelet does not terminate its pods itself,
    /// and, with `purge`, what pods use that run.
    pub force: bool,
    /// Whether to only report what would be done.
    pub dry_run: bool,
}

impl Default for UninstallOptions {
    fn default() -> Self {
        Self { root: PathBuf::from("/"), purge: false, force: false, dry_run: false }
    }
}

/// Stops the agent, also one of a package, and removes what was installed, and the link that starts the agent at
/// boot. Pods keep running; use `winddown drain` first to stop them.
///
/// # Errors
/// See [`InstallError`]. After [`InstallError::Unfinished`] the agent is stopped. The same command can be run again and
/// continues where it stopped.
pub fn uninstall(options: &UninstallOptions) -> Result<InstallReport, InstallError> {
    super::host::unless_root("uninstall", &options.root, options.dry_run)?;
    let live = LiveHost::at(&options.root);
    uninstall_on(options, live.as_ref().map(|host| host as &dyn Host))
}

/// Like [`uninstall`], but with the given host; `None` only removes files.
///
/// # Errors
/// As [`uninstall`].
pub fn uninstall_on(
    options: &UninstallOptions,
    host: Option<&dyn Host>,
) -> Result<InstallReport, InstallError> {
    let tree = Tree::new(&options.root);
    let record = InstallRecord::load(&tree)?;
    let mut report = InstallReport { dry_run: options.dry_run, ..InstallReport::default() };
    refuse_untrusted(options, &record, &mut report)?;
    let config = config(&tree);
    let is_beside = config.as_ref().is_some_and(|config| config.node.mode == Mode::Companion);
    let access = config.as_ref().map(|config| config.access.clone()).unwrap_or_default();
    if options.purge {
        // Check this before removing anything: if the uninstall stopped half-way, there would be no agent to unmount.
        PURGED.into_iter().try_for_each(|path| tree.refuse_mounts(path))?;
        // With every runtime, a process has the log of each container open that runs.
        if let Some(logs) = access.pod_logs_dir.to_str().filter(|_| !options.force) {
            tree.refuse_use(logs)?;
        }
    }
    let unit_stays = keeps_unit(&tree, &record, options)?;
    let steps = steps(&tree, &record, options, unit_stays)?;
    let kubelets = switch_on(&tree, host, config.as_ref())?;
    if host.is_some() && !options.force && !kubelets.steps.is_empty() {
        let last = NextStepKind::Uninstall.typed("winddown uninstall");
        let first = kubelets.steps.into_iter().chain([last]).collect();
        return Err(InstallError::LeavesPods { seen: kubelets.seen, first });
    }
    let is_drop_in = |s: &PlannedStep| DROP_INS.contains(&&*s.change.path);
    let drop_in = steps.iter().any(|s| is_drop_in(s) && s.work == InstallWork::Remove);
    refuse_read_only(&tree, &record, options, &steps)?;
    let stopped = stop(&tree, host, options, &mut report)?;
    let stopped_kubelet = stopped_kubelet(&tree, &access);
    let removed = remove(&tree, &record, options, (steps, unit_stays), &access, &mut report);
    removed.map_err(|error| match stopped && !options.dry_run {
        true => InstallError::Unfinished { source: Box::new(error) },
        false => error,
    })?;
    let is_unit_file = |change: &PathChange| change.path.starts_with(UNIT_FILES);
    let removed = |change: &&PathChange| change.action == ChangeAction::Removed;
    if report.changes.iter().filter(removed).any(is_unit_file) {
        run(host, options, &mut report, &["daemon-reload"]);
    }
    if drop_in {
        run(host, options, &mut report, &["kill", "-s", "HUP", "systemd-logind.service"]);
    }
    if tree.is_packaged()? {
        report.notes.push(PACKAGED.to_owned());
    }
    if stopped {
        let group_stays = record.entries.contains_key(SYSUSERS) && !unit_stays;
        let is_drained = is_drained(&tree, options, &access);
        // A purge has seen that none runs.
        let may_run = !is_beside && (!options.purge || options.force);
        let notes = [(may_run, OUTLIVE), (group_stays, GROUP), (is_drained, DRAINED)];
        report.notes.extend(notes.iter().filter(|(is, _)| *is).map(|(_, note)| (*note).to_owned()));
        report.notes.extend(stopped_kubelet);
    }
    report.next = kubelets.steps;
    Ok(report)
}

/// Refuses an image that others may write: they say what is removed, and could swap a directory on the way to it for a link
/// to this machine's.
fn refuse_untrusted(
    options: &UninstallOptions,
    record: &InstallRecord,
    report: &mut InstallReport,
) -> Result<(), InstallError> {
    if same_directory(&options.root, Path::new("/")) {
        return Ok(());
    }
    let fixed = [CONFIG, UNIT, WANTS, LOGIND_DROP_IN, VOLATILE_LOGIND_DROP_IN, RECORD, VOLATILE];
    let all = record.entries.keys().map(String::as_str).chain(fixed);
    // The log daemon's group may write the directory of logs on some distributions.
    let above = all.filter(|path| *path != LOGS).filter_map(|path| Path::new(path).parent());
    let found = trust::places(&trust::caller(), &options.root, above)?;
    trust::refuse(found, options.force, report)
}

/// Looks for read-only file systems before the agent is stopped.
fn refuse_read_only(
    tree: &Tree,
    record: &InstallRecord,
    options: &UninstallOptions,
    steps: &[PlannedStep],
) -> Result<(), InstallError> {
    let steps = steps.iter().filter(|step| step.work == InstallWork::Remove);
    let purged = std::iter::once(CONFIG).chain(PURGED).filter(|_| options.purge);
    let directories = record.entries.iter();
    let directories = directories.filter(|(_, entry)| **entry == InstalledEntry::Directory);
    let paths = steps.map(|step| &*step.change.path).chain(purged);
    for path in paths.chain(directories.map(|(path, _)| &**path)) {
        if tree.look(path)? != FoundPath::Nothing && tree.is_read_only(path)? {
            return Err(InstallError::ReadOnly { path: tree.resolve(path)?, is_program: false });
        }
    }
    Ok(())
}

/// Removes everything, once the agent is stopped.
fn remove(
    tree: &Tree,
    record: &InstallRecord,
    options: &UninstallOptions,
    (steps, unit_stays): (Vec<PlannedStep>, bool),
    access: &AccessSettings,
    report: &mut InstallReport,
) -> Result<(), InstallError> {
    for step in steps {
        if !options.dry_run && step.work == InstallWork::Remove {
            tree.remove(&step.change.path)?;
        }
        report.changes.push(step.change);
    }
    if options.purge {
        purge(tree, options, access, report)?;
        if unit_stays && !options.dry_run {
            store_again(tree, record)?;
        }
    }
    remove_directories(tree, record, options, report)
}

/// What the kubelet lacks to terminate its pods itself. Where nothing says what the installed agent was, it counts as
/// the companion of the kubelet that is here: an error costs a `--force`, the opposite one all pods their time.
fn switch_on(
    tree: &Tree,
    host: Option<&dyn Host>,
    config: Option<&Config>,
) -> Result<SwitchedOff, InstallError> {
    let unknown = match config {
        None if tree.has_unit()? => companion::unknown(tree.root(), host.is_some()),
        _ => None,
    };
    let config = config.or(unknown.as_ref());
    Ok(config.map(|config| companion::switch_on(tree.root(), host, config)).unwrap_or_default())
}

const UNIT_FILES: &str = "/etc/systemd/system/";

/// Stops the agent: nothing is removed while it runs, and no unit may start it again. Returns whether there is a unit.
fn stop(
    tree: &Tree,
    host: Option<&dyn Host>,
    options: &UninstallOptions,
    report: &mut InstallReport,
) -> Result<bool, InstallError> {
    let Some(host) = host else { return Ok(false) };
    if options.dry_run && !tree.has_unit()? {
        return Ok(false);
    }
    match stop_unit(host, options, report, "winddown.service") {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(error) if options.force => report.notes.push(error.line()),
        Err(source) => return Err(InstallError::NotStopped { source }),
    }
    // The agent's start has started it, and it would stay active until the next boot.
    if let Err(error) = stop_unit(host, options, report, "winddown-order.target") {
        report.notes.push(error.line());
    }
    Ok(true)
}

/// Stops a unit. Returns whether it is there.
fn stop_unit(
    host: &dyn Host,
    options: &UninstallOptions,
    report: &mut InstallReport,
    unit: &str,
) -> Result<bool, HostError> {
    /// The exit code of systemctl if there is no such unit.
    const NO_SUCH_UNIT: i32 = 5;
    let args = ["stop", unit];
    let stopped = if options.dry_run { Ok(()) } else { host.run("systemctl", &args) };
    match stopped {
        Err(HostError::Failed { status, .. }) if status.code() == Some(NO_SUCH_UNIT) => Ok(false),
        stopped => {
            stopped?;
            report.commands.push(command_line("systemctl", &args));
            Ok(true)
        }
    }
}

/// Stores the record that a purge removed: by it, a later uninstallation knows what was kept.
fn store_again(tree: &Tree, record: &InstallRecord) -> Result<(), InstallError> {
    if tree.look(STATE)? == FoundPath::Nothing {
        tree.make_directory(STATE, 0o711)?;
    }
    record.store(tree)
}

/// Whether a unit stays that an installation wrote and an operator edited.
fn keeps_unit(
    tree: &Tree,
    record: &InstallRecord,
    options: &UninstallOptions,
) -> Result<bool, InstallError> {
    let there = tree.look(UNIT)?;
    let step = record
        .entries
        .get(UNIT)
        .and_then(|entry| plan::removal(UNIT, entry, &there, record, options.force));
    Ok(step.is_some_and(|step| step.change.action == ChangeAction::Kept))
}

const PACKAGED: &str = "the program and the unit came with a package: they go with it";

const OUTLIVE: &str = "running pods keep running, without an agent";

const GROUP: &str = "group winddown stays; `groupdel winddown` removes it";

const DRAINED: &str = "the node stays drained: an agent that is installed before the next boot \
                       admits no pod until `winddown undrain`";

/// Whether what stays has a drain of this boot, which the next agent continues.
fn is_drained(tree: &Tree, options: &UninstallOptions, access: &AccessSettings) -> bool {
    let stays = |path: &&Path| !options.purge || !PURGED.iter().any(|one| *path == Path::new(one));
    let places = access.control_socket.parent().into_iter().chain([&*access.state_directory]);
    let places: Vec<PathBuf> =
        places.filter(stays).filter_map(|path| tree.resolve(path.to_str()?).ok()).collect();
    let boot_id = tree
        .resolve("/proc/sys/kernel/random/boot_id")
        .ok()
        .and_then(|path| regular::read_to_string(&path, regular::MAX_CONFIGURATION_BYTES).ok());
    boot_id.is_some_and(|id| drain_of_boot(&places, id.trim(), machine::boot_clock()).is_some())
}

/// What to type where the agent has stopped the kubelet, which nobody starts now.
fn stopped_kubelet(tree: &Tree, access: &AccessSettings) -> Option<String> {
    let volatile = tree.resolve(access.control_socket.parent()?.to_str()?).ok()?;
    let unit = service::stopped(&volatile)?;
    Some(format!(
        "the drain has stopped {unit}, and no agent starts it again: `systemctl start {unit}`"
    ))
}

/// Returns the steps that remove files and links. The record comes last, so that an interrupted removal can be resumed.
fn steps(
    tree: &Tree,
    record: &InstallRecord,
    options: &UninstallOptions,
    unit_stays: bool,
) -> Result<Vec<PlannedStep>, InstallError> {
    let remove = |path: &str| PlannedStep {
        change: PathChange { action: ChangeAction::Removed, path: path.to_owned(), why: None },
        work: InstallWork::Remove,
    };
    let mut steps = Vec::new();
    // "systemctl disable" would need the unit. It goes first, so that no boot starts what is half removed.
    let is_units = |to: &Path| to.file_name() == Path::new(UNIT).file_name();
    if matches!(tree.look(WANTS)?, FoundPath::Link(to) if is_units(&to)) {
        steps.push(remove(WANTS));
    }
    // The agent rewrites its drop-in, so its hash is unknown; recognise it by its name and first line.
    for path in DROP_INS {
        if matches!(tree.look(path)?, FoundPath::File { signed: true, .. }) {
            steps.push(remove(path));
        }
    }
    for (path, entry) in record.entries.iter().rev() {
        let seen = steps.iter().any(|step| step.change.path == *path);
        if seen || *entry == InstalledEntry::Directory || (options.purge && path == CONFIG) {
            continue;
        }
        let step = plan::removal(path, entry, &tree.look(path)?, record, options.force);
        steps.extend(step.map(|step| if unit_stays { needed_by_unit(step) } else { step }));
    }
    let gone = |path: &str| {
        steps.iter().any(|s| s.change.path == path && s.change.action == ChangeAction::Removed)
    };
    // Without the configuration, the next agent would be what this one was.
    if gone(CONFIG) && matches!(tree.look(LAST_IN_FORCE)?, FoundPath::File { .. }) {
        steps.push(remove(LAST_IN_FORCE));
    }
    if !unit_stays && tree.look(RECORD)? != FoundPath::Nothing {
        steps.push(remove(RECORD));
    }
    Ok(steps)
}

/// Keeps the programs and the unit's other files for a unit that stays: without its drop-in, the unit's next stop would
/// kill the pods.
fn needed_by_unit(step: PlannedStep) -> PlannedStep {
    let path = &step.change.path;
    if path == CONFIG || step.change.action != ChangeAction::Removed {
        return step;
    }
    let (action, why) = (ChangeAction::Kept, Some("for the unit that is kept"));
    let change = PathChange { action, why, ..step.change };
    PlannedStep { change, work: InstallWork::Nothing }
}

/// The configuration; if its file is gone or wrong, the one that was last in force.
fn config(tree: &Tree) -> Option<Config> {
    let read = |place: &str| {
        let file = tree.resolve_whole(place).ok()?;
        let bytes = regular::read(&file, regular::MAX_CONFIGURATION_BYTES).ok()?;
        Some(Config::parse(&file, &bytes).ok()?.0)
    };
    read(CONFIG).or_else(|| read(LAST_IN_FORCE))
}

/// Removes the directories that the installation created, if they are empty.
fn remove_directories(
    tree: &Tree,
    record: &InstallRecord,
    options: &UninstallOptions,
    report: &mut InstallReport,
) -> Result<(), InstallError> {
    // Children sort after their parents, so in reverse order a directory is empty when it is reached.
    for (path, entry) in record.entries.iter().rev() {
        if *entry != InstalledEntry::Directory || tree.look(path)? != FoundPath::Directory {
            continue;
        }
        // A purge has said so of it, and has made it again for a unit that stays.
        if options.dry_run && report.changes.iter().any(|change| change.path == *path) {
            continue;
        }
        report.changes.retain(|change| change.path != *path);
        let (action, why) = if options.dry_run {
            (ChangeAction::Removed, Some("if empty"))
        } else if tree.remove_if_empty(path)? {
            (ChangeAction::Removed, None)
        } else {
            (ChangeAction::Kept, Some("not empty"))
        };
        report.changes.push(PathChange { action, path: path.clone(), why });
    }
    Ok(())
}

fn purge(
    tree: &Tree,
    options: &UninstallOptions,
    access: &AccessSettings,
    report: &mut InstallReport,
) -> Result<(), InstallError> {
    let mut removed = |path: &str| {
        report.changes.push(PathChange {
            action: ChangeAction::Removed,
            path: path.to_owned(),
            why: None,
        });
    };
    if matches!(tree.look(CONFIG)?, FoundPath::File { .. } | FoundPath::Link(_)) {
        if !options.dry_run {
            tree.remove(CONFIG)?;
        }
        removed(CONFIG);
    }
    for path in PURGED {
        if tree.look(path)? == FoundPath::Directory && (options.dry_run || tree.remove_all(path)?) {
            removed(path);
        }
    }
    // Whatever else a directory of the operator's choice holds is not ours to delete.
    let chosen = [(&access.state_directory, STATE), (&access.pod_logs_dir, LOGS)];
    for (path, _) in chosen.into_iter().filter(|(path, default)| *path != Path::new(default)) {
        let mount = path.to_str().map(|path| tree.mount_below(path)).transpose()?.flatten();
        let first = mount.map(|mount| format!("`umount {}`, then ", path_word(mount)));
        let (path, first) = (path.display(), first.unwrap_or_default());
        report
            .notes
            .push(format!("{path} stays: the configuration chose it; {first}delete it yourself"));
    }
    let manifests = tree.names_in(MANIFESTS)?.len();
    if manifests > 0 {
        report.notes.push(format!("{MANIFESTS} stays: it holds {manifests} files of yours"));
    }
    // Remove these by name: an earlier uninstall may have kept them and removed the record.
    for path in [MANIFESTS, "/etc/winddown"] {
        let there = tree.look(path)? == FoundPath::Directory;
        if there && !options.dry_run && tree.remove_if_empty(path)? {
            removed(path);
        }
    }
    Ok(())
}

fn run(
    host: Option<&dyn Host>,
    options: &UninstallOptions,
    report: &mut InstallReport,
    args: &[&str],
) {
    let Some(host) = host else { return };
    report.commands.push(command_line("systemctl", args));
    if options.dry_run {
        return;
    }
    // Only note a failure: a unit that was never loaded cannot be stopped, which is fine.
    if let Err(error) = host.run("systemctl", args) {
        report.notes.push(error.line());
    }
}
