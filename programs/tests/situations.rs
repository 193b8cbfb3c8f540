//! What is wrong on a node, and what `winddown status` and `winddown doctor` say of it: a real agent with real
//! processes as pods, in namespaces of its own, so that every path is the one of a node.
//!
//! Each file of `tests/situations` is one situation: commands for a shell, which may name a login manager and a container
//! runtime, `>>>`, and what a person sees. After a deliberate change of a text,
//! `WINDDOWN_BLESS=1 cargo test -p winddown --test all situations` writes the new ones; read the difference before it is
//! committed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use tokio::process::Command;
use winddown_runtimes_tests::FakeCri;
use winddown_shared::ShutdownKind;
use winddown_systemd::stand_in::{OnBus, StandIn};

use bus::PrivateBus;

use crate::found_by_name::search_path;

#[path = "../../node/tests/example/bus.rs"]
mod bus;

/// Situations that are tried at the same time; most wait for a process.
const AT_ONCE: usize = 7;

struct Situation {
    path: PathBuf,
    script: String,
    wanted: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/situations")
}

fn situations() -> Vec<Situation> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let (script, wanted) = text.split_once(">>>\n").unwrap_or((&text, ""));
        Situation { path, script: script.trim_end().to_owned(), wanted: wanted.trim().to_owned() }
    };
    paths.into_iter().map(read).collect()
}

/// The login manager that the script names in a line `logind DELAY`, with `shutdown in SECONDS` at its end if one is
/// scheduled. It is on a bus of its own.
async fn login_manager(script: &str, bus: &PrivateBus) -> Option<OnBus> {
    let line = script.lines().find_map(|line| line.strip_prefix("logind "))?;
    let mut words = line.split(' ');
    let delay = words.next().unwrap().parse().expect("the delay in seconds");
    let logind = StandIn::new(Duration::from_secs(delay));
    if let Some(seconds) = words.next_back().filter(|_| line.contains(" shutdown in ")) {
        let after = Duration::from_secs(seconds.parse().expect("seconds"));
        logind.schedule(Some((ShutdownKind::PowerOff, SystemTime::now() + after)));
    }
    Some(logind.serve_on(&bus.address()).await.expect("the names are free"))
}

/// The container runtime of a script with a line `cri`, at `cri.sock`.
fn container_runtime(script: &str, directory: &Path) -> Option<FakeCri> {
    script.lines().any(|line| line == "cri").then(|| {
        let socket = directory.join("cri.sock");
        let runtime = FakeCri::start(&socket, winddown_host::machine::wall_clock());
        runtime.set_image("shop/web:1", true);
        runtime
    })
}

/// What the script prints.
async fn run(script: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let _runtime = container_runtime(script, directory.path());
    let bus = PrivateBus::start().await;
    let _logind = login_manager(script, &bus).await;
    let prelude = std::fs::read_to_string(folder().join("prelude.sh")).unwrap();
    let program = Path::new(assert_cmd::cargo::cargo_bin!("winddown"));
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "/bin/bash", "-c"])
        .arg(format!("exec 2>&1\n{prelude}\n{script}"))
        .current_dir(directory.path())
        .env("WINDDOWN", program)
        .env("PATH", search_path())
        .env("DBUS_SYSTEM_BUS_ADDRESS", bus.address())
        .env("NO_COLOR", "1")
        .env_remove("WINDDOWN_SOCKET")
        .env_remove("WINDDOWN_CONFIG")
        .env_remove("WINDDOWN_LOG")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.replace(&bus.address(), "$BUS");
    let said = said.replace(&*directory.path().to_string_lossy(), "$DIR");
    assert!(!said.contains("panicked"), "{said}");
    said.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_situation_is_answered_with_its_cause_and_the_next_step() {
    use futures_util::StreamExt as _;
    let test = "each_situation_is_answered_with_its_cause_and_the_next_step";
    let namespaces = std::process::Command::new("unshare").args(["-mpf", "true"]).output();
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || !namespaces.is_ok_and(|output| output.status.success()) || !bus::is_there() {
        let why = "needs root, namespaces and dbus-daemon (Debian package dbus)";
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{why}");
        println!("SKIPPED: {test}: {why}");
        return;
    }
    let only = std::env::var("WINDDOWN_SITUATION").unwrap_or_default();
    let all = situations().into_iter().filter(|one| one.path.to_string_lossy().contains(&only));
    let said = futures_util::stream::iter(all)
        .map(async |situation| {
            let said = run(&situation.script).await;
            (situation, said)
        })
        .buffered(AT_ONCE);
    let said: Vec<(Situation, String)> = said.collect().await;
    let mut wrong = String::new();
    for (Situation { path, script, wanted }, said) in &said {
        if std::env::var_os("WINDDOWN_BLESS").is_some() {
            std::fs::write(path, format!("{script}\n>>>\n{said}\n")).unwrap();
        }
        if said != wanted {
            let name = path.display();
            let _ = write!(wrong, "{name}:\n--- wanted\n{wanted}\n--- got\n{said}\n\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn there_is_a_file_for_each_of_the_twenty_situations() {
    let count = situations().len();
    assert!(count >= 20, "{count}");
}
