//! Resolves what a pod refers to: environment variables and volumes that come from the API.
//!
//! [`Resolver`] is the pod controller's [`Prepare`](winddown_cluster::pods::Prepare). It reads
//! single objects by name, never all Secrets of a namespace; watches an object only while a pod
//! waits for it; never logs a secret; and keeps secrets in memory file systems. It leaves to the
//! runtime what the runtime can do by itself (the pod's own fields, `$(NAME)`).
//!
//! # Design
//!
//! `pod-references` resolves a pod's references before the node gets the pod. Variables from ConfigMaps, Secrets,
//! services and resource amounts (without a limit: what the node has for pods) become literal `env`; volumes with content
//! from the API become read-only directories of the host, secrets in memory. Objects are read by name; an object is
//! watched only while a pod waits for it.

mod allowance;
mod atomic;
mod downward;
mod env;
mod fresh;
mod mounting;
mod needs;
mod object;
mod payload;
mod places;
mod problem;
mod reader;
mod resolved;
mod resolver;
mod room;
mod services;
mod shared;
mod singleflight;
mod timetable;
mod tokens;
mod waiting;

use std::path::PathBuf;
use std::time::Duration;

use winddown_host::machine;
use winddown_shared::BootClock;

pub use allowance::MOST_BYTES_OF_VARIABLES;
pub use downward::NodeAmounts;
pub use fresh::Freshener;
pub use resolver::{ResolveCounts, Resolver};
pub use room::{MemoryRoom, RoomTurn};

/// Configuration of a [`Resolver`].
#[derive(Clone, Debug)]
pub struct ResolverConfig {
    /// The directory of volumes without secrets: `/var/lib/winddown/cluster/volumes`.
    pub volumes: PathBuf,
    /// The directory of volumes with secrets, in memory: `/run/winddown/volumes`.
    pub secret_volumes: PathBuf,
    /// What containers without limits may use, for the downward API; `None` until
    /// [`Resolver::set_node`] sets it.
    pub node: Option<NodeAmounts>,
    /// The maximum age of what a volume shows.
    pub max_age: Duration,
    /// The timeout of one request to the API server.
    pub request: Duration,
    /// The clock by which tokens age. Tokio's stands still while the machine is suspended, and tokens expire meanwhile.
    pub boot_clock: BootClock,
}

impl ResolverConfig {
    /// Volumes in these two directories, at most a minute old, and requests of at most ten seconds.
    pub fn new(volumes: impl Into<PathBuf>, secret_volumes: impl Into<PathBuf>) -> Self {
        Self {
            volumes: volumes.into(),
            secret_volumes: secret_volumes.into(),
            node: None,
            max_age: Duration::from_secs(60),
            request: Duration::from_secs(10),
            boot_clock: machine::boot_clock(),
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
