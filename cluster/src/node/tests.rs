//! Tests without sockets: the decisions, and the driver on a paused clock against an API server in memory.

mod attempt;
mod conditions;
mod cordon;
mod driver;
mod interleaving;
mod lease;
mod patch;
mod ping;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use winddown_shared::WallClock;

use super::desired::NodeFacts;

const NAME: &str = "n1";
const BOOT: &str = "boot-1";

fn facts() -> NodeFacts {
    let amounts = [("cpu", "2"), ("memory", "4Gi"), ("pods", "110"), ("ephemeral-storage", "10Gi")];
    let amounts: BTreeMap<_, _> =
        amounts.map(|(name, text)| (name.to_owned(), Quantity(text.to_owned()))).into();
    NodeFacts {
        labels: [("kubernetes.io/hostname".to_owned(), NAME.to_owned())].into(),
        addresses: vec![NodeAddress {
            type_: "InternalIP".to_owned(),
            address: "10.0.0.1".to_owned(),
        }],
        capacity: amounts.clone(),
        allocatable: amounts,
        info: NodeSystemInfo { boot_id: BOOT.to_owned(), ..NodeSystemInfo::default() },
        ..NodeFacts::default()
    }
}

fn taint(key: &str, value: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: Some(value.to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }
}

fn node(value: Value) -> Node {
    serde_json::from_value(value).unwrap()
}

/// Merges a patch as an API server does.
fn merge(into: &mut Value, patch: &Value) {
    winddown_apiserver::strategic_merge("nodes", into, patch).unwrap();
}

fn second(n: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + n).unwrap()
}

fn time(n: i64) -> Time {
    Time(second(n))
}

/// Wall time that follows tokio's clock, which tests can pause.
fn clock() -> WallClock {
    let start = tokio::time::Instant::now();
    WallClock::new(move || second(0).checked_add(start.elapsed()).unwrap())
}
