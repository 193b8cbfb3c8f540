//! Streams into containers, which the runtime serves at its own address.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use winddown_engine::failure::failed;
use winddown_host::{PodStream, PodStreams, StreamRequest, StreamServer};
use winddown_shared::{PodUid, RuntimeError};

use super::pod::PodState;
use super::{CriContext, CriRuntime, api};

impl PodStreams for CriRuntime {
    fn open<'a>(
        &'a self,
        pod: &'a PodUid,
        wanted: StreamRequest,
    ) -> BoxFuture<'a, Result<Option<PodStream>, RuntimeError>> {
        open(&self.context, pod, wanted).boxed()
    }
}

async fn open(
    context: &Arc<CriContext>,
    pod: &PodUid,
    wanted: StreamRequest,
) -> Result<Option<PodStream>, RuntimeError> {
    context.ensure_adopted().await?;
    let Some(entry) = context.pods.get(pod) else { return Ok(None) };
    let (client, state) = (&context.client, || entry.lock());
    let answer = match wanted {
        StreamRequest::Exec { container, command, stdio } => {
            let Some(id) = running(&state(), &container) else { return Ok(None) };
            let request = api::ExecRequest {
                container_id: id,
                cmd: command,
                tty: stdio.tty,
                stdin: stdio.stdin,
                stdout: stdio.stdout,
                stderr: stdio.stderr,
            };
            client.exec(request).await.map(|answer| answer.url)
        }
        StreamRequest::Attach { container, stdio } => {
            let Some(id) = running(&state(), &container) else { return Ok(None) };
            let request = api::AttachRequest {
                container_id: id,
                stdin: stdio.stdin,
                tty: stdio.tty,
                stdout: stdio.stdout,
                stderr: stdio.stderr,
            };
            client.attach(request).await.map(|answer| answer.url)
        }
        StreamRequest::PortForward { ports } => {
            let Some(id) = sandbox(&state()) else { return Ok(None) };
            let port = ports.into_iter().map(i32::from).collect();
            let request = api::PortForwardRequest { pod_sandbox_id: id, port };
            client.port_forward(request).await.map(|answer| answer.url)
        }
    };
    let url = answer.map_err(|error| error.during("opening a stream into a container"))?;
    let server = StreamServer::of_url(&url).ok_or_else(|| {
        // The rest of the URL is a token that opens the stream, so it must not be logged.
        let address = url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        failed(format!(
            "the container runtime serves streams at {address:?}, which is no http at a loopback address: set \
             stream_server_address (containerd) or stream_address (CRI-O) to \"127.0.0.1\", without TLS"
        ))
    })?;
    Ok(Some(PodStream::Served(server)))
}

fn running(state: &PodState, name: &str) -> Option<String> {
    let container = state.running().into_iter().find(|container| *container.name == *name)?;
    container.run.as_ref().map(|run| run.id.to_string())
}

/// The pod's sandbox, if any of its containers runs.
fn sandbox(state: &PodState) -> Option<String> {
    state.own.sandbox().filter(|_| !state.running().is_empty()).map(|one| one.id.to_string())
}
