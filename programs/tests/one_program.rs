//! Commands from when winddown was a single program, which must still work.

use std::process::{Command, Stdio};

use crate::agent::{LIMIT, winddown};

/// A unit that an operator wrote, or a drop-in with an `ExecStart=` of its own.
#[test]
fn winddown_agent_becomes_the_daemon_in_the_same_process_with_its_options() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(root.path().join("etc/winddown/pods")).expect("created");
    let config = root.path().join("config.yaml");
    let text =
        "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: process\nnodeName: old\n";
    std::fs::write(&config, text).expect("written");
    let mut command = winddown();
    command.args(["agent", "--root"]).arg(root.path()).arg("--config").arg(&config);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut agent = command.spawn().expect("it starts");

    let socket = root.path().join("run/winddown/winddown.sock");
    let begun = tokio::time::Instant::now();
    let answer = loop {
        let asked = winddown().arg("--socket").arg(&socket).args(["status", "-o", "json"]).output();
        let asked = asked.expect("it runs");
        if asked.status.success() || begun.elapsed() > LIMIT {
            break asked.stdout;
        }
    };
    let program = std::fs::read_link(format!("/proc/{}/exe", agent.id()));
    let _ = agent.kill();
    let _ = agent.wait();
    assert_eq!(program.expect("its program").file_name().expect("a name"), "winddownd");
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("an answer");
    assert_eq!(answer["node"]["name"], "old", "{answer}");
}

/// An agent of the systemd runtime, replaced on disk and not restarted yet, names its own old path.
#[test]
fn winddown_shim_becomes_the_shim() {
    let mut shim = Command::new(assert_cmd::cargo::cargo_bin!("winddown"));
    let output = shim.args(["shim", "log"]).stdin(Stdio::null()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("winddownd starts this program for each container"), "{said}");
}
