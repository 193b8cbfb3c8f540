//! An API server for tests: real for its clients, scripted for its test.
//!
//! It speaks TLS with HTTP/2 and HTTP/1.1, keeps objects with resource versions, lists, watches, merges patches,
//! deletes with grace periods and evicts as the Kubernetes API server 1.36 does, as far as a node agent can tell the
//! difference. [`ApiServer::serve_version`] makes it a later one. A test changes objects directly, checks the requests,
//! and scripts faults. [`ApiServer::in_memory`] is the same without sockets, for tests with a paused clock.
//!
//! ```
//! use serde_json::json;
//! use winddown_apiserver::{ApiServer, Fault};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start().await?;
//! // A client is made from this; with kube: `Kubeconfig::from_yaml(&server.kubeconfig())`.
//! assert!(server.kubeconfig().contains(&server.url()));
//!
//! // What others in the cluster do. The status counts too, and a UID that is given is kept.
//! server.apply(json!({
//!     "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
//!     "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "x"}]},
//!     "status": {"phase": "Running"},
//! }))?;
//! server.patch("pods/default/web", &json!({"metadata": {"labels": {"app": "web"}}}))?;
//! server.delete("pods/default/web", Some(10))?;
//!
//! // What goes wrong: two writes of this pod's status are answered 429, and then a watch ends.
//! server.fault(Fault::on("patch", "pods/status").name("web").times(2).status(429).retry_after(1));
//! server.drop_watches("pods");
//!
//! // What came of it. Asked at once, and after every change and every request.
//! let grace = server
//!     .until("the pod is being deleted", |objects| {
//!         let pod = objects.get("pods/default/web")?;
//!         pod.pointer("/metadata/deletionGracePeriodSeconds")?.as_i64()
//!     })
//!     .await?;
//! assert_eq!(grace, 10);
//! assert_eq!(server.count("patch", "pods/status"), 0);
//! # Ok(())
//! # }
//! ```
//!
//! Limitations: it does not know the fields of its objects, so it keeps unknown fields and refuses few invalid objects;
//! it has no admission other than [`ApiServer::restrict_nodes`], no controllers, no garbage collection, no JSON patch
//! and no field ownership (an apply patch is a strategic merge patch that creates the object if necessary).
//!
//! The program `winddown-apiserver` is the same server for tests on other machines; see its source.

mod access;
mod clock;
mod control;
mod core;
mod eviction;
mod fault;
mod kinds;
mod pki;
mod pods;
mod refusal;
mod request;
mod restriction;
mod rules;
mod selector;
mod serve;
mod server;
mod signing;
mod store;
mod strategic;
mod target;
mod write;

pub use self::control::Command;
pub use self::fault::{Fault, Harm};
pub use self::pki::{Identity, PkiError};
pub use self::request::{Request, Right};
pub use self::server::{
    ApiServer, Builder, FaultId, Objects, Refused, Service, StartError, Waited, strategic_merge,
};
