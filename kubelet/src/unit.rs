//! The command line and environment of a unit, from its file and drop-ins.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::below;
use super::command_line::words;

/// Directories in which systemd finds units, by descending priority.
pub const UNIT_DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The command line and environment of a unit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    /// The arguments, without the program.
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
}

/// The command line and environment of the unit `name`; `None` if it does not exist, or is masked.
pub(super) fn start(root: &Path, name: &str) -> Option<Start> {
    let file = UNIT_DIRECTORIES
        .iter()
        .map(|directory| below(root, Path::new(directory)).join(name))
        .find(|file| file.symlink_metadata().is_ok())?;
    if fs::read_link(&file).is_ok_and(|to| to == Path::new("/dev/null")) {
        return None;
    }
    let (mut command, mut files) = (String::new(), Vec::new());
    let mut environment = BTreeMap::new();
    for file in [file].into_iter().chain(drop_ins(root, name)) {
        let text = fs::read_to_string(file).unwrap_or_default().replace("\\\n", " ");
        for (key, value) in text.lines().filter_map(assignment) {
            match key {
                "ExecStart" => command = value.to_owned(),
                "Environment" if value.is_empty() => environment.clear(),
                "Environment" => {
                    environment.extend(words(value).iter().filter_map(|word| pair(word)));
                }
                "EnvironmentFile" if value.is_empty() => files.clear(),
                "EnvironmentFile" => files.push(value.trim_start_matches('-').to_owned()),
                _ => {}
            }
        }
    }
    for file in files {
        let text = fs::read_to_string(below(root, Path::new(&file))).unwrap_or_default();
        let lines = text.replace("\\\n", " ");
        let named = lines.lines().filter_map(assignment);
        environment.extend(named.map(|(name, value)| (name.to_owned(), words(value).join(" "))));
    }
    let mut arguments = Vec::new();
    for word in words(&command).into_iter().skip(1) {
        // `$NAME` as a word of its own expands to as many words as the value has.
        match word.strip_prefix('$').filter(|name| !name.starts_with('{')) {
            Some(name) => {
                arguments.extend(environment.get(name).into_iter().flat_map(|v| words(v)));
            }
            None => arguments.push(
                environment
                    .iter()
                    .fold(word, |word, (name, value)| word.replace(&format!("${{{name}}}"), value)),
            ),
        }
    }
    Some(Start { arguments, environment })
}

/// The unit's drop-ins, sorted by name; of those with the same name, the one with the highest priority.
fn drop_ins(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = BTreeMap::new();
    for directory in UNIT_DIRECTORIES {
        let directory = below(root, Path::new(directory)).join(format!("{name}.d"));
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ending| ending == "conf") {
                found.entry(entry.file_name()).or_insert_with(|| entry.path());
            }
        }
    }
    found.into_values().collect()
}

fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let (name, value) = line.split_once('=').filter(|_| !line.starts_with(['#', ';']))?;
    Some((name.trim_end(), value.trim_start()))
}

fn pair(word: &str) -> Option<(String, String)> {
    word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
}
