//! Every test file belongs to a test program: otherwise it would never be compiled, unnoticed.

#![allow(clippy::expect_used, reason = "clippy does not see that helpers are tests")]

use std::path::{Path, PathBuf};

/// Returns the files next to `all.rs` that are neither modules of it nor programs of their own.
fn left_out(directory: &Path) -> Vec<PathBuf> {
    let tests = directory.join("tests");
    let modules = std::fs::read_to_string(tests.join("all.rs")).expect("all.rs");
    let programs = std::fs::read_to_string(directory.join("Cargo.toml")).expect("Cargo.toml");
    let has = |text: &str, line: String| text.lines().any(|found| found == line);
    let entries = std::fs::read_dir(tests).expect("tests").map(|entry| entry.expect("one").path());
    let of_tests = entries.filter(|path| {
        path.extension().is_some_and(|extension| extension == "rs")
            || path.join("main.rs").is_file()
    });
    let is_out = |path: &PathBuf| {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        !has(&modules, format!("mod {name};")) && !has(&programs, format!("name = \"{name}\""))
    };
    of_tests.filter(is_out).collect()
}

#[test]
fn every_file_of_tests_belongs_to_a_program() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    for directory in ["programs", "tests/cluster", "tests/node"] {
        assert_eq!(left_out(&repository.join(directory)), Vec::<PathBuf>::new(), "{directory}");
    }
}
