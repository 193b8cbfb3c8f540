//! This program, started again where control groups are version 2 alone.

use std::time::Duration;

use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::{Need, Node, Recipe, Suite, base_or_skip, in_long_form, programs};

use super::bounded::Turn;

/// Where this program and winddown's are in the node.
const PROGRAM: &str = "/opt/pressure";
const PROGRAMS: &str = "/opt/winddown";
const POD: &str = env!("CARGO_BIN_EXE_pressure-pod");
/// What is played there. That kernel has no stall information, a minute of calm shows nothing new, and a pod
/// takes longer to recover there than the test of that gives it.
const WANTED: [&str; 7] =
    ["memory::", "tasks::", "disk::", "--skip", "containers::", "--skip", "soft_grace"];
/// More than all of them take, one after the other.
const LIMIT: Duration = Duration::from_secs(1200);

#[tokio::test]
async fn the_same_holds_on_cgroup_v2() -> TestResult {
    let test = "the_same_holds_on_cgroup_v2";
    if !in_long_form(test, "the tests of pressure take minutes") {
        return Ok(());
    }
    let _turn = Turn::wait(false).await;
    let recipe = Recipe::cheapest(Suite::default(), &[Need::Controllers]).ok_or("no such node")?;
    let Some(base) = base_or_skip(test, recipe).await? else { return Ok(()) };
    let node = Node::boot(&base).await?;
    node.install(&std::env::current_exe()?, PROGRAM)?;
    node.install_programs(&programs().await?, PROGRAMS)?;
    node.install(POD.as_ref(), POD)?;
    let programs = format!("WINDDOWN_PROGRAMS={PROGRAMS}");
    // How fast it is cannot be told on a slow machine; and files in memory would be no page cache.
    let environment = ["WINDDOWN_NO_SKIP=1", "WINDDOWN_PRESSURE_MS=20000", "TMPDIR=/var/tmp"];
    let program = [&programs, PROGRAM, "--test-threads=1"];
    let argv = [&["env"], &environment[..], &program, &WANTED].concat();
    let output = node.exec(&argv, LIMIT).await?;
    let said = format!("{}{}", output.stdout, output.stderr);
    // Its results are part of this one, and are not counted on their own.
    println!("{}", said.replace("test result", "result in the node"));
    assert!(output.status.success(), "{}: {said}", output.status);
    Ok(())
}
