//! Containers that another program, for example a kubelet, runs in the same container runtime. They are
//! observed and stopped, and otherwise left alone.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use winddown_engine::pods::DEFAULT_PROGRAM;
use winddown_shared::{FoundPod, PodUid, PodUidMap, RuntimeError, StoppedContainer};

use super::api::{ContainerState, PodSandboxState};
use super::begun_hooks::BegunHooks;
use super::client::{CriClient, RuntimeEndpointError};
use super::config::CriTimes;
use super::first_processes::FirstProcesses;
use super::foreign_pods::may_run;
use super::{api, caused, failed, foreign_hooks, foreign_pods, labels};

/// How long the runtime may take to answer a query: callers have a fallback.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

mod stop;

/// The containers of all pods in a container runtime, whatever created them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PodContainers {
    client: Arc<CriClient>,
    processes: Arc<FirstProcesses>,
    begun_hooks: Arc<BegunHooks>,
    /// Whether a stop has gone without the runtime since that last answered.
    is_silent: Arc<AtomicBool>,
    program: Arc<str>,
}

/// The state of one pod in the container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignPod {
    /// Names of the running containers, without the sandbox, and of those whose state the runtime does not know.
    pub running: Vec<String>,
    /// Whether its sandbox is ready.
    pub has_sandbox: bool,
}

// === impl PodContainers ===

impl PodContainers {
    /// Prepares the connection; the runtime does not have to be up.
    ///
    /// # Errors
    /// The endpoint is not a socket.
    pub fn new(endpoint: &str) -> Result<Self, RuntimeEndpointError> {
        let times = CriTimes { ask: QUERY_TIMEOUT, ..CriTimes::default() };
        let client = Arc::new(CriClient::new(endpoint, times)?);
        let program = DEFAULT_PROGRAM.into();
        let (processes, begun_hooks, is_silent) = Default::default();
        Ok(Self { client, processes, begun_hooks, is_silent, program })
    }

    /// Sends the requests of preStop hooks as this program, `NAME-VERSION`.
    pub fn identified_as(self, program: &str) -> Self {
        Self { program: program.into(), ..self }
    }

    /// Records in `directory`, which is to be empty after a boot, which preStop hooks have begun. The same hook does not
    /// begin again, in this agent or the next. One that only sleeps is not recorded: it may sleep again.
    pub fn record_hooks(self, directory: impl Into<PathBuf>) -> Self {
        Self { begun_hooks: Arc::new(BegunHooks::recorded_in(directory.into())), ..self }
    }

    /// Every pod with a running container or a ready sandbox, from two requests. A container whose first
    /// process has exited does not count as running, whatever the runtime reports. In the background, the runtime is
    /// asked for the first process of each container that was not listed before. Cancel-safe.
    ///
    /// # Errors
    /// The runtime did not answer within two seconds; the answer is unknown, not empty.
    pub async fn look(&self) -> Result<PodUidMap<ForeignPod>, RuntimeError> {
        let begun = self.begun_hooks.all();
        let (sandboxes, containers) = self.list_both().await?;
        self.begun_hooks.forget_gone(&begun, containers.iter().map(|one| &*one.id));
        let mut running: Vec<_> = containers.into_iter().filter(may_run).collect();
        self.processes.follow(&self.client, &running);
        running.retain(|container| !self.processes.has_ended(&container.id));
        let mut found = PodUidMap::<ForeignPod>::default();
        for mut container in running {
            let Some(uid) = container.labels.remove(labels::POD_UID) else { continue };
            let name = container.labels.remove(labels::CONTAINER_NAME).unwrap_or(container.id);
            found.entry(PodUid::new(uid)).or_default().running.push(name);
        }
        let is_ready = |s: &api::PodSandbox| s.state() == PodSandboxState::SandboxReady;
        for mut sandbox in sandboxes.into_iter().filter(is_ready) {
            let Some(uid) = sandbox.labels.remove(labels::POD_UID) else { continue };
            found.entry(PodUid::new(uid)).or_default().has_sandbox = true;
        }
        Ok(found)
    }

    /// Every pod with a running container or a ready sandbox, as its creator recorded it, from two requests.
    /// Cancel-safe.
    ///
    /// # Errors
    /// As for [`look`](Self::look).
    pub async fn describe(&self) -> Result<Vec<FoundPod>, RuntimeError> {
        let (sandboxes, containers) = self.list_both().await?;
        Ok(foreign_pods::described(sandboxes, containers))
    }

    /// The PID of the runtime: of the process that serves its socket. If there is no connection, the runtime is asked for
    /// its version. Cancel-safe.
    ///
    /// # Errors
    /// The runtime did not answer.
    pub async fn process(&self) -> Result<u32, RuntimeError> {
        if let Some(process) = self.client.process() {
            return Ok(process);
        }
        let asked = self.client.version(api::VersionRequest::default()).await;
        asked.map_err(|error| caused("asking which process the container runtime is", error))?;
        self.client.process().ok_or_else(|| failed("the container runtime closed its connection"))
    }

    /// Futures that resolve when the kernel reports the exits of the pod's containers that ran at the last
    /// [`look`](Self::look); none unless it reports all of them.
    pub fn ends(&self, uid: &PodUid) -> Vec<BoxFuture<'static, ()>> {
        self.processes.ends(uid)
    }

    /// Records that another program runs the preStop hooks of the pod's containers, so that [`stop`](Self::stop) does not.
    ///
    /// # Errors
    /// The runtime did not answer.
    pub async fn hooks_begin(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        for container in self.list(Some(uid)).await?.iter().filter(|one| may_run(one)) {
            if foreign_hooks::of(container).is_some_and(|hook| hook.sleep.is_none()) {
                self.begun_hooks.begins_elsewhere(&container.id);
            }
        }
        Ok(())
    }

    /// The pods of which containers run whose preStop hooks another program runs, as an earlier agent has recorded
    /// ([`hooks_begin`](Self::hooks_begin)). The runtime is asked only if there are any records. Cancel-safe.
    ///
    /// # Errors
    /// The runtime did not answer.
    pub async fn with_begun_hooks(&self) -> Result<Vec<PodUid>, RuntimeError> {
        if !self.begun_hooks.has_foreign() {
            return Ok(Vec::new());
        }
        let all = self.list(None).await?;
        let begun = all.iter().filter(|one| may_run(one) && self.begun_hooks.is_foreign(&one.id));
        let pods = begun.filter_map(|one| one.labels.get(labels::POD_UID));
        Ok(pods.map(|uid| PodUid::new(uid.as_str())).collect())
    }

    /// Stops the pod's sandboxes: everything left in them is killed, and their network is released. Cancel-safe.
    ///
    /// # Errors
    /// The runtime did not answer, or could not stop one.
    pub async fn take_down(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        let found = self.client.sandboxes(labels::of_pod_by_anyone(uid.as_str())).await;
        for sandbox in found.map_err(|error| caused("listing sandboxes", error))? {
            let request = api::StopPodSandboxRequest { pod_sandbox_id: sandbox.id };
            let stopped = self.client.stop_pod_sandbox(request).await;
            stopped.map_err(|error| caused("stopping the pod's sandbox", error))?;
        }
        Ok(())
    }

    /// How the pod's exited containers ended; for each name, its newest container. One that is removed meanwhile is left
    /// out. Cancel-safe.
    ///
    /// # Errors
    /// The runtime did not answer.
    pub async fn exits(&self, uid: &PodUid) -> Result<Vec<StoppedContainer>, RuntimeError> {
        let mut newest = HashMap::<String, api::Container>::new();
        for container in self.list(Some(uid)).await? {
            let Some(name) = container.labels.get(labels::CONTAINER_NAME).cloned() else {
                continue;
            };
            let known = newest.entry(name).or_insert_with(|| container.clone());
            if known.created_at < container.created_at {
                *known = container;
            }
        }
        let ended =
            newest.into_iter().filter(|(_, c)| c.state() == ContainerState::ContainerExited);
        let asked = ended.map(async |(name, container)| {
            let request =
                api::ContainerStatusRequest { container_id: container.id, verbose: false };
            match self.client.container_status(request).await {
                Ok(answer) => {
                    let status = answer.status.unwrap_or_default();
                    Some(Ok(StoppedContainer::from_exit_code(
                        name,
                        status.exit_code,
                        &status.reason,
                    )))
                }
                Err(error) if error.is_not_found() => None,
                Err(error) => Some(Err(caused("asking how a container exited", error))),
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn list_both(&self) -> Result<(Vec<api::PodSandbox>, Vec<api::Container>), RuntimeError> {
        let sandboxes = self.client.list_pod_sandbox(api::ListPodSandboxRequest { filter: None });
        let (sandboxes, containers) = tokio::join!(sandboxes, self.list(None));
        let sandboxes = sandboxes.map_err(|error| caused("listing sandboxes", error))?.items;
        Ok((sandboxes, containers?))
    }

    /// All containers, or those of one pod.
    async fn list(&self, of: Option<&PodUid>) -> Result<Vec<api::Container>, RuntimeError> {
        let of = of.map(|uid| labels::of_pod_by_anyone(uid.as_str()));
        let listed = self.client.containers(of.unwrap_or_default()).await;
        let containers = listed.map_err(|error| caused("listing containers", error))?;
        self.is_silent.store(false, Ordering::Relaxed);
        Ok(containers)
    }
}
