//! Signals that arrive early.

#![allow(clippy::expect_used, reason = "clippy does not see that helpers are tests")]

use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixListener;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

/// A timeout longer than anything here takes; only a failure reaches it.
const LIMIT: Duration = Duration::from_secs(60);

/// The configuration, below the root.
const CONFIG: &str = "etc/winddown/config.yaml";

fn config(seconds: u32) -> String {
    format!(
        "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nshutdownGracePeriod: {seconds}s\n"
    )
}

/// Starts an agent with a configuration of 30 s below `root`, and returns it when it takes SIGHUP for a reload.
async fn starting(root: &Path) -> (Child, Pid) {
    // Never the login manager of the machine that runs the tests.
    starting_as(root, &config(30), "/nonexistent/bus".as_ref()).await
}

async fn starting_as(root: &Path, config: &str, bus: &Path) -> (Child, Pid) {
    std::fs::create_dir_all(root.join("run/winddown")).expect("created");
    std::fs::create_dir_all(root.join("etc/winddown")).expect("created");
    std::fs::write(root.join(CONFIG), config).expect("written");
    let agent = Command::new(assert_cmd::cargo::cargo_bin!("winddownd"))
        .env_remove("WINDDOWN_SOCKET")
        .env_remove("WINDDOWN_CONFIG")
        .env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", bus.display()))
        .env("NOTIFY_SOCKET", root.join("notify"))
        .arg("--root")
        .arg(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the agent starts");
    let pid = agent.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("runs");
    let listens = async {
        while !catches(pid, Signal::HUP) {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, listens).await.expect("in time");
    (agent, pid)
}

/// Whether the process has a handler for the signal.
fn catches(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    let status = status.expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a line");
    let caught = u64::from_str_radix(caught.trim(), 16).expect("a mask");
    caught >> (signal.as_raw() - 1) & 1 == 1
}

/// Waits until the agent has logged a line with `part`.
async fn logged(said: &mut Lines<BufReader<ChildStderr>>, part: &str) {
    let mut all = Vec::new();
    let line = async {
        while let Ok(Some(line)) = said.next_line().await {
            all.push(line);
            if all.last().is_some_and(|line| line.contains(part)) {
                return true;
            }
        }
        false
    };
    let found = timeout(LIMIT, line).await;
    assert_eq!(found, Ok(true), "{part}: it said: {all:#?}");
}

/// Returns the states that the agent has reported to the service manager so far.
fn told(manager: &UnixDatagram) -> Vec<String> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(length) = manager.recv(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]);
        all.extend(text.lines().filter(|line| line.ends_with("=1")).map(str::to_owned));
    }
    all
}

#[tokio::test]
async fn a_reload_that_comes_while_the_agent_starts_is_done_when_it_runs() {
    let root = tempfile::tempdir().expect("a directory");
    let manager = UnixDatagram::bind(root.path().join("notify")).expect("a service manager");
    manager.set_nonblocking(true).expect("set");
    let (mut agent, pid) = starting(root.path()).await;
    kill_process(pid, Signal::HUP).expect("sent");
    let mut said = BufReader::new(agent.stderr.take().expect("piped")).lines();
    logged(&mut said, "reload: nothing has changed").await;
    std::fs::write(root.path().join(CONFIG), config(40)).expect("written");
    kill_process(pid, Signal::HUP).expect("sent");
    logged(&mut said, " is now in effect").await;
    assert!(matches!(agent.try_wait(), Ok(None)), "it runs");
    // It is ready when it knows that it has a lock, or that there is none; a reload does not make it ready earlier.
    let told = told(&manager);
    assert!(told.first().is_none_or(|first| first == "READY=1"), "{told:?}");
}

/// Pods of the agent before it may run. If the machine goes down, they are terminated as soon as it knows them.
#[tokio::test]
async fn an_agent_that_still_waits_for_systemd_does_not_die_of_the_signals_that_stop_it() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().join("bus");
    let silent = UnixListener::bind(&path).expect("a bus");
    let config = config(30) + "runtime: systemd\n";
    let (_agent, pid) = starting_as(root.path(), &config, &path).await;
    let _connected = timeout(LIMIT, silent.accept()).await.expect("in time").expect("a client");
    assert_eq!([Signal::TERM, Signal::INT].map(|signal| catches(pid, signal)), [true, true]);
}

#[tokio::test]
async fn a_pipe_in_place_of_the_configuration_is_not_waited_for() {
    let root = tempfile::tempdir().expect("a directory");
    let file = root.path().join(CONFIG);
    let (mut agent, pid) = starting(root.path()).await;
    let mut said = BufReader::new(agent.stderr.take().expect("piped")).lines();
    logged(&mut said, "wakes eviction").await;
    std::fs::remove_file(&file).expect("removed");
    mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    kill_process(pid, Signal::HUP).expect("sent");
    logged(&mut said, "it is a pipe, not a regular file; the configuration stays as it was").await;
    kill_process(pid, Signal::TERM).expect("sent");
    let ended = timeout(LIMIT, agent.wait()).await;
    assert!(matches!(&ended, Ok(Ok(status)) if status.success()), "{ended:?}");
}

#[tokio::test]
async fn a_container_hears_a_signal_that_its_agent_was_started_to_ignore() {
    let mut shim = Command::new("/bin/sh")
        // SIGINT is ignored, as for a background command of a script.
        .args(["-c", "trap '' INT; exec \"$0\" become"])
        .arg(assert_cmd::cargo::cargo_bin!("winddown-shim"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let order = serde_json::json!({"argv": ["/bin/sh", "-c", "kill -INT $$"]}).to_string();
    let mut stdin = shim.stdin.take().expect("a pipe");
    stdin.write_all(order.as_bytes()).await.expect("it reads");
    drop(stdin);
    let ended = timeout(LIMIT, shim.wait()).await.expect("in time").expect("waited for");
    assert_eq!(ended.signal(), Some(2), "{ended}");
}
