//! A stand-in for CRI-O, for nodes with systemd: a service that other programs stop, suspend and kill.
//!
//! Where CRI-O does otherwise than containerd, it does as CRI-O:
//! * Its verbose status has its handlers, and its sandboxes name theirs; what it says of a container has no runtime type.
//! * A container has a process from its creation, which waits for its start and ignores SIGTERM until then.
//! * Containers and what watches them are in scopes of their own, so they go on without it.
//! * A stop goes on without its caller, and each later call may only shorten it. What it has not heard of counts as
//!   stopped and as removed.
//! * It remembers nothing that is not on disk, in a directory that a boot empties.
//! * It has no events.
//!
//! Containers are programs of the node without namespaces or mounts of their own: enough for one that records its
//! signals. Every image is there.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::api::image_service_server::ImageServiceServer;
use crate::api::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use crate::api::*;

mod disk;
mod images;

use disk::{Disk, Found};

type Answer<T> = Result<Response<T>, Status>;

/// CRI-O's configuration, as its verbose status has it.
const CONFIG: &str = r#"{"sandboxImage": "registry.k8s.io/pause:3.10", "crio": {"DefaultRuntime": "runc",
    "Runtimes": {"runc": {"RuntimePath": "/usr/sbin/runc", "RuntimeType": "oci"}}}}"#;
/// How long a container may take to end when it or its sandbox is removed.
const REMOVAL: Duration = Duration::from_secs(10);
/// How often it looks whether a process is there, as CRI-O does.
const LOOK: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_millis(5);

/// Where this file exists, containers start one after the other, and each start takes 0.3 s, as on a busy machine.
pub const SLOW_STARTS: &str = "/run/crio-slow-starts";
const START: Duration = Duration::from_millis(300);

/// Cheap to clone.
#[derive(Clone)]
struct Crio {
    disk: Arc<Disk>,
    /// Held by the start in progress, where they take their time.
    starts: Arc<tokio::sync::Mutex<()>>,
    /// When each stop kills.
    stops: Arc<Mutex<HashMap<String, watch::Sender<Instant>>>>,
}

/// Serves CRI at `socket` until it is killed. All that it knows is in `dir`.
///
/// # Errors
/// The socket cannot be made.
pub async fn serve(dir: &Path, socket: &Path) -> io::Result<()> {
    // Of one that was killed.
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    let incoming = stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let crio =
        Crio { disk: Arc::new(Disk::open(dir)?), starts: Arc::default(), stops: Arc::default() };
    let server = Server::builder()
        .add_service(RuntimeServiceServer::new(crio.clone()))
        .add_service(ImageServiceServer::new(crio));
    server.serve_with_incoming(incoming).await.map_err(io::Error::other)
}

impl Crio {
    /// Stops a container: the stop signal once, SIGKILL at the earliest time that was asked for.
    async fn stop(&self, id: &str, grace: Duration) {
        let kill_at = Instant::now() + grace;
        let begun = {
            let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
            match stops.get(id) {
                Some(stop) => {
                    stop.send_if_modified(|known| {
                        let is_earlier = kill_at < *known;
                        *known = kill_at.min(*known);
                        is_earlier
                    });
                    None
                }
                None => {
                    let (stop, changes) = watch::channel(kill_at);
                    stops.insert(id.to_owned(), stop);
                    Some(changes)
                }
            }
        };
        if let Some(kill_at) = begun {
            let (crio, id) = (self.clone(), id.to_owned());
            tokio::spawn(async move { crio.stop_loop(&id, kill_at).await });
        }
        while self.disk.process(id).is_some() {
            sleep(LOOK).await;
        }
    }

    /// Goes on without its caller.
    async fn stop_loop(&self, id: &str, mut kill_at: watch::Receiver<Instant>) {
        let signal = |signal| {
            if let Some(pid) = self.disk.process(id).and_then(Pid::from_raw) {
                let _ = kill_process(pid, signal);
            }
        };
        signal(Signal::TERM);
        while self.disk.process(id).is_some() {
            let at = *kill_at.borrow_and_update();
            if Instant::now() >= at {
                signal(Signal::KILL);
                sleep(LOOK).await;
            } else {
                let _ = timeout_at(at.min(Instant::now() + LOOK), kill_at.changed()).await;
            }
        }
        self.stops.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Waits until the container's end is on disk.
    async fn ended(&self, id: &str) {
        while self.disk.container(id).is_some_and(|found| found.exit.is_none()) {
            sleep(SOON).await;
        }
    }

    async fn remove(&self, id: &str) {
        self.stop(id, REMOVAL).await;
        self.disk.remove_container(id);
    }

    fn inside(&self, sandbox: &str) -> Vec<String> {
        let all = self.disk.containers().into_iter();
        all.filter(|found| found.request.pod_sandbox_id == sandbox).map(|found| found.id).collect()
    }
}

fn failed(error: &io::Error) -> Status {
    Status::unknown(error.to_string())
}

fn no_such(id: &str) -> Status {
    Status::not_found(format!("could not find container {id:?}"))
}

fn is_wanted(labels: &HashMap<String, String>, wanted: &HashMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn answer<T>(message: T) -> Answer<T> {
    Ok(Response::new(message))
}

#[tonic::async_trait]
impl RuntimeService for Crio {
    type GetContainerEventsStream =
        Pin<Box<dyn Stream<Item = Result<ContainerEventResponse, Status>> + Send>>;

    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        answer(VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "cri-o".to_owned(),
            runtime_version: "1.37.0".to_owned(),
            runtime_api_version: "v1".to_owned(),
        })
    }

    async fn status(&self, request: Request<StatusRequest>) -> Answer<StatusResponse> {
        let condition = |name: &str| RuntimeCondition {
            r#type: name.to_owned(),
            status: true,
            ..RuntimeCondition::default()
        };
        let conditions = ["RuntimeReady", "NetworkReady"].map(condition).into();
        let config = request.into_inner().verbose.then(|| ("config".to_owned(), CONFIG.to_owned()));
        let status = Some(RuntimeStatus { conditions });
        answer(StatusResponse { status, info: config.into_iter().collect() })
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        let cgroup_driver = CgroupDriver::Systemd.into();
        answer(RuntimeConfigResponse { linux: Some(LinuxRuntimeConfiguration { cgroup_driver }) })
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Answer<RunPodSandboxResponse> {
        let pod_sandbox_id =
            self.disk.add_sandbox(&request.into_inner()).map_err(|error| failed(&error))?;
        answer(RunPodSandboxResponse { pod_sandbox_id })
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        for container in self.inside(&id) {
            self.stop(&container, REMOVAL).await;
        }
        self.disk.stop_sandbox(&id).map_err(|error| failed(&error))?;
        answer(StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        for container in self.inside(&id) {
            self.remove(&container).await;
        }
        self.disk.remove_sandbox(&id);
        answer(RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let mut all = self.disk.sandboxes().into_iter();
        let found = all.find(|sandbox| sandbox.id == id).ok_or_else(|| no_such(&id))?;
        let status = PodSandboxStatus {
            id,
            metadata: found.metadata,
            state: found.state,
            created_at: found.created_at,
            network: None,
            linux: None,
            labels: found.labels,
            annotations: found.annotations,
            runtime_handler: found.runtime_handler,
        };
        answer(PodSandboxStatusResponse { status: Some(status), info: HashMap::default() })
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let wanted = request.into_inner().filter.unwrap_or_default().label_selector;
        let mut items = self.disk.sandboxes();
        items.retain(|sandbox| is_wanted(&sandbox.labels, &wanted));
        answer(ListPodSandboxResponse { items })
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let container_id =
            self.disk.add_container(&request.into_inner()).map_err(|error| failed(&error))?;
        while self.disk.process(&container_id).is_none() {
            sleep(SOON).await;
        }
        answer(CreateContainerResponse { container_id })
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let id = request.into_inner().container_id;
        let found = self.disk.container(&id).ok_or_else(|| no_such(&id))?;
        if found.state() != ContainerState::ContainerCreated {
            return Err(Status::unknown(format!("container {id} is not in created state")));
        }
        if Path::new(SLOW_STARTS).exists() {
            let _turn = self.starts.lock().await;
            sleep(START).await;
        }
        self.disk.start(&id).map_err(|error| failed(&error))?;
        answer(StartContainerResponse {})
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let StopContainerRequest { container_id, timeout } = request.into_inner();
        let grace = Duration::from_secs(u64::try_from(timeout).unwrap_or(0));
        self.stop(&container_id, grace).await;
        self.ended(&container_id).await;
        answer(StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        self.remove(&request.into_inner().container_id).await;
        answer(RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let wanted = request.into_inner().filter.unwrap_or_default().label_selector;
        let mut containers: Vec<_> =
            self.disk.containers().into_iter().map(Found::listed).collect();
        containers.retain(|container| is_wanted(&container.labels, &wanted));
        answer(ListContainersResponse { containers })
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let ContainerStatusRequest { container_id, verbose } = request.into_inner();
        let found = self.disk.container(&container_id).ok_or_else(|| no_such(&container_id))?;
        let (sandbox, pid) = (&found.request.pod_sandbox_id, found.pid.unwrap_or(0));
        let info = format!(
            r#"{{"sandboxID": "{sandbox}", "pid": {pid}, "runtimeSpec": {{}}, "privileged": false}}"#
        );
        let info = verbose.then(|| ("info".to_owned(), info));
        let status = Some(found.status());
        answer(ContainerStatusResponse { status, info: info.into_iter().collect() })
    }

    async fn list_container_stats(
        &self,
        _: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        answer(ListContainerStatsResponse::default())
    }

    async fn reopen_container_log(
        &self,
        _: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        answer(ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, _: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        Err(Status::unimplemented("ExecSync"))
    }

    async fn exec(&self, _: Request<ExecRequest>) -> Answer<ExecResponse> {
        Err(Status::unimplemented("Exec"))
    }

    async fn attach(&self, _: Request<AttachRequest>) -> Answer<AttachResponse> {
        Err(Status::unimplemented("Attach"))
    }

    async fn port_forward(&self, _: Request<PortForwardRequest>) -> Answer<PortForwardResponse> {
        Err(Status::unimplemented("PortForward"))
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        answer(stream::empty().boxed())
    }
}
