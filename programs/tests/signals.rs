//! Signals that arrive early.

#![allow(clippy::expect_used, reason = "clippy does not see that helpers are tests")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A timeout longer than anything here takes; only a failure reaches it.
const LIMIT: Duration = Duration::from_secs(60);

fn config(seconds: u32) -> String {
    format!(
        "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nshutdownGracePeriod: {seconds}s\n"
    )
}

/// Starts an agent that is about to read its configuration, and returns the pipe that it reads from.
async fn starting(file: PathBuf) -> (Child, File) {
    let root = file.ancestors().nth(3).expect("a root").to_owned();
    mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    let agent = Command::new(assert_cmd::cargo::cargo_bin!("winddownd"))
        .env_remove("WINDDOWN_SOCKET")
        .env_remove("WINDDOWN_CONFIG")
        // Never the login manager of the machine that runs the tests.
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .env("NOTIFY_SOCKET", root.join("notify"))
        .arg("--root")
        .arg(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the agent starts");
    let pipe = opened(file).await;
    (agent, pipe)
}

/// Opens a pipe for writing, once the other side is open. Uses a separate thread, because the runtime would wait for
/// its own threads even after the timeout.
async fn opened(file: PathBuf) -> File {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || tell.send(OpenOptions::new().write(true).open(file)));
    timeout(LIMIT, told).await.expect("in time").expect("no panic").expect("opened")
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
    std::fs::create_dir_all(root.path().join("run/winddown")).expect("created");
    let manager = UnixDatagram::bind(root.path().join("notify")).expect("a service manager");
    manager.set_nonblocking(true).expect("set");
    let file = root.path().join("etc/winddown/config.yaml");
    std::fs::create_dir_all(file.parent().expect("a parent")).expect("created");
    let (mut agent, mut pipe) = starting(file.clone()).await;
    std::fs::remove_file(&file).expect("removed");
    std::fs::write(&file, config(40)).expect("written");
    let pid = agent.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("runs");
    kill_process(pid, Signal::HUP).expect("sent");
    pipe.write_all(config(30).as_bytes()).expect("written");
    drop(pipe);

    let mut said = BufReader::new(agent.stderr.take().expect("piped")).lines();
    let mut all = Vec::new();
    for end in ["reload: in force now", "reload: nothing has changed"] {
        let reloads = async {
            while let Ok(Some(line)) = said.next_line().await {
                all.push(line);
                if all.last().is_some_and(|line| line.contains(end)) {
                    return true;
                }
            }
            false
        };
        let reloaded = timeout(LIMIT, reloads).await;
        assert_eq!(reloaded, Ok(true), "it said: {all:#?}; {:?}", agent.try_wait());
        kill_process(pid, Signal::HUP).expect("sent");
    }
    assert!(matches!(agent.try_wait(), Ok(None)), "it runs");
    // It is ready when it knows that it has a lock, or that there is none; a reload does not make it ready earlier.
    let told = told(&manager);
    assert!(told.first().is_none_or(|first| first == "READY=1"), "{told:?}");
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_to_its_end_holds_up_nothing_else() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(root.path().join("run/winddown")).expect("created");
    let file = root.path().join("etc/winddown/config.yaml");
    std::fs::create_dir_all(file.parent().expect("a parent")).expect("created");
    let (mut agent, mut pipe) = starting(file.clone()).await;
    let pid = agent.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("runs");
    // Early signals are handled once the agent runs, which may be only after it has read its configuration; so both
    // pipes can be opened here one after the other.
    kill_process(pid, Signal::HUP).expect("sent");
    std::fs::remove_file(&file).expect("removed");
    mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    pipe.write_all(config(30).as_bytes()).expect("written");
    drop(pipe);
    // The pipe is open but nothing is written: the agent waits for its configuration.
    let open = opened(file).await;
    kill_process(pid, Signal::TERM).expect("sent");
    let ended = timeout(LIMIT, agent.wait()).await;
    assert!(matches!(&ended, Ok(Ok(status)) if status.success()), "{ended:?}");
    drop(open);
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
