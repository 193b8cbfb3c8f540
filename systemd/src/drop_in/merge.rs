//! Determines which of several configuration files sets logind's delay.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use winddown_host::{in_root, link_in_root, regular};
use winddown_shared::error_chain;

use super::{DIRECTORIES, Setting, parse_time_span};

/// One configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// Its path on the node.
    pub file: PathBuf,
    /// Its content.
    pub content: Content,
}

impl Source {
    /// The file at this path, with this content.
    pub fn new(file: impl Into<PathBuf>, content: Content) -> Self {
        Self { file: file.into(), content }
    }
}

/// The content of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// The text to parse.
    Text(String),
    /// An empty or unreadable file, or a link to /dev/null: sets nothing, but hides files of the same name in
    /// directories of lower precedence.
    Mask,
}

/// Determines which file sets `InhibitDelayMaxSec`.
///
/// `main` holds the main files (`logind.conf`), highest precedence first; only the first is used. `drop_ins` holds the
/// drop-ins of all directories, highest precedence first, in any order within a directory.
pub fn effective(main: &[Source], drop_ins: &[Source]) -> Option<Setting> {
    let mut by_name: BTreeMap<&[u8], &Source> = BTreeMap::new();
    for source in drop_ins {
        let name = source.file.file_name().map_or(&[][..], OsStrExt::as_bytes);
        by_name.entry(name).or_insert(source);
    }
    let setting = |source: &Source| match &source.content {
        Content::Text(text) => {
            inhibit_delay(text).map(|value| Setting { file: source.file.clone(), value })
        }
        Content::Mask => None,
    };
    by_name.values().rev().find_map(|source| setting(source)).or_else(|| setting(main.first()?))
}

/// Returns the last valid value that a file's text assigns to `InhibitDelayMaxSec` in `[Login]`.
pub fn inhibit_delay(text: &str) -> Option<Duration> {
    let mut in_login = false;
    let mut value = None;
    let mut carried = String::new();
    // The empty line completes one that is continued at the end of the file.
    for line in text.lines().chain([""]) {
        let line = line.trim_ascii_start();
        // Comments are skipped even between continued lines, and are never continued.
        if line.starts_with(['#', ';']) {
            continue;
        }
        // Two backslashes are one of the value, and a blank behind a backslash belongs to the value too.
        let backslashes = line.len() - line.trim_end_matches('\\').len();
        if backslashes % 2 == 1 {
            carried.push_str(&line[..line.len() - 1]);
            carried.push(' ');
            continue;
        }
        carried.push_str(line);
        let whole = std::mem::take(&mut carried);
        let whole = whole.trim_ascii();
        if whole.starts_with('[') {
            in_login = whole == "[Login]";
        } else if in_login
            && let Some((key, given)) = whole.split_once('=')
            && key.trim_ascii_end() == "InhibitDelayMaxSec"
        {
            value = parse_time_span(given.trim_ascii()).or(value);
        }
    }
    value
}

/// Reads the main files and the drop-ins below `root`, highest precedence first.
pub(super) fn scan(root: &Path) -> (Vec<Source>, Vec<Source>) {
    let mut main = Vec::new();
    let mut drop_ins = Vec::new();
    for directory in DIRECTORIES {
        let systemd = Path::new(directory).join("systemd");
        main.extend(read(root, systemd.join("logind.conf")));
        let directory = systemd.join("logind.conf.d");
        for name in names(&in_root(root, &directory)) {
            drop_ins.extend(read(root, directory.join(name)));
        }
    }
    (main, drop_ins)
}

/// Lists the file names that systemd considers: `*.conf`, not hidden.
fn names(directory: &Path) -> Vec<OsString> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| name.as_bytes().ends_with(b".conf") && !name.as_bytes().starts_with(b"."))
        .collect()
}

/// Reads one file. Returns `None` if it does not exist.
fn read(root: &Path, file: PathBuf) -> Option<Source> {
    let link = link_in_root(root, &file);
    let path = in_root(root, &file);
    // A link to /dev/null masks. Below another root its target may not exist, so check the link itself.
    let masked = fs::read_link(&link).is_ok_and(|target| target == Path::new("/dev/null"));
    let content = if masked {
        Content::Mask
    } else {
        match regular::read(&path, regular::MAX_CONFIGURATION_BYTES) {
            Ok(bytes) if bytes.is_empty() => Content::Mask,
            Ok(bytes) => Content::Text(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound && !link.is_symlink() => return None,
            // It sets nothing, but still hides files of the same name in directories of lower precedence.
            Err(error) => {
                tracing::debug!(file = %path.display(), error = error_chain(&error), "cannot read");
                Content::Mask
            }
        }
    };
    Some(Source { file, content })
}

#[cfg(test)]
mod tests;
