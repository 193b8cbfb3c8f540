//! `make pressure KIND=oom-killers`: winddown, earlyoom, nohang and systemd-oomd on the same machine with the same pods.
//!
//!     beside-oom-killers [--only NAME]... [--into FILE]
//!     beside-oom-killers watch CULPRIT OTHER...      (in the node)
//!
//! Needs root. Each program is alone on an emulated machine with control groups of version 2 and stall information, and
//! meets a memory hog, a leak and a fork bomb. With --into the table of this document is replaced.

use std::error::Error;
use std::path::PathBuf;

use winddown_node_tests::document::replace_between;
use winddown_node_tests::oom_killers::{Killer, START_OF_TABLE, run, table, watch};

const USAGE: &str = "usage: beside-oom-killers [--only NAME]... [--into FILE]";
const END_OF_TABLE: &str = "<!-- End of it. -->";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if_eq("watch").is_some() {
        let culprit = arguments.next().ok_or(USAGE)?;
        println!("{}", watch(&culprit, &arguments.collect::<Vec<_>>())?);
        return Ok(());
    }
    let (mut only, mut into) = (Vec::new(), None);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        match argument.as_str() {
            "--only" => only.push(value),
            "--into" => into = Some(PathBuf::from(value)),
            _ => return Err(USAGE.into()),
        }
    }
    let mut rows = Vec::new();
    for killer in Killer::ALL {
        if only.is_empty() || only.iter().any(|name| name == killer.name()) {
            rows.extend(run(killer).await?);
        }
    }
    let table = table(&rows);
    println!("{table}");
    if let Some(into) = into {
        replace_between(&into, [START_OF_TABLE, END_OF_TABLE], &table)?;
    }
    Ok(())
}
