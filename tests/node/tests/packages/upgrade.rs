//! The package of an earlier commit and the present one take each other's place on a busy node whose pods run.
//!
//! `make upgrade SINCE=COMMIT` builds the earlier one, which `WINDDOWN_EARLIER` names. Without it, the present package
//! takes its own place.

use std::path::PathBuf;

use winddown_node_tests::in_long_form;
use winddown_node_tests::packages::{Packages, are_here};
use winddown_node_tests::restarts::Runtime;
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::upgrades::{Change, upgrades};

#[tokio::test]
async fn an_upgrade_under_load_and_the_way_back_leave_processes_and_the_lock_alone() -> TestResult {
    let test = "an_upgrade_under_load_and_the_way_back_leave_processes_and_the_lock_alone";
    upgrade(test, Runtime::Process).await
}

#[tokio::test]
async fn an_upgrade_under_load_and_the_way_back_leave_services_and_the_lock_alone() -> TestResult {
    let test = "an_upgrade_under_load_and_the_way_back_leave_services_and_the_lock_alone";
    upgrade(test, Runtime::Systemd).await
}

#[tokio::test]
async fn an_upgrade_under_load_and_the_way_back_leave_containers_and_the_lock_alone() -> TestResult
{
    let test = "an_upgrade_under_load_and_the_way_back_leave_containers_and_the_lock_alone";
    upgrade(test, Runtime::Containerd).await
}

async fn upgrade(test: &str, runtime: Runtime) -> TestResult {
    if !in_long_form(test, "three reboots of a busy node take minutes") {
        return Ok(());
    }
    if !are_here(test, &[("dpkg-deb", "dpkg"), ("strip", "binutils")])? {
        return Ok(());
    }
    let present = Packages::the_deb().await?;
    let earlier = std::env::var_os("WINDDOWN_EARLIER").map(PathBuf::from);
    let earlier = earlier.unwrap_or_else(|| present.clone());
    let told = |change: &Change| {
        println!("{}: {change}", runtime.name());
        change.faults.iter().for_each(|fault| println!("   DIFFERS: {fault}"));
        change.said.iter().for_each(|line| println!("   logged: {line}"));
    };
    let all = upgrades(test, runtime, [&earlier, &present], told).await?;
    let faults: Vec<_> = all.iter().flatten().flat_map(|change| &change.faults).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    Ok(())
}
