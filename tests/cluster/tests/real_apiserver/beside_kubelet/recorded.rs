//! What the stand-ins are held against.

use std::path::Path;

use winddown_cri::PodContainers;
use winddown_node_tests::scenario::TestResult;

use super::machine::{Ends, Machine, STATIC};
use crate::RealApi;
use crate::recorded::{Inside, Pods};

/// Where the answers are.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/companion/recorded.json");
/// With this variable they are written anew.
const WRITE: &str = "WINDDOWN_WRITE_RECORDED";

#[tokio::test]
async fn a_kubelet_and_its_api_server_answer_as_was_recorded() -> TestResult {
    let test = "a_kubelet_and_its_api_server_answer_as_was_recorded";
    if RealApi::with_controllers(test).await.is_none() {
        return Ok(());
    }
    let Some(machine) = Machine::set(test, Ends::Kubelet).await? else { return Ok(()) };
    machine.protect("web-1").await?;
    let pods = Pods {
        client: machine.api.node(&machine.node).await.client(),
        node: &machine.node,
        namespace: &machine.node,
        willing: "web-3",
        guarded: "web-1",
        mirror: &format!("{STATIC}-{}", machine.node),
    };
    let socket = machine.scenario.node.host_path("/run/containerd/containerd.sock");
    let containers = PodContainers::new(&format!("unix://{}", socket.display()))?;
    let recorded = pods
        .record(async |uid| {
            let all = containers.look().await.unwrap();
            let pod = all.into_iter().find(|(found, _)| found.as_str() == uid).map(|(_, pod)| pod);
            Inside {
                runs: pod.as_ref().is_some_and(|pod| !pod.running.is_empty()),
                has_sandbox: pod.is_some_and(|pod| pod.has_sandbox),
            }
        })
        .await;
    let recorded = format!("{recorded:#}\n");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(Path::new(FILE), &recorded)?;
    }
    assert_eq!(recorded, std::fs::read_to_string(FILE)?, "see {WRITE}");
    Ok(())
}
