//! A node's own certificate, and pods that it may not read.

use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::Body;
use winddown_shared::PodUid;

use super::*;

/// Forbids reads, and answers writes with this.
#[derive(Clone)]
struct Forbids(u16, Value);

impl tower_service::Service<Request<Body>> for Forbids {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (code, answer) = match *request.method() {
            Method::GET => (403, failure(403, "Forbidden", "no relationship found")),
            _ => (self.0, self.1.clone()),
        };
        let answer = Response::builder().status(code).body(answer.to_string().into_bytes().into());
        std::future::ready(Ok(answer.unwrap()))
    }
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

async fn found(code: u16, answer: Value) -> Result<Pod, SendFault> {
    let client = kube::Client::new(Forbids(code, answer), "default");
    let uid = PodUid::new("u-1");
    let pod = PodLabel { namespace: "default".into(), name: "web".into(), uid };
    get(&client, &pod).await
}

#[tokio::test]
async fn a_pod_that_may_not_be_read_is_found_or_known_to_be_gone() {
    let there = json!({"metadata": {"name": "web", "namespace": "default", "uid": "u-1"}});
    assert_eq!(found(200, there).await.unwrap().uid().as_str(), "u-1");
    for (code, reason, message) in [
        (404, "NotFound", "pods \"web\" not found"),
        (409, "Conflict", "Precondition failed: UID in precondition: u-1, UID in object meta: u-2"),
        (
            403,
            "Forbidden",
            "node \"n\" can only update pod status for pods with spec.nodeName set to itself",
        ),
    ] {
        let answer = found(code, failure(code, reason, message)).await;
        assert!(matches!(answer, Err(SendFault::Gone)), "{message}: {answer:?}");
    }
    let answer = found(403, failure(403, "Forbidden", "no rights")).await;
    assert!(matches!(answer, Err(SendFault::Refused(_))), "{answer:?}");
    // Neither is about the pod: credentials that end, and a load balancer without a backend.
    for (code, answer) in [
        (401, failure(401, "Unauthorized", "Unauthorized")),
        (404, json!("<html>404 Not Found</html>")),
    ] {
        let answer = found(code, answer).await;
        assert!(matches!(answer, Err(SendFault::Later { after: None, .. })), "{answer:?}");
    }
}
