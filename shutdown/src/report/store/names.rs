//! The names of report files, from which the files to keep can be determined without reading any.

use std::path::{Path, PathBuf};

use super::super::{ShutdownReport, Trigger};

const SUFFIX: &str = ".json";

/// How many characters of the boot id are in a name.
const BOOT_ID_CHARS: usize = 8;

/// The most shutdowns of one boot that are kept, so that shutdowns which are called off do not fill the disk.
const PER_BOOT: usize = 10;

/// A report file, described by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReportName {
    /// A number that increases with every report, whatever the clock does.
    pub(super) number: u64,
    pub(super) kind: RunKind,
    /// The beginning of the boot id; empty in files of older versions.
    pub(super) boot: String,
    /// The file's path.
    pub(super) path: PathBuf,
}

/// The kinds of runs, which must not displace each other's reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunKind {
    /// The node went down, or was about to.
    Shutdown,
    /// The node was drained and stayed up.
    Drain,
    Drill,
}

// === impl ReportName ===

impl ReportName {
    pub(super) fn of(number: u64, report: &ShutdownReport) -> String {
        let (kind, id, boot) = (RunKind::of(report.trigger), report.id(), boot(&report.boot_id));
        format!("{}{number:06}-{id}-{boot}{SUFFIX}", kind.prefix())
    }

    /// Parses the file name of `path`. Returns `None` if it is not that of a report.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let (kind, rest) = RunKind::split(name)?;
        let mut parts = rest.strip_suffix(SUFFIX)?.split('-');
        let number = parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let boot = parts.nth(1).unwrap_or_default().to_owned();
        Some(Self { number, kind, boot, path: path.to_owned() })
    }

    pub(super) fn may_be_of(&self, boot_id: &str) -> bool {
        self.boot.is_empty() || self.boot == boot(boot_id)
    }
}

// === impl RunKind ===

impl RunKind {
    pub(super) fn of(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Drain => Self::Drain,
            Trigger::Drill => Self::Drill,
            Trigger::LoginManager | Trigger::UnitStop | Trigger::Notice => Self::Shutdown,
        }
    }

    /// Splits the kind off the name of a report's file.
    fn split(name: &str) -> Option<(Self, &str)> {
        let mut kinds = [Self::Shutdown, Self::Drain, Self::Drill].into_iter();
        kinds.find_map(|kind| Some((kind, name.strip_prefix(kind.prefix())?)))
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown-",
            Self::Drain => "drain-",
            Self::Drill => "drill-",
        }
    }
}

/// Returns the files of `oldest_first` that are over the limit: shutdowns of other boots than the last
/// `keep` that had one, and all but the last `keep` drains and drills.
pub(super) fn outdated(oldest_first: Vec<ReportName>, keep: usize) -> Vec<ReportName> {
    let mut boots: Vec<(String, usize)> = Vec::new();
    let (mut drains, mut drills) = (0, 0);
    let mut stays = |file: &ReportName| match file.kind {
        RunKind::Shutdown => {
            // A file that does not name its boot counts as a boot of its own.
            let boot = match file.boot.is_empty() {
                true => file.number.to_string(),
                false => file.boot.clone(),
            };
            let place = boots.iter().position(|(known, _)| *known == boot).unwrap_or(boots.len());
            if place == boots.len() {
                boots.push((boot, 0));
            }
            place < keep && within(&mut boots[place].1, PER_BOOT)
        }
        RunKind::Drain => within(&mut drains, keep),
        RunKind::Drill => within(&mut drills, keep),
    };
    oldest_first.into_iter().rev().filter(|file| !stays(file)).collect()
}

fn within(count: &mut usize, keep: usize) -> bool {
    *count += 1;
    *count <= keep
}

/// Returns the beginning of a boot id, as used in names.
fn boot(boot_id: &str) -> String {
    boot_id.chars().filter(char::is_ascii_alphanumeric).take(BOOT_ID_CHARS).collect()
}
