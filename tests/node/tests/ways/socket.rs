//! Programs of the node: one that announces the shutdown in place of logind, and one that delays it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use winddown_node_tests::Node;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};

/// Where the program is in the node.
pub(crate) const SOCKET: &str = "/run/node-agent/shutdown.sock";

/// What the program says, and how many locks it has handed out that are still held.
#[derive(Clone)]
pub(crate) struct Program {
    said: watch::Sender<Value>,
    held: watch::Sender<usize>,
}

impl Program {
    /// In place of logind, which is masked.
    pub(crate) async fn on(node: &Node) -> TestResult<Self> {
        node.run(&["systemctl", "mask", "--now", "systemd-logind.service"]).await?;
        node.run(&["mkdir", "/run/node-agent"]).await?;
        Ok(Self::serve(UnixListener::bind(node.host_path(SOCKET))?))
    }

    /// Waits until so many locks are held.
    pub(crate) async fn has_given(&self, node: &Node, locks: usize) -> TestResult {
        let is = async || *self.held.borrow() == locks;
        node.wait_until(&format!("{locks} locks to be held"), SOON, is).await?;
        Ok(())
    }

    /// Says that the node reboots.
    pub(crate) fn announce_reboot(&self) {
        self.said.send_modify(|said| {
            said["preparing"] = json!(true);
            said["type"] = json!("reboot");
            said["message"] = json!("a new image");
        });
    }

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
async fn a_program_that_took_a_lock_goes_before_the_first_pod() -> TestResult {
    let test = "a_program_that_took_a_lock_goes_before_the_first_pod";
    let socket = "/run/winddown/inhibitors.sock";
    let more = format!("inhibitorSocket: {socket}\n");
    let setup = Setup { seconds: [16, 12, 12], more, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let stream = UnixStream::connect(scenario.node.host_path(socket)).await?;
    let mut queue = BufReader::new(stream);
    let asked = json!({
        "apiVersion": "winddown.dev/v1alpha1", "kind": "Inhibit",
        "who": "queue", "why": "hands its jobs over", "turn": "beforePods",
    });
    queue.write_all(format!("{asked}\n").as_bytes()).await?;
    let mut said = String::new();
    queue.read_line(&mut said).await?;
    assert!(said.contains("Granted"), "{said}");
    let shows = async || {
        let status = scenario.text(&["status"]).await;
        status.is_ok_and(|text| text.contains("a shutdown waits for queue (hands its jobs over)"))
    };
    scenario.node.wait_until("status to show it", SOON, shows).await?;

    scenario.node.run(&["systemctl", "poweroff"]).await?;
    said.clear();
    queue.read_line(&mut said).await?;
    assert!(said.contains("Turn"), "{said}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    scenario.assert_nothing_was_asked()?;
    drop(queue);
    scenario.node.wait_off(SOON).await?;
    scenario.assert_ended_in_order()?;
    Ok(())
}

#[tokio::test]
async fn without_logind_the_pods_end_in_order_when_a_program_of_the_node_says_so() -> TestResult {
    let test = "without_logind_the_pods_end_in_order_when_a_program_of_the_node_says_so";
    let setup = Setup { more: format!("shutdownSocket: {SOCKET}\n"), ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    let node = &scenario.node;
    let program = Program::on(node).await?;
    node.run(&["systemctl", "start", "winddown"]).await?;
    scenario.wait_started(scenario.pods.len()).await?;
    program.has_given(node, 1).await?;
    let doctor = node.exec(&["winddown", "doctor"], SOON).await?.stdout;
    assert!(doctor.contains("a program of this node announces shutdowns, not logind"), "{doctor}");
    assert!(doctor.contains("the shutdown lock is held"), "{doctor}");

    program.announce_reboot();
    program.has_given(node, 0).await?;
    scenario.assert_ended_in_order()?;
    let text = scenario.text(&["report"]).await?;
    for said in ["Clean shutdown", "reboot", "a new image"] {
        assert!(text.contains(said), "{said} is not in {text}");
    }

    // What the program does then; nothing is left for the unit's own stop to end.
    // It asks logind, which is masked, and then systemd; the machine's end may reach the command itself.
    let _ = scenario.node.exec(&["systemctl", "reboot"], SOON).await?;
    scenario.node.wait_off(SOON).await?;
    Ok(())
}
