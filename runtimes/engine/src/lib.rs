//! The parts that all container runtimes share.
//!
//! * [`pod`]: the state of a pod, its containers and their runs, and [`status`], which reports it.
//! * [`container_plan`]: which container to start, stop or wait for. Pure.
//! * [`sync`] and [`stopping`]: the pass that carries out the plan, with hooks and probes, and the stop of a pod. The
//!   [`driver`] is what they require of a runtime.
//! * [`termination_notices`]: the files that tell pods why and when they will be stopped.
//! * [`log_links`]: the links by which log shippers find the logs.
//! * [`environment`]: the values of a container's variables, command and pod fields.
//! * [`stats`]: the resource usage of pods, in cgroups and on disks.
//! * [`cache`]: the last answers of a runtime that has to be polled.
//!
//! Each runtime is a crate or a module of its own, and implements [`winddown_shared::Runtime`] with these parts.
//!
//! # Termination notices
//!
//! A run announces the end to all pods (`NodeEndListener::announce`) under the reason that owns it; `lame_duck`
//! withdraws the announcement. `RuntimeSyncer` passes the earliest announced end to the runtime, and `Grace` carries the
//! reason of a single pod's end. From both, `runtimes/engine/src/termination_notices.rs` writes each pod's file: one writer, in order. A
//! stop waits at most 100 ms for its file.

pub mod action;
pub mod action_error;
pub mod amounts;
pub mod cache;
pub mod container_plan;
pub mod disk_notes;
pub mod driver;
pub mod entry;
pub mod environment;
mod exit_report;
pub mod failure;
pub mod files;
mod http_get;
mod last_line;
pub mod log_links;
pub mod machine_lock;
pub mod oom_score;
pub mod pod;
mod pod_resources;
pub mod pods;
pub mod probe_client;
mod prober;
pub mod probing;
pub mod state_lock;
pub mod stats;
pub mod status;
pub mod stopping;
pub mod support;
pub mod sync;
pub mod termination_message;
pub mod termination_notices;
pub mod unsupported;

pub use environment::EnvironmentFacts;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
