//! The command line and environment of a unit, from its file and drop-ins.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::iter::successors;
use std::path::{Path, PathBuf};

use winddown_host::{in_root, link_in_root};

use super::KubeletProblem;
use super::command_line::{values, words};
use super::trusted::{read, read_if_there};

/// Directories in which systemd finds units, by descending priority.
pub const UNIT_DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Directories in which systemd finds the settings of its own, by descending priority.
const MANAGER_DIRECTORIES: [&str; 4] =
    ["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd"];

/// The name of the host, which an image does not have.
pub(super) const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// What may stand before the path of a program. After a `:` variables are not expanded.
const MARKS: [char; 5] = ['-', ':', '+', '!', '@'];

/// The command line and environment of a unit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UnitStart {
    /// The unit's own file, without the root.
    pub(super) file: PathBuf,
    /// The name of the program, without directories.
    pub(super) program: String,
    /// The arguments, without the program.
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    /// The files and directories that say so, without the root.
    pub(super) sources: Vec<PathBuf>,
}

/// The services that have a file, each with the name of its program. Only what says that is read: a machine has hundreds.
pub(super) fn services(root: &Path) -> impl Iterator<Item = (String, String)> {
    let directories = UNIT_DIRECTORIES.into_iter();
    let entries = directories.flat_map(|directory| fs::read_dir(in_root(root, directory)));
    let names = entries.flatten().flatten().map(|entry| entry.file_name());
    let names: BTreeSet<OsString> = names.collect();
    let services = names.clone().into_iter().filter_map(|name| name.into_string().ok());
    services.filter(|name| name.ends_with(".service")).filter_map(move |name| {
        let is_there = |path: &PathBuf| path.file_name().is_some_and(|name| names.contains(name));
        let said = settings(root, &name, &file(root, &name)?, is_there).ok()?;
        let command = said.iter().rfind(|(key, _)| key == "ExecStart");
        let program = program(command.map_or("", |(_, command)| command));
        Some((name, program))
    })
}

/// The file of the unit `name`, without the root; `None` if it does not exist, or is masked.
pub(super) fn file(root: &Path, name: &str) -> Option<PathBuf> {
    let files = UNIT_DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
    let mut there = files.filter(|file| link_in_root(root, file).symlink_metadata().is_ok());
    let file = there.next()?;
    let is_masked =
        fs::read_link(link_in_root(root, &file)).is_ok_and(|to| to == Path::new("/dev/null"));
    (!is_masked).then_some(file)
}

/// Whether something starts the unit `name` at boot: a link in a `.wants` or `.requires` directory.
pub(super) fn is_enabled(root: &Path, name: &str) -> bool {
    let directories = UNIT_DIRECTORIES.iter().flat_map(|directory| {
        fs::read_dir(in_root(root, Path::new(directory))).into_iter().flatten().flatten()
    });
    let starts = |directory: &fs::DirEntry| {
        let path = directory.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        matches!(kind, Some("wants" | "requires")) && path.join(name).symlink_metadata().is_ok()
    };
    directories.into_iter().any(|directory| starts(&directory))
}

/// The command line and environment of the unit `name`; `None` if it does not exist, or is masked.
///
/// # Errors
/// A file that systemd would read cannot be read.
pub(super) fn start(root: &Path, name: &str) -> Result<Option<UnitStart>, KubeletProblem> {
    let Some(unit) = file(root, name) else { return Ok(None) };
    let (mut command, mut directory, mut files) = (String::new(), String::new(), Vec::new());
    let mut environment = BTreeMap::new();
    for (key, value) in settings(root, name, &unit, |_| true)? {
        match &*key {
            "ExecStart" => command = value,
            "WorkingDirectory" => directory = value,
            "Environment" => set(&mut environment, &value),
            "EnvironmentFile" if value.is_empty() => files.clear(),
            "EnvironmentFile" => {
                let pattern = Path::new(value.trim_start_matches('-'));
                files.extend(environment_files(root, pattern)?);
            }
            _ => {}
        }
    }
    let directories = drop_in_directories(name);
    let mut sources = vec![unit.clone()];
    sources.extend(drop_ins(root, directories.clone()));
    sources.extend(directories);
    sources.extend(files.iter().cloned());
    for file in files {
        let text = read_if_there(root, &file).map_err(|why| KubeletProblem::of_file(&file, why))?;
        let lines = text.unwrap_or_default().replace("\\\n", " ");
        let named = lines.lines().filter_map(assignment);
        environment.extend(named.map(|(name, value)| (name.to_owned(), words(value).join(" "))));
    }
    for (name, value) in default_environment(root)? {
        environment.entry(name).or_insert(value);
    }
    let mut words = words(&command).into_iter();
    let first = words.next().unwrap_or_default();
    let path = first.trim_start_matches(MARKS);
    let is_literal = first[..first.len() - path.len()].contains(':');
    let arguments: Vec<String> = match is_literal {
        true => words.collect(),
        false => words.flat_map(|word| substituted(&word, &environment)).collect(),
    };
    if let Some(why) = not_understood(&command, &directory, &arguments) {
        return Err(KubeletProblem::of_file(&unit, why));
    }
    let program = program(&command);
    Ok(Some(UnitStart { file: unit, program, arguments, environment, sources }))
}

/// What a unit's own file and its drop-ins say, in order. Only those directories of drop-ins are looked into that may be
/// there.
fn settings(
    root: &Path,
    name: &str,
    own: &Path,
    may_be_there: impl Fn(&PathBuf) -> bool,
) -> Result<Vec<(String, String)>, KubeletProblem> {
    let drop_ins = drop_ins(root, drop_in_directories(name).into_iter().filter(may_be_there));
    let mut said = Vec::new();
    for file in [own.to_owned()].into_iter().chain(drop_ins) {
        let text = read(root, &file).map_err(|why| KubeletProblem::of_file(&file, why))?;
        let lines = logical_lines(&text);
        let assigned = lines.iter().filter_map(|line| assignment(line));
        said.extend(assigned.map(|(key, value)| (key.to_owned(), expanded(root, value, name))));
    }
    Ok(said)
}

/// The name of the program of a command line, without directories.
fn program(command: &str) -> String {
    let first = words(command).into_iter().next().unwrap_or_default();
    first.trim_start_matches(MARKS).rsplit('/').next().unwrap_or_default().to_owned()
}

/// The variables that systemd gives to all services.
fn default_environment(root: &Path) -> Result<BTreeMap<String, String>, KubeletProblem> {
    let directories = MANAGER_DIRECTORIES.map(Path::new);
    let mains = directories.map(|directory| directory.join("system.conf"));
    let main = mains.into_iter().find(|file| in_root(root, file).symlink_metadata().is_ok());
    let drop_ins = drop_ins(root, directories.map(|directory| directory.join("system.conf.d")));
    let mut environment = BTreeMap::new();
    for file in main.into_iter().chain(drop_ins) {
        let text = read(root, &file).map_err(|why| KubeletProblem::of_file(&file, why))?;
        for line in &logical_lines(&text) {
            if let Some(("DefaultEnvironment", value)) = assignment(line) {
                set(&mut environment, &expanded(root, value, ""));
            }
        }
    }
    Ok(environment)
}

/// Adds the variables of an assignment; one of nothing takes away those before it.
fn set(environment: &mut BTreeMap<String, String>, value: &str) {
    if value.is_empty() {
        environment.clear();
    }
    environment.extend(words(value).iter().filter_map(|word| pair(word)));
}

/// Why the files that a command line names are not known, if so.
fn not_understood(command: &str, directory: &str, arguments: &[String]) -> Option<String> {
    const FILES: [&str; 3] = ["--config", "--config-dir", "--kubeconfig"];
    let is_relative = |path: &str| !path.is_empty() && !path.starts_with('/');
    let mut files = FILES.iter().flat_map(|option| values(arguments, option));
    if !matches!(directory, "" | "/") && files.any(is_relative) {
        return Some("paths relative to its WorkingDirectory= are not followed".to_owned());
    }
    // `\x6c` and its like: a number of a character.
    let mut escapes = command.split('\\').skip(1);
    let is_number = |text: &str| {
        text.starts_with(['x', 'u', 'U'])
            || text.starts_with(|letter: char| letter.is_ascii_digit())
    };
    escapes
        .any(is_number)
        .then(|| "characters written by their numbers are not understood".to_owned())
}

/// The lines of a unit file as systemd joins them: a backslash at the end joins the next line, between comments.
fn logical_lines(text: &str) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for part in text.lines().filter(|part| !part.trim_start().starts_with(['#', ';'])) {
        line.push_str(part);
        let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
        if backslashes % 2 == 1 {
            line.pop();
            line.push(' ');
        } else {
            lines.push(std::mem::take(&mut line));
        }
    }
    lines.push(line);
    lines
}

/// The files that an `EnvironmentFile=` names, by a pattern of names if need be; in order.
fn environment_files(root: &Path, pattern: &Path) -> Result<Vec<PathBuf>, KubeletProblem> {
    const SPECIAL: [char; 4] = ['*', '?', '[', '\\'];
    let (Some(directory), Some(names)) = (pattern.parent(), pattern.file_name()) else {
        return Ok(Vec::new());
    };
    let names = names.to_string_lossy();
    if directory.to_string_lossy().contains(SPECIAL) || names.contains('\\') {
        let why = "only a file's own name is understood as a pattern".to_owned();
        return Err(KubeletProblem::of_file(pattern, why));
    }
    if !names.contains(SPECIAL) {
        return Ok(vec![pattern.to_owned()]);
    }
    let entries = fs::read_dir(in_root(root, directory)).into_iter().flatten().flatten();
    let there = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_meant = |name: &String| {
        name.starts_with('.') == names.starts_with('.')
            && matches(names.as_bytes(), name.as_bytes())
    };
    let mut there: Vec<_> = there.filter(is_meant).collect();
    there.sort_unstable();
    Ok(there.into_iter().map(|name| directory.join(name)).collect())
}

/// Whether a name matches a pattern of glob(7) without backslashes.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|at| matches(rest, &name[at..])),
        ([b'?', rest @ ..], [_, name @ ..]) => matches(rest, name),
        ([b'[', set @ ..], [letter, name @ ..]) => {
            let Some(end) = set.iter().skip(1).position(|byte| *byte == b']') else { return false };
            let (set, rest) = (&set[..=end], &set[end + 2..]);
            let (is_negated, set) = match set {
                [b'!' | b'^', set @ ..] => (true, set),
                set => (false, set),
            };
            let is_in_range = |range: &[u8]| matches!(range, [first, b'-', last] if (first..=last).contains(&letter));
            let is_in = set.contains(letter) || set.windows(3).any(is_in_range);
            is_in != is_negated && matches(rest, name)
        }
        ([one, pattern @ ..], [other, name @ ..]) => one == other && matches(pattern, name),
        ([], []) => true,
        _ => false,
    }
}

/// Expands the variables of a word of a command line as systemd does: `$NAME` as a word of its own to as many words as the
/// value has, `${NAME}` anywhere to the value, and `$$` to `$`. A variable that is not set is empty.
fn substituted(word: &str, environment: &BTreeMap<String, String>) -> Vec<String> {
    let value = |name: &str| environment.get(name).map(String::as_str).unwrap_or_default();
    if let Some(name) = word.strip_prefix('$').filter(|name| !name.starts_with(['{', '$'])) {
        return words(value(name));
    }
    let (mut text, mut rest) = (String::new(), word);
    while let Some((before, after)) = rest.split_once('$') {
        let variable = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let (expanded, after) = match variable {
            Some((name, after)) => (value(name), after),
            None => ("$", after.strip_prefix('$').unwrap_or(after)),
        };
        text.extend([before, expanded]);
        rest = after;
    }
    vec![text + rest]
}

/// Expands the specifiers that stand for the names of the unit and of the host and for directories; others stay as they
/// are, as does that of the host's name in an image.
fn expanded(root: &Path, value: &str, unit: &str) -> String {
    let host_name = || read(root, Path::new(HOST_NAME)).unwrap_or_else(|_| "%H".to_owned());
    let full = unit.rsplit_once('.').map_or(unit, |(name, _)| name);
    let (prefix, instance) = full.split_once('@').unwrap_or((full, ""));
    let mut text = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('%') => text.push('%'),
            Some('n') => text.push_str(unit),
            Some('N') => text.push_str(full),
            Some('p' | 'P') => text.push_str(prefix),
            Some('i' | 'I') => text.push_str(instance),
            Some('j' | 'J') => text.push_str(prefix.rsplit('-').next().unwrap_or_default()),
            Some('H') => text.push_str(host_name().trim()),
            Some('E') => text.push_str("/etc"),
            Some('S') => text.push_str("/var/lib"),
            Some('C') => text.push_str("/var/cache"),
            Some('L') => text.push_str("/var/log"),
            Some('t') => text.push_str("/run"),
            Some('h') => text.push_str("/root"),
            other => {
                text.push('%');
                text.extend(other);
            }
        }
    }
    text
}

/// The directories of a unit's drop-ins, by descending priority: those of its own name, of its template, of each beginning
/// of its name that ends with a dash, and of all services.
fn drop_in_directories(name: &str) -> Vec<PathBuf> {
    let stem = name.trim_end_matches(".service");
    let template = stem.split_once('@').map(|(prefix, _)| format!("{prefix}@"));
    let prefix = stem.split('@').next().unwrap_or_default();
    let beginning = |of: &str| Some(of.trim_end_matches('-').rsplit_once('-')?.0.to_owned() + "-");
    let beginnings = successors(beginning(prefix), |one| beginning(one));
    let stems = std::iter::once(stem.to_owned()).chain(template).chain(beginnings);
    let own: Vec<String> = stems.map(|stem| format!("{stem}.service.d")).collect();
    let below = |names: &[String]| -> Vec<PathBuf> {
        let all = UNIT_DIRECTORIES.iter().map(Path::new);
        all.flat_map(|directory| names.iter().map(|name| directory.join(name))).collect()
    };
    [below(&own), below(&["service.d".to_owned()])].concat()
}

/// The drop-ins in these directories, sorted by name; of those with the same name, the one with the highest priority.
fn drop_ins(root: &Path, directories: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found = BTreeMap::new();
    for directory in directories {
        for entry in fs::read_dir(in_root(root, &directory)).into_iter().flatten().flatten() {
            let file = directory.join(entry.file_name());
            // An editor's lock of a file has its name behind a dot.
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !is_hidden && file.extension().is_some_and(|ending| ending == "conf") {
                found.entry(entry.file_name()).or_insert(file);
            }
        }
    }
    let masked = |file: &PathBuf| {
        fs::read_link(link_in_root(root, file)).is_ok_and(|to| to == Path::new("/dev/null"))
    };
    found.into_values().filter(|file| !masked(file)).collect()
}

fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let (name, value) = line.split_once('=').filter(|_| !line.starts_with(['#', ';']))?;
    Some((name.trim_end(), value.trim_start()))
}

fn pair(word: &str) -> Option<(String, String)> {
    word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
}
