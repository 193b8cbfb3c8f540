use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

#[tokio::test]
async fn the_program_prints_a_kubeconfig_and_takes_commands() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_winddown-apiserver"))
        .args(["--listen", "127.0.0.1:0", "--name", "localhost", "--user", "system:node:n1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut config = String::new();
    let deadline = Duration::from_secs(20);
    loop {
        let line = tokio::time::timeout(deadline, out.next_line()).await.unwrap().unwrap().unwrap();
        if line == "ready" {
            break;
        }
        config.push_str(&line);
    }
    let config: Value = serde_json::from_str(&config).unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    assert!(server.starts_with("https://localhost:"), "{server}");

    let mut input = program.stdin.take().unwrap();
    let fault = r#"{"fault":{"verb":"*","resource":"pods","then":[{"answer":{"code":503,"retryAfter":1}}]}}"#;
    input.write_all(format!("{fault}\n\"liftAll\"\n{{\"nothing\":1}}\n").as_bytes()).await.unwrap();
    for expected in ["done", "done", "not done: "] {
        let line = tokio::time::timeout(deadline, out.next_line()).await.unwrap().unwrap().unwrap();
        assert!(line.starts_with(expected), "{line}");
    }
}
