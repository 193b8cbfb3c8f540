//! An open stream between a client and what it is connected to.

use std::io;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use winddown_host::CommandStream;
use winddown_shared::status::is_terminal;
use winddown_shared::{NodeHandle, PodUid};

use super::command;
use super::patience::{CLOSE_TIMEOUT, LAST_OUTPUT_TIMEOUT, WRITE_TIMEOUT};

/// The most bytes that are buffered in one direction.
const MAX_BUFFERED_BYTES: usize = 16 * 1024;

/// An open stream.
pub(crate) struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) far: Far,
    pub(super) node: NodeHandle,
    pub(super) pod: PodUid,
    /// Counts this stream against the limit.
    pub(super) _turn: OwnedSemaphorePermit,
}

/// The far end of a stream.
pub(super) enum Far {
    /// A connection to the runtime's server.
    Server(Upgraded),
    Command(CommandStream),
}

impl Tunnel {
    /// Relays data until one side closes its end or the pod has ended.
    pub(crate) async fn pass(self) -> io::Result<()> {
        let Self { client, far, node, pod, _turn } = self;
        let client = TokioIo::new(client.await.map_err(io::Error::other)?);
        let ended = async {
            ended(&node, &pod).await;
            tokio::time::sleep(LAST_OUTPUT_TIMEOUT).await;
        };
        match far {
            Far::Server(server) => relay(client, TokioIo::new(server), ended).await,
            Far::Command(stream) => command::serve(client, stream, ended).await,
        }
    }
}

async fn relay(
    client: TokioIo<Upgraded>,
    server: TokioIo<Upgraded>,
    ended: impl Future<Output = ()>,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(server);
    let passed = tokio::select! {
        passed = pass_on(&mut from_client, &mut to_server) => passed,
        passed = pass_on(&mut from_server, &mut to_client) => passed,
        () = ended => Ok(()),
    };
    // A client that is stuck is not waited for.
    let _ = timeout(CLOSE_TIMEOUT, to_client.shutdown()).await;
    passed
}

async fn pass_on(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut block = vec![0; MAX_BUFFERED_BYTES];
    loop {
        let read = from.read(&mut block).await?;
        if read == 0 {
            return Ok(());
        }
        let taken = async {
            to.write_all(&block[..read]).await?;
            to.flush().await
        };
        timeout(WRITE_TIMEOUT, taken).await??;
    }
}

/// Resolves when the pod has finished and none of its containers runs.
async fn ended(node: &NodeHandle, pod: &PodUid) {
    let mut changes = node.changes();
    loop {
        changes.borrow_and_update();
        let is_over = node.status(pod).is_none_or(|status| {
            let containers = [&status.container_statuses, &status.init_container_statuses];
            let mut states =
                containers.into_iter().flatten().flatten().filter_map(|one| one.state.as_ref());
            is_terminal(&status) && !states.any(|state| state.running.is_some())
        });
        if is_over {
            return;
        }
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
