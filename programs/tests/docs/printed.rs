//! The commands that the program prints for people to type, as its sources have them: in backticks, below "Examples:", and
//! in the manuals' tables.

use std::path::{Path, PathBuf};

/// The rooms whose texts people read.
const ROOMS: [&str; 9] = [
    "cluster",
    "eviction",
    "node",
    "preemption",
    "programs",
    "runtimes",
    "shared",
    "shutdown",
    "systemd",
];

/// Lists of command lines: the fixes of the doctor, the next steps of `install`, the commands of a status, what closes a
/// path to other users, and what the first two have on logind's delay. A test beside each types all of it.
const LISTS: [&str; 6] = [
    "node/config/src/lib.rs",
    "programs/doctor/src/",
    "programs/install/src/",
    "programs/render/src/status/problems.rs",
    "shared/host/src/writers.rs",
    "systemd/src/drop_in.rs",
];

/// The programs by which a command is recognized that stands outside of backticks.
const PROGRAMS: [&str; 13] = [
    "chmod",
    "chown",
    "df",
    "getent",
    "groupdel",
    "journalctl",
    "kubectl",
    "mkdir",
    "sudo",
    "systemctl",
    "timedatectl",
    "umount",
    "usermod",
];

/// A value of a field that has two words.
const VALUE: &str = "ttl 24h";

/// A command, with `{…}` where the program puts something in.
#[derive(Clone, Debug)]
pub(crate) struct Printed {
    /// The file and line of the text.
    pub(crate) at: String,
    pub(crate) line: String,
    /// Whether it is an example of a help text, whose files a reader has to have.
    pub(crate) is_example: bool,
}

/// The commands of all texts; each as often as it is printed.
pub(crate) fn commands(root: &Path) -> Vec<Printed> {
    let mut found = Vec::new();
    for text in texts(root) {
        let examples = text.line.strip_prefix("Examples:\n");
        let is_example = examples.is_some();
        let mut add = |line: &str| {
            found.push(Printed { at: text.at.clone(), line: line.to_owned(), is_example });
        };
        if text.at.starts_with("programs/src/man/") && begins_with_program(&text.line, &[]) {
            add(&text.line);
        }
        if let Some(examples) = examples {
            let lines = examples.lines().map_while(|line| line.strip_prefix("  "));
            lines.for_each(|line| add(line.split("    #").next().unwrap_or(line).trim_end()));
        } else {
            let pieces = text.line.split('`').skip(1).step_by(2);
            pieces.filter(|piece| is_command(piece)).for_each(add);
        }
    }
    found
}

/// What looks like a command outside of backticks and of the lists. `subcommands` are those of `winddown`.
pub(crate) fn bare(root: &Path, subcommands: &[String]) -> Vec<Printed> {
    let mut found = texts(root);
    found.retain(|text| {
        let is_whole = begins_with_program(&text.line, subcommands);
        let listed = LISTS.iter().any(|list| text.at.starts_with(list));
        if text.line.starts_with("Examples:\n")
            || is_whole && (listed || text.at.starts_with("programs/src/man/"))
        {
            return false;
        }
        let prose: Vec<&str> = text.line.split('`').step_by(2).collect();
        prose.iter().any(|piece| {
            let mut starts = piece.char_indices().filter(|&(at, _)| {
                !piece[..at].ends_with(|c: char| c.is_alphanumeric() || "-_/.\"".contains(c))
            });
            starts.any(|(at, _)| begins_with_program(&piece[at..], subcommands))
        })
    });
    found
}

/// A word and more, without the colon that a field of a configuration has.
fn is_command(piece: &str) -> bool {
    let Some((program, rest)) = piece.split_once(' ') else { return false };
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    program.starts_with(|c: char| c.is_ascii_lowercase())
        && program.chars().all(is_name)
        && !rest.starts_with(char::is_whitespace)
        && !piece.contains('\n')
        && piece != VALUE
}

fn begins_with_program(text: &str, subcommands: &[String]) -> bool {
    let Some((program, rest)) = text.split_once(' ') else { return false };
    let next = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    match program {
        "winddown" => subcommands.iter().any(|name| name == next),
        _ => {
            PROGRAMS.contains(&program)
                && rest.starts_with(|c: char| c.is_ascii_lowercase() || "-{/".contains(c))
        }
    }
}

/// The string literals of the product's sources, without those of its tests.
fn texts(root: &Path) -> Vec<Printed> {
    let mut files = Vec::new();
    ROOMS.iter().for_each(|room| walk(&root.join(room), &mut files));
    assert!(files.len() > 300, "only {} sources", files.len());
    let mut texts = Vec::new();
    for file in files {
        let source = std::fs::read_to_string(&file).expect("a source");
        let product = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let name = file.strip_prefix(root).expect("a file of the repository").display().to_string();
        for (at, line) in literals(product) {
            let number = product[..at].matches('\n').count() + 1;
            texts.push(Printed { at: format!("{name}:{number}"), line, is_example: false });
        }
    }
    texts
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let of_tests = ["tests", "examples", "benches", "fuzzing", "fuzz", "target"];
        if of_tests.contains(&stem) {
            continue;
        }
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

/// The string literals of a source and where they begin, with lines that are continued joined.
fn literals(source: &str) -> Vec<(usize, String)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(next) = source[at..].chars().next() {
        let rest = &source[at..];
        let hashes = rest.bytes().skip(1).take_while(|byte| *byte == b'#').count();
        at += match next {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '\'' => character(rest),
            'r' if rest.as_bytes().get(1 + hashes) == Some(&b'"')
                && !source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') =>
            {
                let (begin, end) = (hashes + 2, format!("\"{}", "#".repeat(hashes)));
                let length = rest[begin..].find(&end).expect("the end of a raw string");
                found.push((at, rest[begin..begin + length].to_owned()));
                begin + length + end.len()
            }
            '"' => {
                let (text, length) = escaped(&rest[1..]);
                found.push((at, text));
                length + 1
            }
            other => other.len_utf8(),
        };
    }
    found
}

/// The length of a character literal, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest[1..].chars();
    let first = inside.next().unwrap_or_default();
    match (first, inside.next()) {
        ('\\', _) => 2 + rest[2..].find('\'').filter(|end| *end > 0).unwrap_or(1) + 1,
        (_, Some('\'')) => 2 + first.len_utf8(),
        _ => 1,
    }
}

/// What a string literal means, and its length with the quote behind it.
fn escaped(rest: &str) -> (String, usize) {
    let (mut text, mut letters) = (String::new(), rest.char_indices().peekable());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (text, at + 1),
            '\\' => match letters.next().map(|(_, letter)| letter) {
                Some('\n') => while letters.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    (text, rest.len())
}
