//! Companion mode: finds the kubelet, derives the configuration from the kubelet's, and checks which of the two stops
//! the pods.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use winddown_companion::kubelet::processes::{KubeletProcess, Stranger, kubelets};
use winddown_companion::kubelet::{
    self, CommonSettings, Kubelet, KubeletChange, KubeletPriorityPeriod, MergedConfiguration,
    Periods, is_configuration, of_agent, refusal,
};
use winddown_config::reference::default_of;
use winddown_config::{
    Config, ConfigError, Mode, ShutdownPeriods, runtime_endpoints, scalar, with_scheme,
};
use winddown_host::{in_root, is_on_tmpfs, regular, shell_word};
use winddown_shared::display::clean;
use winddown_shared::seconds_up;
use winddown_systemd::drop_in;

use super::assets::CONFIG;
use super::error::InstallError;
use super::host::{Host, same_directory};
use super::next_step::{NextStep, NextStepKind};
use super::reach::{hidden_from_agent, proxy};

/// The kubelet for companion mode. Fields that are not set are detected.
#[derive(Clone, Debug, Default)]
pub struct Companion {
    /// Its unit, or its process ID.
    pub kubelet: Option<String>,
    /// The kubeconfig to use.
    pub kubeconfig: Option<PathBuf>,
    /// The address of its container runtime.
    pub endpoint: Option<String>,
}

/// The kubelet, its configuration, and the configuration derived from it.
#[derive(Debug)]
pub(super) struct KubeletSetup {
    kubelet: Kubelet,
    said: Option<MergedConfiguration>,
    /// What the agent will not see or use, and processes that are not taken for this machine's kubelet, and why not.
    notes: Vec<String>,
    live: bool,
    /// The text of the initial configuration.
    pub(super) text: String,
    /// Whether its credentials exist.
    pub(super) has_joined: bool,
    pub(super) kubeconfig: PathBuf,
}

/// The fields that are compared as they are.
const FIELDS: [&str; 3] = ["mode", "runtime", "kubeconfig"];
const PERIODS: [&str; 3] =
    ["shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority"];

/// Finds the requested kubelet and derives the configuration.
pub(super) fn find(
    root: &Path,
    live: bool,
    asked: &Companion,
) -> Result<KubeletSetup, InstallError> {
    let strangers = others_by_that_name(root, live);
    let kubelet = one_kubelet(root, live, asked, &strangers)?;
    let (kubeconfig, of_kubeconfig) = kubeconfig(root, &kubelet, asked, &strangers)?;
    let has_joined = in_root(root, &kubeconfig).exists();
    let said = configuration(root, &kubelet, asked, has_joined)?;
    let (endpoint, of_endpoint) = endpoint(root, live, &kubelet, said.as_ref(), asked)?;
    only_roots_socket(root, &endpoint)?;
    let mut text = format!(
        "# winddown beside a kubelet, written by `winddown install --companion`. winddown.yaml(5) has all\n\
         # fields; `winddown config check` tests this file.\n\
         apiVersion: {}\nkind: {}\nmode: companion\nruntime: cri\n",
        winddown_config::API_VERSION,
        winddown_config::KIND,
    );
    let mut field = |name: &str, value: &str, why: &str| {
        let (value, why) = (scalar(&Value::from(value)), clean(why));
        text.push_str(&format!("\n# {why}\n{name}: {value}\n"));
    };
    field("kubeconfig", &kubeconfig.display().to_string(), &of_kubeconfig);
    field("containerRuntimeEndpoint", &endpoint, &of_endpoint);
    if let Some(name) = kubelet.node_name() {
        field("nodeName", &name, &origin(&kubelet, "--hostname-override"));
    }
    if let Some(directory) = kubelet.option("--root-dir") {
        only_roots(root, "the kubelet's directory", directory)?;
        field("kubeletRootDir", directory, &origin(&kubelet, "--root-dir"));
    }
    text.push_str(&periods_text(said.as_ref()));
    let mut notes = hidden_from_agent(root, &kubelet, &kubeconfig);
    notes.extend(proxy(root, &kubelet));
    notes.extend(strangers);
    Ok(KubeletSetup { kubelet, said, notes, live, text, has_joined, kubeconfig })
}

/// Says why an installation beside a kubelet would not be there, or not run, after the next boot, with the kubelet's own
/// graceful shutdown off: Bottlerocket makes `/etc` anew at each boot, and Talos has no systemd.
pub(super) fn does_not_last(root: &Path, host: Option<&dyn Host>) -> Option<String> {
    let systemd = ["usr/lib/systemd/systemd", "lib/systemd/systemd"];
    match host {
        Some(_) => is_on_tmpfs(&root.join("etc")).unwrap_or(false).then(|| {
            "/etc is in memory here: the installation is gone after a boot, and then nothing terminates the pods \
             of a kubelet whose own graceful shutdown is off"
                .to_owned()
        }),
        None => (!systemd.iter().any(|path| root.join(path).exists())).then(|| {
            "no systemd is there: nothing starts the agent unless one is added".to_owned()
        }),
    }
}

/// Names a kubelet whose pods an agent in another mode does not end; none if none runs or would be started.
pub(super) fn overlooked(root: &Path) -> Option<String> {
    let name = match same_directory(root, Path::new("/")) {
        true => {
            let found = kubelet::find(root, true);
            let running = found.iter().find(|kubelet| kubelet.pid.is_some()).map(Kubelet::name);
            running.or_else(|| kubelet::enabled_unit(root, &found))
        }
        false => kubelet::find(root, false).first().map(Kubelet::name),
    }?;
    Some(format!(
        "a kubelet is here ({name}), and this agent would not terminate its pods: `winddown install --companion` makes it"
    ))
}

/// Processes that have a kubelet's name and are not this machine's kubelet, as a sentence each.
fn others_by_that_name(root: &Path, live: bool) -> Vec<String> {
    /// Any user can start as many as they like.
    const MAX_NAMED_PROCESSES: usize = 4;
    let found = if live { kubelets(root).unwrap_or_default().strangers } else { Vec::new() };
    let sentence = |(process, why): &(KubeletProcess, _)| {
        format!(
            "process {} has the name {} and is not taken for this machine's kubelet: {why}",
            process.pid, process.name
        )
    };
    found.iter().take(MAX_NAMED_PROCESSES).map(sentence).collect()
}

/// Refuses a path that others than root can change: what is there decides what root does.
fn only_roots(root: &Path, what: &'static str, path: &str) -> Result<(), InstallError> {
    match refusal(root, Path::new(path)) {
        None => Ok(()),
        Some(why) => Err(InstallError::KubeletPath { what, path: path.to_owned(), why }),
    }
}

/// Reads the kubelet's configuration; `None` if it has none that is known.
fn configuration(
    root: &Path,
    kubelet: &Kubelet,
    asked: &Companion,
    has_joined: bool,
) -> Result<Option<MergedConfiguration>, InstallError> {
    if let Some(problem) = kubelet.problem() {
        if asked.kubeconfig.is_some() && asked.endpoint.is_some() {
            return Ok(None);
        }
        let (kubelet, why) = (kubelet.name(), problem.to_string());
        return Err(InstallError::KubeletArguments { kubelet, why });
    }
    let said = kubelet.configuration(root);
    match said.as_ref().and_then(|said| said.problem.clone()) {
        // What joins the node to its cluster writes the file together with the credentials.
        Some(problem) if !has_joined && !in_root(root, &problem.file).exists() => Ok(None),
        Some(problem) => Err(InstallError::KubeletConfiguration { problem }),
        None => Ok(said),
    }
}

fn one_kubelet(
    root: &Path,
    live: bool,
    asked: &Companion,
    strangers: &[String],
) -> Result<Kubelet, InstallError> {
    let mut found = kubelet::find(root, live);
    let names = |found: &[Kubelet]| found.iter().map(Kubelet::name).collect::<Vec<_>>();
    if let Some(name) = &asked.kubelet {
        let all = names(&found);
        found.retain(|kubelet| {
            let unit = kubelet.unit.as_deref();
            let pid = kubelet.pid.map(|pid| pid.to_string());
            unit == Some(name)
                || unit.and_then(|unit| unit.strip_suffix(".service")) == Some(name)
                || pid.as_deref() == Some(name)
        });
        if found.is_empty() {
            let (name, strangers) = (name.clone(), strangers.to_owned());
            return Err(InstallError::NoSuchKubelet { name, found: all, strangers });
        }
    }
    if let (true, Some(file)) = (found.len() > 1, &asked.kubeconfig) {
        found.retain(|kubelet| kubelet.kubeconfig() == Some(file));
    }
    match found.len() {
        0 => only_credentials(root, asked, strangers),
        1 => Ok(found.remove(0)),
        _ => {
            let flag = "--kubelet";
            Err(InstallError::Ambiguous { what: "kubelet", found: names(&found), flag })
        }
    }
}

/// Finds a kubelet that neither runs nor has a unit by its credentials.
fn only_credentials(
    root: &Path,
    asked: &Companion,
    strangers: &[String],
) -> Result<Kubelet, InstallError> {
    let mut found = kubelet::find_credentials(root);
    if let Some(file) = &asked.kubeconfig {
        found.retain(|kubelet| kubelet.kubeconfig() == Some(file));
        return Ok(found.pop().unwrap_or_else(|| Kubelet::with_kubeconfig(file)));
    }
    let files = found.iter().filter_map(Kubelet::kubeconfig).map(shown).collect();
    match found.len() {
        0 => {
            Err(InstallError::NoKubelet { because: String::new(), strangers: strangers.to_owned() })
        }
        1 => Ok(found.remove(0)),
        _ => {
            let flag = "--kubeconfig";
            Err(InstallError::Ambiguous { what: "kubeconfig of a kubelet", found: files, flag })
        }
    }
}

/// Returns the kubeconfig, and where it was found. A kubeconfig can name programs, which root then runs.
fn kubeconfig(
    root: &Path,
    kubelet: &Kubelet,
    asked: &Companion,
    strangers: &[String],
) -> Result<(PathBuf, String), InstallError> {
    let (file, why) = if let Some(file) = &asked.kubeconfig {
        (file.clone(), "named by --kubeconfig".to_owned())
    } else if let Some(file) = kubelet.kubeconfig() {
        (file.to_owned(), origin(kubelet, "--kubeconfig"))
    } else if let Some(problem) = kubelet.problem() {
        let (kubelet, why) = (kubelet.name(), problem.to_string());
        return Err(InstallError::KubeletArguments { kubelet, why });
    } else {
        // The kubelet's arguments are unknown.
        let found = only_credentials(root, asked, strangers)?;
        let file = found.kubeconfig().map(Path::to_owned).unwrap_or_default();
        (file, format!("{} names none that can be seen; this is a usual place", kubelet.name()))
    };
    only_roots(root, "the kubeconfig", &shown(&file))?;
    match regular::open(&in_root(root, &file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let (what, path) = ("the kubeconfig", shown(&file));
            return Err(InstallError::KubeletPath { what, path, why: error.to_string() });
        }
        // Before a node has joined its cluster, there is none.
        Ok(_) | Err(_) => {}
    }
    if is_configuration(root, &file) {
        let why = "it is the kubelet's configuration: name its credentials with --kubeconfig FILE";
        let (what, path, why) = ("the kubeconfig", shown(&file), why.to_owned());
        return Err(InstallError::KubeletPath { what, path, why });
    }
    Ok((file, why))
}

/// Refuses a socket that others than root can replace: they decide what the agent is told of the containers, and are asked
/// to end them. Write access to a socket is the right to connect to it, which replaces nothing.
fn only_roots_socket(root: &Path, address: &str) -> Result<(), InstallError> {
    let socket = address.strip_prefix("unix://").map(Path::new);
    match socket.and_then(Path::parent).and_then(|parent| refusal(root, parent)) {
        None => Ok(()),
        Some(why) => {
            let (what, path) = ("the container runtime's socket", address.to_owned());
            Err(InstallError::KubeletPath { what, path, why })
        }
    }
}

/// Returns the address of the container runtime, and where it was found.
fn endpoint(
    root: &Path,
    live: bool,
    kubelet: &Kubelet,
    said: Option<&MergedConfiguration>,
    asked: &Companion,
) -> Result<(String, String), InstallError> {
    const OPTION: &str = "--container-runtime-endpoint";
    if let Some(address) = &asked.endpoint {
        return Ok((with_scheme(address), format!("named by {OPTION}")));
    }
    // The kubelet's command line takes precedence over its files.
    if let Some(address) = kubelet.option(OPTION) {
        return Ok((with_scheme(address), origin(kubelet, OPTION)));
    }
    if let Some(said) = said.and_then(|said| said.endpoint.as_ref()) {
        return Ok((with_scheme(&said.value), format!("containerRuntimeEndpoint in {said}")));
    }
    let usual = (kubelet.usual_endpoint().to_owned(), format!("the default of {}", kubelet.name()));
    if kubelet.is_known() || kubelet.is_contained() {
        return Ok(usual);
    }
    let found = runtime_endpoints(root, live);
    match &found[..] {
        [] => Ok(usual),
        [one] => {
            Ok((one.clone(), "the one socket of a container runtime that is there".to_owned()))
        }
        _ => Err(InstallError::Ambiguous { what: "container runtime", found, flag: OPTION }),
    }
}

/// Describes where an option of the kubelet was found.
fn origin(kubelet: &Kubelet, option: &str) -> String {
    match kubelet.is_known() {
        true if kubelet.is_contained() => format!("as {} passes it to its kubelet", kubelet.name()),
        true => format!("{option} of {}", kubelet.name()),
        false => "a usual place, and the file is there".to_owned(),
    }
}

/// Returns the lines with the kubelet's grace periods, or the defaults.
fn periods_text(said: Option<&MergedConfiguration>) -> String {
    let periods = said.map(MergedConfiguration::periods).unwrap_or_default();
    let place = |field: Option<String>| match field {
        Some(place) => clean(&place).into_owned(),
        None => "not set for the kubelet".to_owned(),
    };
    if periods == Periods::default() {
        let [total, critical, _] = PERIODS.map(|field| {
            let value = default_of(field).unwrap_or_default();
            format!("{field}: {}\n", scalar(&value))
        });
        return format!(
            "\n# The kubelet's files set no grace periods: these are defaults.\n{total}{critical}\
             # By role, etcd last; `priority` is the kubelet's order.\nshutdownOrder: role\n"
        );
    }
    if periods.groups.is_empty() {
        let of_total = place(said.and_then(|said| said.period.as_ref()).map(ToString::to_string));
        let of_critical =
            place(said.and_then(|said| said.critical.as_ref()).map(ToString::to_string));
        let [total, critical] =
            [&periods.total, &periods.critical].map(|v| scalar(&v.as_str().into()));
        return format!(
            "\n# {of_total}\nshutdownGracePeriod: {total}\n\
             # {of_critical}\nshutdownGracePeriodCriticalPods: {critical}\n\
             # The kubelet's order; by `role`, etcd terminates last.\nshutdownOrder: priority\n"
        );
    }
    let of_groups = place(said.and_then(|said| said.by_priority.as_ref()).map(ToString::to_string));
    let groups = periods.groups.iter();
    // Of a priority that is listed twice the last entry counts.
    let groups: BTreeMap<i32, i64> =
        groups.map(|group| (group.priority, group.shutdown_grace_period_seconds.max(0))).collect();
    let groups = groups.iter().map(|(priority, seconds)| {
        format!("  - priority: {priority}\n    shutdownGracePeriodSeconds: {seconds}\n")
    });
    let groups: String = groups.collect();
    format!("\n# {of_groups}\nshutdownGracePeriodByPodPriority:\n{groups}")
}

// === impl KubeletSetup ===

impl KubeletSetup {
    /// The derived configuration.
    ///
    /// # Errors
    /// winddown refuses a value. The error names where that is from, as the comment above the field does.
    pub(super) fn config(&self) -> Result<Config, InstallError> {
        let refused = |error| {
            let first = match &error {
                ConfigError::Invalid(problems) => problems.list().first(),
                _ => None,
            };
            let line = first.and_then(|problem| problem.line);
            let above = line.and_then(|line| self.text.lines().nth(line.checked_sub(2)?));
            let origin = above.and_then(|line| line.strip_prefix("# ")).unwrap_or("the kubelet");
            let why = first.map_or_else(|| error.to_string(), ToString::to_string);
            InstallError::KubeletValue { origin: origin.to_owned(), why }
        };
        let parsed = Config::parse(Path::new(CONFIG), self.text.as_bytes());
        parsed.map(|(config, _)| config).map_err(refused)
    }

    /// The kubelet's unit, if that is known.
    pub(super) fn unit(&self) -> Option<String> {
        self.kubelet.unit.clone()
    }

    /// Whether the kubelet also stops pods at a shutdown.
    pub(super) fn ends_pods(&self) -> bool {
        self.said.as_ref().is_some_and(|said| said.ends_pods().is_some())
    }

    /// Describes the kubelet for the user, and what was not taken for it.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = vec![self.note()];
        notes.extend_from_slice(&self.notes);
        notes
    }

    fn note(&self) -> String {
        let name = self.kubelet.name();
        let Some(said) = &self.said else {
            if let Some(file) = self.kubelet.option("--config").filter(|_| !self.has_joined) {
                return format!(
                    "{file} is not there yet, and may set grace periods: run this command again once the \
                     node has joined"
                );
            }
            return format!(
                "no configuration of {name} was found: make sure that its {} is 0s",
                PERIODS[0]
            );
        };
        let subject = match self.kubelet.is_known() {
            true => format!("the kubelet is {name}, and it"),
            false => name,
        };
        match said.ends_pods() {
            Some(said) => {
                format!(
                    "{subject} terminates pods at a shutdown as well, by {said}: {}",
                    said.value
                )
            }
            None => format!("{subject} leaves terminating its pods to others"),
        }
    }

    /// The change of the kubelet's configuration that switches its own graceful shutdown off.
    fn change(&self, root: &Path) -> Option<KubeletChange> {
        let said = self.said.as_ref()?;
        self.kubelet.change(root, said, &Periods::default())
    }

    /// Returns the steps that switch the kubelet's own graceful shutdown off; none if it is off.
    pub(super) fn switch_off(&self, root: &Path) -> Vec<NextStep> {
        if !self.ends_pods() {
            return Vec::new();
        }
        let mut steps =
            fields(root, self.change(root), "so that only winddown terminates the pods");
        steps.extend(self.live.then(|| restart(&self.kubelet)));
        steps
    }

    /// The option of this command that names the field's value, if one does: the comment above the field says so.
    fn named_by(&self, field: &str) -> Option<&str> {
        let is_it = |line: &&str| line.split_once(':').is_some_and(|(name, _)| name == field);
        let line = self.text.lines().zip(self.text.lines().skip(1)).find(|(_, at)| is_it(at));
        line?.0.strip_prefix("# named by ")
    }

    /// What a companion with this configuration has to have in common with its kubelet.
    fn common(&self, config: &Config) -> CommonSettings {
        let host_name = self.live.then(winddown_host::machine::node_name);
        CommonSettings::of_companion(
            config.node.name.as_deref(),
            host_name.as_deref(),
            &config.node.container_runtime_endpoint,
            &config.companion.kubelet_root_dir,
        )
    }

    /// Describes how an existing configuration differs from the derived one.
    pub(super) fn differences(&self, root: &Path, existing: &Config, ours: &Config) -> Vec<String> {
        // Once the kubelet's graceful shutdown is off, the periods exist only in our configuration.
        let periods = if self.ends_pods() { &PERIODS[..] } else { &[] };
        let (there, here) = (existing.to_json(), ours.to_json());
        let show = |value: &Value| match value {
            Value::Null => "nothing".to_owned(),
            value => scalar(value),
        };
        let said = |field: &str, there: &Value, here: &Value| {
            let (there, here) = (show(there), show(here));
            let by = self.named_by(field).unwrap_or("the kubelet");
            format!("{field}: it says {there}, by {by} it would be {here}")
        };
        let fields = FIELDS.iter().chain(periods).filter(|field| there[**field] != here[**field]);
        let fields = fields.map(|field| said(field, &there[*field], &here[*field]));
        let common = self.common(existing).differences(root, &self.common(ours));
        let common = common
            .iter()
            .map(|one| said(one.field, &(&*one.ours).into(), &(&*one.kubelets).into()));
        fields.chain(common).collect()
    }
}

/// What keeps a kubelet from ending its pods itself, and the steps that change that.
#[derive(Debug, Default)]
pub(super) struct SwitchedOff {
    pub(super) seen: Vec<String>,
    pub(super) steps: Vec<NextStep>,
}

/// The configuration of a companion, if a kubelet is here.
pub(super) fn unknown(root: &Path, live: bool) -> Option<Config> {
    let mut config = Config::default();
    config.node.mode = Mode::Companion;
    (!kubelet::find(root, live).is_empty()).then_some(config)
}

/// Returns the steps after which the kubelet ends its pods itself although winddown is removed; none outside companion
/// mode, or if it does so already.
///
/// The kubelet's files are not enough on a running machine: the kubelet reads them when it starts, and it raises logind's
/// delay only where nothing else has, as winddown's file does.
pub(super) fn switch_on(root: &Path, host: Option<&dyn Host>, config: &Config) -> SwitchedOff {
    if config.node.mode != Mode::Companion {
        return SwitchedOff::default();
    }
    let live = host.is_some();
    let found = kubelet::find(root, live);
    let kubelet = of_agent(found, config.cluster.kubeconfig.as_deref()).unwrap_or_default();
    let said = kubelet.configuration(root);
    let set = said.as_ref().filter(|said| said.periods() != Periods::default());
    let wanted = set.map_or(config.shutdown.total(), MergedConfiguration::wanted);
    let gate = said.as_ref().and_then(|said| kubelet.gate_to_remove(root, said));
    let remove = gate.map(|gate| NextStepKind::ChangeKubelet.typed(format!("remove {gate}")));
    let (mut steps, mut seen) = (Vec::from_iter(remove), Vec::new());
    if set.is_none() {
        seen.push(format!("{} sets no {} above 0s", kubelet.name(), PERIODS[0]));
        let change = periods_again(root, &kubelet, said, config);
        steps.extend(fields(root, change, "so that the kubelet terminates its pods in order"));
    }
    let Some(host) = host else { return SwitchedOff { seen, steps } };
    let may_run = kubelet.pid.is_some() || may_run_elsewhere(root);
    let has_no_lock = steps.is_empty() && may_run && host.kubelet_holds_lock() == Some(false);
    if has_no_lock {
        let unit = unit_name(&kubelet);
        seen.push(format!(
            "logind lists no lock of the kubelet, though its files set one: if that stays so after a restart, \
             `journalctl -u {unit} -e` says why"
        ));
    }
    let needs_start = !steps.is_empty() || has_no_lock;
    // One that does not run yet raises the delay as it starts, when winddown's file is gone.
    let delay = delay_again(root, wanted).filter(|_| may_run);
    if delay.is_some() {
        let wanted = winddown_shared::display::duration(wanted);
        seen.push(format!(
            "without winddown's file logind waits for less than the {wanted} of the kubelet's shutdown"
        ));
    }
    steps.extend(delay);
    steps.extend(needs_start.then(|| restart(&kubelet)));
    SwitchedOff { seen, steps }
}

/// Whether a process of root's may be the kubelet of which nobody can say whose it is, or may be there unseen.
fn may_run_elsewhere(root: &Path) -> bool {
    let found = kubelets(root);
    found.map_or(true, |found| found.strangers.iter().any(|(_, why)| *why == Stranger::InNoService))
}

/// The command that makes logind wait for as long as the kubelet wants once winddown's file is gone; none if it will.
fn delay_again(root: &Path, wanted: Duration) -> Option<NextStep> {
    let setting = drop_in::find_without_ours(root);
    let delay = setting.as_ref().map_or(drop_in::DEFAULT_DELAY, |set| set.value);
    let wanted = Duration::from_secs(seconds_up(wanted));
    if delay >= wanted {
        return None;
    }
    let command = match setting.filter(|set| set.beats(drop_in::KUBELETS_NAME)) {
        Some(set) => drop_in::edit_command(Path::new("/"), &set.file, wanted),
        // What the kubelet would have written, had it been the first.
        None => format!(
            "mkdir -p {0} && printf '[Login]\\nInhibitDelayMaxSec={1}\\n' >{0}/{2}",
            drop_in::ADMINISTRATORS,
            wanted.as_secs(),
            drop_in::KUBELETS_NAME,
        ),
    };
    Some(NextStepKind::RaiseDelay.typed(command))
}

/// The change of the kubelet's configuration that gives it the periods that winddown has.
fn periods_again(
    root: &Path,
    kubelet: &Kubelet,
    said: Option<MergedConfiguration>,
    config: &Config,
) -> Option<KubeletChange> {
    let seconds = |length: &Duration| format!("{}s", length.as_secs());
    let periods = match &config.shutdown.periods() {
        ShutdownPeriods::Total { total, critical } => {
            Periods { total: seconds(total), critical: seconds(critical), groups: Vec::new() }
        }
        ShutdownPeriods::ByPriority(groups) => Periods {
            groups: groups
                .iter()
                .map(|group| KubeletPriorityPeriod {
                    priority: group.priority,
                    shutdown_grace_period_seconds: group
                        .period
                        .as_secs()
                        .try_into()
                        .unwrap_or(i64::MAX),
                })
                .collect(),
            ..Periods::default()
        },
    };
    let readable = said.filter(|said| said.problem.is_none());
    // Without a file the fields are still worth saying.
    let unknown = MergedConfiguration {
        files: vec!["the kubelet's configuration file".into()],
        ..Default::default()
    };
    kubelet.change(root, readable.as_ref().unwrap_or(&unknown), &periods)
}

/// Returns what to write into which file, and who else writes that file. A file that is there is never replaced.
fn fields(root: &Path, change: Option<KubeletChange>, why: &str) -> Vec<NextStep> {
    let Some(KubeletChange { file, is_new, lines, rewritten, .. }) = change else {
        return Vec::new();
    };
    let place = if file.is_absolute() { shown(&in_root(root, &file)) } else { shown(&file) };
    let mut steps = vec![match is_new {
        true => format!("write this to {place}, {why}:"),
        false => format!("set these fields in {place}, {why}:"),
    }];
    steps.extend(lines.into_iter().map(|line| format!("    {line}")));
    if !is_new && !rewritten.is_empty() {
        steps.push(format!("{place}: {rewritten}"));
    }
    steps.into_iter().map(|line| NextStepKind::ChangeKubelet.typed(line)).collect()
}

/// The command that restarts the kubelet, which reads its configuration only as it starts.
fn restart(kubelet: &Kubelet) -> NextStep {
    NextStepKind::RestartKubelet.typed(format!("systemctl restart {}", unit_name(kubelet)))
}

/// The name of the kubelet's unit, as it is typed.
fn unit_name(kubelet: &Kubelet) -> String {
    let unit = kubelet.unit.as_deref().unwrap_or("kubelet.service");
    shell_word(unit.trim_end_matches(".service")).to_string()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
