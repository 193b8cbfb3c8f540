//! Installs winddown on a machine or in an image of one, and uninstalls it.
//!
//! [`install`] compares the desired state with the current one and applies the difference, so that it can be repeated
//! at any time: after an upgrade, a failure, or a change of the configured grace periods. It changes no foreign file.
//! [`uninstall`] removes only what the record of the installation lists.
//!
//! Everything blocks, because these are one-shot commands.

mod assets;
mod choice;
mod companion;
mod default_config;
mod error;
mod host;
mod mounts;
mod next_step;
mod plan;
mod program;
mod reach;
mod record;
mod report;
mod same_build;
mod tree;
mod trust;
mod uninstall;
mod untrusted;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use choice::{InstallChoice, choose};
pub use companion::Companion;
pub use error::{Conflict, HostError, InstallError};
pub use host::{Host, LiveHost, same_directory};
pub use next_step::{NextStep, NextStepKind};
pub use program::find_program;
pub use report::{ChangeAction, InstallReport, PathChange};
pub use same_build::BUILD_MARK;
pub use trust::caller;
pub use uninstall::{UninstallOptions, uninstall, uninstall_on};
pub use untrusted::Untrusted;

use assets::{
    Body, CONFIG, Choices, CopySource, FileOwner, MANIFESTS, MASK, OldFile, PACKAGED_PROGRAMS,
    PROCESS_DROP_IN, PROGRAMS, Program, STATE, SYSUSERS, TMPFILES, UNIT,
};
use companion::KubeletSetup;
use default_config::{Containers, is_default};
use plan::{InstallPlan, InstallWork};
use record::{InstallRecord, InstalledEntry};
use tree::{FoundPath, Tree};

use winddown_config::{Config, ENABLE_AND_RESTART, Mode, ShutdownSettings, default_yaml};
use winddown_host::{Trusted, if_exists, path_word, regular};
use winddown_systemd::inspect::setting_that_shows;

/// The runtime of the pods. With `Process` they run below the agent, whose unit then needs a looser sandbox; otherwise
/// the unit is sandboxed. With `Cri`, the container runtime's scopes are stopped after the unit.
pub use winddown_config::RuntimeKind as Runtime;

/// The options of [`install`].
#[derive(Clone, Debug)]
pub struct InstallOptions {
    /// The root of the machine or image; `/` is this machine.
    pub root: PathBuf,
    /// The runtime of the pods.
    pub runtime: Runtime,
    /// The initial configuration, instead of the default one. An existing one is never changed.
    pub config: Option<PathBuf>,
    /// The kubelet for companion mode: the initial configuration is derived from the kubelet's, and `runtime` is `Cri`.
    /// While the kubelet itself stops pods at a shutdown, the agent is neither enabled nor started.
    pub companion: Option<Companion>,
    /// Whether to enable the agent at boot.
    pub enable: bool,
    /// Whether to start the agent now, or restart it if anything changed. Ignored without a live host.
    pub start: bool,
    /// Whether to only report what would be done.
    pub dry_run: bool,
    /// Whether to replace foreign files; each is kept as `NAME.before-winddown`. Also whether to trust what users other
    /// than root may write: the programs, the configuration, and the directories that they are in.
    pub force: bool,
    /// Who is trusted beside root; see [`caller`].
    pub trusted: Trusted,
    /// The directory with the programs to install, normally that of the running program.
    pub programs: PathBuf,
    /// The directory to install the programs into: an absolute path, below `root`. If unset: where an earlier installation
    /// put them, otherwise `/usr/bin`.
    pub bin_dir: Option<PathBuf>,
}

impl InstallOptions {
    /// Returns the options to install the programs of a directory on this machine with the process runtime, enabled but
    /// not started.
    pub fn new(programs: impl Into<PathBuf>) -> Self {
        Self {
            root: PathBuf::from("/"),
            runtime: Runtime::default(),
            config: None,
            companion: None,
            enable: true,
            start: false,
            dry_run: false,
            force: false,
            trusted: Trusted::default(),
            programs: programs.into(),
            bin_dir: None,
        }
    }
}

/// Installs winddown, or updates an installation. On this machine it also runs systemd's commands; in another root, in
/// a chroot, or without systemd it only writes files.
///
/// # Errors
/// See [`InstallError`]. On [`InstallError::Conflicts`] nothing was changed; after any other error the same command can
/// be run again and continues where it stopped.
pub fn install(options: &InstallOptions) -> Result<InstallReport, InstallError> {
    host::unless_root("install", &options.root, options.dry_run)?;
    let live = LiveHost::at(&options.root);
    install_on(options, live.as_ref().map(|host| host as &dyn Host))
}

/// Like [`install`], but with the given host; `None` only writes files.
///
/// # Errors
/// As [`install`].
pub fn install_on(
    options: &InstallOptions,
    host: Option<&dyn Host>,
) -> Result<InstallReport, InstallError> {
    let tree = Tree::new(&options.root);
    let (beside, notes) = beside(&tree, options, host)?;
    let waits = beside.as_ref().is_some_and(KubeletSetup::ends_pods);
    let options = &InstallOptions {
        runtime: if beside.is_some() { Runtime::Cri } else { options.runtime },
        enable: options.enable && !waits,
        start: options.start && !waits,
        ..options.clone()
    };
    let mut report = InstallReport { dry_run: options.dry_run, notes, ..InstallReport::default() };
    let mut record = InstallRecord::load(&tree)?;
    let choices = choices(&tree, options, &record, beside.as_ref(), &mut report)?;
    let items = assets::items(&choices);
    trust::refuse(untrusted(options, &choices, &items)?, options.force, &mut report)?;
    let items = plan::with_parents(items);
    if choices.packaged {
        record_mask(&tree, &mut record)?;
    }
    let paths = items.iter().map(|item| &item.path).chain(record.entries.keys());
    let look = |path: &String| Ok((path.clone(), tree.look(path)?));
    let found = paths.map(look).collect::<Result<BTreeMap<_, _>, InstallError>>()?;
    let plan = plan::plan(items, &found, &record, options.force);
    refuse_conflicts(&tree, &found, &plan)?;
    refuse_read_only(&tree, &choices, &plan)?;
    if !options.dry_run {
        carry_out(&tree, &plan, &record)?;
    }
    report.changes = plan.steps.into_iter().map(|step| step.change).collect();
    // Do not report directories that already existed.
    let is_old = |path: &String| found.get(path) == Some(&FoundPath::Directory);
    report.changes.retain(|c| c.action != ChangeAction::Kept || !is_old(&c.path));
    let is_stale = report.changed() || record.unfinished;
    // Whatever this run has changed: the unit is set up for another runtime. What cannot be seen may be there.
    let ends_pods = options.runtime != Runtime::Process
        && host.is_some_and(|host| host.has_processes(&choices.state).unwrap_or(true));
    match host {
        Some(host) => {
            if is_stale {
                relabel(host, options, &choices, &mut report);
            }
            reload_systemd(host, options, ends_pods, record.unfinished, &mut report)?;
        }
        None => report
            .notes
            .push("systemd is not running there: the files take effect at boot".to_owned()),
    }
    if !options.dry_run && (is_stale || plan.record.entries != record.entries) {
        plan.record.store(&tree)?;
    }
    advise(&tree, options, &choices, (host.is_some(), ends_pods), beside.as_ref(), &mut report)?;
    Ok(report)
}

/// Finds the kubelet of a companion; none for another agent. Notes what is to be known of that.
fn beside(
    tree: &Tree,
    options: &InstallOptions,
    host: Option<&dyn Host>,
) -> Result<(Option<KubeletSetup>, Vec<String>), InstallError> {
    let as_before = as_before(tree, options)?;
    let Some(asked) = options.companion.as_ref().or(as_before.as_ref()) else {
        return Ok((None, Vec::new()));
    };
    let found =
        companion::find(&options.root, host.is_some(), asked).map_err(|error| match error {
            InstallError::NoKubelet { strangers, .. } if options.companion.is_none() => {
                let because = format!("{CONFIG} says `mode: companion`, and ");
                InstallError::NoKubelet { because, strangers }
            }
            error => error,
        })?;
    let repeated = format!("{CONFIG} says `mode: companion`: this is as with --companion");
    let repeated = options.companion.is_none().then_some(repeated);
    let notes = repeated.into_iter().chain(companion::does_not_last(&options.root, host));
    Ok((Some(found), notes.collect()))
}

/// The kubelet of a node whose configuration makes the agent its companion: whoever repeats the installation without saying
/// so wants no unit that stops after that kubelet, nor one that starts while both terminate its pods.
fn as_before(tree: &Tree, options: &InstallOptions) -> Result<Option<Companion>, InstallError> {
    if options.companion.is_some() {
        return Ok(None);
    }
    let there = tree.resolve_whole(CONFIG)?;
    let text = read_if_there(&there)?;
    // What is wrong with it is said later.
    let config = text.and_then(|text| Config::parse(&there, &text).ok()).map(|(config, _)| config);
    let config = config.filter(|config| {
        config.node.mode == Mode::Companion && config.node.runtime == options.runtime
    });
    Ok(config.map(|config| Companion {
        kubelet: None,
        kubeconfig: config.cluster.kubeconfig,
        endpoint: Some(config.node.container_runtime_endpoint),
    }))
}

/// Records the link that masks the drop-in of the process runtime. A purge of the package removes the record but not the
/// link. The link can only be ours.
fn record_mask(tree: &Tree, record: &mut InstallRecord) -> Result<(), InstallError> {
    if tree.look(PROCESS_DROP_IN)? == FoundPath::Link(MASK.into()) {
        let mask = InstalledEntry::Link { target: MASK.to_owned() };
        record.entries.entry(PROCESS_DROP_IN.to_owned()).or_insert(mask);
    }
    Ok(())
}

/// Finds who else may write the programs and the configuration, where they come from and where they go.
fn untrusted(
    options: &InstallOptions,
    choices: &Choices,
    items: &[assets::Asset],
) -> Result<Vec<Untrusted>, InstallError> {
    let mut found = Vec::new();
    let programs = choices.programs.iter().map(|program| &program.from);
    for source in programs.filter(|_| !choices.packaged).chain(&choices.given) {
        found.extend(trust::source(&options.trusted, source)?);
    }
    found.extend(trust::items(&options.trusted, &options.root, items)?);
    found.dedup_by(|one, other| one.found.path == other.found.path);
    Ok(found)
}

fn choices(
    tree: &Tree,
    options: &InstallOptions,
    record: &InstallRecord,
    beside: Option<&KubeletSetup>,
    report: &mut InstallReport,
) -> Result<Choices, InstallError> {
    let programs = PROGRAMS.iter().map(|name| program(&options.programs, name));
    let programs = programs.collect::<Result<_, _>>()?;
    let given = options.config.as_deref().map(given).transpose()?;
    let (text, config) = configuration(tree, options, given.as_ref(), beside, report)?;
    Ok(Choices {
        packaged: tree.is_packaged()?,
        runtime: options.runtime,
        enable: options.enable,
        bin_dir: bin_dir(tree, options, record)?,
        programs,
        config: text,
        given,
        budget: stop_budget(&config.shutdown),
        state: config.access.state_directory,
        kubelet: beside.and_then(KubeletSetup::unit),
    })
}

fn given(path: &Path) -> Result<CopySource, InstallError> {
    let file = regular::open(path).map_err(InstallError::file("read", path))?;
    Ok(CopySource { path: path.to_owned(), file: Arc::new(file) })
}

fn program(directory: &Path, name: &'static str) -> Result<Program, InstallError> {
    let from = directory.join(name);
    if !from.is_file() {
        return Err(InstallError::Program { path: from });
    }
    let open = || -> io::Result<_> {
        let mut file = regular::open(&from)?;
        let (sha256, _) = tree::digest_of(&file)?;
        file.rewind()?;
        Ok((same_build::version_in(&file)?, Arc::new(file), sha256))
    };
    let (version, file, sha256) = open().map_err(InstallError::file("read", &from))?;
    if version.as_deref() != Some(env!("CARGO_PKG_VERSION")) {
        return Err(InstallError::OtherVersion { path: from, version });
    }
    Ok(Program { name, from: CopySource { path: from, file }, sha256 })
}

/// Returns the directory of the programs, if the unit can start them there. For the process runtime, the unit hides nothing.
fn bin_dir(
    tree: &Tree,
    options: &InstallOptions,
    record: &InstallRecord,
) -> Result<String, InstallError> {
    let chosen = options.bin_dir.as_deref().or_else(|| record.program_directory());
    let directory = unit_path(chosen.unwrap_or(Path::new(PACKAGED_PROGRAMS)))?;
    let resolved = tree.resolve_whole(&directory)?;
    let leads_to = Path::new("/").join(resolved.strip_prefix(tree.root()).unwrap_or(&resolved));
    let is_hidden = |path: &Path| setting_that_shows(path).is_some();
    let sandboxed = options.runtime != Runtime::Process && !tree.is_packaged()?;
    if sandboxed && (is_hidden(Path::new(&directory)) || is_hidden(&leads_to)) {
        return Err(InstallError::HiddenPrograms { path: PathBuf::from(directory) });
    }
    Ok(directory)
}

/// Returns the path as text for a unit file, if it has no characters that are special to systemd.
fn unit_path(bin_dir: &Path) -> Result<String, InstallError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/+".contains(c);
    match bin_dir.to_str() {
        Some(dir)
            if dir.starts_with('/')
                && dir.chars().all(plain)
                && dir.split('/').all(|part| part != "." && part != "..") =>
        {
            let parts = dir.split('/').filter(|part| !part.is_empty());
            Ok(parts.fold(String::new(), |path, part| path + "/" + part))
        }
        _ => Err(InstallError::ProgramDirectory { path: bin_dir.to_owned() }),
    }
}

/// Returns the initial text of the configuration, the owner of that file, and the configuration that will be in force.
fn configuration(
    tree: &Tree,
    options: &InstallOptions,
    given: Option<&CopySource>,
    beside: Option<&KubeletSetup>,
    report: &mut InstallReport,
) -> Result<((String, FileOwner), Config), InstallError> {
    let containers = Containers::of(&options.root);
    let text = match (given, beside) {
        (_, Some(beside)) => beside.text.clone(),
        (None, None) => containers.default_config(options.runtime),
        (Some(given), None) => regular::read_open(&given.file, regular::MAX_CONFIGURATION_BYTES)
            .and_then(regular::text)
            .map_err(InstallError::file("read", &given.path))?,
    };
    let there = tree.resolve_whole(CONFIG)?;
    let existing = read_if_there(&there)?;
    let instead_of = match &existing {
        Some(text) if beside.is_some() => makes_way(text, &there)?,
        _ => None,
    };
    let parsed = |path: &Path, text: &[u8]| match Config::parse(path, text) {
        Ok((config, _)) => Ok(config),
        Err(source) => Err(unusable(path, source)),
    };
    let (path, config) = match (existing.filter(|_| instead_of.is_none()), beside) {
        (Some(existing), _) => (there.as_path(), parsed(&there, &existing)?),
        (None, Some(beside)) => (Path::new(CONFIG), beside.config()?),
        (None, None) => {
            let path = options.config.as_deref().unwrap_or(Path::new(CONFIG));
            (path, parsed(path, text.as_bytes())?)
        }
    };
    if let Some(beside) = beside {
        stays(beside, &options.root, (path, &config), report)?;
    }
    let said = config.node.runtime;
    if said != options.runtime {
        let why = format!(
            "it says `runtime: {said}`: change that first, or install with --runtime {said}"
        );
        return Err(unusable(path, why));
    }
    if beside.is_none() {
        report.notes.extend(containers.note(&config));
    }
    if instead_of.as_ref().is_some_and(|old| old.keep) {
        let kept = tree::before_winddown(Path::new(CONFIG));
        report.notes.push(format!("the old configuration is kept as {}", kept.display()));
    }
    let owner = match beside {
        None => FileOwner::Operator,
        Some(_) => FileOwner::Once { instead_of },
    };
    if config.node.mode != Mode::Companion {
        report.notes.extend(companion::overlooked(&options.root));
    }
    Ok(((text, owner), config))
}

/// Returns the configuration `text` at `there` as one that a companion's may replace: it sets only defaults, of whatever
/// version. All but what this version's packages bring may be somebody's work, and is kept; `None` if its place is taken.
fn makes_way(text: &[u8], there: &Path) -> Result<Option<OldFile>, InstallError> {
    if !is_default(text) {
        return Ok(None);
    }
    let keep = text != default_yaml().as_bytes();
    let kept = read_if_there(&tree::before_winddown(there))?;
    if keep && kept.is_some_and(|kept| kept != text) {
        return Ok(None);
    }
    let (sha256, _) = tree::digest(&mut &*text).map_err(InstallError::file("read", there))?;
    Ok(Some(OldFile { sha256, keep }))
}

/// Returns the time of a shutdown that bypasses logind: as much as the agent wants from logind.
fn stop_budget(shutdown: &ShutdownSettings) -> Duration {
    shutdown.total() + shutdown.endpoint_drain + shutdown.reserve
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, InstallError> {
    let read = if_exists(regular::read(path, regular::MAX_CONFIGURATION_BYTES));
    read.map_err(InstallError::file("read", path))
}

/// Notes how the configuration that is there differs from the one beside the kubelet.
///
/// # Errors
/// It is not one for a companion.
fn stays(
    beside: &KubeletSetup,
    root: &Path,
    (path, config): (&Path, &Config),
    report: &mut InstallReport,
) -> Result<(), InstallError> {
    let differences = beside.differences(root, config, &beside.config()?);
    if config.node.mode != Mode::Companion {
        let lines: String = differences.iter().map(|line| format!("\n  {line}")).collect();
        let why = format!("it is there already, and is left as it is:{lines}");
        return Err(InstallError::NoCompanion { path: path.to_owned(), source: why.into() });
    }
    let kept = |line: &String| format!("{CONFIG} stays as it is. {line}");
    report.notes.extend(differences.iter().map(kept));
    Ok(())
}

fn unusable(
    path: &Path,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> InstallError {
    InstallError::Config { path: path.to_owned(), source: source.into() }
}

/// Refuses what is in the way of the plan, or in the place where it would keep what it replaces.
fn refuse_conflicts(
    tree: &Tree,
    found: &BTreeMap<String, FoundPath>,
    plan: &InstallPlan,
) -> Result<(), InstallError> {
    let mut conflicts = plan.conflicts.clone();
    for step in plan.steps.iter().filter(|step| step.change.action == ChangeAction::Replaced) {
        let path = &step.change.path;
        let kept = tree.look(&tree::before_winddown(Path::new(path)).to_string_lossy())?;
        if kept != FoundPath::Nothing && found.get(path) != Some(&kept) {
            let why = "its place, NAME.before-winddown, is taken; move that away";
            conflicts.push(Conflict { path: path.clone(), why });
        }
    }
    if conflicts.is_empty() { Ok(()) } else { Err(InstallError::Conflicts(conflicts)) }
}

/// Looks for read-only file systems before anything is changed.
fn refuse_read_only(
    tree: &Tree,
    choices: &Choices,
    plan: &InstallPlan,
) -> Result<(), InstallError> {
    for step in plan.steps.iter().filter(|step| step.work != InstallWork::Nothing) {
        let path = &step.change.path;
        if tree.is_read_only(path)? {
            let is_program =
                choices.bin_dir.starts_with(path) || path.starts_with(&choices.bin_dir);
            return Err(InstallError::ReadOnly { path: tree.resolve(path)?, is_program });
        }
    }
    Ok(())
}

/// Carries out the steps. The record is written first, with both the old and the new entries, so that after an
/// interruption the next run recognises its own files. It is unfinished until systemd uses them.
fn carry_out(tree: &Tree, plan: &InstallPlan, old: &InstallRecord) -> Result<(), InstallError> {
    let mut both = old.together_with(&plan.record);
    both.unfinished |= plan.steps.iter().any(|step| step.change.action != ChangeAction::Kept);
    let mut recorded = both == *old;
    for step in &plan.steps {
        let path = &step.change.path;
        // The state directory is the first item: only its parents come before it.
        if !recorded && !STATE.starts_with(path.as_str()) {
            both.store(tree)?;
            recorded = true;
        }
        match &step.work {
            InstallWork::Nothing => {}
            InstallWork::MakeDirectory { mode } => tree.make_directory(path, *mode)?,
            InstallWork::Write { mode, body: Body::Text(text), keep_old } => {
                tree.write(path, *mode, &mut text.as_bytes(), *keep_old)?;
            }
            InstallWork::Write { mode, body: Body::Copy { from, .. }, keep_old } => {
                let mut file = &*from.file;
                file.rewind().map_err(InstallError::file("read", &from.path))?;
                tree.write(path, *mode, &mut file, *keep_old)?;
            }
            InstallWork::SetMode { mode } => tree.set_mode(path, *mode)?,
            InstallWork::Link { target } => {
                tree.link(path, target, step.change.action == ChangeAction::Replaced)?;
            }
            InstallWork::Remove => tree.remove(path)?,
            InstallWork::RemoveDirectory => {
                tree.remove_if_empty(path)?;
            }
        }
    }
    Ok(())
}

/// Where SELinux is, gives the programs the label that it wants of them there: a new file has its directory's, and of most
/// directories systemd starts no program.
fn relabel(
    host: &dyn Host,
    options: &InstallOptions,
    choices: &Choices,
    report: &mut InstallReport,
) {
    let names = choices.programs.iter().map(|program| program.name);
    let paths: Vec<String> = names.map(|name| format!("{}/{name}", choices.bin_dir)).collect();
    if paths.is_empty() || !options.root.join("sys/fs/selinux/enforce").exists() {
        return;
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    report.commands.push(host::command_line("restorecon", &paths));
    if !options.dry_run
        && let Err(error) = host.run("restorecon", &paths)
    {
        report.notes.push(error.line());
    }
}

/// Makes systemd use what was changed, now or by an installation that was `unfinished`.
fn reload_systemd(
    host: &dyn Host,
    options: &InstallOptions,
    ends_pods: bool,
    unfinished: bool,
    report: &mut InstallReport,
) -> Result<(), InstallError> {
    let changed = |path: &str| {
        report
            .changes
            .iter()
            .any(|c| c.path == path && (unfinished || c.action != ChangeAction::Kept))
    };
    let any = unfinished || report.changed();
    let mut commands: Vec<(bool, &str, Vec<&str>)> = Vec::new();
    // The first two are useful but not vital: a failure becomes a note.
    if changed(SYSUSERS) {
        commands.push((false, "systemd-sysusers", vec![SYSUSERS]));
    }
    if changed(TMPFILES) {
        commands.push((false, "systemd-tmpfiles", vec!["--create", TMPFILES]));
    }
    if any {
        commands.push((true, "systemctl", vec!["daemon-reload"]));
    }
    if options.start && !ends_pods {
        // A restart stops no pod. "start" leaves an unchanged, running agent alone.
        let verb = if any { "restart" } else { "start" };
        commands.push((true, "systemctl", vec![verb, "winddown.service"]));
    }
    for (vital, program, args) in commands {
        report.commands.push(host::command_line(program, &args));
        if options.dry_run {
            continue;
        }
        match host.run(program, &args) {
            Ok(()) => {}
            Err(source) if vital => return Err(InstallError::Systemd { source }),
            Err(error) => report.notes.push(error.line()),
        }
    }
    Ok(())
}

/// What to type so that the unit as it is now takes effect.
fn begin_with_it(
    options: &InstallOptions,
    winddown: &str,
    (live, ends_pods): (bool, bool),
    report: &mut InstallReport,
) {
    if ends_pods {
        report.notes.push(
            "the unit is no longer set up for the process runtime; restarting it kills pods of that runtime"
                .to_owned(),
        );
        // No `&&`: after a drain that needed SIGKILL the node is not to stay drained.
        report.next.extend([
            NextStepKind::Drain.typed(format!("{winddown} drain")),
            NextStepKind::Restart.typed("systemctl restart winddown    # when the pods are gone"),
            NextStepKind::Undrain.typed(format!("{winddown} undrain")),
        ]);
    } else if live && !options.start {
        let is_new =
            report.changes.iter().any(|c| c.path == UNIT && c.action == ChangeAction::Created);
        let is_as_before = report.commands.is_empty();
        report.next.push(match is_new || is_as_before {
            true => NextStepKind::Start.typed("systemctl start winddown"),
            false => {
                NextStepKind::Restart.typed("systemctl restart winddown    # terminates no pod")
            }
        });
    }
}

/// How the program is typed: by its path, unless it is where a shell of root's looks.
fn typed_program(choices: &Choices) -> String {
    const SEARCHED: [&str; 6] =
        ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"];
    match choices.packaged || SEARCHED.contains(&&*choices.bin_dir) {
        true => "winddown".to_owned(),
        false => path_word(Path::new(&choices.bin_dir).join("winddown")),
    }
}

/// The step that has the agent started at boot.
fn enable(options: &InstallOptions, live: bool) -> NextStep {
    match live {
        true => NextStepKind::Enable.typed("systemctl enable winddown"),
        false => NextStepKind::EnableInImage
            .typed(format!("systemctl --root={} enable winddown", path_word(&options.root))),
    }
}

const PACKAGED: &str = "the programs and the unit came with a package: they are used as they are";

fn advise(
    tree: &Tree,
    options: &InstallOptions,
    choices: &Choices,
    (live, ends_pods): (bool, bool),
    beside: Option<&KubeletSetup>,
    report: &mut InstallReport,
) -> Result<(), InstallError> {
    if choices.packaged {
        report.notes.push(PACKAGED.to_owned());
    }
    if let Some(beside) = beside {
        report.notes.extend(beside.notes());
        if !beside.has_joined {
            let file = beside.kubeconfig.display();
            let note = format!(
                "{file} is not there yet: the agent reads it as soon as the node has joined its cluster"
            );
            report.notes.push(note);
        }
    }
    // Only once the agent runs: in between nobody would end the pods.
    let switch_off = beside.map(|beside| beside.switch_off(&options.root)).unwrap_or_default();
    // A trial has made no link.
    let is_enabled = options.enable || tree.look(assets::WANTS)? != FoundPath::Nothing;
    let winddown = typed_program(choices);
    if beside.is_some() && live && !options.start && !ends_pods {
        // What comes next takes the pods from the kubelet: only once winddown has them.
        report.next.push(
            NextStepKind::BeginCompanion
                .typed(format!("{ENABLE_AND_RESTART} && {winddown} wait --for=lock")),
        );
    } else {
        report.next.extend((!is_enabled).then(|| enable(options, live)));
        begin_with_it(options, &winddown, (live, ends_pods), report);
    }
    report.next.extend(switch_off);
    if tree.names_in(MANIFESTS)?.is_empty() && options.runtime != Runtime::Cri {
        report.notes.push(format!("pod manifests go into {MANIFESTS}, settings into {CONFIG}"));
    }
    if live {
        report.next.push(match beside {
            Some(_) => NextStepKind::AskDoctor.typed(format!("{winddown} doctor")),
            None => NextStepKind::ShowStatus.typed(format!("{winddown} status")),
        });
    }
    Ok(())
}
