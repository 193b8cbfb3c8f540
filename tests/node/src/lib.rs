//! A disposable machine with systemd as its first process, for tests that need the real thing.
//!
//! # Behaviour
//! [`Base::find`] makes or finds a root of Debian 12, 13 or sid outside git. [`Node::create`] lays a throw-away layer
//! over it and [`Node::start`] boots it with `systemd-nspawn` in about 0.3 s: dbus, logind and
//! journald are real, and so is a power-off. After it the node's files and journal can be read, and
//! [`Node::start`] boots the same root again. Dropping a [`Node`] kills it and removes its files; if
//! the test process is killed, the kernel kills the node and takes its mounts with it.
//!
//! # Limits
//! Needs root, Linux, and the Debian packages `systemd-container` and `mmdebstrap`. The node
//! shares the host's kernel and clocks, has a loopback device only, and no device of its own. Of the
//! control groups of version 2 it has the controllers that the host has there; without any, containers
//! run on Debian 12 only. A scenario that needs controllers says so ([`Need::Controllers`]) and gets a
//! node with a kernel of its own, [`Flavour::OwnKernel`], or one in an emulated machine if it needs more
//! than that has, [`Flavour::Emulated`]. Nothing of the host's reaches into that but
//! its disk and its commands: no way to its network, its sockets or its processes, and no ownership of
//! files by other users than root on its disk.
//!
//! # Design
//! Nothing is registered with a `machined`: commands enter the namespaces of the node's first
//! process. All mounts live in a mount namespace that ends with the node.

mod base;
mod bridge;
pub mod cgroup;
pub mod chaos;
mod containerd;
pub mod document;
mod image;
mod installation;
mod journal;
pub mod kubelet;
mod node;
pub mod oom_killers;
pub mod packages;
pub mod platforms;
mod pods;
pub mod reboots;
pub mod scenario;
mod skip;
pub mod typed;
pub mod usage;

pub use base::{Base, Flavour, Need, Recipe, Suite, Unavailable, of_this_test, programs};
pub use bridge::Bridge;
pub use image::{IMAGE, IMAGE_WITH_ODD_SIGNAL};
pub use journal::JournalEntry;
pub use node::{Dialer, Disk, Node, NodeError, Output, Process};
pub use pods::{
    Manner, PodLog, TestPod, hold_pods, install_pods, let_pods_end, read_pod_log, remove_pods,
};
pub use skip::{Skipped, base_or_skip, in_long_form};
