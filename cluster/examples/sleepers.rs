//! A provider in one page: every container is a task that sleeps.
//!
//! `command: [sleep, "5"]` runs for five seconds and exits with 0; `command: [fail, "5"]` exits with 1.
//! Anything else sleeps until it is ended. It shows what another project writes to put its own kind of pod
//! behind the pod controller: [`Sleepers`] is all of it, `main` puts it together.
//!
//! ```text
//! KUBECONFIG=... NODE_NAME=sleepy cargo run --example sleepers
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_cluster::pods::{PodController, PodControllerConfig};
use winddown_cluster::provider::{
    ChangeSender, Changes, Notify, ProvidedPod, Provider, ProviderError, changes,
};
use winddown_cluster::status::{Outbox, OutboxConfig};
use winddown_shared::{Pod, PodUid, WallClock};

/// Runs pods as tasks that sleep.
pub(crate) struct Sleepers {
    pods: Arc<Mutex<HashMap<PodUid, Sleeper>>>,
    changed: ChangeSender,
    changes: Mutex<Option<Changes>>,
}

struct Sleeper {
    provided: ProvidedPod,
    /// Ends the pod at once.
    stop: CancellationToken,
}

impl Default for Sleepers {
    fn default() -> Self {
        let (changed, changes) = changes();
        Self { pods: Arc::default(), changed, changes: Mutex::new(Some(changes)) }
    }
}

impl Provider for Sleepers {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        let (exit_code, end) = plan(pod)?;
        let stop = CancellationToken::new();
        {
            let mut pods = lock(&self.pods);
            // A call may be repeated: what runs is not started twice.
            if pods.contains_key(pod.uid()) {
                return Ok(());
            }
            let provided = ProvidedPod { pod: pod.clone(), status: running(pod), ended: false };
            pods.insert(pod.uid().clone(), Sleeper { provided, stop: stop.clone() });
        }
        let (pods, changed, uid) = (self.pods.clone(), self.changed.clone(), pod.uid().clone());
        tokio::spawn(async move {
            changed.changed(&uid);
            let exit_code = tokio::select! {
                () = sleep_or_forever(end) => exit_code,
                () = stop.cancelled() => 0,
            };
            if let Some(sleeper) = lock(&pods).get_mut(&uid) {
                sleeper.provided.status = exited(&sleeper.provided.pod, exit_code);
                sleeper.provided.ended = true;
            }
            changed.changed(&uid);
        });
        Ok(())
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        let mut pods = lock(&self.pods);
        let sleeper = pods.get_mut(pod.uid()).ok_or(ProviderError::NotFound)?;
        sleeper.provided.pod = pod.clone();
        Ok(())
    }

    async fn delete_pod(&self, pod: &Pod, _grace: Duration) -> Result<(), ProviderError> {
        // A sleeper needs no time to end. Others would send SIGTERM, and SIGKILL after `grace`.
        lock(&self.pods).get(pod.uid()).ok_or(ProviderError::NotFound)?.stop.cancel();
        Ok(())
    }

    async fn get_pod(&self, uid: &PodUid) -> Result<Option<ProvidedPod>, ProviderError> {
        Ok(lock(&self.pods).get(uid).map(|sleeper| sleeper.provided.clone()))
    }

    async fn list_pods(&self) -> Result<Vec<ProvidedPod>, ProviderError> {
        Ok(lock(&self.pods).values().map(|sleeper| sleeper.provided.clone()).collect())
    }

    async fn forget_pod(&self, uid: &PodUid) {
        lock(&self.pods).remove(uid);
    }
}

impl Notify for Sleepers {
    fn notifications(&self) -> Changes {
        let taken = self.changes.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.unwrap_or_else(|| changes().1)
    }
}

type Pods = Mutex<HashMap<PodUid, Sleeper>>;

fn lock(pods: &Pods) -> std::sync::MutexGuard<'_, HashMap<PodUid, Sleeper>> {
    pods.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the pod ends and when: with its first container.
fn plan(pod: &Pod) -> Result<(i32, Option<Instant>), ProviderError> {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let command = container.and_then(|c| c.command.as_deref()).unwrap_or_default();
    let [verb, seconds, ..] = command else { return Ok((0, None)) };
    let seconds = seconds.parse().map_err(|error| ProviderError::Invalid {
        field: "spec.containers[0].command[1]".into(),
        why: format!("write a number of seconds instead of {seconds:?} ({error})"),
    })?;
    Ok((i32::from(verb == "fail"), Some(Instant::now() + Duration::from_secs(seconds))))
}

async fn sleep_or_forever(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

fn running(pod: &Pod) -> Arc<api::PodStatus> {
    let running = Some(api::ContainerStateRunning::default());
    status(pod, "Running", &api::ContainerState { running, ..api::ContainerState::default() })
}

fn exited(pod: &Pod, exit_code: i32) -> Arc<api::PodStatus> {
    let end = api::ContainerStateTerminated { exit_code, ..Default::default() };
    let phase = if exit_code == 0 { "Succeeded" } else { "Failed" };
    status(pod, phase, &api::ContainerState { terminated: Some(end), ..Default::default() })
}

fn status(pod: &Pod, phase: &str, state: &api::ContainerState) -> Arc<api::PodStatus> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let is_up = state.running.is_some();
    let statuses = containers.map(|container| api::ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        ready: is_up,
        started: Some(is_up),
        state: Some(state.clone()),
        ..api::ContainerStatus::default()
    });
    let ready = api::PodCondition {
        type_: "Ready".into(),
        status: if is_up { "True" } else { "False" }.into(),
        ..api::PodCondition::default()
    };
    Arc::new(api::PodStatus {
        phase: Some(phase.into()),
        container_statuses: Some(statuses.collect()),
        conditions: Some(vec![ready]),
        ..api::PodStatus::default()
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = std::env::var("NODE_NAME").map_err(|_| "set NODE_NAME to the name of a Node")?;
    let client = kube::Client::try_default().await?;
    #[expect(clippy::disallowed_methods, reason = "the one place that hands in the wall clock")]
    let clock = WallClock::new(jiff::Timestamp::now);
    let cancel = CancellationToken::new();

    let statuses = OutboxConfig { wall: clock.clone(), ..OutboxConfig::default() };
    let (outbox, driver) = Outbox::new(&statuses);
    let sending = tokio::spawn(driver.run(client.clone(), cancel.clone()));

    let config = PodControllerConfig::new(node, clock);
    let sleepers = Arc::new(Sleepers::default());
    let controller = PodController::new(client, sleepers, Arc::new(outbox), config);
    controller.run(cancel.clone()).await?;
    cancel.cancel();
    sending.await?;
    Ok(())
}
