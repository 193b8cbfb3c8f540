//! The way to the server for a client in the same program: no sockets, so that the clock can be paused.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body, Frame};
use hyper::{Request, Response};
use tokio_util::sync::CancellationToken;

use super::ApiServer;
use super::gate::Gate;
use crate::core::Shared;
use crate::pki::Identity;
use crate::serve::{self, BrokenOff, Connection, serve};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Carries requests to the server as a client with a certificate. With kube: `Client::new(service, "default")`.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    certificate: Arc<[u8]>,
}

impl ApiServer {
    /// A way to the server without a socket, for the administrator.
    #[must_use]
    pub fn service(&self) -> Service {
        self.service_of(&self.identity)
    }

    /// The same for the user with this certificate.
    #[must_use]
    pub fn service_of(&self, identity: &Identity) -> Service {
        let (shared, gate) = (Arc::clone(&self.shared), Arc::clone(&self.hall.gate));
        Service { shared, gate, certificate: Arc::from(&*identity.der) }
    }
}

impl Service {
    async fn carry<B>(self, request: Request<B>) -> Result<Response<serve::Body>, BrokenOff>
    where
        B: Body,
        B::Error: Into<AnyError>,
    {
        self.pass().await;
        let (is_cut_off, all) =
            self.shared.with(|core| (core.is_cut_off, core.connections_closed.clone()));
        if is_cut_off {
            return Err(BrokenOff);
        }
        let close = CancellationToken::new();
        let connection =
            Connection { certificate: Some(Arc::clone(&self.certificate)), close: close.clone() };
        let response = tokio::select! {
            () = close.cancelled() => return Err(BrokenOff),
            () = all.clone().cancelled_owned() => return Err(BrokenOff),
            response = serve(Arc::clone(&self.shared), connection, request) => response?,
        };
        self.pass().await;
        let until_closed = |body: serve::Body| {
            let data = body.into_data_stream().take_until(all.cancelled_owned());
            StreamBody::new(data.map_ok(Frame::data)).boxed_unsync()
        };
        Ok(response.map(until_closed))
    }

    /// Waits while the network swallows everything.
    async fn pass(&self) {
        poll_fn(|context| match self.gate.passes(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

impl<B> tower_service::Service<Request<B>> for Service
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<AnyError>,
{
    type Response = Response<serve::Body>;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let carrying = self.clone().carry(request);
        Box::pin(async move { Ok(carrying.await?) })
    }
}
