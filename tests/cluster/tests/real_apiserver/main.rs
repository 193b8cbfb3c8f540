//! What only a real kube-apiserver can show: that credentials, rights and writes are what it takes.
//!
//! `WINDDOWN_KUBE_APISERVER=/path/to/kube-apiserver WINDDOWN_KUBELET=/path/to/kubelet cargo test -p
//! winddown-cluster-tests --test real_apiserver`, with Debian's `etcd-server` installed. One server serves
//! all tests of a run: each takes names of its own for nodes and namespaces. Without the variables the tests
//! pass, and say that they showed nothing.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod authority;
mod beside_kubelet;
mod companion;
mod credentials;
mod events;
mod kubectl;
mod node;
mod pods;
mod processes;
mod proxy;
mod resolve;
mod rights;
mod rolling;
mod server;
mod status;
mod taint;
mod texts;

pub(crate) use server::RealApi;

/// The commands in the program's texts.
#[path = "../../../../programs/tests/docs/printed.rs"]
#[allow(dead_code, clippy::expect_used, reason = "made for the tests of the texts themselves")]
mod printed;

/// What runs the pods.
#[path = "../in_memory.rs"]
#[allow(dead_code, reason = "the tests on a stand-in use the rest")]
mod in_memory;

/// What is asked of the real ones and of the stand-ins.
#[path = "../companion/recorded.rs"]
mod recorded;

/// A kubelet to stand beside.
#[path = "../companion/kubelet.rs"]
#[allow(dead_code, reason = "its tests use the rest")]
mod kubelet;
