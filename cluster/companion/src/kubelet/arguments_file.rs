//! The file with a kubelet's arguments that a snap's program reads.

use std::path::Path;

use super::command_line::words;
use super::trusted::read;

/// The arguments in `file`, in which the variables of snapd stand for the directories around the file.
pub(super) fn arguments(root: &Path, file: &Path) -> Result<Vec<String>, String> {
    let text = read(root, file)?;
    // `$SNAP_DATA/args/kubelet`, where `$SNAP_DATA` is `/var/snap/NAME/REVISION`.
    let data = file.ancestors().nth(2).unwrap_or(Path::new("/"));
    let common = data.with_file_name("common");
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
