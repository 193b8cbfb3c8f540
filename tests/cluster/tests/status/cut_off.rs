//! A shutdown whose API server falls silent, and the boot after it.

use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use winddown_apiserver::{ApiServer, Objects};

use crate::status::world::*;

/// Packets are swallowed: nothing is refused and nothing answers.
#[tokio::test]
async fn a_server_that_falls_silent_does_not_hold_up_the_end() {
    let home = TempDir::new().unwrap();
    let server = ApiServer::start().await.unwrap();
    let names = ["a", "b", "c"];
    let pods = names.map(|name| make(&server, name, json!({ "phase": "Running" })));
    let agent = Agent::start(&server, Some(home.path())).await;
    agent.outbox.submit(says(&pods[0], running()));
    agent.told(pods[0].pod_ref()).await;
    server.set_silent(true);
    for pod in &pods {
        agent.outbox.submit(ended(pod));
    }
    assert_eq!(agent.flush(Duration::from_secs(2)).await, names);
    agent.cut().await;
    server.set_silent(false);
    let agent = Agent::start(&server, Some(home.path())).await;
    for name in names {
        let failed = |o: &Objects<'_>| {
            o.get(&format!("pods/default/{name}")).filter(|pod| pod["status"]["phase"] == "Failed")
        };
        let pod = server.within(LONG, "it has failed", failed).await.unwrap();
        assert_eq!(pod["status"]["reason"], "Terminated");
        assert_eq!(condition(&pod, "DisruptionTarget")["reason"], "TerminationByKubelet");
        assert_eq!(condition(&pod, "Ready")["status"], "False");
    }
    agent.cut().await;
}
