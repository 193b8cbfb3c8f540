//! Counterparts of the kubelet's `predicate_test.go`, as tables, and tests of what admission does
//! in addition.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::ResourceName;

mod affinity;
mod chain;
mod general;
mod others;
mod platform;
mod ports;
mod properties;
mod resources;
mod taints;

/// A node that changes; `None` until it was read once.
impl NodeSource for watch::Receiver<Option<Arc<NodeView>>> {
    fn node(&self) -> Option<Arc<NodeView>> {
        self.borrow().clone()
    }
}

/// A pod from the API server.
fn pod(uid: &str, spec: &Value) -> Pod {
    from(&json!({"metadata": {"uid": uid}, "spec": spec}))
}

fn static_pod(uid: &str, spec: &Value) -> Pod {
    let annotations = json!({"kubernetes.io/config.source": "file"});
    from(&json!({"metadata": {"uid": uid, "annotations": annotations}, "spec": spec}))
}

/// A pod whose object omits what does not matter.
fn from(object: &Value) -> Pod {
    let mut object = object.clone();
    object["metadata"]["name"] = json!("p");
    object["metadata"]["namespace"] = json!("n");
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

fn asks(requests: &Value) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
}

/// The node of most tables: 10 millicores, 20 bytes, 32 pods.
fn machine1() -> NodeView {
    node(&json!({"metadata": {"name": "machine1"}}))
}

fn node(object: &Value) -> NodeView {
    let mut object = object.clone();
    if object["status"]["allocatable"].is_null() {
        object["status"]["allocatable"] = json!({
            "cpu": "10m", "memory": "20", "pods": "32", "example.com/aaa": "0",
            "ephemeral-storage": "0", "hugepages-2Mi": "0",
        });
    }
    NodeView::of_node(&serde_json::from_value(object).unwrap(), "linux")
}

fn failures(pod: &Pod, node: &NodeView, others: &[Pod]) -> Vec<AdmissionFailure> {
    fit_failures(pod, node, &NodeUse::without(pod, others)).iter().cloned().collect()
}

fn insufficient(name: &str, requested: i64, used: i64, capacity: i64) -> AdmissionFailure {
    let resource = ResourceName::from(name);
    AdmissionFailure::InsufficientResource { resource, requested, used, capacity }
}

/// Refuses like a node without preemption, and keeps the failures.
#[derive(Clone, Default)]
struct Recording(Arc<Mutex<Vec<AdmissionFailure>>>);

impl AdmissionFailureHandler for Recording {
    fn handle_admission_failure(
        &self,
        _: &Pod,
        failures: FitFailures,
        _: &NodeView,
        _: &[Pod],
    ) -> PreemptionOutcome {
        *self.0.lock().unwrap() = failures.iter().cloned().collect();
        PreemptionOutcome::Rejected(failures)
    }
}
