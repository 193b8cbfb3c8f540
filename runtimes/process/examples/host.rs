//! The smallest host of the process runtime: runs pods from JSON files until it is killed.
//!
//! ```text
//! cargo run --example host -- run STATE_DIR LOG_DIR POD.json...
//! ```
//!
//! Pods outlive it: start it again with the same directories and it continues with them. The crate's tests use it as
//! the supervisor (`host shim …`) and as an agent that they can kill.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1 as api;
use winddown_runtimes::process::{ProcessConfig, ProcessRuntime, ShimCommand, shim};
use winddown_shared::{Pod, Runtime as _, WallClock};

fn main() -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "this is where the real clock is handed in")]
    let wall = WallClock::new(jiff::Timestamp::now);
    let mut args = std::env::args_os().skip(1);
    // Before any thread exists: the supervisor is single-threaded.
    match args.next() {
        Some(word) if word == "shim" => shim::run(args, &wall),
        Some(word) if word == "run" => match args.collect::<Vec<_>>().as_slice() {
            [state, logs, pods @ ..] if !pods.is_empty() => {
                host(state.as_ref(), logs.as_ref(), pods, wall)
            }
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: host run STATE_DIR LOG_DIR POD.json...");
    ExitCode::from(2)
}

fn host(state: &Path, logs: &Path, pods: &[OsString], wall: WallClock) -> ExitCode {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome =
        built.map_err(Into::into).and_then(|rt| rt.block_on(run(state, logs, pods, wall)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("host: {error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

async fn run(state: &Path, logs: &Path, pods: &[OsString], wall: WallClock) -> Outcome {
    let config = ProcessConfig::new(state, logs, ShimCommand::subcommand("shim"), wall);
    let runtime = ProcessRuntime::open(config).await?;
    let pods = pods.iter().map(|file| follow(&runtime, file));
    try_join_all(pods).await.map(drop)
}

/// Runs one pod as a pod worker would: syncs after every change, and when a backoff ends.
async fn follow(runtime: &ProcessRuntime, file: &OsString) -> Outcome {
    let object: api::Pod = serde_json::from_slice(&std::fs::read(file)?)?;
    let pod = Pod::new(object)?;
    let mut changes = runtime.changes();
    loop {
        let synced = runtime.sync_pod(&pod).await?;
        for one in &synced.status.containers {
            println!("{} {:?} attempt {}", one.name, one.state, one.restart_count);
        }
        let due = async {
            match synced.again_in {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let changed = async { while changes.recv().await.is_ok_and(|uid| uid != *pod.uid()) {} };
        tokio::select! {
            () = changed => {}
            () = due => {}
        }
    }
}
