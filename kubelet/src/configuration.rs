//! What a kubelet's configuration says about shutdowns. Blocks.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use winddown_shared::GoDuration;

use super::{below, processes};
use crate::facts::{Fact, KubeletConfig};

/// Where distributions keep it, when no running kubelet tells.
const USUAL: [&str; 3] = [
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/config.json",
    "/etc/kubernetes/kubelet/kubelet-config.json",
];
const LONGEST: u64 = 1024 * 1024;
/// Drop-ins of `--config-dir` that are read.
const MOST_DROP_INS: usize = 64;

const PERIOD: &str = "shutdownGracePeriod";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";

/// The fields that matter, of a `KubeletConfiguration`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Fields {
    shutdown_grace_period: Option<String>,
    shutdown_grace_period_by_pod_priority: Option<Vec<Group>>,
    feature_gates: Option<FeatureGates>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Group {
    shutdown_grace_period_seconds: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FeatureGates {
    #[serde(rename = "GracefulNodeShutdown")]
    graceful: Option<bool>,
}

/// What decides so far: later files win, field by field.
#[derive(Default)]
struct Merged {
    period: Option<(String, String)>,
    by_priority: Option<(Vec<Group>, String)>,
    off_by_gate: bool,
}

/// The configuration of the kubelet that runs, or else the one at a usual place.
pub(super) fn config(root: &Path, live: bool) -> Option<KubeletConfig> {
    let files = running(root, live).unwrap_or_else(|| {
        let there = |path: &&str| below(root, path).exists();
        (USUAL.iter().find(|path| there(path)).map(PathBuf::from).into_iter().collect(), false)
    });
    let (files, gate_off) = files;
    let first = files.first()?.display().to_string();
    let mut merged = Merged { off_by_gate: gate_off, ..Merged::default() };
    for file in &files {
        if let Err(error) = merged.add(root, file) {
            let file = file.display().to_string();
            return Some(KubeletConfig {
                place: file.clone(),
                file,
                problem: error,
                ..KubeletConfig::default()
            });
        }
    }
    Some(merged.said(&first))
}

impl Merged {
    fn add(&mut self, root: &Path, file: &Path) -> Result<(), String> {
        let text = read(&below(root, file)).map_err(|error| error.to_string())?;
        let fields: Fields = serde_saphyr::from_str(&text).map_err(|error| first_line(&error))?;
        let place = |field: &str| match line_of(&text, field) {
            Some(line) => format!("{}:{line}", file.display()),
            None => file.display().to_string(),
        };
        if let Some(period) = fields.shutdown_grace_period {
            self.period = Some((period, place(PERIOD)));
        }
        if let Some(groups) = fields.shutdown_grace_period_by_pod_priority {
            self.by_priority = Some((groups, place(BY_PRIORITY)));
        }
        if let Some(graceful) = fields.feature_gates.and_then(|gates| gates.graceful) {
            self.off_by_gate = !graceful;
        }
        Ok(())
    }

    fn said(self, first: &str) -> KubeletConfig {
        let off = || KubeletConfig {
            place: first.to_owned(),
            file: first.to_owned(),
            ..Default::default()
        };
        if self.off_by_gate {
            return off();
        }
        let (place, enabled, by_priority, wanted) = match (self.by_priority, self.period) {
            (Some((groups, place)), _) if !groups.is_empty() => {
                let seconds = |group: &Group| u64::from(group.shutdown_grace_period_seconds);
                let wanted = Duration::from_secs(groups.iter().map(seconds).sum());
                (place, format!("{BY_PRIORITY} has {} groups", groups.len()), true, wanted)
            }
            (_, Some((period, place))) if !is_zero(&period) => {
                let wanted = period.parse::<GoDuration>().ok();
                let wanted = wanted.and_then(|wanted| u64::try_from(wanted.as_nanos()).ok());
                let wanted = Duration::from_nanos(wanted.unwrap_or_default());
                (place, format!("{PERIOD}: {period}"), false, wanted)
            }
            _ => return off(),
        };
        // A file's name may hold colons; the line is behind the last one.
        let file = match place.rsplit_once(':') {
            Some((file, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => file.to_owned(),
            _ => place.clone(),
        };
        KubeletConfig { place, file, enabled, by_priority, wanted, problem: String::new() }
    }
}

/// The files of the kubelet that runs, in the order they are merged, and whether its command line
/// switches the feature off.
fn running(root: &Path, live: bool) -> Option<(Vec<PathBuf>, bool)> {
    let processes = if live { processes::interesting(root) } else { return None };
    let Fact::Known(processes) = processes else { return None };
    let kubelet = processes.iter().find(|process| process.name == "kubelet")?;
    let arguments = processes::arguments(root, kubelet.pid);
    let file = option(&arguments, "--config")?;
    let mut files = vec![PathBuf::from(file)];
    if let Some(directory) = option(&arguments, "--config-dir") {
        files.extend(drop_ins(root, Path::new(directory)));
    }
    let gates = option(&arguments, "--feature-gates").unwrap_or_default();
    Some((files, gates.split(',').any(|gate| gate.trim() == "GracefulNodeShutdown=false")))
}

/// The value of `--name value` or `--name=value`; the last one counts.
fn option<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let mut value = None;
    for (index, argument) in arguments.iter().enumerate() {
        match argument.strip_prefix(name) {
            Some("") => value = arguments.get(index + 1).map(String::as_str).or(value),
            Some(rest) => value = rest.strip_prefix('=').or(value),
            None => {}
        }
    }
    value
}

fn drop_ins(root: &Path, directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(below(root, directory)) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| directory.join(entry.file_name()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "conf"))
        .take(MOST_DROP_INS)
        .collect();
    files.sort();
    files
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

/// The number of the line that has the field, in YAML as in JSON.
fn line_of(text: &str, field: &str) -> Option<usize> {
    let has = |line: &str| {
        let line = line.trim_start().trim_start_matches('"');
        let rest = line.strip_prefix(field).map(|rest| rest.trim_start_matches('"').trim_start());
        rest.is_some_and(|rest| rest.starts_with(':'))
    };
    text.lines().position(has).map(|index| index + 1)
}

/// What cannot be read as a duration is taken for one: the kubelet would not start with it.
fn is_zero(period: &str) -> bool {
    period.parse::<GoDuration>().is_ok_and(|period| period == GoDuration::default())
}

fn first_line(error: &impl ToString) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
