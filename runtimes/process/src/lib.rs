//! Runs a pod's containers as programs of the host.
//!
//! * [`process`]: supervised processes, the embedded default. No image, no daemon.
//! * [`systemd`]: transient services of systemd.
//!
//! Each runtime is a module of its own and implements [`winddown_shared::Runtime`].
//!
//! # Design
//!
//! ## Programs of the host
//!
//! Every attempt to run a container has a *shim*, the program `winddown-shim`. The shim, not the agent, is the parent of
//! the container's processes, writes its log, records its exit, and kills what is left of it. So the agent can be restarted
//! or killed at any moment: it finds the shims again by their locks and watches them through pidfds.
//!
//! `process/cgroup` gives each attempt a control group in every hierarchy that was delegated to the agent's unit. `place`
//! (read-only) finds that group and says why one is missing; `amounts` is the kubelet's arithmetic; `members` of `shim`
//! ends the processes of a group. A limit without its controller refuses the pod before it first runs, never while it runs.
//! A pod whose runs are of an earlier boot starts over: the plan sees `Never`, or `Done` for containers that ended for
//! good.
//!
//! The record of a pod on disk omits the values of its environment; `/run/winddown` has the complete record.
//!
//! ## Transient services
//!
//! `runtimes/process/src/programs` starts, ends, adopts and measures pods for all programs of the host. A `ProgramDriver` knows how
//! a program is started, asked to end, killed and found again. `systemd` is such a driver; it runs each attempt as a
//! transient service. `ServiceUnits` is its seam to the service manager, which `systemd::units` implements over D-Bus;
//! `programs/tests/services.rs` runs the runtimes' suite on it and starts each test again in a node. systemd keeps how a
//! unit ended until winddown has recorded it. An attempt's unit has a unique name, so a lost answer or a killed agent
//! starts nothing twice. A unit counts as gone only when systemd, on being asked, says so.

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod process;
mod programs;
pub mod systemd;

pub use programs::ProgramRuntime;
pub use winddown_host::{CommandStream, PodStream, PodStreams, Stdio, StreamRequest, StreamServer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
