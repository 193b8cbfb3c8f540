//! What a pod refers to, made literal: environment variables and volumes that come from the API.
//!
//! [`Resolver`] is the pod controller's [`Prepare`](winddown_cluster::pods::Prepare). It reads single objects by
//! name and never a whole namespace of Secrets; watches one only while a pod waits for it; shows no
//! secret in any log; and keeps secrets in memory file systems. What the runtime can do by itself (the
//! pod's own fields, `$(NAME)`) it leaves to the runtime.

mod atomic;
mod downward;
mod env;
mod fresh;
mod literal;
mod mounting;
mod needs;
mod object;
mod payload;
mod places;
mod problem;
mod reader;
mod resolver;
mod services;
mod shared;
mod singleflight;
mod timetable;
mod tokens;
mod waiting;

use std::path::PathBuf;
use std::time::Duration;

pub use downward::NodeAmounts;
pub use fresh::Freshener;
pub use resolver::{ResolveCounts, Resolver};

/// How pods are made literal.
#[derive(Clone, Debug)]
pub struct ResolverConfig {
    /// Below which volumes without secrets are kept: `<state>/volumes`.
    pub volumes: PathBuf,
    /// Below which volumes with secrets are kept; in memory: `/run/winddown/volumes`.
    pub secret_volumes: PathBuf,
    /// What containers without limits may use, for the downward API; none while it is not known:
    /// [`Resolver::set_node`] tells.
    pub node: Option<NodeAmounts>,
    /// How old what a volume shows may become.
    pub max_age: Duration,
    /// How long one request to the API server may take.
    pub request: Duration,
}

impl ResolverConfig {
    /// Volumes below these two directories, at most a minute old; requests of at most ten seconds.
    pub fn new(volumes: impl Into<PathBuf>, secret_volumes: impl Into<PathBuf>) -> Self {
        Self {
            volumes: volumes.into(),
            secret_volumes: secret_volumes.into(),
            node: None,
            max_age: Duration::from_secs(60),
            request: Duration::from_secs(10),
        }
    }
}
