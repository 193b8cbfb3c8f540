//! Configures the node and its plug-ins from winddown's configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use winddown_config::{Config, Mode, ShutdownOrder, ShutdownPeriods, ShutdownSettings};
use winddown_eviction::{Signal, parse_threshold};
use winddown_host::{AllocatableConfig, Capacity, ThresholdValue, UsagePaths};
use winddown_shared::{Allocatable, Inhibitor, Mutex, ResourceName, WallTime, error_chain};
use winddown_shutdown::{GroupPeriod, InPlacePolicy, Policy};

use crate::{Eviction, Preemption, Settings, SettingsSource, Shutdown};

/// A configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The file; `None` if the defaults are in force.
    pub file: Option<PathBuf>,
    /// Warnings about the file, for display.
    pub warnings: Vec<String>,
    /// The fields whose values in the file take effect when the agent is restarted.
    pub at_restart: Vec<String>,
    /// When the file was read.
    pub loaded_at: WallTime,
}

/// Turns a configuration into the settings of a node and its plug-ins, which follow reloads. Clones share their state.
#[derive(Clone)]
pub struct Configured(Arc<ConfiguredShared>);

struct ConfiguredShared {
    configuration: Mutex<Configuration>,
    node: watch::Sender<Settings>,
    /// Each passes on what changes for one plug-in.
    followers: Mutex<Vec<Follower>>,
}

type Follower = Box<dyn Fn(&Config) + Send + Sync>;

// === impl Configured ===

impl Configured {
    /// Uses this configuration until it is replaced.
    pub fn new(configuration: Configuration) -> Self {
        Self(Arc::new(ConfiguredShared {
            node: watch::Sender::new(settings(&configuration)),
            followers: Mutex::default(),
            configuration: Mutex::new(configuration),
        }))
    }

    /// Uses a configuration that does not come from a file.
    pub fn of(config: Config, loaded_at: WallTime) -> Self {
        let config = Arc::new(config);
        Self::new(Configuration {
            config,
            file: None,
            warnings: Vec::new(),
            at_restart: Vec::new(),
            loaded_at,
        })
    }

    /// The configuration in force.
    pub fn configuration(&self) -> Configuration {
        self.0.configuration.lock().clone()
    }

    /// Applies what can change at run time from a reloaded configuration.
    pub fn replace(&self, configuration: Configuration) {
        let inner = &*self.0;
        let config = Arc::clone(&configuration.config);
        let settings = settings(&configuration);
        *inner.configuration.lock() = configuration;
        for follower in &*inner.followers.lock() {
            follower(&config);
        }
        inner.node.send_replace(settings);
    }

    /// What `part` takes from the configuration in force, with every change of it.
    pub(crate) fn follow<T: PartialEq + Send + Sync + 'static>(
        &self,
        part: impl Fn(&Config) -> T + Send + Sync + 'static,
    ) -> watch::Receiver<T> {
        let mut followers = self.0.followers.lock();
        let (sender, receiver) = watch::channel(part(&self.configuration().config));
        followers.push(Box::new(move |config| {
            let new = part(config);
            sender.send_if_modified(|now| {
                let changed = *now != new;
                *now = new;
                changed
            });
        }));
        receiver
    }

    /// For [`NodeBuilder::settings`](crate::NodeBuilder::settings).
    pub fn settings(&self) -> watch::Receiver<Settings> {
        self.0.node.subscribe()
    }

    /// What is left for pods of a machine with this capacity, with every change of it.
    pub fn allocatable(&self, capacity: Capacity) -> watch::Receiver<Allocatable> {
        self.follow(move |config| allocatable_config(config).allocatable(&capacity))
    }

    /// The shutdown policy, with every change of it.
    pub(crate) fn policy(&self) -> watch::Receiver<Arc<Policy>> {
        self.follow(|config| Arc::new(shutdown_policy(config)))
    }

    /// The shutdown plug-in as configured; `inhibitor` announces shutdowns.
    pub fn shutdown<I: Inhibitor>(&self, inhibitor: Arc<I>) -> Shutdown {
        let config = self.configuration().config;
        let policy = self.policy();
        let first = Policy::clone(&policy.borrow());
        let kept = usize::try_from(config.shutdown.reports_kept).unwrap_or(usize::MAX);
        Shutdown::new(inhibitor, first, &config.access.state_directory)
            .following(policy)
            .reports_kept(kept)
    }

    /// The preemption plug-in as configured.
    pub fn preemption(&self) -> Preemption {
        let strategy = self.follow(|config| config.node.preemption_strategy);
        let first = *strategy.borrow();
        Preemption::new(first).following(strategy)
    }

    /// The eviction plug-in as configured, for a machine that is measured at `places`.
    pub fn eviction(&self, places: UsagePaths) -> Eviction {
        let policy = self.follow(|config| Arc::new(config.eviction.policy()));
        let image_age = self.follow(|config| config.eviction.image_minimum_gc_age);
        let first = winddown_eviction::Policy::clone(&policy.borrow());
        Eviction::new(places, first)
            .following(policy, image_age)
            .alternative_on(self.memory_reclaim())
    }
}

fn settings(configuration: &Configuration) -> Settings {
    let Configuration { config, file, warnings, at_restart, loaded_at } = configuration;
    let addresses = Arc::clone(config);
    Settings {
        source: SettingsSource {
            file: file.clone(),
            loaded_at: Some(*loaded_at),
            warnings: warnings.clone(),
            at_restart: at_restart.clone(),
            yaml: config.to_yaml(),
        },
        runtime: match config.node.mode {
            Mode::Companion => "kubelet".to_owned(),
            Mode::Standalone | Mode::Cluster => config.node.runtime.as_str().to_owned(),
        },
        manifests: config.pods.static_pod_path.clone(),
        host_ips: Arc::new(move || addresses.cluster.node_addresses()),
        status_update_frequency: config.node.status_update_frequency,
        reserved: allocatable_config(config),
        labels: config.node.labels.clone(),
        unsafe_sysctls: config.node.allowed_unsafe_sysctls.clone(),
    }
}

/// The resources that the configuration reserves from the pods and adds to the machine. The quantities were
/// validated when it was read.
fn allocatable_config(config: &Config) -> AllocatableConfig {
    let mut reserved = amounts(&config.node.system_reserved);
    for (name, amount) in amounts(&config.node.kube_reserved) {
        let sum = reserved.entry(name).or_default();
        *sum = sum.saturating_add(amount);
    }
    let threshold = |signal: Signal| {
        let text = config.eviction.hard.get(signal.as_str());
        text.and_then(|text| parse_threshold(text).ok()?).unwrap_or(ThresholdValue::ZERO)
    };
    AllocatableConfig {
        reserved,
        memory_available: threshold(Signal::MemoryAvailable),
        nodefs_available: threshold(Signal::NodeFsAvailable),
        max_pods: i64::from(config.node.max_pods),
        extended: amounts(&config.node.extended_resources),
    }
}

/// The shutdown policy for the mode. No pod stays in place next to a kubelet: its pods are evicted and start elsewhere.
fn shutdown_policy(config: &Config) -> Policy {
    let policy = policy_of(&config.shutdown);
    match config.node.mode {
        Mode::Companion => policy.with_in_place(InPlacePolicy::new()),
        _ => policy,
    }
}

fn amounts(quantities: &BTreeMap<String, String>) -> BTreeMap<ResourceName, i64> {
    let amounts: Allocatable = quantities.iter().map(|(name, text)| (&**name, &**text)).collect();
    amounts.iter().map(|(name, amount)| (name.clone(), amount)).collect()
}

/// The shutdown policy that a configuration describes.
///
/// The configuration was validated when it was read. Periods that the policy rejects all the same are logged, and
/// shutdowns are then not delayed.
pub fn policy_of(settings: &ShutdownSettings) -> Policy {
    let policy = match settings.periods() {
        ShutdownPeriods::Total { total, critical } => match settings.order {
            ShutdownOrder::Role => Policy::by_role(total, critical),
            ShutdownOrder::Priority => Policy::from_periods(total, critical),
        },
        ShutdownPeriods::ByPriority(groups) => {
            Policy::by_priority(groups.iter().map(|group| GroupPeriod {
                priority: group.priority,
                shutdown_grace_period_seconds:
                    i64::try_from(group.period.as_secs()).unwrap_or(i64::MAX),
            }))
        }
    };
    let policy = policy.unwrap_or_else(|error| {
        tracing::error!(
            error = error_chain(&error),
            "the shutdown periods cannot be used; shutdown is not delayed"
        );
        Policy::disabled()
    });
    let in_place =
        settings.in_place.iter().map(|one| (one.namespace.clone(), one.survive)).collect();
    let policy = policy.with_reserve(settings.reserve).with_in_place(in_place);
    policy.with_endpoint_drain(settings.endpoint_drain)
}
