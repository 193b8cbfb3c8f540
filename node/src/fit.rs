//! The machine that pods have to fit into, and the admission checks against it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Node as ServerNode;
use tokio::sync::watch;
use tokio::time::timeout;
use winddown_host::{Capacity, LocalNode, OneThread, ReadError, Roots};
use winddown_shared::{
    AdmissionFailure, AdmissionFailureHandler, AdmissionGate, AdmitHandler, Allocatable, GateState,
    Mutex, NodeFit, NodeSource, NodeUse, NodeView, OtherPods, Pod, Rejection, ResourceName,
    Runtime, RuntimeError, VictimLock, critical, error_chain, fit_failures, platform_fits,
};

use crate::Settings;
use crate::links::Observe;

/// How long the disks may take to report their size when the machine is read again.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Why pods wait while there is nothing to check them against.
const UNREAD: &str = "this machine's resources cannot be read yet";

/// The machine that the pods run on.
pub struct Machine {
    /// Reads the machine's capacity. Called at the start and on every reload of the configuration. May block: after the
    /// start it has a thread of its own.
    pub capacity: Box<dyn Fn() -> Result<Capacity, ReadError> + Send + Sync>,
    /// Whether its kernel enforces AppArmor profiles.
    pub app_armor: bool,
}

/// The node's resources and the admission checks against them. Clones share their state.
#[derive(Clone)]
pub(super) struct Fit(Arc<MachineShared>);

struct MachineShared {
    /// `None` in a rehearsal, which admits every pod.
    machine: Option<OneThread<Machine>>,
    name: Arc<str>,
    found: watch::Sender<Option<Arc<NodeResources>>>,
    /// The Node object on the API server, if there is one.
    server: Mutex<Option<Arc<ServerNode>>>,
    /// The capacity that was last read, used when it cannot be read again.
    capacity: Mutex<Option<Capacity>>,
    victim_lock: VictimLock,
    /// Whether a kubelet admits the pods, so that this node does not check them.
    admits_all: bool,
    /// Whether the runtime applies `supplementalGroupsPolicy: Strict`.
    strict_groups: bool,
    /// Whether the machine's kernel enforces AppArmor profiles.
    app_armor: bool,
    /// The pods of an API server that are admitted and wait for what they refer to.
    #[cfg(feature = "cluster")]
    admitted: winddown_cluster::pods::AdmittedPods,
}

/// Admits pods that the runtime supports on this machine.
pub(super) struct Supported<R> {
    pub(super) runtime: Arc<R>,
    pub(super) fit: Fit,
}

/// The node as it was last read.
#[derive(Debug, PartialEq)]
pub(super) struct NodeResources {
    /// The node's capacity.
    pub(super) whole: Allocatable,
    /// The node according to this machine and the configuration, with what is allocatable.
    pub(super) own: Arc<NodeView>,
    /// The node as admission sees it: `own` with what others wrote to the Node object.
    pub(super) view: Arc<NodeView>,
}

impl NodeResources {
    /// Warnings for the operator about resources of which nothing is left for pods.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let gone = |(name, whole): &(&ResourceName, i64)| {
            *whole > 0 && self.view.allocatable.get(name) == 0
        };
        self.whole.iter().filter(gone).map(|(name, _)| {
            format!(
                "nothing of {name} is left for pods: systemReserved, kubeReserved and evictionHard \
                 keep all of it"
            )
        })
    }
}

// === impl Machine ===

impl Machine {
    /// This machine, whose pods write to the file system of `storage`.
    #[must_use]
    pub fn of_host(storage: impl Into<PathBuf>) -> Self {
        let roots = Roots::of_host(storage);
        let app_armor = roots.has_app_armor();
        Self { capacity: Box::new(move || Capacity::read(&roots)), app_armor }
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

// === impl Fit ===

impl Fit {
    /// Reads the machine once, which may block. Without a machine, every pod fits.
    pub(super) fn new(
        runtime: &impl Runtime,
        machine: Option<Machine>,
        name: &str,
        settings: &Settings,
        admits_all: bool,
    ) -> Self {
        let capacity = machine.as_ref().map(|machine| (machine.capacity)());
        let app_armor = machine.as_ref().is_some_and(|machine| machine.app_armor);
        let fit = Self(Arc::new(MachineShared {
            machine: machine.map(OneThread::new),
            name: name.into(),
            found: watch::Sender::new(None),
            server: Mutex::new(None),
            capacity: Mutex::new(None),
            victim_lock: VictimLock::new(),
            admits_all,
            strict_groups: runtime.applies_strict_groups(),
            app_armor,
            #[cfg(feature = "cluster")]
            admitted: Default::default(),
        }));
        if let Some(read) = capacity {
            fit.note_capacity(read.map_err(|error| error_chain(&error)));
            fit.apply(settings);
        }
        fit
    }

    /// Reads the machine again, as far as its disks answer in time, and applies the reservations of `settings`.
    pub(super) async fn follow(&self, settings: &Settings) {
        let Some(machine) = &self.0.machine else { return };
        let reading = machine.run(|machine| (machine.capacity)());
        self.note_capacity(match timeout(READ_TIMEOUT, reading).await {
            Ok(Ok(read)) => read.map_err(|error| error_chain(&error)),
            Ok(Err(panicked)) => Err(panicked.to_string()),
            Err(_) => Err("a disk does not answer within 2s".to_owned()),
        });
        self.apply(settings);
    }

    /// Applies the reservations of `settings` to what was last read.
    pub(super) fn apply(&self, settings: &Settings) {
        let Some(capacity) = self.0.capacity.lock().clone() else { return };
        let reserved = &settings.reserved;
        let node = LocalNode {
            name: Arc::clone(&self.0.name),
            labels: settings.labels.clone(),
            strict_groups: self.0.strict_groups,
            app_armor: self.0.app_armor,
        };
        let own = Arc::new(NodeView {
            unsafe_sysctls: settings.unsafe_sysctls.clone(),
            ..node.view(reserved.allocatable(&capacity))
        });
        self.update(self.0.server.lock().as_deref(), reserved.capacity(&capacity), own);
    }

    /// Applies the current Node object on the API server.
    pub(super) fn set_server_node(&self, server: Option<Arc<ServerNode>>) {
        let mut known = self.0.server.lock();
        *known = server;
        if let Some(found) = self.found() {
            self.update(known.as_deref(), found.whole.clone(), Arc::clone(&found.own));
        }
    }

    /// The node as it was last read, with every change.
    pub(super) fn changes(&self) -> watch::Receiver<Option<Arc<NodeResources>>> {
        self.0.found.subscribe()
    }

    /// Publishes the node. The caller holds the lock of [`server`](Self::server), so that of two changes at once the
    /// later one contains both.
    fn update(&self, server: Option<&ServerNode>, whole: Allocatable, own: Arc<NodeView>) {
        let view = match server {
            Some(server) => Arc::new(joined(&own, server)),
            None => Arc::clone(&own),
        };
        let found = Arc::new(NodeResources { whole, own, view });
        self.0.found.send_if_modified(|now| {
            let changed = now.as_ref() != Some(&found);
            if changed {
                found.warnings().for_each(|warning| tracing::warn!("{warning}"));
                *now = Some(found);
            }
            changed
        });
    }

    /// Keeps what was read; if it could not be, what was read before stays. The error is a text for people.
    fn note_capacity(&self, read: Result<Capacity, String>) {
        let mut last = self.0.capacity.lock();
        match read {
            Ok(capacity) => *last = Some(capacity),
            Err(error) => {
                let then = match *last {
                    Some(_) => "using the last known resources",
                    None => "no pod is admitted until it can be",
                };
                tracing::warn!("cannot read this machine's resources, {then}: {error}");
            }
        }
    }

    /// The node as it was last read; `None` before that, and in a rehearsal.
    pub(super) fn found(&self) -> Option<Arc<NodeResources>> {
        self.0.found.borrow().clone()
    }

    /// The lock to hold while choosing victims.
    pub(super) fn victim_lock(&self) -> VictimLock {
        self.0.victim_lock.clone()
    }

    /// Whether pods cannot be judged because the machine could not be read.
    pub(super) fn is_unknown(&self) -> bool {
        self.0.machine.is_some() && self.0.found.borrow().is_none()
    }

    /// Whether the node lacks labels that the pod requires.
    pub(super) fn lacks_labels_of(&self, pod: &Pod) -> bool {
        self.node().is_some_and(|node| {
            let failures = fit_failures(pod, &node, &NodeUse::default());
            failures.iter().any(|failure| *failure == AdmissionFailure::NODE_AFFINITY)
        })
    }

    #[cfg(feature = "cluster")]
    pub(super) fn admitted(&self) -> &winddown_cluster::pods::AdmittedPods {
        &self.0.admitted
    }

    /// Whether every pod is admitted without checks.
    pub(super) fn admits_all(&self) -> bool {
        self.0.admits_all
    }

    /// The check that a pod fits, if there is a machine. `preemption_handler` is asked for a critical one that does not.
    pub(super) fn check(
        &self,
        preemption_handler: Option<Arc<dyn AdmissionFailureHandler>>,
    ) -> Option<NodeFit<Self>> {
        self.0.machine.as_ref()?;
        let fit = NodeFit::new(self.clone());
        Some(preemption_handler.into_iter().fold(fit, NodeFit::with_preemption))
    }

    /// Whether pods can be admitted. The value is sent again, even unchanged, when the node's resources change or an
    /// entry of `relief` reports a change: refused pods are then tried again.
    pub(super) fn gate(
        &self,
        gate: &AdmissionGate,
        mut relief: Vec<Box<dyn Observe<()>>>,
    ) -> watch::Receiver<GateState> {
        let (mut opened, mut found) = (gate.changes(), self.0.found.subscribe());
        let (gate, fit) = (gate.clone(), self.clone());
        let state = move || match gate.state() {
            _ if fit.admits_all() => GateState::Open,
            // What the machine has is read again until it is known.
            GateState::Open if fit.is_unknown() => GateState::Undecided { why: UNREAD },
            state => state,
        };
        let (tx, rx) = watch::channel(state());
        critical::spawn("state of admission", async move {
            loop {
                let mut relieved: FuturesUnordered<_> =
                    relief.iter_mut().map(|one| one.changed()).collect();
                tokio::select! {
                    changed = opened.changed() => if changed.is_err() { return },
                    changed = found.changed() => if changed.is_err() { return },
                    Some(()) = relieved.next() => {}
                    () = tx.closed() => return,
                }
                tx.send_replace(state());
            }
        });
        rx
    }
}

impl NodeSource for Fit {
    fn node(&self) -> Option<Arc<NodeView>> {
        Some(Arc::clone(&self.0.found.borrow().as_ref()?.view))
    }
}

// === impl Supported ===

impl<R: Runtime> AdmitHandler for Supported<R> {
    fn admit(&self, pod: &Pod, _others: &OtherPods) -> Result<(), Rejection> {
        // First, for the kubelet's reasons.
        self.fit.node().map_or(Ok(()), |node| platform_fits(pod, &node))?;
        let refused =
            |error: RuntimeError| Rejection::new("PodFeatureUnsupported", error.to_string());
        self.runtime.supports(pod).map_err(refused)
    }
}

/// Adds the labels, taints and further resources that others wrote to the Node object to what the machine itself reports.
fn joined(own: &NodeView, server: &ServerNode) -> NodeView {
    let theirs = NodeView::of_node(server, Arc::clone(&own.os));
    let mut view = own.clone();
    for (key, value) in theirs.labels {
        view.labels.insert(key, value);
    }
    view.taints = theirs.taints;
    for (name, amount) in theirs.allocatable.iter() {
        if !own.allocatable.knows(name) {
            view.allocatable.set(name.clone(), amount);
        }
    }
    view
}
