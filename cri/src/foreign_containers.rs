//! Containers that another program, for example a kubelet, runs at the same container runtime:
//! looked at and stopped, and otherwise left alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use winddown_shared::{PodUid, RuntimeError};

use super::api::ContainerState;
use super::client::{Client, EndpointError};
use super::config::CriTimes;
use super::{api, caused, failed, labels};

/// How long the runtime may take to answer a question: who asks has a fallback.
const ANSWER: Duration = Duration::from_secs(2);

/// The containers of pods at a container runtime, from any creator. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PodContainers {
    client: Arc<Client>,
}

// === impl PodContainers ===

impl PodContainers {
    /// Prepares the connection; the runtime need not be there.
    ///
    /// # Errors
    /// The endpoint is no socket.
    pub fn new(endpoint: &str) -> Result<Self, EndpointError> {
        let times = CriTimes { ask: ANSWER, ..CriTimes::default() };
        Ok(Self { client: Arc::new(Client::new(endpoint, times)?) })
    }

    /// Names of the pod's containers that run. Cancel-safe.
    ///
    /// # Errors
    /// The runtime did not answer within two seconds; the answer is unknown, not empty.
    pub async fn running(&self, uid: &PodUid) -> Result<Vec<String>, RuntimeError> {
        let name = |mut container: api::Container| {
            let name = container.labels.remove(labels::CONTAINER_NAME);
            name.unwrap_or(container.id)
        };
        Ok(self.list(uid).await?.into_iter().map(name).collect())
    }

    /// Asks the pod's containers to end, all at once, and has them killed after `grace` (whole seconds).
    /// Resolves when none of them runs. Dropping the future abandons the wait; the stop goes on.
    ///
    /// # Errors
    /// The runtime did not answer, or could not stop one; the others are stopped.
    pub async fn stop(&self, uid: &PodUid, grace: Duration) -> Result<(), RuntimeError> {
        let stops = self.list(uid).await?.into_iter().map(|container| {
            let client = Arc::clone(&self.client);
            // A call that is dropped may make the runtime forget the kill that was to follow.
            tokio::spawn(async move { client.stop_container(&container.id, grace).await })
        });
        for stopped in join_all(stops).await {
            match stopped {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(caused("stopping the pod's containers", error)),
                Err(_) => return Err(failed("stopping the pod's containers was cut short")),
            }
        }
        Ok(())
    }

    async fn list(&self, uid: &PodUid) -> Result<Vec<api::Container>, RuntimeError> {
        // Every pod of the node is asked about, each on its own.
        let filter = api::ContainerFilter {
            label_selector: HashMap::from([(labels::POD_UID.to_owned(), uid.as_str().to_owned())]),
            id: String::new(),
        };
        let request = api::ListContainersRequest { filter: Some(filter) };
        let answer = self.client.list_containers(request).await;
        let answer = answer.map_err(|error| caused("listing the pod's containers", error))?;
        let is_running = |c: &api::Container| c.state() == ContainerState::ContainerRunning;
        Ok(answer.containers.into_iter().filter(is_running).collect())
    }
}
