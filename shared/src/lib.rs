//! The core vocabulary of winddown, the pod workers, and the traits that connect them to the outside.
//!
//! Nothing here performs I/O: no files, no sockets, no processes. Side effects are behind traits
//! ([`Runtime`], [`Inhibitor`], [`PodKiller`], [`PodSyncer`], [`Recorder`]) that other crates
//! implement; the feature `testing` has a scripted implementation of each.
//!
//! * [`Pod`] and its facts: identity, priority, QoS class, resource requests.
//! * [`PodWorkers`]: the only component that starts and stops pods.
//! * [`PodKiller`]: how every controller requests the termination of a pod.
//!
//! `examples/agent.rs` is a complete agent in 150 lines: a runtime, a controller, and a source of pods.

#[cfg(test)]
extern crate self as winddown_shared;

mod admission;
mod admission_gate;
mod backoff;
mod clock;
mod consent;
pub mod critical;
pub mod display;
mod error_chain;
mod event;
mod found_pod;
mod garbage;
mod gate_reason;
mod grace;
mod inhibitor;
mod intake;
mod kill;
mod lock;
mod node_ending;
mod notice;
mod on_reboot;
mod plugin;
mod pod;
mod pod_event;
mod request_report;
mod reviews;
mod runtime;
mod runtime_syncer;
pub mod service_units;
mod shutdown_work;
mod start_turn;
mod stats;
mod stats_source;
pub mod status;
mod syncer;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod victim_lock;
mod workers;

pub use admission::{
    Admission, AdmissionFailure, AdmissionFailureHandler, AdmitHandler, Allocatable, FitFailures,
    HostPorts, NodeFit, NodeSource, NodeUse, NodeView, Others, Rejection, Room, Verdict, Victim,
    VictimPlan, fit_failures, platform_fits, sysctl_namespace,
};
pub use admission_gate::{AdmissionGate, GateState};
pub use backoff::{Backoff, fraction};
pub use clock::{BootClock, WallClock, WallTime};
pub use consent::{Consent, DisruptionBudget};
pub use error_chain::error_chain;
pub use event::{Event, PodLabel, Recorder};
pub use found_pod::{FoundContainer, FoundPod};
pub use garbage::{Freed, Garbage, MemoryFigure};
pub use gate_reason::{GateReason, GateReasons};
pub use grace::{Grace, GraceSender, instant_after};
pub use inhibitor::{
    Inhibitor, InhibitorState, LockState, ShutdownBlock, ShutdownKind, ShutdownRequest,
};
pub use intake::{DesiredPods, Intake, ReturnDelays, WAITING_FOR_PREEMPTION};
pub use kill::{
    EarlierKill, KillError, KillReason, KillRequest, Owed, PodKiller, PodStopped, RunningPods,
    StatusOverride, StoppedContainer,
};
pub use node_ending::{EndNotice, NodeEnding};
pub use notice::{LONGEST_NOTICE, Notice, NoticeState, Notices};
pub use on_reboot::{ON_REBOOT_ANNOTATION, OnReboot};
pub use plugin::{
    Counter, Gauge, KillHandle, MetricValue, NodeHandle, NodeHandleParts, NodePod, Plugin,
    PluginError, PluginMetric, PluginName, PluginNote, PluginNotes, RegisteredPlugin,
    TerminationSpec,
};
pub use pod::http_get;
pub use pod::{
    CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, IdentityError, Pod, PodUid, PodUidMap,
    QosClass, Requests, ResourceName, SYSTEM_CRITICAL_PRIORITY, SYSTEM_NODE_CRITICAL_PRIORITY,
    UidHasher,
};
pub use pod_event::{EndCause, PodEvent, PodEventKind, ProbeKind};
pub use request_report::RequestReport;
pub use reviews::{ReviewError, Reviews};
pub use runtime::{
    ContainerExit, ContainerKind, ContainerState, ContainerStatus, PodRuntimeStatus, Runtime,
    RuntimeError, RuntimePod, SyncedPod, UnsupportedField,
};
pub use runtime_syncer::RuntimeSyncer;
pub use shutdown_work::{ShutdownPoint, ShutdownWork, WorkContext, WorkError, WorkRemark};
pub use start_turn::{StartTurn, WAITING_FOR_TURN};
pub use stats::{
    ContainerStats, DiskUse, FsLayout, FsStats, MemoryStats, NodeStats, PidStats, PodStats,
    PressureStats, SwapStats, VolumeStats,
};
pub use stats_source::{ImagePlaces, PodStatsSource};
pub use syncer::{PodSyncer, Retry, RuntimeView, Stop, SyncError, SyncUpdate, Synced, UpdateKind};
pub use victim_lock::VictimLock;
pub use winddown_quantities::{
    DurationError, GoDuration, GoDurationError, GoDurationRangeError, Quantity, QuantityError,
    QuantityFormat, parse_duration, seconds_up,
};
pub use workers::{Lifecycle, PodSnapshot, PodWorkers, WorkerObserver, WorkerTimes};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
