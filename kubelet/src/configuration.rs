//! The kubelet's settings for shutdowns and its container runtime, from its files. Blocks.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use winddown_quantities::GoDuration;

use super::below;
use super::periods::{BY_PRIORITY, CRITICAL, PERIOD, Periods, PriorityPeriod};

/// Where distributions keep the configuration, if no command line names it.
const USUAL: [&str; 3] = [
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/config.json",
    "/etc/kubernetes/kubelet/kubelet-config.json",
];
const LONGEST: u64 = 1024 * 1024;
/// Maximum number of files that are read from a directory.
const MOST_DROP_INS: usize = 64;

/// The merged content of a kubelet's files; later files override earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The files, in the order in which they are read. At least one.
    pub files: Vec<PathBuf>,
    /// `shutdownGracePeriod`.
    pub period: Option<Located<String>>,
    /// `shutdownGracePeriodCriticalPods`.
    pub critical: Option<Located<String>>,
    /// `shutdownGracePeriodByPodPriority`.
    pub by_priority: Option<Located<Vec<PriorityPeriod>>>,
    /// `containerRuntimeEndpoint`.
    pub endpoint: Option<Located<String>>,
    /// Whether a feature gate disables graceful shutdown.
    pub off_by_gate: bool,
    /// The first file that cannot be read, and why. The kubelet does not start with such a file.
    pub problem: Option<(PathBuf, String)>,
}

/// A value and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The file.
    pub file: PathBuf,
    /// The line, if it was found.
    pub line: Option<usize>,
}

/// The relevant fields of a `KubeletConfiguration`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Fields {
    shutdown_grace_period: Option<String>,
    shutdown_grace_period_critical_pods: Option<String>,
    shutdown_grace_period_by_pod_priority: Option<Vec<PriorityPeriod>>,
    container_runtime_endpoint: Option<String>,
    feature_gates: Option<FeatureGates>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FeatureGates {
    #[serde(rename = "GracefulNodeShutdown")]
    graceful: Option<bool>,
}

/// The files in and below a directory with this extension, in the order in which they are merged.
pub(super) fn drop_ins(root: &Path, directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut entries: Vec<_> =
        fs::read_dir(below(root, directory)).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    let files = entries.into_iter().flat_map(|entry| {
        let path = directory.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => drop_ins(root, &path, ending),
            _ if path.extension().is_some_and(|found| found == ending) => vec![path],
            _ => Vec::new(),
        }
    });
    files.take(MOST_DROP_INS).collect()
}

// === impl Configuration ===

impl Configuration {
    /// Reads `file` and the files in `drop_ins_of`; if neither is given, the file at a usual place. `None` if
    /// there is no file. `gate`: the feature gate on the command line, which takes precedence over the files.
    pub(super) fn read(
        root: &Path,
        file: Option<&Path>,
        drop_ins_of: Option<&Path>,
        gate: Option<bool>,
    ) -> Option<Self> {
        let mut files: Vec<PathBuf> = file.map(Path::to_owned).into_iter().collect();
        files.extend(drop_ins_of.into_iter().flat_map(|dir| drop_ins(root, dir, "conf")));
        if file.is_none() && drop_ins_of.is_none() {
            let usual = USUAL.iter().map(PathBuf::from).find(|path| below(root, path).exists());
            files.extend(usual);
        }
        let mut merged = Self::default();
        for file in &files {
            if let Err(error) = merged.add(root, file) {
                merged.problem = Some((file.clone(), error));
                break;
            }
        }
        merged.off_by_gate = gate.map_or(merged.off_by_gate, |on| !on);
        merged.files = files;
        (!merged.files.is_empty()).then_some(merged)
    }

    fn add(&mut self, root: &Path, file: &Path) -> Result<(), String> {
        let text = read(&below(root, file)).map_err(|error| error.to_string())?;
        let fields: Fields = serde_saphyr::from_str(&text).map_err(|error| first_line(&error))?;
        fn located<T>(
            kept: &mut Option<Located<T>>,
            value: Option<T>,
            name: &str,
            file: &Path,
            text: &str,
        ) {
            if let Some(value) = value {
                *kept = Some(Located { value, file: file.to_owned(), line: line_of(text, name) });
            }
        }
        located(&mut self.period, fields.shutdown_grace_period, PERIOD, file, &text);
        let critical = fields.shutdown_grace_period_critical_pods;
        located(&mut self.critical, critical, CRITICAL, file, &text);
        let groups = fields.shutdown_grace_period_by_pod_priority;
        located(&mut self.by_priority, groups, BY_PRIORITY, file, &text);
        let endpoint = fields.container_runtime_endpoint.filter(|address| !address.is_empty());
        located(&mut self.endpoint, endpoint, "containerRuntimeEndpoint", file, &text);
        if let Some(graceful) = fields.feature_gates.and_then(|gates| gates.graceful) {
            self.off_by_gate = !graceful;
        }
        Ok(())
    }

    /// The groups by priority, if there are any: they take precedence over the two periods.
    fn groups(&self) -> Option<&Located<Vec<PriorityPeriod>>> {
        self.by_priority.as_ref().filter(|groups| !groups.value.is_empty())
    }

    /// `shutdownGracePeriod`, if it is not zero.
    fn total(&self) -> Option<&Located<String>> {
        self.period.as_ref().filter(|period| !is_zero(&period.value))
    }

    /// The field that makes the kubelet stop pods at a shutdown, with its location; `None` if it does not.
    pub fn ends_pods(&self) -> Option<Located<String>> {
        if self.off_by_gate {
            return None;
        }
        match (self.groups(), self.total()) {
            (Some(groups), _) => {
                let count = groups.value.len();
                let plural = if count == 1 { "" } else { "s" };
                Some(groups.as_if(format!("{BY_PRIORITY} has {count} group{plural}")))
            }
            (None, total) => total.map(|said| said.as_if(format!("{PERIOD}: {}", said.value))),
        }
    }

    /// The periods that are in force; zero if neither form is configured.
    pub fn periods(&self) -> Periods {
        let nothing = Periods::default();
        match (self.groups(), self.total()) {
            (Some(groups), _) => Periods { groups: groups.value.clone(), ..nothing },
            (None, Some(total)) => Periods {
                total: total.value.clone(),
                critical: self.critical.as_ref().map_or(nothing.critical, |c| c.value.clone()),
                groups: Vec::new(),
            },
            (None, None) => nothing,
        }
    }

    /// The total time that the configuration gives to pods.
    pub fn wanted(&self) -> Duration {
        let Periods { total, groups, .. } = self.periods();
        let of_groups = groups.iter().map(|group| u64::from(group.shutdown_grace_period_seconds));
        let total = total.parse::<GoDuration>().ok();
        let total = total.and_then(|total| u64::try_from(total.as_nanos()).ok());
        Duration::from_secs(of_groups.sum()) + Duration::from_nanos(total.unwrap_or_default())
    }
}

// === impl Located ===

impl<T> Located<T> {
    fn as_if<U>(&self, value: U) -> Located<U> {
        Located { value, file: self.file.clone(), line: self.line }
    }
}

/// Formats the location, e.g. `/var/lib/kubelet/config.yaml:12`.
impl<T> fmt::Display for Located<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}

/// The number of the line with the field, in YAML or JSON.
fn line_of(text: &str, field: &str) -> Option<usize> {
    let has = |line: &str| {
        let line = line.trim_start().trim_start_matches('"');
        let rest = line.strip_prefix(field).map(|rest| rest.trim_start_matches('"').trim_start());
        rest.is_some_and(|rest| rest.starts_with(':'))
    };
    text.lines().position(has).map(|index| index + 1)
}

/// Whether the period is zero. A value that cannot be parsed is not: the kubelet would not start with it.
fn is_zero(period: &str) -> bool {
    period.parse::<GoDuration>().is_ok_and(|period| period == GoDuration::default())
}

fn first_line(error: &impl ToString) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
