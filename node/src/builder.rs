//! How a node is put together.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use winddown_machine::host::{boot_clock, boot_id, host_name, wall_clock};
use winddown_shared::{BootClock, PluginError, Runtime, WallClock};

use crate::core::CoreParts;
use crate::{Identity, Machine, Node, NodePlugin, Settings, Source};

/// Puts a [`Node`] together. Anything not set has the default that its method names.
pub struct NodeBuilder<R: Runtime>(NodeParts<R>);

pub(crate) struct NodeParts<R: Runtime> {
    pub(crate) core: CoreParts<R>,
    pub(crate) settings: watch::Receiver<Settings>,
    pub(crate) sources: Vec<Source>,
    pub(crate) plugins: Vec<Box<dyn NodePlugin<R>>>,
}

impl<R: Runtime> NodeBuilder<R> {
    pub(crate) fn new(runtime: Arc<R>) -> Self {
        let name = host_name().trim().to_ascii_lowercase();
        let core = CoreParts {
            runtime,
            runtime_health: |_| Ok(()),
            identity: Identity { name, boot_id: boot_id() },
            machine: None,
            wall: wall_clock(),
            boot_clock: boot_clock(),
            admits_all: false,
            kept_in: None,
        };
        let settings = watch::Sender::new(Settings::default()).subscribe();
        Self(NodeParts { core, settings, sources: Vec::new(), plugins: Vec::new() })
    }

    /// What the node goes by, now and later; nothing is kept from the pods.
    #[must_use]
    pub fn settings(mut self, settings: watch::Receiver<Settings>) -> Self {
        self.0.settings = settings;
        self
    }

    /// Adds a source of pods, for example what a [`ManifestDirectory`](winddown_static_pods::ManifestDirectory)
    /// publishes; none. Plug-ins may bring others, such as the API server.
    #[must_use]
    pub fn source(mut self, source: impl Into<Source>) -> Self {
        self.0.sources.push(source.into());
        self
    }

    /// Adds these, for instance an optional one.
    #[must_use]
    pub fn sources(self, sources: impl IntoIterator<Item = impl Into<Source>>) -> Self {
        sources.into_iter().fold(self, Self::source)
    }

    /// Adds a plug-in: one of the node's own, or a controller of another party; none. Each kind of the
    /// node's own once. New pods are asked about in the order of the list.
    #[must_use]
    pub fn plugin(mut self, plugin: impl NodePlugin<R>) -> Self {
        self.0.plugins.push(Box::new(plugin));
        self
    }

    /// Adds these, for instance an optional one.
    #[must_use]
    pub fn plugins(self, plugins: impl IntoIterator<Item = impl NodePlugin<R>>) -> Self {
        plugins.into_iter().fold(self, Self::plugin)
    }

    /// What says how the runtime is: what is wrong with it, for people. Must answer at once; nothing is.
    #[must_use]
    pub fn runtime_health(mut self, health: fn(&R) -> Result<(), String>) -> Self {
        self.0.core.runtime_health = health;
        self
    }

    /// Who the node is; this host by its name, in its boot.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.0.core.identity = identity;
        self
    }

    /// What the pods have to fit into; everything fits.
    #[must_use]
    pub fn machine(mut self, machine: impl Into<Option<Machine>>) -> Self {
        self.0.core.machine = machine.into();
        self
    }

    /// Whether a kubelet has admitted the pods: then nothing is asked of them again, not even whether the
    /// node shuts down; false.
    #[must_use]
    pub fn admits_all(mut self, admits_all: bool) -> Self {
        self.0.core.admits_all = admits_all;
        self
    }

    /// A directory that outlives the agent, best one that needs no disk: there is kept which pods are ending, for
    /// the next agent to go on with. None: the next one knows nothing of it.
    #[must_use]
    pub fn kept_in(mut self, directory: impl Into<PathBuf>) -> Self {
        self.0.core.kept_in = Some(directory.into());
        self
    }

    /// The clocks: what labels statuses and reports, and what the agents of one boot have in common; the
    /// host's.
    #[must_use]
    pub fn clocks(mut self, wall: WallClock, boot: BootClock) -> Self {
        (self.0.core.wall, self.0.core.boot_clock) = (wall, boot);
        self
    }

    /// Joins the parts and starts them. Must be called inside a tokio runtime.
    ///
    /// With [`Shutdown`](crate::Shutdown) in the list no pod is admitted before the login manager has said whether
    /// a shutdown is already under way (or has been silent for two seconds), and no shutdown is acted on before the
    /// pods that run already are known, or have not become known for five seconds: then the shutdown itself waits
    /// for them.
    ///
    /// # Errors
    /// What plug-ins of other parties are called, or count, is not told apart. Nothing was started.
    pub fn start(self) -> Result<Node<R>, PluginError> {
        Node::of_parts(self.0)
    }
}
