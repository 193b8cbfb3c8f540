//! The pure planners cost in proportion to the pods, or hardly more. Instructions are counted,
//! so another load of the machine changes nothing.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::process::Command;

/// Nodes that are compared.
const SMALL: u64 = 50;
const LARGE: u64 = 400;
/// How much more a pod of the large node may cost, in tenths. Sorting takes log(400) / log(50) = 1.5
/// times as much per pod; a quadratic planner eight times.
const MOST: u64 = 17;

fn has_valgrind(test: &str) -> bool {
    if Command::new("valgrind").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        return true;
    }
    println!("SKIPPED: {test}: valgrind is not installed");
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} may not be skipped");
    false
}

/// The instructions of a plan for `pods` that is made a second time.
fn counted(planner: &str, pods: u64) -> u64 {
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=winddown_bench::planners::again*")
        .args([env!("CARGO_BIN_EXE_winddown-bench"), "planner", planner, &pods.to_string(), "2"])
        .output()
        .unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.success(), "{said}");
    let (_, collected) = said.split_once("Collected :").unwrap();
    collected.lines().next().unwrap().trim().parse().unwrap()
}

/// The bytes of the heap that a node with so many pods holds.
fn held(pods: u64) -> u64 {
    let ran = Command::new("valgrind")
        .args(["--tool=dhat", "--dhat-out-file=/dev/null"])
        .args([env!("CARGO_BIN_EXE_winddown-bench"), "held", &pods.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.success(), "{said}");
    let (_, at_end) = said.split_once("At t-end:").unwrap();
    at_end.split_whitespace().next().unwrap().replace(',', "").parse().unwrap()
}

fn grows_with_the_pods(planner: &str) {
    if !has_valgrind(&format!("{planner}_grows_with_the_pods")) {
        return;
    }
    let (small, large) = (counted(planner, SMALL), counted(planner, LARGE));
    println!("{planner}: {small} instructions for {SMALL} pods, {large} for {LARGE}");
    assert!(small > 10 * SMALL, "{planner}: {small} instructions are no plan for {SMALL} pods");
    let most = small * (LARGE / SMALL) * MOST / 10;
    assert!(large <= most, "{planner}: {large} instructions for {LARGE} pods, {small} for {SMALL}");
}

/// Pod object, worker and status, with containers in memory: 10 533 bytes. Room to spare in the lists of its status
/// would be 2256 more.
#[test]
fn a_pod_of_a_node_of_a_hundred_takes_little_memory() {
    const MOST: u64 = 11_000;
    if !has_valgrind("a_pod_of_a_node_of_a_hundred_takes_little_memory") {
        return;
    }
    let (without, with) = (held(20), held(120));
    let pod = with.saturating_sub(without) / 100;
    println!("a pod takes {pod} bytes");
    assert!(pod > 1000, "{pod} bytes are no pod with a status");
    assert!(pod <= MOST, "a pod takes {pod} bytes, {MOST} at most");
}

#[test]
fn a_shutdown_plan_grows_with_the_pods() {
    grows_with_the_pods("shutdown");
}

#[test]
fn a_short_shutdown_plan_by_role_grows_with_the_pods() {
    grows_with_the_pods("shutdown-short");
}

#[test]
fn victims_by_distance_grow_with_the_pods() {
    grows_with_the_pods("distance");
}

#[test]
fn an_eviction_grows_with_the_pods() {
    grows_with_the_pods("eviction");
}

#[test]
fn a_start_in_order_grows_with_the_pods() {
    grows_with_the_pods("start");
}

#[test]
fn a_listing_of_what_runs_grows_with_the_pods() {
    grows_with_the_pods("listing");
}
