//! The kubelet's settings for shutdowns and its container runtime, from its files. Blocks.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use winddown_host::{in_root, link_in_root};
use winddown_shared::GoDuration;
use winddown_yaml::{Problem, Value, YamlNode, decode, parse_first_leniently};

use super::KubeletProblem;
use super::periods::{BY_PRIORITY, CRITICAL, HEAD, KubeletPriorityPeriod, PERIOD, Periods};
use super::trusted::{read, refusal};

/// Maximum number of files that are read from a directory.
const MOST_DROP_INS: usize = 64;

/// The merged content of a kubelet's files; later files override earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedConfiguration {
    /// The files, in the order in which they are read. At least one.
    pub files: Vec<PathBuf>,
    /// `shutdownGracePeriod`.
    pub period: Option<SourcedValue<String>>,
    /// `shutdownGracePeriodCriticalPods`.
    pub critical: Option<SourcedValue<String>>,
    /// `shutdownGracePeriodByPodPriority`.
    pub by_priority: Option<SourcedValue<Vec<KubeletPriorityPeriod>>>,
    /// `containerRuntimeEndpoint`.
    pub endpoint: Option<SourcedValue<String>>,
    /// `staticPodPath`.
    pub static_pods: Option<SourcedValue<PathBuf>>,
    /// Where a feature gate disables graceful shutdown, whatever the periods; `None` if none does.
    pub off_by_gate: Option<GateSource>,
    /// The first file that cannot be read, and why: what it and later ones set is not known.
    pub problem: Option<KubeletProblem>,
}

/// Where the feature gate of graceful shutdown is set to false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateSource {
    /// `--feature-gates` of the kubelet.
    Arguments,
    /// `featureGates` in this file.
    File(PathBuf),
}

/// A value and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcedValue<T> {
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
    shutdown_grace_period: Option<PeriodText>,
    shutdown_grace_period_critical_pods: Option<PeriodText>,
    /// An entry may be null, which means one of zeros.
    shutdown_grace_period_by_pod_priority: Option<Vec<Option<KubeletPriorityPeriod>>>,
    container_runtime_endpoint: Option<String>,
    static_pod_path: Option<PathBuf>,
    feature_gates: Option<FeatureGates>,
}

/// A duration as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename = "Duration")]
struct PeriodText(String);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FeatureGates {
    #[serde(rename = "GracefulNodeShutdown")]
    graceful: Option<bool>,
}

/// Whether the kubelet reads a directory of drop-ins: one that is a link itself it passes over, unless a slash follows.
pub(super) fn is_directory(root: &Path, path: &Path) -> bool {
    let follows = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let place = if follows { in_root(root, path) } else { link_in_root(root, path) };
    place.symlink_metadata().is_ok_and(|there| there.is_dir())
}

/// The files in and below a directory that the kubelet merges into its configuration, in that order.
fn drop_ins(root: &Path, directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> =
        fs::read_dir(in_root(root, directory)).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    let files = entries.into_iter().flat_map(|entry| {
        let path = directory.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => drop_ins(root, &path),
            _ if path.extension().is_some_and(|ending| ending == "conf") => vec![path],
            _ => Vec::new(),
        }
    });
    // One more, so that too many are noticed.
    files.take(MOST_DROP_INS + 1).collect()
}

/// The `kind` that the file says it has; `None` if it says none, or cannot be read.
pub(super) fn kind(root: &Path, file: &Path) -> Option<String> {
    let text = read(root, file).ok()?;
    let tree = parse_first_leniently(&text).ok()??;
    tree.get("kind")?.text().map(str::to_owned)
}

/// The tree of a file that says it is a configuration. With any other the kubelet does not start, so what its fields
/// say is not what a kubelet does.
fn of_kubelet(text: &str, tree: Option<Rc<YamlNode>>) -> Result<Rc<YamlNode>, Problem> {
    let [version, kind] = HEAD;
    let refused = |said: &str| {
        format!(
            "the kubelet does not start with it, because {said}: write `{version}` and `{kind}` in it"
        )
    };
    if text.is_empty() {
        return Err(Problem::of_file(refused("it \"was empty\"")));
    }
    let missing = "\"Object 'Kind' is missing\"";
    let Some(tree) = tree else { return Err(Problem::of_file(refused(missing))) };
    if !matches!(tree.value, Value::Map(_)) {
        return Ok(tree);
    }
    let said = |field| tree.entry(field).filter(|(_, node)| !node.is_null());
    let is = |field, line| {
        let text = said(field).and_then(|(_, node)| node.text());
        text.is_some_and(|text| format!("{field}: {text}") == line)
    };
    match said("kind") {
        None => Err(Problem::of_file(refused(missing))),
        Some((key, _)) if !is("kind", kind) => {
            Err(Problem::new(key.at, "kind", refused("it is of another kind")))
        }
        Some(_) if is("apiVersion", version) => Ok(tree),
        Some((key, _)) => {
            let at = said("apiVersion").map_or(key.at, |(key, _)| key.at);
            let what = refused("it knows no other version of this kind");
            Err(Problem::new(at, "apiVersion", what))
        }
    }
}

// === impl MergedConfiguration ===

impl MergedConfiguration {
    /// Reads `file` and the files in `drop_ins_of`. `None` if there is no file. `gate`: the feature gate on the command
    /// line, which takes precedence over the files.
    pub(super) fn read(
        root: &Path,
        file: Option<&Path>,
        drop_ins_of: Option<&Path>,
        gate: Option<bool>,
    ) -> Option<Self> {
        let mut merged = Self::default();
        // One that cannot be looked at is one whose files are not known.
        let is_passed_over = |dir: &&Path| in_root(root, dir).is_dir() && !is_directory(root, dir);
        let drop_ins_of = drop_ins_of.filter(|dir| !is_passed_over(dir));
        merged.files.extend(file.map(Path::to_owned));
        // Where others can put a file, what is there now may not be what the kubelet reads next.
        let unsafe_directory = drop_ins_of.and_then(|dir| Some((dir, refusal(root, dir)?)));
        if let Some((directory, why)) = unsafe_directory {
            merged.files.push(directory.to_owned());
            merged.problem = Some(KubeletProblem::of_file(directory, why));
            return Some(merged);
        }
        merged.files.extend(drop_ins_of.into_iter().flat_map(|dir| drop_ins(root, dir)));
        if let (true, Some(directory)) = (merged.files.len() > MOST_DROP_INS + 1, drop_ins_of) {
            let why = format!("it has more than {MOST_DROP_INS} files");
            merged.problem = Some(KubeletProblem::of_file(directory, why));
            return Some(merged);
        }
        for file in merged.files.clone() {
            if let Err(problem) = merged.add(root, &file) {
                merged.problem = Some(problem);
                break;
            }
        }
        if let Some(on) = gate {
            merged.off_by_gate = (!on).then_some(GateSource::Arguments);
        }
        (!merged.files.is_empty()).then_some(merged)
    }

    /// Nothing but the problem, which keeps the configuration from being found.
    pub(super) fn unknown(problem: KubeletProblem) -> Self {
        Self { files: vec![problem.file.clone()], problem: Some(problem), ..Self::default() }
    }

    /// Merges a file, which is read as the kubelet reads it: where it has a key twice, the last one counts, and a
    /// document after the first one is not looked at.
    fn add(&mut self, root: &Path, file: &Path) -> Result<(), KubeletProblem> {
        let text = read(root, file).map_err(|why| KubeletProblem::of_file(file, why))?;
        let of_text = |problem: &Problem| KubeletProblem::of_text(file, problem);
        let tree = parse_first_leniently(&text).map_err(|problem| of_text(&problem))?;
        let tree = of_kubelet(&text, tree).map_err(|problem| of_text(&problem))?;
        let read = decode::<Fields>(&tree);
        let fields = match read.value {
            Some(fields) if read.left_out.is_empty() => fields,
            // Problems of values come before those of fields that are not read here.
            _ => {
                let problem = read.problems.first().map(of_text);
                return Err(problem.unwrap_or_else(|| KubeletProblem::of_file(file, String::new())));
            }
        };
        let at = |name: &str| FieldPlace { file, line: line_of(&tree, name) };
        at(PERIOD).put(&mut self.period, fields.shutdown_grace_period.map(|period| period.0));
        at(CRITICAL).put(
            &mut self.critical,
            fields.shutdown_grace_period_critical_pods.map(|period| period.0),
        );
        let groups = fields.shutdown_grace_period_by_pod_priority;
        let groups = groups.map(|all| all.into_iter().map(Option::unwrap_or_default).collect());
        at(BY_PRIORITY).put(&mut self.by_priority, groups);
        let endpoint = fields.container_runtime_endpoint.filter(|address| !address.is_empty());
        at("containerRuntimeEndpoint").put(&mut self.endpoint, endpoint);
        at("staticPodPath").put(&mut self.static_pods, fields.static_pod_path);
        if let Some(graceful) = fields.feature_gates.and_then(|gates| gates.graceful) {
            self.off_by_gate = (!graceful).then(|| GateSource::File(file.to_owned()));
        }
        Ok(())
    }

    /// The groups by priority, if there are any: they take precedence over the two periods.
    fn groups(&self) -> Option<&SourcedValue<Vec<KubeletPriorityPeriod>>> {
        self.by_priority.as_ref().filter(|groups| !groups.value.is_empty())
    }

    /// `shutdownGracePeriod`, if it is not zero.
    fn total(&self) -> Option<&SourcedValue<String>> {
        self.period.as_ref().filter(|period| !is_zero(&period.value))
    }

    /// The field that makes the kubelet stop pods at a shutdown, with its location; `None` if it does not.
    pub fn ends_pods(&self) -> Option<SourcedValue<String>> {
        if self.off_by_gate.is_some() {
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

    /// The periods that are set, and in force unless a feature gate is off; zero if neither form is configured.
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
        let seconds =
            |group: &KubeletPriorityPeriod| u64::try_from(group.shutdown_grace_period_seconds);
        let of_groups = groups.iter().map(|group| seconds(group).unwrap_or_default());
        let total = total.parse::<GoDuration>().ok();
        let total = total.and_then(|total| u64::try_from(total.as_nanos()).ok());
        Duration::from_secs(of_groups.sum()) + Duration::from_nanos(total.unwrap_or_default())
    }
}

// === impl SourcedValue ===

impl<T> SourcedValue<T> {
    fn as_if<U>(&self, value: U) -> SourcedValue<U> {
        SourcedValue { value, file: self.file.clone(), line: self.line }
    }
}

/// Formats the location, e.g. `/var/lib/kubelet/config.yaml:12`.
impl<T> fmt::Display for SourcedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

struct FieldPlace<'a> {
    file: &'a Path,
    line: Option<usize>,
}

impl FieldPlace<'_> {
    /// Replaces an earlier value by that of this place; a field without a value takes it away.
    fn put<T>(self, kept: &mut Option<SourcedValue<T>>, value: Option<T>) {
        if self.line.is_some() {
            let (file, line) = (self.file.to_owned(), self.line);
            *kept = value.map(|value| SourcedValue { value, file, line });
        }
    }
}

fn line_of(tree: &YamlNode, field: &str) -> Option<usize> {
    tree.entry(field).map(|(key, _)| key.at.line)
}

/// Whether the period is zero. A value that cannot be parsed is not: the kubelet would not start with it.
fn is_zero(period: &str) -> bool {
    period.parse::<GoDuration>().is_ok_and(|period| period == GoDuration::default())
}
