//! logind's configuration files: which file sets `InhibitDelayMaxSec`, and the agent's own drop-in.
//!
//! logind waits at most `InhibitDelayMaxSec` (5 s unless configured) for a delay lock. The value is
//! merged from the main file and the drop-ins of four directories: drop-ins are ordered by file
//! *name*, and the last name wins. Other packages set it too (e.g.
//! `unattended-upgrades-logind-maxdelay.conf`), so the agent's file needs the last name, and if
//! another file wins, the agent must report which one (kubernetes/kubernetes#102818).

mod merge;
mod ours;
mod time_span;
mod write;

use std::path::{Path, PathBuf};
use std::time::Duration;

use winddown_host::{in_root, shell_word};
use winddown_shared::seconds_up;

pub use merge::{Content, Source, effective, inhibit_delay};
pub use ours::{Applied, RequiredDropIn, apply, ours};
pub use time_span::parse_time_span;
pub use write::{WriteError, Written, content, remove, write};

/// The name of winddown's own drop-in: [`name_of`] `winddown`.
pub const NAME: &str = "zz-winddown.conf";

/// The name of the drop-in that a kubelet writes if logind's delay is too short for it. A name that sorts after it wins.
pub const KUBELETS_NAME: &str = "99-kubelet.conf";

/// The name of the drop-in of an agent of this name, with `-` for what a file name should not have. It sorts after the
/// files that packages are known to install; a file that sorts after it wins, on purpose.
pub fn name_of(owner: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    format!("zz-{}.conf", owner.chars().map(plain).collect::<String>())
}

/// The directories that systemd searches, highest precedence first: a file hides files of the same
/// name in later directories. The order does not decide between different names.
pub const DIRECTORIES: [&str; 4] = ["/etc", "/run", "/usr/local/lib", "/usr/lib"];

/// logind's delay if no file sets it.
pub const DEFAULT_DELAY: Duration = Duration::from_secs(5);

/// The value of `infinity`: 584 thousand years, systemd's largest time span. Unlike
/// [`Duration::MAX`] it can be added to any instant.
pub const INFINITY: Duration = Duration::from_micros(u64::MAX);

/// The assignment that takes effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file's path on the node (without the root that was searched).
    pub file: PathBuf,
    /// The value; [`INFINITY`] for `infinity`.
    pub value: Duration,
}

impl Setting {
    /// Whether it stays in effect beside a drop-in of this name: it is one whose name sorts later.
    pub fn beats(&self, name: &str) -> bool {
        let directory = self.file.parent();
        let is_drop_in = directory.is_some_and(|directory| directory.ends_with("logind.conf.d"));
        is_drop_in && self.file.file_name() > Some(name.as_ref())
    }
}

/// The script for `sed -i` that has a file which assigns `InhibitDelayMaxSec` assign `delay`, rounded up to whole seconds.
fn edit_script(delay: Duration) -> String {
    let delay = seconds_up(delay);
    format!("s/^[[:space:]]*InhibitDelayMaxSec[[:space:]]*=.*/InhibitDelayMaxSec={delay}/")
}

/// The directory of the administrator's drop-ins. A file there hides a package's of the same name.
pub const ADMINISTRATORS: &str = "/etc/systemd/logind.conf.d";

/// The command for a shell that has `file`, the one that takes effect below `root`, assign `delay` in its place. What
/// else the file sets stays. An edit of a package's file would be lost with the next update, so a copy of it is edited.
pub fn edit_command(root: &Path, file: &Path, delay: Duration) -> String {
    let word = |path: &Path| shell_word(&in_root(root, path).display().to_string()).into_owned();
    let edit = |file: &Path| format!("sed -i '{}' {}", edit_script(delay), word(file));
    let directory = Path::new(ADMINISTRATORS);
    match file.file_name().filter(|_| !file.starts_with("/etc")) {
        None => edit(file),
        Some(name) => {
            let (into, edit) = (word(directory), edit(&directory.join(name)));
            format!("mkdir -p {into} && cp {} {into} && {edit}", word(file))
        }
    }
}

/// Finds the assignment of `InhibitDelayMaxSec` that logind uses, in the tree below `root`.
///
/// Returns `None` if no file sets it, so that logind's own [`DEFAULT_DELAY`] applies. Unreadable files
/// set nothing, in logind as here. Blocks on the file system.
pub fn find(root: &Path) -> Option<Setting> {
    let (main, drop_ins) = merge::scan(root);
    effective(&main, &drop_ins)
}

/// Like [`find`], but without winddown's own drop-ins: what logind uses once they are removed.
pub fn find_without_ours(root: &Path) -> Option<Setting> {
    let (main, mut drop_ins) = merge::scan(root);
    drop_ins.retain(|source| source.file.file_name() != Some(NAME.as_ref()));
    effective(&main, &drop_ins)
}
