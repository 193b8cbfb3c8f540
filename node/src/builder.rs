//! How a node is put together.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use winddown_config::Config;
use winddown_machine::host::{boot_clock, boot_id, host_name, wall_clock};
use winddown_notices::NoticeAggregator;
use winddown_shared::{BootClock, Inhibitor, Plugin, Runtime, WallClock};
use winddown_shutdown::Trigger;
use winddown_static_pods::DesiredManifests;

use crate::cluster::ClusterParts;
use crate::{Configuration, Identity, Machine, Node, PressureSource};

/// Puts a [`Node`] together. What is not said has the value that its method names.
pub struct NodeBuilder<R, I>(pub(crate) NodeParts<R, I>);

pub(crate) struct NodeParts<R, I> {
    pub(crate) configuration: Configuration,
    pub(crate) runtime: Arc<R>,
    pub(crate) runtime_health: fn(&R) -> Result<(), String>,
    pub(crate) inhibitor: Arc<I>,
    pub(crate) notice_aggregator: NoticeAggregator,
    pub(crate) manifests: watch::Receiver<Arc<DesiredManifests>>,
    pub(crate) identity: Identity,
    pub(crate) machine: Option<Machine>,
    pub(crate) pressure: Option<PressureSource>,
    pub(crate) plugins: Vec<Box<dyn Plugin>>,
    pub(crate) trigger: Trigger,
    pub(crate) wall: WallClock,
    pub(crate) boot_clock: BootClock,
    pub(crate) volatile_directory: Option<PathBuf>,
    pub(crate) cluster: Option<ClusterParts>,
    pub(crate) admits_all: bool,
    pub(crate) refused_signals: fn(&I) -> u64,
}

impl<R: Runtime, I: Inhibitor> NodeBuilder<R, I> {
    pub(crate) fn new(runtime: Arc<R>, inhibitor: Arc<I>) -> Self {
        let wall = wall_clock();
        let config = Arc::new(Config::default());
        let identity = Identity { name: config.node_name_or(&host_name()), boot_id: boot_id() };
        let configuration =
            Configuration { config, file: None, warnings: Vec::new(), loaded_at: wall.now() };
        let nothing =
            DesiredManifests { generation: 1, complete: true, ..DesiredManifests::default() };
        Self(NodeParts {
            configuration,
            runtime,
            runtime_health: |_| Ok(()),
            inhibitor,
            notice_aggregator: NoticeAggregator::new(),
            manifests: watch::Sender::new(Arc::new(nothing)).subscribe(),
            identity,
            machine: None,
            pressure: None,
            plugins: Vec::new(),
            trigger: Trigger::LoginManager,
            wall,
            boot_clock: boot_clock(),
            volatile_directory: None,
            cluster: None,
            admits_all: false,
            refused_signals: |_| 0,
        })
    }

    /// The configuration, and where it came from; the defaults, from no file.
    ///
    /// Its `stateDirectory` is where the record of a shutdown and the reports are kept.
    #[must_use]
    pub fn configuration(mut self, configuration: Configuration) -> Self {
        self.0.configuration = configuration;
        self
    }

    /// A configuration that came from no file, read at the time of the clock that the builder has by then.
    #[must_use]
    pub fn config(self, config: Config) -> Self {
        let (config, loaded_at) = (Arc::new(config), self.0.wall.now());
        self.configuration(Configuration { config, file: None, warnings: Vec::new(), loaded_at })
    }

    /// The pods that are wanted, for example of a [`ManifestDirectory`](winddown_static_pods::ManifestDirectory);
    /// none, which is known.
    #[must_use]
    pub fn manifests(mut self, manifests: watch::Receiver<Arc<DesiredManifests>>) -> Self {
        self.0.manifests = manifests;
        self
    }

    /// Adds a controller that is none of the node's own; none.
    #[must_use]
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.0.plugins.push(Box::new(plugin));
        self
    }

    /// What says how the runtime is: what is wrong with it, for people. Must answer at once; nothing is.
    #[must_use]
    pub fn runtime_health(mut self, health: fn(&R) -> Result<(), String>) -> Self {
        self.0.runtime_health = health;
        self
    }

    /// Where it is said that the node goes away at a certain time. An operator gets a place on it; the
    /// other sources are the maker's business. Nothing says so but the operator.
    #[must_use]
    pub fn notices(mut self, notices: NoticeAggregator) -> Self {
        self.0.notice_aggregator = notices;
        self
    }

    /// Who the node is; this host by its name, in its boot.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.0.identity = identity;
        self
    }

    /// What the pods have to fit into; everything fits. With one, pods end for a critical pod that does
    /// not fit (preemption).
    #[must_use]
    pub fn machine(mut self, machine: impl Into<Option<Machine>>) -> Self {
        self.0.machine = machine.into();
        self
    }

    /// What says how much is left of what, by which pods are evicted; none is.
    #[must_use]
    pub fn pressure(mut self, pressure: impl Into<Option<PressureSource>>) -> Self {
        self.0.pressure = pressure.into();
        self
    }

    /// What joins the node to a cluster; it is on its own.
    #[must_use]
    pub fn cluster(mut self, cluster: impl Into<Option<ClusterParts>>) -> Self {
        self.0.cluster = cluster.into();
        self
    }

    /// Whether a kubelet has admitted the pods: then nothing is asked of them again, not even whether the
    /// node shuts down; false.
    #[must_use]
    pub fn admits_all(mut self, admits_all: bool) -> Self {
        self.0.admits_all = admits_all;
        self
    }

    /// The trigger that reports name; the login manager. A rehearsal leaves no mark on the machine.
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.0.trigger = trigger;
        self
    }

    /// The clocks: what labels statuses and reports, and what the agents of one boot have in common; the
    /// host's.
    #[must_use]
    pub fn clocks(mut self, wall: WallClock, boot: BootClock) -> Self {
        (self.0.wall, self.0.boot_clock) = (wall, boot);
        self
    }

    /// A directory that needs no disk and is lost with the boot: keeps the record of a shutdown when the
    /// state directory does not. None.
    #[must_use]
    pub fn volatile_directory(mut self, directory: impl Into<Option<PathBuf>>) -> Self {
        self.0.volatile_directory = directory.into();
        self
    }

    /// What says how many shutdown signals the inhibitor did not believe so far, for the metrics; none.
    #[must_use]
    pub fn refused_signals(mut self, refused: fn(&I) -> u64) -> Self {
        self.0.refused_signals = refused;
        self
    }

    /// Joins the parts and starts them. Must be called inside a tokio runtime.
    ///
    /// No pod is admitted before the login manager has said whether a shutdown is already under way
    /// (or has been silent for two seconds), and no shutdown is acted on before the pods that run
    /// already are known, or have not become known for five seconds: then the shutdown itself waits
    /// for them.
    pub fn start(self) -> Node<R, I> {
        Node::of_parts(self.0)
    }
}
