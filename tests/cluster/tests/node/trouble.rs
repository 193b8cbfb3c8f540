//! A shutdown with an API server that is not there.

use std::time::Duration;

use tokio::time::Instant;
use winddown_apiserver::ApiServer;
use winddown_cluster::node::NotDelivered;

use crate::node::harness::*;

#[tokio::test]
async fn a_shutdown_that_begins_without_the_server_is_told_when_it_is_back() {
    let server = ApiServer::start().await.unwrap();
    let agent = Agent::ready(&server).await;
    server.cut_off().await.unwrap();
    agent.handle.set_shutting_down(true);
    let told = agent.handle.flush(Instant::now() + Duration::from_millis(300)).await;
    assert_eq!(told, Err(NotDelivered));
    server.come_back().await.unwrap();
    agent.told().await;
    let has = node(&server);
    assert_eq!(condition(&has, "Ready")["message"], "node is shutting down");
    assert_eq!(has["spec"]["unschedulable"], true);
    agent.stop().await;
}
