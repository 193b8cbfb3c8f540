//! The file with a kubelet's arguments that a snap's program reads.

use std::path::Path;

use super::command_line::words;
use super::trusted::read;

/// The arguments in `file`, in which the variables of snapd stand for the directories around the file.
pub(super) fn arguments(root: &Path, file: &Path) -> Result<Vec<String>, String> {
    let text = read(root, file)?;
    // `$SNAP_DATA` is `/var/snap/NAME/REVISION`, and `$SNAP_COMMON` is beside it; the file may be below either.
    let is_one = |directory: &&Path| directory.ancestors().nth(2) == Some(Path::new("/var/snap"));
    let directory = file.ancestors().find(is_one).unwrap_or(Path::new("/"));
    let common = directory.with_file_name("common");
    let current = directory.with_file_name("current");
    let data = if directory == common { &current } else { directory };
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let arguments = lines.flat_map(|line| {
        let line = [("SNAP_DATA", data), ("SNAP_COMMON", &common)].iter().fold(
            line.to_owned(),
            |line, (name, directory)| {
                let directory = directory.to_string_lossy();
                line.replace(&format!("${{{name}}}"), &directory)
                    .replace(&format!("${name}"), &directory)
            },
        );
        words(&line)
    });
    Ok(arguments.collect())
}
