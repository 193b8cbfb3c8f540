//! Pure parts: which events decisions become, which wait, and which form a series.

use std::sync::Arc;

use winddown_shared::{PodRef, PodUid, WallClock, WallTime};

use super::*;

mod decisions;
mod pods;
mod queueing;
mod series;

fn wall() -> WallClock {
    WallClock::fixed(at(0))
}

fn at(seconds: i64) -> WallTime {
    WallTime::from_second(1_800_000_000 + seconds).unwrap()
}

fn pod(name: &str) -> PodRef {
    PodRef { namespace: "shop".into(), name: name.into(), uid: PodUid::new(format!("uid-{name}")) }
}

fn node() -> NodeRef {
    NodeRef::new("n1")
}

fn events(capacity: usize) -> Events {
    Events::unwritten(node(), capacity, wall())
}

fn routine(name: &str, message: &str) -> EventDraft {
    EventDraft::normal(Subject::pod(&pod(name)), "Killing", Arc::<str>::from(message))
}
