//! A client whose agent dies at a certain write.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::Body;
use tokio_util::sync::CancellationToken;

/// Where an agent dies: before its n-th write is sent, or when it is done and no answer has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) write: usize,
    pub(crate) before: bool,
}

/// Counts writes, and lets nothing through from the cut on.
#[derive(Clone)]
struct Cutter {
    client: kube::Client,
    cut: Cut,
    writes: Arc<AtomicUsize>,
    dead: CancellationToken,
}

// === impl Cut ===

impl Cut {
    /// The same client with this cut in it; the token tells that it was reached.
    pub(crate) fn into_client(self, client: kube::Client) -> (kube::Client, CancellationToken) {
        let dead = CancellationToken::new();
        let cutter = Cutter { client, cut: self, writes: Arc::default(), dead: dead.clone() };
        (kube::Client::new(cutter, "default"), dead)
    }
}

// === impl Cutter ===

impl Cutter {
    async fn send(self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let writes = request.method() != Method::GET;
        let ours = writes && self.writes.fetch_add(1, Ordering::Relaxed) == self.cut.write;
        if ours && self.cut.before {
            self.dead.cancel();
        }
        if self.dead.is_cancelled() {
            return std::future::pending().await;
        }
        let answer = self.client.send(request).await;
        if ours {
            self.dead.cancel();
        }
        if self.dead.is_cancelled() {
            return std::future::pending().await;
        }
        answer
    }
}

impl tower_service::Service<Request<Body>> for Cutter {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}
