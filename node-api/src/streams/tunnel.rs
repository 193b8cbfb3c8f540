//! The two connections of a stream, and what passes between them.

use std::io;
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use winddown_shared::{NodeHandle, PodUid};

/// Bytes that are on their way in one direction.
const BLOCK: usize = 16 * 1024;
/// One who takes nothing for so long is cut off: the kubelet's `streamingConnectionIdleTimeout`.
const TAKES: Duration = Duration::from_secs(4 * 60 * 60);
/// How long what was said last may take, once the pod has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// A stream that is open.
pub(crate) struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) server: Upgraded,
    pub(super) node: NodeHandle,
    pub(super) pod: PodUid,
    /// Its place among the streams.
    pub(super) _turn: OwnedSemaphorePermit,
}

impl Tunnel {
    /// Passes on what both say until one of them has said all, or the pod has ended.
    pub(crate) async fn pass(self) -> io::Result<()> {
        let Self { client, server, node, pod, _turn } = self;
        let client = TokioIo::new(client.await.map_err(io::Error::other)?);
        let (mut from_client, mut to_client) = split(client);
        let (mut from_server, mut to_server) = split(TokioIo::new(server));
        let ended = async {
            ended(&node, &pod).await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        let passed = tokio::select! {
            passed = pass_on(&mut from_client, &mut to_server) => passed,
            passed = pass_on(&mut from_server, &mut to_client) => passed,
            () = ended => Ok(()),
        };
        // A client that is stuck hears none.
        let _ = timeout(FAREWELL, to_client.shutdown()).await;
        passed
    }
}

async fn pass_on(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        let read = from.read(&mut block).await?;
        if read == 0 {
            return Ok(());
        }
        let taken = async {
            to.write_all(&block[..read]).await?;
            to.flush().await
        };
        timeout(TAKES, taken).await??;
    }
}

/// Resolves when nothing of the pod runs any more.
async fn ended(node: &NodeHandle, pod: &PodUid) {
    let mut changes = node.changes();
    loop {
        changes.borrow_and_update();
        let is_over = node.status(pod).is_none_or(|status| {
            let containers = [&status.container_statuses, &status.init_container_statuses];
            let mut states =
                containers.into_iter().flatten().flatten().filter_map(|one| one.state.as_ref());
            matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
                && !states.any(|state| state.running.is_some())
        });
        if is_over {
            return;
        }
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
