mod directory;
mod kubelet_verdicts;
mod problem_log;
mod reading;
mod scan;

use std::path::Path;

/// A manifest whose container runs `command`.
fn manifest(name: &str, command: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n    \
         - name: main\n      command: [{command}]\n"
    )
}

/// Writes a file as a careful writer does: to a temporary file that is renamed.
fn put(directory: &Path, name: &str, text: &str) {
    let temporary = directory.join(format!(".{name}.new"));
    std::fs::write(&temporary, text).unwrap();
    std::fs::rename(&temporary, directory.join(name)).unwrap();
}
