//! How to change a kubelet's configuration.

use std::path::{Path, PathBuf};

use winddown_host::in_root;

use super::configuration::is_directory;
use super::distributions::rewritten;
use super::periods::{CRITICAL, HEAD, Notation, PERIOD, Periods};
use super::trusted::read;
use super::{Kubelet, MergedConfiguration};

/// Names for our drop-in: the first sorts after those of distributions, the second after nearly all.
const OWN_DROP_INS: [&str; 2] = ["99-winddown.conf", "zz-winddown.conf"];

/// A change of a file that makes the kubelet use other periods, for a person to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletChange {
    /// The file. If the kubelet merges a directory, it is one of our own, which its distribution does not overwrite.
    pub file: PathBuf,
    /// Whether the file is not there yet: the lines are all of it. Otherwise all else in it has to stay.
    pub is_new: bool,
    /// The lines of the new file, or the fields to set in the file that is there.
    pub lines: Vec<String>,
    /// Whether each period is a line of its own in the file, as YAML, and there is no list by priority: a command can
    /// replace the lines.
    pub is_plain: bool,
    /// Who writes the file again, and where to make a change that lasts; empty if nobody does.
    pub rewritten: &'static str,
}

impl Kubelet {
    /// The change that makes the kubelet use these periods; `None` if it has no file that is known.
    pub fn change(
        &self,
        root: &Path,
        configuration: &MergedConfiguration,
        periods: &Periods,
    ) -> Option<KubeletChange> {
        // Versions that merge a directory make it when they start; where it is missing, nobody may read it.
        let directory = self.sources(root).drop_ins.filter(|dir| is_directory(root, dir));
        let file = match &directory {
            Some(directory) => drop_in(root, directory, configuration),
            None => configuration.files.first()?.clone(),
        };
        // Only in a directory of files that are merged does a new file take nothing away.
        let is_new = directory.is_some() && in_root(root, &file).symlink_metadata().is_err();
        let head = HEAD.iter().filter(|_| is_new).map(|line| (*line).to_owned());
        let (notation, is_plain) = notation(root, &file, configuration, is_new);
        let lines = head.chain(periods.fields(notation)).collect();
        let rewritten = rewritten(root, &file).unwrap_or(self.distribution.rewritten);
        Some(KubeletChange { file, is_new, lines, is_plain, rewritten })
    }
}

fn drop_in(root: &Path, directory: &Path, configuration: &MergedConfiguration) -> PathBuf {
    let [first, last] = OWN_DROP_INS.map(|name| directory.join(name));
    let is_there = |file: &Path| in_root(root, file).symlink_metadata().is_ok();
    let others = configuration.files.iter().filter(|file| file.starts_with(directory)).max();
    match others.is_none_or(|other| *other <= first) && !is_there(&last) {
        true => first,
        false => last,
    }
}

/// The notation of what is in the file, whose name says nothing, and whether its periods are lines of their own.
fn notation(
    root: &Path,
    file: &Path,
    configuration: &MergedConfiguration,
    is_new: bool,
) -> (Notation, bool) {
    let text = read(root, file);
    let is_json = match &text {
        Ok(text) => text.trim_start_matches('\u{feff}').trim_start().starts_with('{'),
        Err(_) => !is_new && file.extension().is_some_and(|ending| ending == "json"),
    };
    let text = text.unwrap_or_default();
    let periods = [&configuration.period, &configuration.critical];
    let is_line = |name: &str| text.lines().any(|line| line.starts_with(&format!("{name}:")));
    let mut lines = [PERIOD, CRITICAL].iter().zip(periods).filter_map(|(name, set)| {
        let set = set.as_ref()?;
        Some(set.file == file && is_line(name))
    });
    let is_plain = configuration.period.is_some()
        && configuration.by_priority.as_ref().is_none_or(|groups| groups.value.is_empty())
        && lines.all(|is_line| is_line);
    (if is_json { Notation::Json } else { Notation::Yaml }, is_plain && !is_json)
}
