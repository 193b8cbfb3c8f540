//! Checks what is linked into a program that does not ask for it.

use std::collections::BTreeSet;

use crate::{repository, trees};

/// The names of the crates that cargo links into a package.
fn linked(package: &[&str]) -> BTreeSet<String> {
    let crates = trees::crates(&repository(), package).unwrap();
    crates.iter().filter_map(|one| one.split(' ').next()).map(str::to_owned).collect()
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
