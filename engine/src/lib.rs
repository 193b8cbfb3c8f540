//! What every runtime of containers does alike.
//!
//! * [`pod`]: what a runtime knows of a pod, its containers and their runs, and [`status`], how it shows them.
//! * [`plan`]: which container to start, stop or wait for. Pure.
//! * [`sync`] and [`stopping`]: the pass that carries the plan out, with hooks and probes, and the end of a pod. What they
//!   need of a runtime is its [`driver`].
//! * [`end_notices`]: the files that tell pods why they end, and until when.
//! * [`environment`]: what a container's variables, its command and its fields of the pod's status come to.
//! * [`stats`]: what pods use, in control groups and on disks.
//!
//! A runtime is a crate or a module of its own and implements [`winddown_shared::Runtime`] with these parts.

pub mod action;
pub mod amounts;
pub mod disk_notes;
pub mod driver;
pub mod end_notices;
pub mod entry;
pub mod environment;
pub mod failure;
pub mod files;
pub mod meminfo;
pub mod mount_table;
pub mod oom_score;
pub mod plan;
pub mod pod;
mod pod_resources;
pub mod pods;
pub mod probe_client;
mod prober;
pub mod probing;
pub mod ready;
pub mod state_lock;
pub mod stats;
pub mod status;
pub mod stopping;
pub mod support;
pub mod sync;
pub mod termination_message;
pub mod unsupported;

pub use environment::NodeFacts;
