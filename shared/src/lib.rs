//! The vocabulary of winddown, the pod workers, and the seams.
//!
//! Everything here is free of I/O: no file, no socket, no process. What must be done to the world
//! is behind a trait ([`Runtime`], [`Inhibitor`], [`PodKiller`], [`StatusSink`], [`Recorder`]) that
//! another crate implements, and `fake` (feature `fake`) has a scripted implementation of each.
//!
//! * [`Pod`] and its facts: identity, priority, QoS class, resource requests.
//! * [`PodWorkers`]: the only component that starts and stops pods.
//! * [`PodKiller`]: how every controller asks for a pod's end.

mod clock;
mod event;
#[cfg(feature = "fake")]
pub mod fake;
mod go_duration;
mod inhibitor;
mod kill;
mod pod;
mod quantity;
mod runtime;

pub use clock::{WallClock, WallTime};
pub use event::{Event, PodLabel, Recorder};
pub use go_duration::{GoDuration, GoDurationError};
pub use inhibitor::{Inhibitor, InhibitorState, LockState, ShutdownKind};
pub use kill::{
    KillError, KillReason, KillRequest, PodKiller, PodStopped, StatusOverride, StoppedContainer,
};
pub use pod::{IdentityError, Pod, PodUid, QosClass, ResourceName, Requests};
pub use quantity::{Quantity, QuantityError};
pub use runtime::{
    ContainerKind, ContainerState, ContainerStatus, Grace, GraceSender, PodRuntimeStatus, Runtime,
    RuntimeError, RuntimePod, SyncedPod,
};
