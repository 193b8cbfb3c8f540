#![doc = include_str!("../README.md")]
#![doc = "\n# The agent of `examples/agent.rs`\n\n```rust,ignore"]
#![doc = include_str!("../examples/agent.rs")]
#![doc = "```"]
//!
//! # Overview
//!
//! The node: pods, their workers and the control API for any runtime, and a list of plug-ins.
//!
//! ```text
//! Node::builder(runtime)
//!     .source(manifests)
//!     .plugin(Shutdown::new(logind, policy, state))
//!     .plugin(Preemption::new(strategy))
//!     .plugin(Eviction::new(source, thresholds))
//!     .plugin(Cluster { connection, … })
//!     .start()?
//! ```
//!
//! Each of these plug-ins is a feature of this crate, and all are on by default. Without a plug-in in its list a node
//! does everything else, and answers requests to that plug-in with an error or an empty plan. Without its feature, a
//! plug-in's crate is not compiled. The feature `config` creates the plug-ins from winddown's configuration file, which
//! has fields for all of them.
//!
//! # Design
//!
//! The end of a single pod (for a critical pod, by eviction, by a drain, by an operator or a plug-in, or because no source
//! wants it any more) is recorded too, in a file of `/run/winddown/kills` that is written before the pod is asked
//! (`node/src/kept_kills.rs`). Both records keep the end of the grace as time since the boot; the intake converts it when it
//! hands the kill to a worker. So the next agent continues with the rest, and chooses no second victim.
//! `KillReason::restart_condition` is the one table of when a manifest's pod starts again after that, and whether the file
//! stays until then.
//!
//! Whether a node is protected is one pure rule, `node/src/protection.rs`: the doctor applies it to its facts, and the agent to
//! its own state when a request for the status or the metrics arrives. For the kubelet the agent looks with the doctor's eyes
//! (`doctor::KubeletLook`), at most once in five seconds and only when asked. A property of all combinations of facts keeps
//! findings and verdict together.
#![cfg_attr(
    not(all(
        feature = "shutdown",
        feature = "preemption",
        feature = "eviction",
        feature = "cluster"
    )),
    allow(dead_code, unused_imports, reason = "what plug-ins have for each other")
)]

mod api;
mod builder;
#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "config")]
mod config_file;
#[cfg(feature = "config")]
mod configured;
mod core;
mod decisions;
mod disk_room;
mod fit;
#[cfg(feature = "shutdown")]
mod guard;
mod kept_file;
mod kept_kills;
mod links;
mod logs;
#[cfg(feature = "config")]
mod memory_reclaim;
pub mod metrics;
#[cfg(feature = "shutdown")]
pub mod ordered_start;
mod plugin;
#[cfg(feature = "preemption")]
pub mod preemption;
#[cfg(feature = "eviction")]
mod pressure;
mod product;
mod recorders;
mod registered_plugin;
#[cfg(all(feature = "systemd", feature = "shutdown"))]
pub mod service;
mod settings;
#[cfg(feature = "shutdown")]
pub mod shutdown;
mod source;
mod status_view;
#[cfg(test)]
#[cfg(all(feature = "config", feature = "cluster"))]
mod tests;
#[cfg(feature = "config")]
mod trust;

use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use winddown_control::{ControlSocket, Limits, Server, SocketError};
use winddown_host::pod_logs::PodLogs;
use winddown_shared::{
    EarlierKill, PluginStatusLines, PodKiller, PodUidMap, PodWorkers, Runtime, RuntimeSyncer,
    WallTime, critical,
};

use crate::core::{Core, JoinedChecks};
use crate::links::Links;
use crate::metrics::ProcessReader;
use crate::plugin::{Answers, Contributions, Lead, PluginSection};
use crate::registered_plugin::RegisteredPlugin;

pub use builder::NodeBuilder;
#[cfg(feature = "cluster")]
pub use cluster::Cluster;
#[cfg(feature = "config")]
pub use config_file::ConfigFile;
#[cfg(feature = "config")]
pub use configured::{Configuration, Configured, policy_of};
pub use decisions::{Decisions, log_decision};
pub use disk_room::DiskRoom;
pub use fit::Machine;
#[cfg(feature = "shutdown")]
pub use guard::{GUARD_LABEL, GuardPolicy, ShutdownGuard};
pub use plugin::{NodePlugin, PluginRegistry};
#[cfg(feature = "preemption")]
pub use preemption::Preemption;
#[cfg(feature = "eviction")]
pub use pressure::Eviction;
pub use product::Product;
pub use registered_plugin::PluginError;
#[cfg(all(feature = "systemd", feature = "shutdown"))]
pub use service::{SystemdService, block_on};
pub use settings::{Settings, SettingsSource};
#[cfg(feature = "shutdown")]
pub use shutdown::{Shutdown, ShutdownHandle, reports};
pub use source::PodSource;
#[cfg(feature = "config")]
pub use trust::trusted_paths;
#[cfg(feature = "shutdown")]
pub use winddown_control::protection::{
    AgentRole, ApiServerUse, KubeletFacts, KubeletPresence, ProtectionFacts, protection,
};

// What an agent is made of, so that it depends on one crate.
pub use futures_util::future::BoxFuture;
pub use k8s_openapi;
pub use tokio_util::sync::CancellationToken;
#[cfg(feature = "cluster")]
pub use winddown_api_client as api_client;
#[cfg(feature = "config")]
pub use winddown_config as config;
pub use winddown_control as control;
#[cfg(feature = "cri")]
pub use winddown_cri as cri;
#[cfg(feature = "eviction")]
pub use winddown_eviction as eviction;
pub use winddown_host as host;
#[cfg(feature = "shutdown")]
pub use winddown_notices as notices;
#[cfg(feature = "process")]
pub use winddown_runtimes as runtimes;
pub use winddown_shared as shared;
pub use winddown_static_pods as static_pods;
#[cfg(feature = "systemd")]
pub use winddown_systemd as systemd;

/// The identity of the node.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// The node's name.
    pub name: String,
    /// The kernel's boot id.
    pub boot_id: String,
}

/// The directories of small files in the node's directory for what may be lost with the boot. Blocking.
pub fn kept_directories(volatile: &Path) -> Vec<PathBuf> {
    let all = [volatile.to_owned(), kept_kills::KeptKills::directory(volatile)].into_iter();
    #[cfg(feature = "cluster")]
    let all = all.chain(cluster::KeptPods::directories(volatile));
    all.collect()
}

/// A running node. Cheap to clone.
pub struct Node<R: Runtime>(Arc<NodeShared<R>>);

struct NodeShared<R: Runtime> {
    core: Arc<Core<R>>,
    settings: watch::Receiver<Settings>,
    sources: Vec<PodSource>,
    sections: Vec<Arc<dyn PluginSection>>,
    answers: Answers,
    plugin_notes: PluginStatusLines,
    /// The directory of manifests that the node watches itself.
    manifests: Option<PathBuf>,
    /// The containers' logs; none if the runtime writes none.
    logs: Option<PodLogs>,
    /// The control server.
    served: TaskTracker,
    process: ProcessReader,
    /// Why metrics are not served over TCP.
    metrics_problem: watch::Sender<Option<String>>,
    started: tokio::time::Instant,
    started_at: WallTime,
}

/// Adds the kills of an earlier agent's shutdown: the earlier end, and the reason and status of the pod's own kill.
fn merge(pending: &mut PodUidMap<EarlierKill>, of_shutdown: PodUidMap<EarlierKill>) {
    for (uid, kill) in of_shutdown {
        let of_pod = pending.entry(uid).or_insert_with(|| kill.clone());
        of_pod.until = of_pod.until.min(kill.until);
        let status = kill.request.replacement(of_pod.request.status.as_ref());
        of_pod.request.status = status.or(of_pod.request.status.take());
    }
}

impl<R: Runtime> Clone for Node<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Runtime> Node<R> {
    /// Creates a builder for a node on `runtime`, without plug-ins.
    pub fn builder(runtime: Arc<R>) -> NodeBuilder<R> {
        NodeBuilder::new(runtime)
    }

    pub(crate) fn of_parts(mut parts: NodeBuilder<R>) -> Result<Self, PluginError> {
        let (settings, manifests) = (parts.settings.clone(), parts.manifests.take());
        let (mut sources, plugins) = (take(&mut parts.sources), take(&mut parts.plugins));
        let first = settings.borrow().clone();
        let others: Vec<_> = plugins.iter().filter_map(|plugin| plugin.third_party()).collect();
        RegisteredPlugin::check(&others)?;
        parts.product.check(&others)?;
        let state_directory = parts.state_directory.clone();
        let (core, pending_kills) = Core::new(parts, &first, &others);
        let core = Arc::new(core);
        sources.extend(manifests.as_deref().map(|directory| core.watch_manifests(directory)));
        let (notes, contributions) = <(PluginStatusLines, Contributions)>::default();
        let mut node = PluginRegistry {
            core: Arc::clone(&core),
            settings: settings.clone(),
            state_directory,
            notes: notes.clone(),
            contributions,
        };
        node.contributions.links.sources = sources;
        for plugin in plugins {
            plugin.register(&mut node);
        }
        let Contributions {
            admission,
            preemption_handler,
            recorders,
            sections,
            answers,
            mut links,
            lead,
            starts,
        } = node.contributions;
        core.admit_by(JoinedChecks { handlers: admission, preemption: preemption_handler });
        core.recorders.join(recorders);
        let node = Self(Arc::new(NodeShared {
            core: Arc::clone(&core),
            settings: settings.clone(),
            sources: links.sources.clone(),
            sections,
            answers,
            plugin_notes: notes,
            manifests,
            logs: core.runtime.pod_logs().map(logs::of),
            served: TaskTracker::new(),
            process: ProcessReader::new("/proc"),
            metrics_problem: watch::Sender::new(None),
            started: tokio::time::Instant::now(),
            started_at: core.wall.now(),
        }));
        node.start_tasks(settings);
        for start in starts {
            start(&mut links);
        }
        Self::bring_in(core, lead, pending_kills, links);
        Ok(node)
    }

    /// Starts the work that precedes the start of pods, the pods, and what runs once they are known.
    fn bring_in(
        core: Arc<Core<R>>,
        lead: Option<Lead>,
        mut pending_kills: PodUidMap<EarlierKill>,
        mut links: Links,
    ) {
        let stop = core.stop.clone();
        let name = lead.as_ref().map_or("first pods", |_| "shutdown controller");
        // Boxed, because the future is large and is moved several times.
        let work = Box::pin(async move {
            let mut then = Box::pin(core.stop.clone().cancelled_owned()) as BoxFuture<'static, ()>;
            if let Some(lead) = lead {
                let asked;
                (asked, then) = lead.await;
                merge(&mut pending_kills, asked);
            }
            core.bring_in(pending_kills, &mut links).await;
            then.await;
        });
        critical::spawn_stopping(name, stop, work);
    }

    /// The pod workers.
    pub fn workers(&self) -> &PodWorkers<RuntimeSyncer<R>> {
        &self.0.core.workers
    }

    /// Waits until the pods that ran before the agent started are known, for as long as a shutdown waits
    /// for that. An agent that is stopped right after its start would otherwise miss them.
    pub async fn pods_are_known(&self) {
        self.0.core.pods_are_known().await;
    }

    /// Serves the control API on a socket at `path` until the node is shut down: what `winddown --socket PATH` talks to.
    /// Only root and this user may connect.
    ///
    /// # Errors
    /// The socket cannot be made, or another agent serves there.
    pub async fn serve(&self, path: impl AsRef<Path>) -> Result<(), SocketError> {
        let socket = ControlSocket::bind(path.as_ref(), None).await?;
        let stop = self.0.core.stop.clone();
        let server = Server::new(Arc::new(self.clone()), Limits::default(), stop.clone());
        let served = self.0.served.track_future(server.serve(socket));
        critical::spawn_stopping("control server", stop, served);
        Ok(())
    }

    /// Shows in the status why metrics are not served over TCP.
    pub fn set_metrics_problem(&self, problem: Option<String>) {
        self.0.metrics_problem.send_replace(problem);
    }

    /// Stops all tasks; containers keep running.
    pub async fn shut_down(&self) {
        for section in &self.0.sections {
            section.stopped().await;
        }
        self.0.core.stop.cancel();
        self.0.core.workers.shut_down().await;
        self.0.served.close();
        self.0.served.wait().await;
    }

    fn start_tasks(&self, settings: watch::Receiver<Settings>) {
        let core = &self.0.core;
        critical::spawn(
            "changes of the runtime",
            RuntimeSyncer::forward_runtime_changes(core.workers.clone()),
        );
        core.count(core.statuses.changes());
        core.count(core.wanted.subscribe());
        core.count(core.recorders.decisions.changes());
        core.count(self.0.plugin_notes.changes());
        core.count(self.0.metrics_problem.subscribe());
        core.count(core.workers.more_known());
        tokio::spawn(recorders::measure_starts(
            Arc::clone(&core.recorders.metrics),
            core.statuses.clone(),
            core.stop.clone(),
        ));
        let forget = Arc::clone(core).forget_unwanted();
        critical::spawn_until("unwanted pods", core.stop.clone(), forget);
        let merged = source::merge(self.0.sources.clone(), core.wanted.clone());
        critical::spawn_until("wanted pods", core.stop.clone(), merged);
        critical::spawn("settings", Arc::clone(core).follow(settings));
    }
}

/// The examples of the page for embedders.
#[cfg(all(doctest, feature = "shutdown"))]
#[doc = include_str!("../../docs/embedding.md")]
struct Embedding;
