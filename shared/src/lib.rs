//! The vocabulary of winddown, the pod workers, and the seams.
//!
//! Everything here is free of I/O: no file, no socket, no process. What must be done to the world
//! is behind a trait ([`Runtime`], [`Inhibitor`], [`PodKiller`], [`StatusSink`], [`Recorder`]) that
//! another crate implements, and `fake` (feature `fake`) has a scripted implementation of each.
//!
//! * [`Pod`] and its facts: identity, priority, QoS class, resource requests.
//! * [`PodWorkers`]: the only component that starts and stops pods.
//! * [`PodKiller`]: how every controller asks for a pod's end.
//!
//! `examples/agent.rs` is a whole agent in 150 lines: a runtime, a controller, a source of pods.

mod admission;
mod clock;
mod counts;
mod event;
#[cfg(feature = "fake")]
pub mod fake;
mod go_duration;
mod grace;
mod inhibitor;
mod intake;
mod kill;
mod lock;
mod notice;
mod pod;
mod quantity;
mod runtime;
mod runtime_cache;
mod runtime_syncer;
pub mod status;
mod status_cache;
mod syncer;
mod workers;

pub use admission::{
    Admission, AdmissionFailure, AdmitHandler, Allocatable, FitFailures, HostPorts, MakeRoom,
    NoPreemption, NodeFit, NodeSource, NodeUse, NodeView, Rejection, Room, Verdict,
    admission_metric_reason, fit_failures, platform_fits,
};
pub use clock::{WallClock, WallTime};
pub use counts::{ByConfig, ByOrigin, PodCounts, WorkingPods};
pub use event::{Event, PodLabel, Recorder};
pub use go_duration::{
    DurationError, GoDuration, GoDurationError, GoDurationRangeError, parse_duration,
};
pub use grace::{Grace, GraceSender};
pub use inhibitor::{Inhibitor, InhibitorState, LockState, ShutdownKind};
pub use intake::{DesiredPods, Intake};
pub use kill::{
    KillError, KillReason, KillRequest, PodKiller, PodStopped, StatusOverride, StoppedContainer,
};
pub use notice::{Notice, Notices};
pub use pod::{
    CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, IdentityError, Pod, PodUid, PodUidMap,
    QosClass, QosClassError, Requests, ResourceName, SYSTEM_CRITICAL_PRIORITY,
    SYSTEM_NODE_CRITICAL_PRIORITY, UidHasher,
};
pub use quantity::{Quantity, QuantityError, QuantityFormat};
pub use runtime::{
    ContainerExit, ContainerKind, ContainerState, ContainerStatus, PodRuntimeStatus, Runtime,
    RuntimeError, RuntimePod, SyncedPod,
};
pub use runtime_cache::RuntimeCache;
pub use runtime_syncer::RuntimeSyncer;
pub use status_cache::{Cached, Inspected, PodStatusCache};
pub use syncer::{PodSyncer, Retry, RuntimeView, Stop, SyncError, SyncUpdate, Synced, UpdateKind};
pub use workers::{Lifecycle, PodSnapshot, PodWorkers, WorkerObserver, WorkerTimes};
