//! The names of report files, which tell what is to be kept without reading any of them.

use std::path::{Path, PathBuf};

use super::super::{ShutdownReport, Trigger};

const SUFFIX: &str = ".json";

/// How much of a boot id stands in a name.
const BOOT: usize = 8;

/// Reports of one boot that are kept: a shutdown that is called off again and again fills no disk.
const PER_BOOT: usize = 10;

/// A report's file, as its name tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Goes up with every report, whatever the clock does.
    pub(super) number: u64,
    /// What kind of run it was.
    pub(super) kind: Kind,
    /// The beginning of its boot's id; empty in files of older versions.
    pub(super) boot: String,
    /// Where it is.
    pub(super) path: PathBuf,
}

/// Kinds of runs that must not push each other out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The node went down, or was about to.
    Shutdown,
    /// It stayed up.
    Drain,
    /// It was a rehearsal.
    Drill,
}

// === impl Named ===

impl Named {
    /// The name of the file for `report`.
    pub(super) fn of(number: u64, report: &ShutdownReport) -> String {
        let (kind, id, boot) = (Kind::of(report.trigger), report.id(), boot(&report.boot_id));
        format!("{}{number:06}-{id}-{boot}{SUFFIX}", kind.prefix())
    }

    /// What the name of `path` tells; none when it is no report's name.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let (kind, rest) = [Kind::Shutdown, Kind::Drain, Kind::Drill]
            .into_iter()
            .find_map(|kind| Some((kind, name.strip_prefix(kind.prefix())?)))?;
        let mut parts = rest.strip_suffix(SUFFIX)?.split('-');
        let number = parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let boot = parts.nth(1).unwrap_or_default().to_owned();
        Some(Self { number, kind, boot, path: path.to_owned() })
    }

    /// Whether it may be a report of the boot with this id.
    pub(super) fn may_be_of(&self, boot_id: &str) -> bool {
        self.boot.is_empty() || self.boot == boot(boot_id)
    }
}

// === impl Kind ===

impl Kind {
    pub(super) fn of(trigger: Trigger) -> Self {
        match trigger {
            Trigger::Drain => Self::Drain,
            Trigger::Drill => Self::Drill,
            Trigger::LoginManager | Trigger::UnitStop | Trigger::Notice => Self::Shutdown,
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown-",
            Self::Drain => "drain-",
            Self::Drill => "drill-",
        }
    }
}

/// The files of `oldest_first` that are over the limit: shutdowns of other boots than the last
/// `keep` that left one, and of every other kind all but the last `keep`.
pub(super) fn outdated(oldest_first: Vec<Named>, keep: usize) -> Vec<Named> {
    let mut boots: Vec<(String, usize)> = Vec::new();
    let (mut drains, mut drills) = (0, 0);
    let mut stays = |file: &Named| match file.kind {
        Kind::Shutdown => {
            // A file that does not name its boot counts as a boot of its own.
            let boot = match file.boot.is_empty() {
                true => file.number.to_string(),
                false => file.boot.clone(),
            };
            match boots.iter_mut().find(|(known, _)| *known == boot) {
                Some((_, count)) => {
                    *count += 1;
                    *count <= PER_BOOT
                }
                None => {
                    boots.push((boot, 1));
                    boots.len() <= keep
                }
            }
        }
        Kind::Drain => within(&mut drains, keep),
        Kind::Drill => within(&mut drills, keep),
    };
    oldest_first.into_iter().rev().filter(|file| !stays(file)).collect()
}

fn within(count: &mut usize, keep: usize) -> bool {
    *count += 1;
    *count <= keep
}

/// The beginning of a boot id, as it stands in a name.
fn boot(boot_id: &str) -> String {
    boot_id.chars().filter(char::is_ascii_alphanumeric).take(BOOT).collect()
}
