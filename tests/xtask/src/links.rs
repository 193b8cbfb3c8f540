//! Checks what is linked into a program that does not ask for it.

use std::collections::BTreeSet;
use std::process::Command;

use crate::repository;

/// The crates that cargo links into a package, itself among them.
fn linked(package: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap());
    cargo.args(["tree", "--offline", "--edges=normal", "--prefix=none", "--format={p}"]);
    let done = cargo.args(package).current_dir(repository()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let list = String::from_utf8(done.stdout).unwrap();
    list.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn a_node_that_is_configured_by_a_file_has_no_kubernetes_client() {
    let of_node = ["--package=winddown-node", "--no-default-features", "--features=config"];
    let linked = linked(&of_node);
    assert!(linked.contains("winddown-config"), "{linked:?}");
    assert!(!linked.contains("kube"), "{linked:?}");
}

#[test]
fn the_programs_have_no_web_framework() {
    let linked = linked(&["--package=winddown"]);
    assert!(linked.contains("tonic"), "{linked:?}");
    assert!(!linked.contains("axum"), "{linked:?}");
}
