//! The kubelet's settings on this machine, from its command line and its files.
//!
//! [`find`] searches the processes and, if no kubelet runs, the units. A [`Kubelet`] knows its
//! arguments, and thus its credentials, its container runtime and its [`MergedConfiguration`].
//!
//! Any user can start a process by any name and with any arguments, and write files. So a process counts only if it is a
//! service of the system that root started, and a file only if nobody else can change it.
//!
//! Functions that read files take a `root` that stands for `/`. Everything blocks, and nothing is changed.

mod arguments_file;
mod change;
mod command_line;
mod configuration;
mod distributions;
mod edited;
mod periods;
pub mod processes;
mod rancher;
pub mod service;
mod settings;
mod trusted;
mod unit;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

pub use change::KubeletChange;
pub use configuration::{GateSource, MergedConfiguration, SourcedValue};
pub use periods::{KubeletPriorityPeriod, Periods};
pub use settings::{CommonSettings, SettingDifference};
pub use trusted::refusal;
pub use unit::UNIT_DIRECTORIES;

use command_line::{option, values};
use configuration::{is_directory, kind};
use distributions::{
    ArgumentsSource, DISTRIBUTIONS, Distribution, KUBELET, LAYOUTS, Layout, of_process, of_program,
    of_unit,
};
use processes::{KubeletCandidate, parent_and_start};
use unit::UnitStart;
use winddown_host::in_root;
use winddown_yaml::{Position, Problem};

/// A kubelet of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubelet {
    /// The unit, such as `kubelet.service`; `None` if it is not known.
    pub unit: Option<String>,
    /// The PID, if it runs.
    pub pid: Option<u32>,
    /// Its arguments. For k3s and its like, the arguments that it passes to its kubelet.
    arguments: Vec<String>,
    distribution: &'static Distribution,
    problem: Option<KubeletProblem>,
}

/// Why part of what a kubelet is told is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletProblem {
    /// The file that says it, without the root.
    pub file: PathBuf,
    /// Where in the file, if it concerns a place in its text.
    pub at: Option<Position>,
    /// Why it is not read or not understood. It may contain foreign text.
    pub why: String,
}

/// For people. The path and the text are shown as they are: print them through a filter.
impl fmt::Display for KubeletProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.why)
    }
}

impl KubeletProblem {
    fn of_file(file: &Path, why: String) -> Self {
        Self { file: file.to_owned(), at: None, why }
    }

    fn of_text(file: &Path, problem: &Problem) -> Self {
        let at = problem.line.zip(problem.column);
        let at = at.map(|(line, column)| Position { line, column });
        Self { file: file.to_owned(), at, why: problem.to_string() }
    }

    /// The location, e.g. `/var/lib/kubelet/config.yaml:12:3`.
    pub fn place(&self) -> String {
        let file = self.file.display();
        self.at.map_or_else(|| file.to_string(), |at| format!("{file}:{}:{}", at.line, at.column))
    }
}

/// The running kubelets or, if there are none, those that a unit would start.
pub fn find(root: &Path, live: bool) -> Vec<Kubelet> {
    let running = if live { running(root) } else { Vec::new() };
    match running.is_empty() {
        true => installed(root),
        false => running,
    }
}

/// Of these kubelets, the one whose credentials an agent uses; otherwise the first.
pub fn of_agent(found: Vec<Kubelet>, kubeconfig: Option<&Path>) -> Option<Kubelet> {
    let same = found.iter().position(|one| kubeconfig.is_some() && one.kubeconfig() == kubeconfig);
    found.into_iter().nth(same.unwrap_or_default())
}

/// The unit that starts a kubelet at boot: it is there, not masked, and enabled. `found`: what [`find`] found.
pub fn enabled_unit(root: &Path, found: &[Kubelet]) -> Option<String> {
    let runs = found.iter().any(|kubelet| kubelet.pid.is_some());
    let installed = if runs { &installed(root) } else { found };
    let mut units = installed.iter().filter_map(|kubelet| kubelet.unit.as_ref());
    units.find(|unit| unit::is_enabled(root, unit)).cloned()
}

/// Kubelets of which only the credentials were found, at a usual place.
pub fn find_credentials(root: &Path) -> Vec<Kubelet> {
    let mut usual: Vec<&str> = LAYOUTS.iter().map(|layout| layout.kubeconfig).collect();
    let mut seen = Vec::new();
    usual.retain(|file| {
        !seen.contains(file) && {
            seen.push(*file);
            true
        }
    });
    let usual = usual.into_iter().map(|file| Kubelet::with_kubeconfig(Path::new(file)));
    let contained = DISTRIBUTIONS.into_iter().filter(|one| **one != KUBELET);
    let contained = contained.map(|one| Kubelet::contained(root, one, &UnitStart::default()));
    let there = |kubelet: &Kubelet| {
        kubelet
            .kubeconfig()
            .is_some_and(|file| in_root(root, file).exists() && !is_configuration(root, file))
    };
    usual.chain(contained).filter(there).collect()
}

/// The `kind` of a kubelet's configuration.
const CONFIGURATION: &str = "KubeletConfiguration";

fn running(root: &Path) -> Vec<Kubelet> {
    let found = processes::candidates(root).unwrap_or_default().into_iter();
    let mut found: Vec<(KubeletCandidate, Option<String>)> = found
        .filter_map(|found| {
            let unit = found.unit.clone().ok()?;
            Some((found, unit))
        })
        .collect();
    // Of several processes of a unit, the kubelet is the one that started first of those that none of the others started.
    // PIDs say nothing: they begin again at the lowest when the highest was given away.
    let born = |found: &KubeletCandidate| parent_and_start(root, found.process.pid);
    let parents: Vec<_> = found.iter().map(|(one, unit)| (one.process.pid, unit.clone())).collect();
    found.retain(|(one, unit)| unit.is_none() || !parents.contains(&(born(one).0, unit.clone())));
    found.sort_by_key(|(one, _)| (born(one).1, one.process.pid));
    let mut mains: Vec<Kubelet> = Vec::new();
    for (one, unit) in found {
        if unit.is_none() || mains.iter().all(|main| main.unit != unit) {
            mains.push(Kubelet::of_process(root, &one, unit));
        }
    }
    mains
}

/// The kubelets that a unit would start: units by a name of a distribution, and others that start its program.
fn installed(root: &Path) -> Vec<Kubelet> {
    let known = DISTRIBUTIONS.into_iter().flat_map(|one| {
        one.units.iter().filter_map(move |unit| {
            let start = unit::start(root, unit).transpose()?;
            Kubelet::of_unit(root, unit, one, start)
        })
    });
    let others = unit::services(root).filter_map(|(unit, program)| {
        let distribution = of_program(&program).filter(|_| of_unit(&unit).is_none())?;
        let start = unit::start(root, &unit).ok()??;
        Kubelet::of_unit(root, &unit, distribution, Ok(start))
    });
    known.chain(others).collect()
}

/// Whether a command line is that of a kubelet, if need be behind a program that starts it, and not a script's.
fn shows_arguments(start: &UnitStart) -> bool {
    let is_kubelet = |word: &String| {
        let name = word.rsplit('/').next().unwrap_or_default();
        of_program(name) == Some(&KUBELET)
    };
    let has = |name: &str| option(&start.arguments, name).is_some();
    start.program.is_empty()
        || is_kubelet(&start.program)
        || start.arguments.iter().any(is_kubelet)
        || has("--config")
        || has("--kubeconfig")
}

/// Whether the file says that it is a kubelet's configuration, whatever its name.
pub fn is_configuration(root: &Path, file: &Path) -> bool {
    kind(root, file).as_deref() == Some(CONFIGURATION)
}

/// The files of a kubelet's configuration.
struct Sources {
    file: Option<PathBuf>,
    /// The directory of files that override it.
    drop_ins: Option<PathBuf>,
}

// === impl Kubelet ===

/// A kubelet of which nothing is known.
impl Default for Kubelet {
    fn default() -> Self {
        let distribution = &KUBELET;
        Self { unit: None, pid: None, arguments: Vec::new(), distribution, problem: None }
    }
}

impl Kubelet {
    /// A kubelet of which only the credentials are known.
    pub fn with_kubeconfig(file: &Path) -> Self {
        let arguments = vec![format!("--kubeconfig={}", file.display())];
        Self { arguments, ..Self::default() }
    }

    /// The kubelet that a unit starts; `None` if it starts none.
    fn of_unit(
        root: &Path,
        unit: &str,
        distribution: &'static Distribution,
        start: Result<UnitStart, KubeletProblem>,
    ) -> Option<Self> {
        let kubelet = match start {
            Ok(start) if distribution.is_without_kubelet(root, &start) => return None,
            Ok(start) => Self::contained(root, distribution, &start),
            Err(problem) => Self { distribution, problem: Some(problem), ..Self::default() },
        };
        Some(Self { unit: Some(unit.to_owned()), ..kubelet })
    }

    fn of_process(root: &Path, found: &KubeletCandidate, unit: Option<String>) -> Self {
        let pid = found.process.pid;
        let of_unit = unit.as_deref().and_then(of_unit);
        let distribution = of_process(&found.process.name).unwrap_or(&KUBELET);
        let arguments = processes::arguments(root, pid);
        let kubelet = match &distribution.source {
            // Such a program hides its arguments, which may contain secrets, so they are read from its unit.
            ArgumentsSource::Rancher(_) => {
                let start = unit.as_ref().map_or(Ok(None), |unit| unit::start(root, unit));
                match start {
                    Ok(start) => Self::contained(root, distribution, &start.unwrap_or_default()),
                    Err(problem) => Self { problem: Some(problem), ..Self::default() },
                }
            }
            ArgumentsSource::ArgumentsFile(usual) => {
                let file = option(&arguments, "--kubelet-args-file").unwrap_or(usual);
                Self::with_arguments_of(root, Path::new(file))
            }
            ArgumentsSource::CommandLine | ArgumentsSource::Process => {
                Self { arguments, ..Self::default() }
            }
            ArgumentsSource::Nowhere => {
                let file = unit.as_deref().and_then(|unit| unit::file(root, unit));
                Self::hidden(&file.unwrap_or_default(), &found.process.name)
            }
        };
        Self { unit, pid: Some(pid), distribution: of_unit.unwrap_or(distribution), ..kubelet }
    }

    /// The kubelet that a unit's command line starts, if need be by way of another program.
    fn contained(root: &Path, distribution: &'static Distribution, own: &UnitStart) -> Self {
        let kubelet = match &distribution.source {
            ArgumentsSource::CommandLine if shows_arguments(own) => {
                Self { arguments: own.arguments.clone(), ..Self::default() }
            }
            ArgumentsSource::Rancher(rancher) => {
                match rancher::kubelets_arguments(root, rancher, own) {
                    Ok(arguments) => Self { arguments, ..Self::default() },
                    Err(problem) => Self { problem: Some(problem), ..Self::default() },
                }
            }
            ArgumentsSource::ArgumentsFile(file) => Self::with_arguments_of(root, Path::new(file)),
            ArgumentsSource::Nowhere => Self::hidden(&own.file, &own.program),
            ArgumentsSource::CommandLine | ArgumentsSource::Process => {
                let (file, program) = (&own.file, &own.program);
                let why = format!("what {program} tells its kubelet shows only while that runs");
                Self { problem: Some(KubeletProblem::of_file(file, why)), ..Self::default() }
            }
        };
        Self { distribution, ..kubelet }
    }

    /// A kubelet in a program that shows nothing of what it tells it.
    fn hidden(file: &Path, program: &str) -> Self {
        let why = format!("what {program} tells its kubelet is to be seen nowhere");
        Self { problem: Some(KubeletProblem::of_file(file, why)), ..Self::default() }
    }

    fn with_arguments_of(root: &Path, file: &Path) -> Self {
        match arguments_file::arguments(root, file) {
            Ok(arguments) => Self { arguments, ..Self::default() },
            Err(why) => {
                Self { problem: Some(KubeletProblem::of_file(file, why)), ..Self::default() }
            }
        }
    }

    /// A name for messages: the unit, or else the process.
    pub fn name(&self) -> String {
        match (&self.unit, self.pid) {
            (Some(unit), _) => unit.clone(),
            (None, Some(pid)) => format!("process {pid}"),
            (None, None) => "the kubelet".to_owned(),
        }
    }

    /// The file of its unit, without the root; `None` if it has none.
    pub fn unit_file(&self, root: &Path) -> Option<PathBuf> {
        unit::file(root, self.unit.as_deref()?)
    }

    /// Whether it runs or has a unit, as opposed to credentials only.
    pub fn is_known(&self) -> bool {
        self.unit.is_some() || self.pid.is_some()
    }

    /// Whether another program contains it or starts it, and configures it from settings of its own.
    pub fn is_contained(&self) -> bool {
        self.distribution.processes != KUBELET.processes
    }

    /// Why its arguments are not known, if they are not.
    pub fn problem(&self) -> Option<&KubeletProblem> {
        self.problem.as_ref()
    }

    /// The value of the option `name`, e.g. `--config`.
    pub fn option(&self, name: &str) -> Option<&str> {
        option(&self.arguments, name)
    }

    /// The path of its credentials for the API server; `None` if it has no API server, or if that is not known.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.option("--kubeconfig").map(Path::new)
    }

    /// The container runtime endpoint if neither its arguments nor its configuration name one.
    pub fn usual_endpoint(&self) -> &'static str {
        self.distribution.endpoint
    }

    /// The merged configuration; `None` if it has no file, not even at a usual place.
    pub fn configuration(&self, root: &Path) -> Option<MergedConfiguration> {
        if let Some(problem) = &self.problem {
            return Some(MergedConfiguration::unknown(problem.clone()));
        }
        // Unlike other options, each occurrence adds to those before it.
        let gates = values(&self.arguments, "--feature-gates").flat_map(|all| all.split(','));
        let mut set = gates.filter_map(|gate| gate.trim().strip_prefix("GracefulNodeShutdown="));
        let gate = set.next_back().and_then(|on| on.to_ascii_lowercase().parse().ok());
        let Sources { file, drop_ins } = self.sources(root);
        MergedConfiguration::read(root, file.as_deref(), drop_ins.as_deref(), gate)
    }

    /// The directory or file with the manifests that it runs; `None` if it has none, or if that is not known.
    pub fn manifests(&self, root: &Path) -> Option<PathBuf> {
        let option = self.option("--pod-manifest-path").map(PathBuf::from);
        let said = || self.configuration(root)?.static_pods.map(|said| said.value);
        option.or_else(said).filter(|path| !path.as_os_str().is_empty())
    }

    /// What to remove so that the feature gate of graceful shutdown is on, with the place of that; `None` if it is on.
    pub fn gate_to_remove(&self, root: &Path, said: &MergedConfiguration) -> Option<String> {
        Some(match said.off_by_gate.as_ref()? {
            GateSource::Arguments => {
                format!("GracefulNodeShutdown=false from --feature-gates of {}", self.name())
            }
            GateSource::File(file) => {
                let file = in_root(root, file);
                format!("GracefulNodeShutdown: false from featureGates in {}", file.display())
            }
        })
    }

    /// The variable of its unit that names the proxy by which it reaches the API server; `None` if none does.
    pub fn proxy_variable(&self, root: &Path) -> Option<&'static str> {
        // Such a program's kubelet asks a load balancer of the same machine, for which Go uses no proxy.
        if matches!(self.distribution.source, ArgumentsSource::Rancher(_)) {
            return None;
        }
        let set = unit::start(root, self.unit.as_deref()?).ok()??.environment;
        let is_set = |name: &&str| set.get(*name).is_some_and(|value| !value.is_empty());
        ["HTTPS_PROXY", "https_proxy"].into_iter().find(is_set)
    }

    /// The files that its arguments name or, if they name none, those at a usual place.
    fn sources(&self, root: &Path) -> Sources {
        let named = |option: &str| self.option(option).map(PathBuf::from);
        let (file, drop_ins) = (named("--config"), named("--config-dir"));
        if file.is_some() || drop_ins.is_some() || self.is_contained() {
            return Sources { file, drop_ins };
        }
        // A file that does not say what it is can be a configuration where no credentials are kept.
        let is_credentials = |file: &str| LAYOUTS.iter().any(|layout| layout.kubeconfig == file);
        let is_there = |file: &&Layout| {
            let (file, kind) = (file.config, kind(root, Path::new(file.config)));
            in_root(root, file).exists()
                && kind.map_or(!is_credentials(file), |kind| kind == CONFIGURATION)
        };
        let layout = LAYOUTS.iter().find(is_there);
        let drop_ins = layout.and_then(|layout| layout.config_dir);
        Sources {
            file: layout.map(|layout| PathBuf::from(layout.config)),
            drop_ins: drop_ins.map(PathBuf::from).filter(|dir| is_directory(root, dir)),
        }
    }
}
