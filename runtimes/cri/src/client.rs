//! Calls to the runtime: one connection, a deadline for each call, and errors that say what to do.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
use winddown_shared::seconds_up;

use super::api;
use super::api::image_service_client::ImageServiceClient;
use super::api::runtime_service_client::RuntimeServiceClient;
use super::config::CriTimes;

mod connection;
mod error;

pub(crate) use error::CallError;
pub use error::RuntimeEndpointError;

/// Maximum size of an answer, in bytes; a listing of many containers is long.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Number of queries about single containers or pods that are made at the same time.
pub(crate) const MAX_CONCURRENT_QUERIES: usize = 8;

/// A connection to the runtime. It is opened on first use, and again after it broke.
#[derive(Debug)]
pub(crate) struct CriClient {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    /// The endpoint as a `unix://` URI.
    endpoint: String,
    times: CriTimes,
    /// Notified when a connection has closed.
    lost: Arc<Notify>,
    peer: connection::RuntimePeer,
}

impl CriClient {
    /// Prepares the connection; nothing is sent yet.
    ///
    /// # Errors
    /// The endpoint is not a Unix socket.
    pub(crate) fn new(endpoint: &str, times: CriTimes) -> Result<Self, RuntimeEndpointError> {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if !path.starts_with('/') {
            return Err(RuntimeEndpointError { endpoint: endpoint.to_owned() });
        }
        let uri = format!("unix://{path}");
        let (lost, peer) = (Arc::new(Notify::new()), connection::RuntimePeer::default());
        let connector =
            connection::Connector::new(Path::new(path), Arc::clone(&lost), peer.clone());
        // A socket has no address, but gRPC requires one.
        let channel = Endpoint::from_static("http://localhost")
            .connect_timeout(times.ask)
            .connect_with_connector_lazy(connector);
        Ok(Self {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE),
            images: ImageServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE),
            endpoint: uri,
            times,
            lost,
            peer,
        })
    }

    /// The runtime's socket.
    pub(crate) fn socket(&self) -> &Path {
        Path::new(self.endpoint.strip_prefix("unix://").unwrap_or(&self.endpoint))
    }

    /// The PID of the process that serves the socket; `None` while there is no connection.
    pub(crate) fn process(&self) -> Option<u32> {
        self.peer.process()
    }

    /// Resolves when a connection was lost since the last call of [`forget_losses`](Self::forget_losses).
    /// Supports one caller at a time. Cancel-safe.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Discards the losses reported so far.
    pub(crate) fn forget_losses(&self) {
        let _ = self.lost.notified().now_or_never();
    }

    /// Makes one call. Dropping the future cancels it.
    ///
    /// The future is boxed: tonic needs four kilobytes for a call, and each `async fn` on the way to it would reserve
    /// them once or twice more; the future that creates a container had grown to 128 kB.
    fn call<'a, T: 'a>(
        &'a self,
        name: &'static str,
        after: Duration,
        call: impl Future<Output = Result<Response<T>, Status>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, CallError>> {
        answer(name, after, &self.endpoint, call).boxed()
    }
}

fn answer<T>(
    name: &'static str,
    after: Duration,
    endpoint: &str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> impl Future<Output = Result<T, CallError>> {
    tokio::time::timeout(after, call).map(move |outcome| match outcome {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(CallError::of(name, status, endpoint)),
        Err(_) => Err(CallError::Timeout { call: name, after }),
    })
}

/// Defines a method for each call whose request is passed on unchanged.
macro_rules! calls {
    ($($service:ident $method:ident ($request:ident) -> $answer:ident, $name:literal, $time:ident;)*) => {
        impl CriClient {
            $(
                #[doc = concat!("`", $name, "`.\n\n# Errors\nAs [`CallError`].")]
                pub(crate) fn $method(
                    &self,
                    request: api::$request,
                ) -> BoxFuture<'_, Result<api::$answer, CallError>> {
                    // A clone shares the connection.
                    let mut service = self.$service.clone();
                    let call = async move { service.$method(request).await };
                    self.call($name, self.times.$time, call)
                }
            )*
        }
    };
}

calls! {
    runtime version(VersionRequest) -> VersionResponse, "Version", ask;
    runtime status(StatusRequest) -> StatusResponse, "Status", ask;
    runtime runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse, "RuntimeConfig", ask;
    runtime run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse, "RunPodSandbox", sandbox;
    runtime stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse, "StopPodSandbox", change;
    runtime remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse, "RemovePodSandbox", change;
    runtime pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse, "PodSandboxStatus", ask;
    runtime list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse, "ListPodSandbox", ask;
    runtime create_container(CreateContainerRequest) -> CreateContainerResponse, "CreateContainer", change;
    runtime start_container(StartContainerRequest) -> StartContainerResponse, "StartContainer", change;
    runtime remove_container(RemoveContainerRequest) -> RemoveContainerResponse, "RemoveContainer", change;
    runtime list_containers(ListContainersRequest) -> ListContainersResponse, "ListContainers", ask;
    runtime container_status(ContainerStatusRequest) -> ContainerStatusResponse, "ContainerStatus", ask;
    runtime list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse, "ListContainerStats", ask;
    runtime reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse, "ReopenContainerLog", ask;
    runtime exec(ExecRequest) -> ExecResponse, "Exec", ask;
    runtime attach(AttachRequest) -> AttachResponse, "Attach", ask;
    runtime port_forward(PortForwardRequest) -> PortForwardResponse, "PortForward", ask;
    images list_images(ListImagesRequest) -> ListImagesResponse, "ListImages", ask;
    images image_status(ImageStatusRequest) -> ImageStatusResponse, "ImageStatus", ask;
    images remove_image(RemoveImageRequest) -> RemoveImageResponse, "RemoveImage", change;
    images image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse, "ImageFsInfo", ask;
}

impl CriClient {
    /// `ListPodSandbox`: the sandboxes with all of these labels.
    pub(crate) async fn sandboxes(
        &self,
        label_selector: HashMap<String, String>,
    ) -> Result<Vec<api::PodSandbox>, CallError> {
        let filter = Some(api::PodSandboxFilter { label_selector, id: String::new() });
        Ok(self.list_pod_sandbox(api::ListPodSandboxRequest { filter }).await?.items)
    }

    /// `ListContainers`: the containers with all of these labels.
    pub(crate) async fn containers(
        &self,
        label_selector: HashMap<String, String>,
    ) -> Result<Vec<api::Container>, CallError> {
        let filter = Some(api::ContainerFilter { label_selector, id: String::new() });
        Ok(self.list_containers(api::ListContainersRequest { filter }).await?.containers)
    }

    /// `StopContainer`: sends the stop signal, and SIGKILL after `timeout`, which is rounded up because the runtime takes
    /// whole seconds. For a kill on time, call again then, with zero. Resolves when the container is gone.
    ///
    /// # Errors
    /// As [`CallError`]; a timeout if there is no answer within `timeout` plus the time that a kill may take.
    pub(crate) async fn stop_container(
        &self,
        id: &str,
        timeout: Duration,
    ) -> Result<(), CallError> {
        let whole = seconds_up(timeout);
        let seconds = i64::try_from(whole).unwrap_or(i64::MAX);
        let request = api::StopContainerRequest { container_id: id.to_owned(), timeout: seconds };
        let mut service = self.runtime.clone();
        let call = service.stop_container(request);
        let after = Duration::from_secs(whole).saturating_add(self.times.kill);
        self.call("StopContainer", after, call).await.map(drop)
    }

    /// `PullImage`. Has no deadline, as the kubelet's has none: a large image takes as long as it takes, and a pull that
    /// is given up begins again. It ends with the connection.
    pub(crate) async fn pull_image(&self, request: api::PullImageRequest) -> Result<(), CallError> {
        let mut service = self.images.clone();
        let call = service.pull_image(request);
        self.call("PullImage", Duration::MAX, call).await.map(drop)
    }

    /// `ExecSync`: runs a command in a container; SIGKILL after `timeout` (whole seconds, 0 for never).
    ///
    /// Dropping the future abandons the wait, not the call: the runtime ends the command when its time is
    /// over, or with its container. If a call is cancelled at the moment its command is started, containerd's shim
    /// starts nothing else in that container for half a minute, not even a preStop hook.
    ///
    /// # Errors
    /// As [`CallError`]. A non-zero exit code of the command is not an error.
    pub(crate) async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<api::ExecSyncResponse, CallError> {
        const CALL: &str = "ExecSync";
        let seconds = seconds_up(timeout);
        let request = api::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command,
            timeout: i64::try_from(seconds).unwrap_or(i64::MAX),
        };
        let mut service = self.runtime.clone();
        let endpoint = self.endpoint.clone();
        let after = Duration::from_secs(seconds).saturating_add(self.times.ask);
        let call = async move {
            let call = service.exec_sync(request);
            answer(CALL, after, &endpoint, call).await
        };
        let ended =
            |error| CallError::of(CALL, Status::aborted(format!("{error}")), &self.endpoint);
        tokio::spawn(call).await.unwrap_or_else(|error| Err(ended(error)))
    }

    /// `GetContainerEvents`: streams what happens to containers from now on. Has no deadline: servers in Go answer
    /// with the first event, which may be hours away.
    pub(crate) async fn events(
        &self,
    ) -> Result<tonic::Streaming<api::ContainerEventResponse>, CallError> {
        let mut service = self.runtime.clone();
        let answer = service.get_container_events(api::GetEventsRequest {}).await;
        let failed = |status| CallError::of("GetContainerEvents", status, &self.endpoint);
        answer.map(Response::into_inner).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use winddown_runtimes_tests::{FakeCri, Fault};

    use super::*;
    use crate::CriConfig;

    #[tokio::test]
    async fn a_stream_that_is_answered_with_its_first_event_is_awaited() {
        let dir = tempfile::tempdir().unwrap();
        let config = CriConfig::below(dir.path());
        let cri = FakeCri::start(&dir.path().join("cri.sock"), config.wall);
        cri.script("GetContainerEvents", 1, Fault::Slow(Duration::from_millis(300)));
        let times = CriTimes { ask: Duration::from_millis(100), ..CriTimes::default() };
        let client = CriClient::new(&config.endpoint, times).unwrap();
        assert!(client.events().await.is_ok());
    }
}
