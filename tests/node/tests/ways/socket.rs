//! A node without logind, on which a program of its owner announces the shutdown.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};

const SOCKET: &str = "/run/node-agent/shutdown.sock";

/// What the program says, and how many locks it has handed out that are still held.
#[derive(Clone)]
struct Program {
    said: watch::Sender<Value>,
    held: watch::Sender<usize>,
}

impl Program {
    fn serve(listener: UnixListener) -> Self {
        let said = json!({
            "apiVersion": "winddown.dev/v1alpha1", "kind": "Shutdown", "preparing": false, "delaySeconds": 60,
        });
        let program = Self { said: watch::Sender::new(said), held: watch::Sender::new(0) };
        let serving = program.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let program = serving.clone();
                // A client that goes ends its own task only.
                tokio::spawn(async move { drop(program.answer(BufReader::new(client)).await) });
            }
        });
        program
    }

    async fn answer(self, mut client: BufReader<UnixStream>) -> TestResult {
        let mut line = String::new();
        client.read_line(&mut line).await?;
        let asked: Value = serde_json::from_str(&line)?;
        if asked["kind"] == "Inhibit" {
            let granted = r#"{"apiVersion": "winddown.dev/v1alpha1", "kind": "Granted", "id": 1}"#;
            self.held.send_modify(|held| *held += 1);
            client.write_all(format!("{granted}\n").as_bytes()).await?;
            let _ = client.read_u8().await;
            self.held.send_modify(|held| *held -= 1);
            return Ok(());
        }
        let mut said = self.said.subscribe();
        loop {
            let line = said.borrow_and_update().to_string();
            client.write_all(format!("{line}\n").as_bytes()).await?;
            said.changed().await?;
        }
    }
}

#[tokio::test]
async fn without_logind_the_pods_end_in_order_when_a_program_of_the_node_says_so() -> TestResult {
    let test = "without_logind_the_pods_end_in_order_when_a_program_of_the_node_says_so";
    let setup = Setup { more: format!("shutdownSocket: {SOCKET}\n"), ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    let node = &scenario.node;
    node.run(&["systemctl", "mask", "--now", "systemd-logind.service"]).await?;
    node.run(&["mkdir", "/run/node-agent"]).await?;
    let program = Program::serve(UnixListener::bind(node.host_path(SOCKET))?);
    node.run(&["systemctl", "start", "winddown"]).await?;
    scenario.wait_started(scenario.pods.len()).await?;
    let is = async |locks: usize| *program.held.borrow() == locks;
    node.wait_until("the lock to be taken", SOON, async || is(1).await).await?;
    let doctor = node.exec(&["winddown", "doctor"], SOON).await?.stdout;
    assert!(doctor.contains("a program of this node announces shutdowns, not logind"), "{doctor}");
    assert!(doctor.contains("the shutdown lock is held"), "{doctor}");

    program.said.send_modify(|said| {
        said["preparing"] = json!(true);
        said["type"] = json!("reboot");
        said["message"] = json!("a new image");
    });
    node.wait_until("the lock to be given back", SOON, async || is(0).await).await?;
    scenario.assert_ended_in_order()?;
    let text = scenario.text(&["report"]).await?;
    for said in ["Clean shutdown", "reboot", "a new image"] {
        assert!(text.contains(said), "{said} is not in {text}");
    }

    // What the program does then; nothing is left for the unit's own stop to end.
    scenario.node.run(&["systemctl", "reboot"]).await?;
    scenario.wait_off(SOON).await?;
    Ok(())
}
