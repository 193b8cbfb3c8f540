//! The parts of a release in addition to the packages.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_hosted_workflow_calls_targets_that_there_are() {
    let workflow = std::fs::read_to_string(repository().join(".github/workflows/ci.yml")).unwrap();
    let makefile = std::fs::read_to_string(repository().join("Makefile")).unwrap();
    let called: Vec<&str> = workflow
        .lines()
        .filter_map(|line| line.split_once("make ").filter(|(before, _)| before.contains("run:")))
        .filter_map(|(_, after)| after.split_whitespace().next())
        .collect();
    assert_eq!(called, ["lint", "test", "packages", "checksums"]);
    for target in called {
        assert!(makefile.contains(&format!("\n{target}: ")), "there is no target {target}");
    }
}

#[test]
fn checksums_are_of_all_packages_and_say_so_when_there_are_none() {
    let packages = tempfile::tempdir().unwrap();
    let run = || {
        let script = repository().join("packaging/checksums.sh");
        Command::new(script).arg(packages.path()).output().unwrap()
    };
    let output = run();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("run 'make packages' first"));
    for name in ["winddown_0.1.0-1_amd64.deb", "winddown-0.1.0.tar.gz", "notes.txt"] {
        std::fs::write(packages.path().join(name), name).unwrap();
    }
    assert_eq!(run().status.code(), Some(0));
    let sums = std::fs::read_to_string(packages.path().join("SHA256SUMS")).unwrap();
    let named: Vec<&str> = sums.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(named, ["winddown_0.1.0-1_amd64.deb", "winddown-0.1.0.tar.gz"]);
    let check = ["--check", "--quiet", "SHA256SUMS"];
    let checked = Command::new("sha256sum").args(check).current_dir(packages.path()).status();
    assert!(checked.unwrap().success());
}
