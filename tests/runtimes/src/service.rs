//! The fake's implementation of the runtime service.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tonic::{Request, Response, Status};

use super::world::{Container, World};
use super::{Fault, stats};
use crate::api::runtime_service_server::RuntimeService;
use crate::api::{self, *};

pub(super) type Answer<T> = Result<Response<T>, Status>;

/// A handle to the state, for one server.
#[derive(Clone)]
pub(super) struct Service(Arc<Mutex<World>>);

impl Service {
    pub(super) fn new(world: Arc<Mutex<World>>) -> Self {
        Self(world)
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a call, with the scripted fault.
    pub(super) async fn answer<T>(
        &self,
        call: &str,
        about: &str,
        deed: impl Future<Output = Result<T, Status>>,
    ) -> Answer<T> {
        let fault = self.world().begin(call, about);
        match &fault {
            Some(Fault::Error(text)) => return Err(Status::unknown(*text)),
            Some(Fault::Unimplemented) => return Err(Status::unimplemented(format!("no {call}"))),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Slow(by)) => tokio::time::sleep(*by).await,
            Some(Fault::Lost | Fault::Misreported(_) | Fault::Undone) | None => {}
        }
        let done = deed.await;
        match fault {
            Some(Fault::Lost) => std::future::pending().await,
            Some(Fault::Misreported(text)) => Err(Status::unknown(text)),
            _ => done.map(Response::new),
        }
    }

    fn name_of(&self, id: &str) -> String {
        let world = self.world();
        let metadata = world.containers.get(id).and_then(|c| c.config.metadata.as_ref());
        metadata.map_or_else(|| id.to_owned(), |m| m.name.clone())
    }

    /// Stops a container as containerd does: sends the stop signal once, waits, then kills. Cancelled with its caller.
    async fn stop(&self, id: &str, timeout: i64) -> Result<StopContainerResponse, Status> {
        let signals = {
            let mut world = self.world();
            let container = world.containers.get_mut(id).ok_or_else(missing)?;
            if !container.may_run() {
                return Ok(StopContainerResponse {});
            }
            let first = timeout > 0 && !std::mem::replace(&mut container.asked, true);
            if first {
                container.signals.term.notify_one();
            }
            Arc::clone(&container.signals)
        };
        let grace = Duration::from_secs(u64::try_from(timeout).unwrap_or(0));
        if tokio::time::timeout(grace, self.ended(id)).await.is_err() {
            signals.kill.notify_one();
            self.ended(id).await;
        }
        Ok(StopContainerResponse {})
    }

    async fn ended(&self, id: &str) {
        while self.world().containers.get(id).is_some_and(Container::may_run) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn exec(&self, request: &ExecSyncRequest) -> Result<ExecSyncResponse, Status> {
        let mut noted = Command { service: self, has_ended: false };
        let script = request.cmd.last().map(String::as_str).unwrap_or_default();
        let exit_code = match script.split_once(' ') {
            Some(("exit", code)) => code.parse().unwrap_or(1),
            Some(("sleep", seconds)) => {
                let length = Duration::from_secs_f64(seconds.parse().unwrap_or(0.0));
                let limit = u64::try_from(request.timeout).ok().filter(|s| *s > 0);
                let limit = Duration::from_secs(limit.unwrap_or(1 << 20));
                if tokio::time::timeout(limit, tokio::time::sleep(length)).await.is_err() {
                    noted.has_ended = true;
                    return Err(Status::deadline_exceeded("the command took too long"));
                }
                0
            }
            Some(("complain" | "lament", _)) => 1,
            _ => 0,
        };
        noted.has_ended = true;
        let (verb, said) = script.split_once(' ').unwrap_or_default();
        let stdout = if matches!(verb, "complain" | "lament") { said } else { "" };
        let stderr = if verb == "lament" { ", alas" } else { "" };
        Ok(ExecSyncResponse { exit_code, stdout: stdout.into(), stderr: stderr.into() })
    }
}

/// A command in a container, which exists for as long as its caller waits for it.
struct Command<'a> {
    service: &'a Service,
    has_ended: bool,
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        let mut world = self.service.world();
        match self.has_ended {
            true => world.commands_ended += 1,
            false => world.commands_given_up += 1,
        }
    }
}

#[tonic::async_trait]
impl RuntimeService for Service {
    type GetContainerEventsStream =
        Pin<Box<dyn Stream<Item = Result<ContainerEventResponse, Status>> + Send>>;

    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        let deed = async {
            Ok(VersionResponse {
                version: "0.1.0".to_owned(),
                runtime_name: "fake".to_owned(),
                runtime_version: "1.0".to_owned(),
                runtime_api_version: "v1".to_owned(),
            })
        };
        self.answer("Version", "", deed).await
    }

    async fn status(&self, request: Request<StatusRequest>) -> Answer<StatusResponse> {
        let condition = |name: &str, status| RuntimeCondition {
            r#type: name.to_owned(),
            status,
            ..RuntimeCondition::default()
        };
        let network = self.world().network_ready;
        let conditions = vec![condition("RuntimeReady", true), condition("NetworkReady", network)];
        let is_verbose = request.into_inner().verbose;
        let deed = async {
            let config = Some(self.world().config.clone()).filter(|_| is_verbose);
            let config = config.filter(|config| !config.is_empty());
            Ok(StatusResponse {
                status: Some(RuntimeStatus { conditions }),
                info: config.map(|config| ("config".to_owned(), config)).into_iter().collect(),
            })
        };
        self.answer("Status", if is_verbose { "verbose" } else { "" }, deed).await
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        let cgroup_driver = api::CgroupDriver::Cgroupfs.into();
        let linux = Some(LinuxRuntimeConfiguration { cgroup_driver });
        self.answer("RuntimeConfig", "", async { Ok(RuntimeConfigResponse { linux }) }).await
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Answer<RunPodSandboxResponse> {
        let RunPodSandboxRequest { config, runtime_handler } = request.into_inner();
        let config = config.unwrap_or_default();
        let metadata = config.metadata.clone().unwrap_or_default();
        let about = format!("{} {}", metadata.name, metadata.attempt);
        let deed = async {
            let made = self.world().add_sandbox(config, runtime_handler);
            made.map(|pod_sandbox_id| RunPodSandboxResponse { pod_sandbox_id })
                .map_err(Status::unknown)
        };
        self.answer("RunPodSandbox", &about, deed).await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let deed = async {
            let inside: Vec<String> = {
                let mut world = self.world();
                world.sandboxes.get_mut(&id).ok_or_else(missing)?.ready = false;
                let inside = world.containers.iter().filter(|(_, c)| c.sandbox == id);
                inside.map(|(id, _)| id.clone()).collect()
            };
            for container in inside {
                self.stop(&container, 0).await?;
            }
            Ok(StopPodSandboxResponse {})
        };
        self.answer("StopPodSandbox", "", deed).await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let deed = async {
            let mut world = self.world();
            world.containers.retain(|_, c| c.sandbox != id);
            world.sandboxes.remove(&id);
            Ok(RemovePodSandboxResponse {})
        };
        self.answer("RemovePodSandbox", "", deed).await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let deed = async {
            let status = self.world().sandbox_status(&id).ok_or_else(missing)?;
            Ok(PodSandboxStatusResponse { status: Some(status), info: HashMap::default() })
        };
        self.answer("PodSandboxStatus", "", deed).await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let wanted = request.into_inner().filter.unwrap_or_default().label_selector;
        let deed = async {
            let world = self.world();
            let all = world.sandboxes.iter().filter(|(_, s)| matches(&s.config.labels, &wanted));
            let items = all.map(|(id, sandbox)| PodSandbox {
                id: id.clone(),
                metadata: sandbox.config.metadata.clone(),
                state: sandbox.state().into(),
                created_at: sandbox.created_at,
                labels: sandbox.config.labels.clone(),
                annotations: sandbox.config.annotations.clone(),
                runtime_handler: sandbox.handler.clone(),
            });
            Ok(ListPodSandboxResponse { items: items.collect() })
        };
        self.answer("ListPodSandbox", "", deed).await
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let request = request.into_inner();
        let config = request.config.unwrap_or_default();
        let metadata = config.metadata.clone().unwrap_or_default();
        let about = format!("{} {}", metadata.name, metadata.attempt);
        let deed = async {
            let made = self.world().add_container(&request.pod_sandbox_id, config);
            made.map(|container_id| CreateContainerResponse { container_id })
                .map_err(Status::unknown)
        };
        self.answer("CreateContainer", &about, deed).await
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let id = request.into_inner().container_id;
        if self.world().takes("StartContainer", &Fault::Undone) {
            self.world().undo(&id);
        }
        let deed = async {
            World::start(&self.0, &id).map_err(Status::unknown)?;
            Ok(StartContainerResponse {})
        };
        self.answer("StartContainer", &self.name_of(&id), deed).await
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let request = request.into_inner();
        let about = format!("{} {}", self.name_of(&request.container_id), request.timeout);
        let deed = self.stop(&request.container_id, request.timeout);
        self.answer("StopContainer", &about, deed).await
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        let deed = async {
            self.world().containers.remove(&id);
            Ok(RemoveContainerResponse {})
        };
        self.answer("RemoveContainer", &self.name_of(&id), deed).await
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let wanted = request.into_inner().filter.unwrap_or_default().label_selector;
        let deed = async {
            let world = self.world();
            let all = world.containers.iter().filter(|(_, c)| matches(&c.config.labels, &wanted));
            let containers = all.map(|(id, container)| api::Container {
                id: id.clone(),
                pod_sandbox_id: container.sandbox.clone(),
                metadata: container.config.metadata.clone(),
                image: container.config.image.clone(),
                state: container.status.state,
                created_at: container.status.created_at,
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
                ..api::Container::default()
            });
            Ok(ListContainersResponse { containers: containers.collect() })
        };
        self.answer("ListContainers", "", deed).await
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let deed = async {
            let world = self.world();
            let status = world.containers.get(&id).ok_or_else(missing)?.status.clone();
            Ok(ContainerStatusResponse { status: Some(status), info: HashMap::default() })
        };
        self.answer("ContainerStatus", &self.name_of(&id), deed).await
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        let wanted = request.into_inner().filter.unwrap_or_default().label_selector;
        let deed = async {
            let world = self.world();
            let of_ours = |(_, c): &(&String, &Container)| matches(&c.config.labels, &wanted);
            let running = world.containers.iter().filter(|(_, c)| c.is_running());
            let stats = running.filter(of_ours).map(|(id, _)| stats::of(id)).collect();
            Ok(ListContainerStatsResponse { stats })
        };
        self.answer("ListContainerStats", "", deed).await
    }

    async fn reopen_container_log(
        &self,
        _: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        self.answer("ReopenContainerLog", "", async { Ok(ReopenContainerLogResponse {}) }).await
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let request = request.into_inner();
        let name = self.name_of(&request.container_id);
        let about = format!("{name} {}", request.cmd.join(" "));
        self.answer("ExecSync", &about, self.exec(&request)).await
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        let request = request.into_inner();
        let about = format!("{} {}", self.name_of(&request.container_id), request.cmd.join(" "));
        let url = self.world().stream_url.clone();
        self.answer("Exec", &about, async { Ok(ExecResponse { url }) }).await
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<AttachResponse> {
        let about = self.name_of(&request.into_inner().container_id);
        let url = self.world().stream_url.clone();
        self.answer("Attach", &about, async { Ok(AttachResponse { url }) }).await
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Answer<PortForwardResponse> {
        let about = format!("{:?}", request.into_inner().port);
        let url = self.world().stream_url.clone();
        self.answer("PortForward", &about, async { Ok(PortForwardResponse { url }) }).await
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        let events = self.world().events.subscribe();
        let deed = async {
            let told = stream::unfold(events, |mut events| async move {
                events.recv().await.ok().map(|event| (Ok(event), events))
            });
            Ok(told.boxed())
        };
        self.answer("GetContainerEvents", "", deed).await
    }
}

fn matches(labels: &HashMap<String, String>, wanted: &HashMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn missing() -> Status {
    Status::not_found("there is no such container or sandbox")
}
