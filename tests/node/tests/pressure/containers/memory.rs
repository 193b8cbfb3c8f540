//! A container that takes the node's memory.

use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use winddown_node_tests::scenario::TestResult;

use super::stage::{Stage, Taker};
use crate::bounded::{SHORT, asked, crossing};

/// A process that holds nothing, for a program that does nothing but look and ask: what that needs, no agent goes below.
fn start_bystander(log: &Path) -> TestResult<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pressure-pod"));
    Ok(command.arg(log).args(["hold", "0"]).spawn()?)
}

#[tokio::test]
async fn a_container_that_takes_the_nodes_memory_is_ended_and_no_other() -> TestResult {
    let test = "a_container_that_takes_the_nodes_memory_is_ended_and_no_other";
    let pods = [
        Taker { name: "vip", priority: 1000, does: ("hold", 90, ""), ..Taker::default() },
        Taker { name: "web", does: ("hold", 20, ""), ..Taker::default() },
        Taker { name: "hog", does: ("memory", 100, ""), ..Taker::default() },
    ];
    let config = "evictionHard: {memory.available: 100Mi}\n";
    let Some(stage) = Stage::set(test, config, &pods).await? else { return Ok(()) };
    let group = stage.bound_memory(900)?;
    let log = stage.log_on_host("hog");
    let is_asked = move || std::fs::read_to_string(&log).is_ok_and(|log| asked(&log).is_some());
    let bystander_log = tempfile::NamedTempFile::new()?;
    let mut bystander = start_bystander(bystander_log.path())?;
    let pid = Pid::from_child(&bystander);
    let watching = tokio::spawn(async move {
        let crossing = crossing(&group, SHORT, is_asked).await;
        let asked = kill_process(pid, Signal::TERM);
        asked.map_err(|error| error.to_string())?;
        crossing.map_err(|error| error.to_string())
    });
    stage.start().await?;
    let evicted = stage.until_evicted(&["hog"]).await?;
    let crossing = watching.await??;
    let asked = stage.asked("hog").ok_or("it was asked to stop")?;
    bystander.wait()?;
    let least = self::asked(&std::fs::read_to_string(bystander_log.path())?);
    println!(
        "{test}: {} ms from the crossing to SIGTERM, {} us by a program that does nothing else",
        (asked - crossing) / 1_000_000,
        (least.ok_or("the bystander was asked")? - crossing) / 1_000
    );
    let message = &evicted[0].1;
    let said = "The node was low on resource: memory. Threshold quantity: 100Mi, available: ";
    assert!(message.starts_with(said), "{message}");
    assert!(message.contains("Container main was using "), "{message}");
    assert!(message.ends_with("request is 0, has larger consumption of memory. "), "{message}");
    for other in ["vip", "web"] {
        assert_eq!(stage.asked(other), None, "{other}");
    }
    Ok(())
}
