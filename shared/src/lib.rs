#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
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
//! `examples/in_memory.rs` is a complete agent in 150 lines: a runtime, a controller, and a source of pods.

mod admission;
mod base;
mod event;
mod intake;
mod kill;
mod plugin;
mod pod;
mod runtime;
mod shutdown;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod workers;

// Foreign types in signatures, in the version that those have.
pub use futures_util::future::BoxFuture;
pub use tokio_util::sync::CancellationToken;
pub use {jiff, k8s_openapi};

pub use admission::gate::{AdmissionGate, GateState};
pub use admission::victim_lock::VictimLock;
pub use admission::{
    Admission, AdmissionFailure, AdmissionFailureHandler, AdmitHandler, Allocatable, FitFailures,
    HostPorts, NodeFit, NodeSource, NodeUse, NodeView, OtherPods, PreemptionOutcome, Rejection,
    Verdict, Victim, VictimPlan, fit_failures, platform_fits, sysctl_namespace,
};
pub use base::critical;
pub use base::lock::Mutex;
pub use base::plugin_name::PluginName;
pub use event::of_pod::{EndCause, PodEvent, PodEventKind, ProbeKind};
pub use event::pressure_condition::{ConditionText, PressureCondition};
pub use event::{ContainedRecorder, Event, Recorder};
pub use intake::{DesiredPods, Intake, Outlook, ReadmissionBackoff, WAITING_FOR_PREEMPTION};
pub use kill::eviction_constraints::{DisruptionBudget, EvictionConstraints};
pub use kill::gate_reason::{GateReason, GateReasons};
pub use kill::grace::{Grace, GraceSender, instant_after};
pub use kill::node_ending::NodeEnding;
pub use kill::{
    EarlierKill, KillError, KillReason, KillRequest, NodeEndListener, PodKiller, PodStateProvider,
    PodStopped, RestartCondition, RunningPods, StatusOverride, StoppedContainer,
};
pub use plugin::reviews::{ReviewError, Reviews};
pub use plugin::{
    Counter, Gauge, KillHandle, MetricValue, NodeHandle, NodeHandleParts, NodePod, Plugin,
    PluginMetric, PluginStatusLine, PluginStatusLines, TerminationSpec,
};
pub use pod::on_reboot::{ON_REBOOT_ANNOTATION, OnReboot};
pub use pod::{
    CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, CONFIG_SPEC_ANNOTATION, ContainerExit,
    ContainerKind, ContainerState, ContainerStatus, IdentityError, Pod, PodRef, PodUid, PodUidMap,
    QosClass, Requests, ResourceName, RuntimePod, SYSTEM_CRITICAL_PRIORITY,
    SYSTEM_NODE_CRITICAL_PRIORITY, UidHasher,
};
pub use runtime::found_pod::{FoundContainer, FoundPod, StoppedContainers};
pub use runtime::garbage::{Freed, Garbage, MemoryFigure};
pub use runtime::places::RuntimePlaces;
pub use runtime::stats::{
    ContainerStats, DiskUse, FsLayout, FsStats, LimitStats, MemoryStats, NodeStats, PodStats,
    PressureStats, SwapStats, VolumeStats,
};
pub use runtime::{PodRuntimeStatus, Runtime, RuntimeError, SyncedPod, UnsupportedField};
pub use shutdown::inhibitor::{
    Inhibitor, InhibitorState, LockState, MachineState, ScheduledShutdown, ShutdownBlock,
    ShutdownKind, ShutdownRequest, WayDown,
};
pub use shutdown::notice::{LONGEST_NOTICE, Notice, NoticeState, Notices};
pub use shutdown::request_report::RequestReport;
pub use shutdown::work::{LateRemark, ShutdownPoint, ShutdownWork, WorkContext, WorkError};
pub use winddown_quantities::backoff::{Backoff, Delays, doubled, fraction};
pub use winddown_quantities::clock::{BootClock, WallClock, WallTime};
pub use winddown_quantities::retry::{Retries, Retry};
pub use winddown_quantities::{
    DurationError, GoDuration, GoDurationError, GoDurationRangeError, Quantity, QuantityError,
    QuantityFormat, ResourceFieldError, millis, parse_duration, seconds_up,
};
pub use winddown_quantities::{error_chain, http_fields, text as display};
pub use workers::runtime_syncer::{RuntimeSyncer, deadline::ActiveDeadlines};
pub use workers::start_turn::{StartTurn, WAITING_FOR_TURN};
pub use workers::syncer::{
    PodSyncer, RuntimeStateProvider, RuntimeView, Stop, SyncError, SyncUpdate, Synced, UpdateKind,
};
pub use workers::{Lifecycle, PodSnapshot, PodWorkers, StopChange, WorkerObserver};
