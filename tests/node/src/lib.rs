//! A disposable machine with systemd as its first process, for tests that need a real one.
//!
//! # Behaviour
//! [`Base::find`] finds or builds a root of Debian 12, 13 or sid outside git. [`Node::create`] puts a temporary layer
//! over it and [`Node::start`] boots it with `systemd-nspawn` in about 0.3 s: dbus, logind and journald are real, and
//! so is a power-off. Afterwards the node's files and journal can be read, and [`Node::start`] boots the same root
//! again. Dropping a [`Node`] kills it and removes its files; if the test process is killed, the kernel kills the node
//! and removes its mounts.
//!
//! # Limits
//! Needs root, Linux, and the Debian packages `systemd-container` and `mmdebstrap`. The node shares the host's kernel
//! and clocks, and has only a loopback network device and no other device of its own. Its control groups of version 2
//! have the controllers that the host's have; without any, containers run on Debian 12 only. A scenario that needs
//! controllers says so ([`Need::Controllers`]) and gets a node with its own kernel, [`Flavour::OwnKernel`], or an
//! emulated machine if it needs more than that, [`Flavour::Emulated`]. From the host, only the disk and the commands of
//! such a node are accessible, not its network, sockets or processes, and files on its disk can only be owned by root.
//!
//! # Design
//! Nothing is registered with a `machined`: commands enter the namespaces of the node's first process. All mounts are
//! in a mount namespace that ends with the node.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

mod base;
mod bridge;
pub mod cgroup;
pub mod chaos;
mod containerd;
pub mod crio;
pub mod document;
mod image;
mod installation;
mod interrupt;
mod journal;
pub mod kubelet;
mod node;
pub mod oom_killers;
pub mod packages;
pub mod platforms;
mod pods;
pub mod preload;
pub mod restarts;
pub mod scenario;
mod seeded_rng;
mod skip;
pub mod soak;
pub mod typed;
pub mod upgrades;
pub mod usage;
mod witness;

pub use base::{
    Base, Flavour, Need, Recipe, Suite, Unavailable, example_agent, of_this_test, programs,
    workload,
};
pub use bridge::Bridge;
pub use containerd::SYSTEMD_CGROUPS;
pub use image::{IMAGE, IMAGE_WITH_ODD_SIGNAL};
pub use interrupt::unless_interrupted;
pub use journal::JournalEntry;
pub use node::{Dialer, Disk, Node, NodeError, Output, Process, SHARED, error_chain};
pub use pods::{
    PodBehavior, PodLog, TestPod, hold_pods, install_pods, let_pods_end, read_pod_log, remove_pods,
};
pub use seeded_rng::SeededRng;
pub use skip::{Skipped, base_or_skip, in_long_form};
