//! Removes what an installation created.

use std::path::PathBuf;

use winddown_config::Config;
use winddown_host::regular;

use super::assets::{
    CONFIG, LOGIND_DROP_IN, LOGS, MANIFESTS, PROCESS_DROP_IN, STATE, SYSUSERS, UNIT,
    VOLATILE_LOGIND_DROP_IN, WANTS,
};

use super::companion;
use super::error::InstallError;
use super::host::{Host, LiveHost, command_line};
use super::next_step::{NextStep, NextStepKind};
use super::plan::{self, InstallWork, PlannedStep};
use super::record::{InstallRecord, InstalledEntry, RECORD};
use super::report::{ChangeAction, InstallReport, PathChange};
use super::tree::{FoundPath, Tree};

/// The agent's drop-ins for logind.
const DROP_INS: [&str; 2] = [LOGIND_DROP_IN, VOLATILE_LOGIND_DROP_IN];

/// The options of [`uninstall`].
#[derive(Clone, Debug)]
pub struct UninstallOptions {
    /// The root of the machine or image; `/` is this machine.
    pub root: PathBuf,
    /// Whether to also remove the configuration, the state with its reports, and the logs. Pod
    /// manifests always stay.
    pub purge: bool,
    /// Whether to also remove our files that were edited, and a companion whose kubelet does not terminate its pods
    /// itself.
    pub force: bool,
    /// Whether to only report what would be done.
    pub dry_run: bool,
}

impl Default for UninstallOptions {
    fn default() -> Self {
        Self { root: PathBuf::from("/"), purge: false, force: false, dry_run: false }
    }
}

/// Stops the agent and removes what was installed. Pods of the process runtime keep running; use
/// `winddown drain` first to stop them.
///
/// # Errors
/// See [`InstallError`]. The same command can be run again and continues where it stopped.
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
    if options.purge {
        // Check this before removing anything: if the uninstall stopped half-way, there would be no agent to unmount.
        [STATE, LOGS].into_iter().try_for_each(|path| tree.refuse_mounts(path))?;
    }
    let steps = steps(&tree, &record, options)?;
    let kubelets = switch_kubelet_on(&tree, host);
    let mut report = InstallReport { dry_run: options.dry_run, ..InstallReport::default() };
    let unit =
        steps.iter().any(|s| s.change.path == UNIT && s.change.action == ChangeAction::Removed);
    if host.is_some() && !options.force && !options.dry_run && !kubelets.is_empty() {
        let last = NextStepKind::Uninstall.typed("winddown uninstall");
        let first = kubelets.into_iter().chain([last]).collect();
        return Err(InstallError::LeavesPods { first });
    }
    let is_drop_in = |s: &PlannedStep| DROP_INS.contains(&&*s.change.path);
    let drop_in = steps.iter().any(|s| is_drop_in(s) && s.work == InstallWork::Remove);

    if unit {
        run(host, options, &mut report, &["stop", "winddown.service"]);
    }
    for step in steps {
        if !options.dry_run && step.work == InstallWork::Remove {
            tree.remove(&step.change.path)?;
        }
        report.changes.push(step.change);
    }
    if options.purge {
        purge(&tree, options, &mut report)?;
    }
    remove_directories(&tree, &record, options, &mut report)?;
    if unit {
        run(host, options, &mut report, &["daemon-reload"]);
    }
    if drop_in {
        run(host, options, &mut report, &["kill", "-s", "HUP", "systemd-logind.service"]);
    }
    if tree.is_packaged()? {
        report.notes.push(PACKAGED.to_owned());
    }
    if unit && host.is_some() {
        let was = |path: &str| record.entries.contains_key(path);
        if was(PROCESS_DROP_IN) {
            report.notes.push("running pods keep running, without an agent".to_owned());
        }
        if was(SYSUSERS) {
            report.notes.push("group winddown stays; `groupdel winddown` removes it".to_owned());
        }
        if !options.purge && is_drained(&tree) {
            report.notes.push(DRAINED.to_owned());
        }
    }
    report.next = kubelets;
    Ok(report)
}

const PACKAGED: &str = "the program and the unit came with a package: they go with it";

const DRAINED: &str = "the node stays drained: an agent that is installed before the next boot \
                       admits no pod until `winddown undrain`";

/// Whether the state directory has a drain of this boot, which the next agent continues.
fn is_drained(tree: &Tree) -> bool {
    let read = |path: &str| {
        regular::read_to_string(&tree.resolve(path).ok()?, regular::MAX_CONFIGURATION_BYTES).ok()
    };
    let drain = read(&format!("{STATE}/operator-drain.json"));
    let boot_id = read("/proc/sys/kernel/random/boot_id");
    drain.zip(boot_id).is_some_and(|(drain, boot_id)| drain.contains(boot_id.trim()))
}

/// Returns the steps that remove files and links. The record comes last, so that an interrupted removal can be resumed.
fn steps(
    tree: &Tree,
    record: &InstallRecord,
    options: &UninstallOptions,
) -> Result<Vec<PlannedStep>, InstallError> {
    let remove = |path: &str| PlannedStep {
        change: PathChange { action: ChangeAction::Removed, path: path.to_owned(), why: None },
        work: InstallWork::Remove,
    };
    let mut steps = Vec::new();
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
        steps.extend(plan::removal(path, entry, &tree.look(path)?, record, options.force));
    }
    // The link of "systemctl enable". "systemctl disable" would remove it, but needs the unit.
    let enabled = matches!(tree.look(WANTS)?, FoundPath::Link(to) if to.as_os_str() == UNIT);
    let gone = |path: &str| {
        steps.iter().any(|s| s.change.path == path && s.change.action == ChangeAction::Removed)
    };
    if enabled && gone(UNIT) && !gone(WANTS) {
        steps.push(remove(WANTS));
    }
    if tree.look(RECORD)? != FoundPath::Nothing {
        steps.push(remove(RECORD));
    }
    Ok(steps)
}

/// Returns the steps that come first if the configuration is for companion mode, so that the kubelet ends its pods itself.
fn switch_kubelet_on(tree: &Tree, host: Option<&dyn Host>) -> Vec<NextStep> {
    let read = || {
        let file = tree.resolve_whole(CONFIG).ok()?;
        Config::parse(&file, &regular::read(&file, regular::MAX_CONFIGURATION_BYTES).ok()?).ok()
    };
    read().map(|(config, _)| companion::switch_on(tree.root(), host, &config)).unwrap_or_default()
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
    for path in [STATE, LOGS] {
        if tree.look(path)? == FoundPath::Directory && (options.dry_run || tree.remove_all(path)?) {
            removed(path);
        }
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
