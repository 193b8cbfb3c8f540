//! What runs the containers of a pod.
//!
//! * [`process`]: supervised processes of the host, the embedded default. No image, no daemon.
//! * [`cri`]: containers of containerd or CRI-O.
//! * [`systemd`]: programs of the host as transient services of systemd.
//! * [`plan`]: which container to start, stop or wait for. Pure, and the same for every runtime.
//!
//! A runtime is a module of its own and implements [`winddown_shared::Runtime`].

mod containers_file;
pub mod cri;
mod disk_notes;
mod entry;
mod environment;
mod fault;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod mount_table;
mod oom_score;
pub mod plan;
mod pod_resources;
mod probe_client;
mod probing;
pub mod process;
mod programs;
mod ready;
mod state_lock;
mod states;
mod stats;
mod stopping;
pub mod systemd;
mod unsupported;

pub use environment::{EnvironmentError, NodeFacts, command_line, environment, host_addresses};
pub use mount_table::below as mounts_below;
pub use probe_client::{Unsendable, unsendable};

/// The example in README.md compiles and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
