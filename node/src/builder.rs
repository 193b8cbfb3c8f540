//! Builds a node.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use winddown_host::machine::{boot_clock, boot_id, host_name, wall_clock};
use winddown_shared::{BootClock, Runtime, WallClock};

use crate::registered_plugin::PluginError;
use crate::{Machine, Node, NodeIdentity, NodePlugin, PodSource, Product, Settings};

/// Builds a [`Node`]. Each method names the default of what it sets.
pub struct NodeBuilder<R: Runtime> {
    pub(crate) runtime: Arc<R>,
    pub(crate) runtime_health: fn(&R) -> Result<(), String>,
    pub(crate) identity: NodeIdentity,
    pub(crate) machine: Option<Machine>,
    pub(crate) wall: WallClock,
    pub(crate) boot_clock: BootClock,
    pub(crate) admits_all: bool,
    pub(crate) state_directory: Option<PathBuf>,
    pub(crate) product: Product,
    pub(crate) settings: watch::Receiver<Settings>,
    pub(crate) manifests: Option<PathBuf>,
    pub(crate) sources: Vec<PodSource>,
    pub(crate) plugins: Vec<Box<dyn NodePlugin<R>>>,
}

impl<R: Runtime> NodeBuilder<R> {
    pub(crate) fn new(runtime: Arc<R>) -> Self {
        let name = host_name().trim().to_ascii_lowercase();
        Self {
            runtime,
            runtime_health: |_| Ok(()),
            identity: NodeIdentity { name, boot_id: boot_id() },
            machine: None,
            wall: wall_clock(),
            boot_clock: boot_clock(),
            admits_all: false,
            state_directory: None,
            product: Product::default(),
            settings: watch::Sender::new(Settings::default()).subscribe(),
            manifests: None,
            sources: Vec::new(),
            plugins: Vec::new(),
        }
    }

    /// Sets the node's settings; a receiver may change them while the node runs. By default nothing is reserved from
    /// the pods.
    #[must_use]
    pub fn settings(mut self, settings: impl Into<watch::Receiver<Settings>>) -> Self {
        self.settings = settings.into();
        self
    }

    /// Sets the program that the node is part of, which its status, metrics and Events name. By default that is winddown.
    #[must_use]
    pub fn product(mut self, product: Product) -> Self {
        self.product = product;
        self
    }

    /// Adds the pods of a directory of manifests, which is watched. By default there is none.
    ///
    /// Give its absolute path, and the same one each time: the UID of a manifest's pod depends on it.
    #[must_use]
    pub fn manifests(mut self, directory: impl Into<PathBuf>) -> Self {
        self.manifests = Some(directory.into());
        self
    }

    /// Adds a source of pods, for example what a [`ManifestDirectory`](winddown_static_pods::ManifestDirectory)
    /// publishes. By default there is none. Plug-ins may add others, such as the API server.
    ///
    /// A pod with the annotation `kubernetes.io/config.source`, whose value is not `api`, is the node's own: it starts
    /// again after a cancelled shutdown, a drain or an eviction. One without it counts as an API server's: once it was
    /// terminated it has failed, and this agent does not start it again. Its source has to publish the terminal phase
    /// then, as an API server does, or the next agent starts it. If its controller also replaces a pod that was refused,
    /// use [`PodSource::refused_for_good`], or both may run.
    #[must_use]
    pub fn source(mut self, source: impl Into<PodSource>) -> Self {
        self.sources.push(source.into());
        self
    }

    /// Adds several sources, or an optional one.
    #[must_use]
    pub fn sources(self, sources: impl IntoIterator<Item = impl Into<PodSource>>) -> Self {
        sources.into_iter().fold(self, Self::source)
    }

    /// Adds a plug-in: one of this crate's, at most once each, or a third-party controller. By default there is
    /// none. Plug-ins check new pods in the order of the list.
    #[must_use]
    pub fn plugin(mut self, plugin: impl NodePlugin<R>) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// Adds several plug-ins, or an optional one.
    #[must_use]
    pub fn plugins(self, plugins: impl IntoIterator<Item = impl NodePlugin<R>>) -> Self {
        plugins.into_iter().fold(self, Self::plugin)
    }

    /// Sets the function that checks the runtime; its error is the problem, for display. It must not block. By
    /// default the runtime counts as healthy.
    #[must_use]
    pub fn runtime_health(mut self, health: fn(&R) -> Result<(), String>) -> Self {
        self.runtime_health = health;
        self
    }

    /// Sets the node's name and boot id. By default they are those of this host.
    #[must_use]
    pub fn identity(mut self, identity: NodeIdentity) -> Self {
        self.identity = identity;
        self
    }

    /// Sets the machine that the pods have to fit into. By default every pod fits.
    #[must_use]
    pub fn machine(mut self, machine: impl Into<Option<Machine>>) -> Self {
        self.machine = machine.into();
        self
    }

    /// Sets whether a kubelet admits the pods. The node then makes no admission checks, not even for a shutdown.
    /// The default is false.
    #[must_use]
    pub fn admits_all(mut self, admits_all: bool) -> Self {
        self.admits_all = admits_all;
        self
    }

    /// Sets a directory in memory that outlives the agent, such as one below `/run`. The node records there which pods
    /// are terminating, so that the next agent can resume. By default nothing is recorded.
    ///
    /// A record is written before the pod is asked, while no other controller may choose and no shutdown may begin: a
    /// disk that hangs would hold up a shutdown. For a directory on a disk the node starts with a warning.
    #[must_use]
    pub fn state_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_directory = Some(directory.into());
        self
    }

    /// Sets the wall clock for statuses and reports, and the boot clock that the agents of one boot share. By
    /// default they are the host's.
    #[must_use]
    pub fn clocks(mut self, wall: WallClock, boot: BootClock) -> Self {
        (self.wall, self.boot_clock) = (wall, boot);
        self
    }

    /// Assembles the node and starts it. Must be called inside a tokio runtime.
    ///
    /// With [`Shutdown`](crate::Shutdown) in the list, no pod is admitted before the login manager has reported whether
    /// a shutdown is already in progress (or has been silent for two seconds), and no shutdown is handled before the
    /// pods that already run are known. If they are still unknown after five seconds, the shutdown itself waits for
    /// them.
    ///
    /// # Errors
    /// The name of a third-party plug-in or of one of its metrics is invalid or already taken. Nothing was started.
    pub fn start(self) -> Result<Node<R>, PluginError> {
        Node::of_parts(self)
    }
}
