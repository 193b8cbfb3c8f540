//! An error in a log line includes its causes: `error_chain` is the only way to log one.

use std::path::{Path, PathBuf};

/// Formats that would print only the top of an error.
const TOP_ONLY: [&str; 5] = ["%error", "%err,", "%e,", "error = %", "err = %"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        match path.is_dir() {
            _ if is_test => {}
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

#[test]
fn no_line_of_the_log_keeps_an_errors_cause_to_itself() {
    let mut files = Vec::new();
    for folder in super::sources() {
        sources(&folder, &mut files);
    }
    let (mut told, mut bad) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        told += text.matches("error = error_chain(").count();
        for (n, line) in text.lines().enumerate() {
            if TOP_ONLY.iter().any(|wrong| line.contains(wrong)) {
                bad.push(format!("{}:{}: {}", file.display(), n + 1, line.trim()));
            }
        }
    }
    assert_eq!(bad, Vec::<String>::new(), "write `error = error_chain(&error)`");
    assert!(told > 50, "{told}");
}
