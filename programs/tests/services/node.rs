//! Runs this program again in a node.

use std::time::Duration;

use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::{
    Base, Flavour, Need, Node, Recipe, Suite, base_or_skip, in_long_form, programs,
};

/// The directories of this program and of winddown's programs in the node.
const SUITE: &str = "/opt/suite";
pub(crate) const PROGRAMS: &str = "/opt/winddown";
/// The variable that says that this process runs in a node.
const HERE: &str = "WINDDOWN_IN_A_NODE";
/// A timeout longer than that of any scenario.
const LIMIT: Duration = Duration::from_secs(120);
/// The same for all of them, one after the other, where whatever starts takes long.
const LIMIT_OF_ALL: Duration = Duration::from_secs(3600);

/// Whether this process was started by [`play`] or [`play_all`].
pub(crate) fn is_here() -> bool {
    std::env::var_os(HERE).is_some()
}

/// Runs the test `name` of this program in a node of its own.
pub(crate) async fn play(name: &str) {
    let Some(base) = base_or_skip(name, Flavour::Plain).await.unwrap() else { return };
    let said = run(&base, &["--exact", name, "--nocapture"], LIMIT).await;
    assert!(said.contains("1 passed; 0 failed"), "{said}");
}

/// Runs all of this program's tests of scenarios in one node with the controllers of version 2.
pub(crate) async fn play_all(test: &str, suite: Suite) -> TestResult {
    if !in_long_form(test, "all scenarios in one node, on user-mode Linux") {
        return Ok(());
    }
    let recipe = Recipe::cheapest(suite, &[Need::Controllers]).unwrap();
    let Some(base) = base_or_skip(test, recipe).await? else { return Ok(()) };
    run(&base, &["--test-threads=1", "--skip", "all_of_it_holds"], LIMIT_OF_ALL).await;
    Ok(())
}

/// Runs this program in a new node. Returns what it says; fails if it fails.
async fn run(base: &Base, arguments: &[&str], limit: Duration) -> String {
    let node = Node::boot(base).await.unwrap();
    node.install(&std::env::current_exe().unwrap(), SUITE).unwrap();
    node.install_programs(&programs().await.unwrap(), PROGRAMS).unwrap();
    let variable = format!("{HERE}=1");
    let argv = [&["env", &variable, SUITE], arguments].concat();
    let output = node.exec(&argv, limit).await.unwrap();
    let said = format!("{}{}", output.stdout, output.stderr);
    let (status, passed) = (output.status, output.status.success());
    assert!(passed, "{status}: {said}\n{}", node.journal(&["--lines=40"]).await.unwrap());
    said
}
