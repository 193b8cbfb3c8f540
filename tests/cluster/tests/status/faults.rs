//! API servers that do not do it at once.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use winddown_apiserver::{ApiServer, Fault};

use crate::status::world::*;

/// Every way in which a request can fail: in the end the API has the status, and what was local went on.
#[tokio::test]
async fn every_kind_of_failure_is_got_over() {
    let server = ApiServer::start().await.unwrap();
    let on = || Fault::on("patch", "pods/status").times(2);
    let faults = [
        ("429", on().status(429).retry_after(1)),
        ("500", on().status(500)),
        ("503", on().status(503)),
        ("409", on().status(409).reason("Conflict")),
        ("422", on().status(422)),
        ("403", on().status(403)),
        ("reset", on().reset()),
        ("close", on().close()),
        ("lost answer", on().lose_answer()),
        ("garbled", on().garble()),
        ("hang", on().hang()),
        ("hang after it was done", on().hang_after()),
    ];
    for (number, (name, fault)) in faults.into_iter().enumerate() {
        let pod = make(&server, &format!("pod-{number}"), json!({ "phase": "Pending" }));
        let fault = server.fault(fault);
        let agent = Agent::start(&server, None).await;
        agent.outbox.submit(says(&pod, running()));
        agent.told(pod.label()).await;
        server.lift(fault);
        let there = in_api(&server, pod.name());
        assert_eq!(there["status"]["phase"], "Running", "{name}");
        assert_eq!(there["status"]["podIPs"], json!([{ "ip": "10.1.1.2" }]), "{name}");
        assert_eq!(condition(&there, "Ready")["status"], "True", "{name}");
        agent.cut().await;
    }
}

#[tokio::test]
async fn the_time_that_a_busy_server_asks_for_is_waited() {
    let server = ApiServer::start().await.unwrap();
    let pod = make(&server, "web", json!({ "phase": "Pending" }));
    let agent = Agent::start(&server, None).await;
    agent.outbox.api_saw(&pod);
    server.fault(Fault::on("patch", "pods/status").times(1).status(429).retry_after(2));
    let start = Instant::now();
    agent.outbox.submit(says(&pod, running()));
    agent.told(pod.label()).await;
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!(server.count("patch", "pods/status"), 2);
    agent.cut().await;
}

#[tokio::test]
async fn two_hundred_pods_are_told_and_nothing_is_sent_twice() {
    let server = ApiServer::start().await.unwrap();
    let pods: Vec<_> = (0..200)
        .map(|n| make(&server, &format!("pod-{n}"), json!({ "phase": "Pending" })))
        .collect();
    let agent = Agent::start(&server, None).await;
    for pod in &pods {
        agent.outbox.api_saw(pod);
        agent.outbox.submit(says(pod, running()));
    }
    let start = Instant::now();
    assert_eq!(agent.flush(LONG).await, [""; 0]);
    println!("200 statuses acknowledged in {:?}", start.elapsed());
    assert_eq!(server.count("patch", "pods/status"), 200);
    for pod in &pods {
        assert_eq!(in_api(&server, pod.name())["status"]["phase"], "Running");
        agent.outbox.api_saw(&to_pod(&in_api(&server, pod.name())));
    }
    assert_eq!(agent.flush(LONG).await, [""; 0]);
    assert_eq!(server.count("patch", "pods/status"), 200);
    assert_eq!(server.count("get", "pods"), 0);
    agent.cut().await;
}
