//! Reads files that decide what root does: only those that nobody else can change.

use std::path::Path;

use winddown_host::{in_root, others_may_write, regular};

/// Why `path` must not be used in root's name: others than root can decide what it leads to, or part of it cannot be
/// looked at. `None` if only root can. The text contains paths as they are.
pub fn refusal(root: &Path, path: &Path) -> Option<String> {
    match others_may_write(root, path) {
        Ok(found) => {
            let found = found.first()?;
            let fix = found.fix_command();
            Some(format!(
                "others than root can change it ({found}); if it is as you want it: {fix}"
            ))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Reads a file of at most 1 MiB.
pub(super) fn read(root: &Path, path: &Path) -> Result<String, String> {
    if let Some(why) = refusal(root, path) {
        return Err(why);
    }
    let text = regular::read_to_string(&in_root(root, path), regular::MAX_CONFIGURATION_BYTES);
    text.map_err(|error| error.to_string())
}

/// Reads a file as [`read`] does; `None` if it does not exist.
pub(super) fn read_if_there(root: &Path, path: &Path) -> Result<Option<String>, String> {
    match in_root(root, path).symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => read(root, path).map(Some),
    }
}
