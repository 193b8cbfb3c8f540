//! Parses command lines, and finds the unit of a process.

use std::fs;
use std::path::Path;

/// The value of `--name value` or `--name=value`; the last occurrence wins.
pub(super) fn option<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
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

/// Splits a line into words as systemd does: at whitespace outside of quotes.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', _) => word.get_or_insert_default().extend(letters.next()),
            (_, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (_, None) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The unit whose cgroup the process is in; `None` if there is none, or the process is gone.
pub(super) fn cgroup_unit(root: &Path, pid: u32) -> Option<String> {
    let groups = fs::read_to_string(root.join(format!("proc/{pid}/cgroup"))).ok()?;
    let path = groups.lines().find_map(|line| {
        line.strip_prefix("0::").or(line.split_once(":name=systemd:").map(|(_, p)| p))
    })?;
    path.split('/').rfind(|part| part.ends_with(".service")).map(str::to_owned)
}
