//! Runs a pod's containers as programs of the host.
//!
//! * [`process`]: supervised processes, the embedded default. No image, no daemon.
//! * [`systemd`]: transient services of systemd.
//!
//! Each runtime is a module of its own and implements [`winddown_shared::Runtime`].

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod process;
mod programs;
pub mod systemd;

pub use programs::ProgramRuntime;
pub use winddown_host::{CommandStream, PodStream, PodStreams, Stdio, StreamRequest, StreamServer};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
