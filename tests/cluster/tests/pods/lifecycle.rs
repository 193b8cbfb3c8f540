//! Pods come, run, change and go, and the agent starts again beside them.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::pods::harness::{Cluster, path, pod};

#[tokio::test]
async fn t1_with_a_runtime_that_tells_and_with_one_that_is_asked() {
    for polling in [false, true] {
        let cluster = Cluster::new().await;
        let running = if polling { cluster.start_polling().await } else { cluster.start().await };
        let running = running.ready().await;
        let mut other = pod("other");
        other["spec"]["nodeName"] = json!("node-2");
        cluster.server.apply(other).unwrap();
        cluster.server.apply(pod("a")).unwrap();
        cluster.until_phase("a", "Running").await;
        let began = Instant::now();
        cluster.server.delete(&path("a"), Some(600)).unwrap();
        cluster.until_gone("a").await;
        assert!(began.elapsed() < Duration::from_secs(60), "not after its grace");
        cluster.until_given(0).await;
        // Its last word was taken before its object went.
        let requests = cluster.server.requests();
        let of = |verb: &str| requests.iter().rposition(|r| r.right.verb == verb).unwrap();
        assert!(of("patch") < of("delete"), "{polling}");
        let other = cluster.server.get(&path("other")).unwrap();
        assert_eq!(other["status"]["phase"], "Pending", "it is another node's");
        running.stop().await;
    }
}
