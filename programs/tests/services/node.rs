//! Runs this program again in a node.

use std::time::Duration;

use winddown_node_tests::{Flavour, Node, base_or_skip, programs};

/// The directories of this program and of winddown's programs in the node.
const SUITE: &str = "/opt/suite";
pub(crate) const PROGRAMS: &str = "/opt/winddown";
/// The variable that says that this process runs in a node.
const HERE: &str = "WINDDOWN_IN_A_NODE";
/// A timeout longer than that of any scenario.
const LIMIT: Duration = Duration::from_secs(120);

/// Whether this process was started by [`play`].
pub(crate) fn is_here() -> bool {
    std::env::var_os(HERE).is_some()
}

/// Runs the test `name` of this program in a node of its own.
pub(crate) async fn play(name: &str) {
    let Some(base) = base_or_skip(name, Flavour::Plain).await.unwrap() else { return };
    let node = Node::boot(&base).await.unwrap();
    node.install(&std::env::current_exe().unwrap(), SUITE).unwrap();
    node.install_programs(&programs().await.unwrap(), PROGRAMS).unwrap();
    let variable = format!("{HERE}=1");
    let argv = ["env", &variable, SUITE, "--exact", name, "--nocapture"];
    let output = node.exec(&argv, LIMIT).await.unwrap();
    let said = format!("{}{}", output.stdout, output.stderr);
    let passed = output.status.success() && output.stdout.contains("1 passed; 0 failed");
    assert!(passed, "{}: {said}\n{}", output.status, node.journal(&["--lines=40"]).await.unwrap());
}
