//! An API server that is a function, for tests.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;

/// The code and the body of an answer; `None` for a request that is never answered.
type Answer = Option<(u16, String)>;

struct Fake<F>(F);

/// Returns a client whose requests are answered by this function.
pub(crate) fn client(answer: impl Fn(&Request<Body>) -> Answer + Send + 'static) -> kube::Client {
    kube::Client::new(Fake(answer), "default")
}

impl<F: Fn(&Request<Body>) -> Answer> tower_service::Service<Request<Body>> for Fake<F> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some((code, body)) = (self.0)(&request) else {
            return std::future::pending().boxed();
        };
        let answer = Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap();
        std::future::ready(Ok(answer)).boxed()
    }
}
