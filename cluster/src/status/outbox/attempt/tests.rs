//! A node's own certificate, and pods that it may not read.

use std::time::Duration;

use winddown_apiserver::{ApiServer, Fault};
use winddown_shared::PodUid;

use super::*;

/// What is found of a pod of node `n` that was bound to it, as a node's own certificate sees it after this.
async fn found(change: impl FnOnce(&ApiServer)) -> Result<Pod, SendFault> {
    let server = ApiServer::in_memory().unwrap();
    server.restrict_nodes(true);
    put(&server, "u-1", "n");
    change(&server);
    server.fault(Fault::on("get", "pods").status(403));
    let (groups, hour) = (["system:nodes"], Duration::from_secs(3600));
    let identity = server.new_identity("system:node:n", &groups, hour).unwrap();
    let client = kube::Client::new(server.service_of(&identity), "default");
    let uid = PodUid::new("u-1");
    let pod = PodRef { namespace: "default".into(), name: "web".into(), uid };
    get(&client, &pod).await
}

fn put(server: &ApiServer, uid: &str, node: &str) {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "uid": uid},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
    });
    server.apply(object).unwrap();
}

#[tokio::test]
async fn a_pod_that_may_not_be_read_is_found_or_known_to_be_gone() {
    assert_eq!(found(|_| ()).await.unwrap().uid().as_str(), "u-1");
    let replaced = |node: &'static str| {
        move |server: &ApiServer| {
            server.remove("pods/default/web");
            put(server, "u-2", node);
        }
    };
    let gone = [
        found(|server| assert!(server.remove("pods/default/web"))).await,
        found(replaced("n")).await,
        found(replaced("elsewhere")).await,
    ];
    assert!(gone.iter().all(|answer| matches!(answer, Err(SendFault::Gone))), "{gone:?}");
    let patches = || Fault::on("patch", "pods/status");
    let answer = found(|server| _ = server.fault(patches().status(403))).await;
    assert!(matches!(answer, Err(SendFault::Refused(_))), "{answer:?}");
    // Neither is about the pod: credentials that end, and a load balancer without a backend.
    for fault in [patches().status(401), patches().status(404).garble()] {
        let answer = found(|server| _ = server.fault(fault)).await;
        assert!(matches!(answer, Err(SendFault::Later { after: None, .. })), "{answer:?}");
    }
}
