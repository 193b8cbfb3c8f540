//! The cluster as a plug-in: assembles the parts of `winddown-cluster` and connects them to the node.
//!
//! It adds three things: the pods that the API server wants here, a recorder that turns decisions into events, and the
//! final statuses before the node goes down. Only those wait for the API server, for as long as the shutdown has
//! reserved time for them; no other part of the node does.

pub mod after_nodes;
#[cfg(feature = "config")]
mod connect;
mod facts;
mod final_status_flush;
mod kept;
mod node_object;
mod start;
mod view;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;
use winddown_api_client::node_pods::KubePods;
use winddown_api_client::{ApiHealth, Connection};
use winddown_cluster::after_boot::{AfterBootPolicy, TerminatedPods};
use winddown_cluster::events::{self, EventDraft, Events, NodeRef, Subject};
use winddown_cluster::mirror::Mirrors;
use winddown_cluster::node::{
    NodeController, NodeControllerHandle, NodeFacts, NodeSettings, NodeSettingsError, Ping,
};
use winddown_cluster::pods::{
    Judgement, NodeAdmission, OrphanPolicy, PodController, PodControllerConfig,
    PodControllerHandle, PrepareError, RefusedPods,
};
use winddown_cluster::status::{Outbox, OutboxConfig};
use winddown_pod_references::{Resolver, ResolverConfig};
use winddown_shared::{
    BootClock, DesiredPods, Event, GateReason, Mutex, Outlook, Pod, Recorder, Runtime,
    RuntimeError, WallClock, error_chain,
};

use crate::core::Core;
use crate::fit::Fit;
use crate::plugin::{NodePlugin, PluginRegistry};
use crate::{NodeIdentity, PodSource, Product, Settings};

pub(crate) use kept::KeptPods;

#[cfg(feature = "config")]
pub use connect::{certificate_folder, connect, connect_early};
pub(crate) use facts::{Changing, Clean};
pub use facts::{NodeRuntime, UNPROTECTED};
use final_status_flush::FinalReport;
use node_object::{NodePublisher, RuntimePing};
use start::ClusterWork;
pub use winddown_cluster::node::CLEAN_SHUTDOWN;

/// The workers terminate the pods of the API server as at a shutdown.
const UNASKED_BUDGETS: &str =
    "disruption budgets are not asked: to have them asked, drain the node with kubectl";

/// The plug-in that joins a node to a cluster.
#[derive(Debug)]
pub struct Cluster {
    /// The connection to the API server.
    pub connection: Connection,
    /// How the Node object is maintained.
    pub node: NodeSettings,
    /// The facts in the Node object that do not change while the agent runs. The machine's addresses are not among them:
    /// they come from [`Settings::host_ips`](crate::Settings::host_ips).
    pub facts: NodeFacts,
    /// Receives the host names and addresses that the Node object has, with every change; none while it has no address.
    pub names: watch::Sender<Vec<String>>,
    /// How the API server's pods are run here; `None` next to a kubelet, which runs them.
    pub pods: Option<PodsParts>,
}

/// How the API server's pods are run here.
#[derive(Clone, Debug)]
pub struct PodsParts {
    /// The directory for state that has to survive a reboot.
    pub state: PathBuf,
    /// The directory for state that may be lost with the boot; preferably in memory.
    pub volatile: PathBuf,
    /// The directory for the volumes that are made for pods.
    pub volumes: PathBuf,
    /// The directory for volumes with Secrets, in memory.
    pub secret_volumes: PathBuf,
    /// What happens to the API objects of pods that this node ended.
    pub ended: AfterBootPolicy,
    /// What happens to pods that run here but do not exist in the API.
    pub orphans: OrphanPolicy,
    /// The runtime's name and images for the Node object, with every change.
    pub runtime: watch::Receiver<NodeRuntime>,
}

/// The node's side of a cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Membership(Arc<ClusterShared>);

struct ClusterShared {
    connection: Connection,
    events: Events,
    node: NodeControllerHandle,
    fixed: NodeFacts,
    changing: Mutex<Changing>,
    facts: watch::Sender<NodeFacts>,
    names: watch::Sender<Vec<String>>,
    pods: Option<PodSide>,
}

/// The parts for the API server's pods.
pub(crate) struct PodSide {
    /// The pods that the API server wants here.
    wanted: watch::Receiver<Option<Arc<DesiredPods>>>,
    pub(crate) outbox: Outbox,
    pub(crate) mirrors: Mirrors,
    pub(crate) ended: TerminatedPods,
    resolver: Resolver,
    controller: PodControllerHandle,
    /// Refuses the pods that were judged before anything was resolved for them.
    refusals: RefusedPods,
}

impl<R: Runtime> NodePlugin<R> for Cluster {
    /// If the cluster cannot be joined, the node runs on its own, with its static pods. Pods that an earlier agent ran
    /// for the API server are left alone.
    fn register(mut self: Box<Self>, node: &mut PluginRegistry<R>) {
        let core = Arc::clone(&node.core);
        let start = core.boot_clock.system_start();
        // The kernel's first system has a boot id of its own.
        let up_for = (!start.is_zero()).then(|| core.boot_clock.now().saturating_sub(start));
        self.node.up_since = up_for.and_then(|up_for| Instant::now().checked_sub(up_for));
        let NodeIdentity { name, boot_id } = &core.identity;
        let boot = (&**boot_id, &core.boot_clock);
        let ping = RuntimePing(Arc::clone(&core));
        let [judging, supporting, resizing] = [(); 3].map(|()| Arc::clone(&core));
        let admission = |node: NodeControllerHandle, events: Events| NodeAdmission {
            judge: Arc::new(move |pod| judge(pod, Arc::clone(&judging), node.clone()).boxed()),
            supports: Arc::new(move |pod| supported(pod, &supporting, &events)),
            resize: Arc::new(move |pod| {
                let Core { fit, workers, .. } = &*resizing;
                fit.admitted().resize(pod, fit.check(None), workers)
            }),
            admitted: core.fit.admitted().clone(),
        };
        let runs_pods = self.pods.is_some();
        let joined =
            Membership::prepare(*self, name, boot, ping, admission, &core.wall, core.product());
        let (cluster, work) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                tracing::error!(error = error_chain(&error), "the node does not join its cluster");
                if runs_pods {
                    // Incomplete: no pod is ended because nothing says which ones the API server wants.
                    let unknown = watch::Sender::new(Some(Arc::<DesiredPods>::default()));
                    node.contributions.links.sources.push(unknown.subscribe().into());
                }
                return;
            }
        };
        // Before the Node object is registered with them.
        cluster.read_addresses(&node.settings.borrow());
        let settings = node.settings.clone();
        let contributions = &mut node.contributions;
        contributions.recorders.push(Arc::new(cluster.clone()));
        contributions.recorders.push(Arc::new(core.fit.admitted().clone()));
        contributions
            .sections
            .push(Arc::new(view::ClusterView::new(cluster.clone(), core.wall.clone())));
        if let Some(side) = cluster.pods() {
            contributions.admission.push(Arc::new(side.refusals.clone()));
            contributions.links.drain_remark = Some(UNASKED_BUDGETS);
            contributions
                .links
                .sources
                .push(PodSource::from(side.wanted.clone()).refused_for_good());
        }
        let report = FinalReport { cluster: cluster.clone(), statuses: core.statuses.clone() };
        contributions.links.work.push(report.work());
        node.start(move |links| {
            work.start(&cluster, &core);
            let (end, held, pressure) =
                (links.end.take(), links.held.take(), links.pressure.take());
            NodePublisher { core, cluster, settings, end, held, pressure }.start();
        });
    }
}

/// Judges a pod of which nothing was resolved: what the node refuses anyway takes no memory and no disk of it, and no
/// request to the API server. A pod that may run already is not judged: its worker needs it.
async fn judge<R: Runtime>(pod: Pod, core: Arc<Core<R>>, node: NodeControllerHandle) -> Judgement {
    if core.fit.admitted().has(pod.uid()) {
        let closed = "this node starts no pods while it is drained or goes down";
        return if core.gate.is_shut() { Judgement::HoldBack(closed) } else { Judgement::Resolve };
    }
    if !core.gate.is_shut()
        && let Some(why) = held_back(&pod, &core.fit, &node).await
    {
        return Judgement::HoldBack(why);
    }
    // A shutdown that the agent does not know about yet refuses no pod.
    let is_undecided = core.gate.reasons().contains(GateReason::Startup);
    if is_undecided || core.workers.runs(pod.uid()) != Some(false) {
        return Judgement::Resolve;
    }
    // The runtime supports no reference, so it is not asked.
    let (checks, fit) = (core.checks_before_fit(), core.fit.check(core.preemption_handler()));
    match core.fit.admitted().admit(&pod, checks, fit, &core.workers) {
        Outlook::Refused(why) => Judgement::Refused(why),
        Outlook::Starts | Outlook::Waits(_) | Outlook::Preempts(_) => Judgement::Resolve,
    }
}

/// Whether the runtime can run a pod whose references are resolved. An event says what it cannot do.
fn supported<R: Runtime>(pod: &Pod, core: &Core<R>, events: &Events) -> Result<(), PrepareError> {
    let Err(RuntimeError::Unsupported { field, why }) = core.runtime.supports(pod) else {
        return Ok(());
    };
    let (about, message) = (Subject::pod(pod.pod_ref()), format!("{field}: {why}"));
    events.send(EventDraft::warning(about, "PodFeatureUnsupported", message));
    Err(PrepareError::Invalid { field, why })
}

/// Why it cannot be decided yet whether the pod is admitted. A refused pod has failed for good in the API, so none is
/// judged before the machine is known, or by old labels.
async fn held_back(pod: &Pod, fit: &Fit, node: &NodeControllerHandle) -> Option<&'static str> {
    if fit.is_unknown() {
        return Some("this machine cannot be read yet");
    }
    let known = node.server_node();
    if known.borrow().is_none() && !node.state().borrow().was_read {
        return Some("this node's object was not read from the API server yet");
    }
    fit.set_server_node(known.borrow().clone());
    if fit.lacks_labels_of(pod) {
        if !node.read_again().await {
            return Some("this node's labels cannot be read from the API server");
        }
        fit.set_server_node(known.borrow().clone());
    }
    None
}

impl Membership {
    /// Assembles the parts. No request is sent to the API server before the work is started. Reads the records of
    /// pods that an earlier agent left; blocking.
    ///
    /// # Errors
    /// A setting of the node is out of range.
    pub(crate) fn prepare<P: Ping>(
        parts: Cluster,
        name: &str,
        boot: (&str, &BootClock),
        ping: P,
        admission: impl FnOnce(NodeControllerHandle, Events) -> NodeAdmission,
        wall: &WallClock,
        product: &Product,
    ) -> Result<(Self, ClusterWork<P>), NodeSettingsError> {
        let Cluster { connection, node, facts: fixed, names, pods } = parts;
        let client = connection.client();
        let (events, writer) =
            Events::new(client.clone(), NodeRef::new(name), events::CAPACITY, wall.clone());
        let writer = writer.reported_by(product.name());
        let (facts, told) = watch::channel(facts::facts(&fixed, &Changing::default()));
        let (controller, handle) = NodeController::builder(client, name, told, wall.clone())
            .settings(node)
            .ping(ping)
            .events(events.clone())
            .field_manager(product.name())
            .build()?;
        let config = PodControllerConfig {
            admission: Some(admission(handle.clone(), events.clone())),
            ..PodControllerConfig::new(name, connection.api_clock())
        };
        let (pods, work) = pods
            .map(|parts| PodSide::prepare(parts, config, boot, &connection, &events, wall))
            .unzip();
        let cluster = Self(Arc::new(ClusterShared {
            connection,
            events,
            node: handle,
            fixed,
            changing: Mutex::default(),
            facts,
            names,
            pods,
        }));
        let work = ClusterWork { node: controller, writer, pods: work };
        Ok((cluster, work))
    }

    pub(crate) fn node(&self) -> &NodeControllerHandle {
        &self.0.node
    }

    /// The parts for the API server's pods; `None` next to a kubelet.
    pub(crate) fn pods(&self) -> Option<&PodSide> {
        self.0.pods.as_ref()
    }

    /// The current health of the connection to the API server.
    pub(crate) fn api(&self) -> ApiHealth {
        self.0.connection.health().borrow().clone()
    }

    /// Reads the machine's addresses again. No address that was found before is forgotten while there is none.
    fn read_addresses(&self, settings: &Settings) {
        let (Some(side), addresses) = (self.pods(), (settings.host_ips)()) else { return };
        if addresses.is_empty() {
            return;
        }
        side.outbox.set_host_ips(addresses.iter().map(ToString::to_string).collect());
        self.change(|changing| changing.addresses = addresses);
    }

    /// Changes facts in the Node object.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Changing)) {
        let mut changing = self.0.changing.lock();
        let before = changing.clone();
        change(&mut changing);
        if *changing == before {
            return;
        }
        if let (Some(side), Some((_, allocatable))) = (&self.0.pods, &changing.amounts) {
            side.resolver.set_node(facts::for_pods(allocatable));
        }
        let facts = facts::facts(&self.0.fixed, &changing);
        let names = facts.addresses.iter().map(|one| one.address.clone()).collect();
        self.0.names.send_if_modified(|known| {
            *known != names && {
                *known = names;
                true
            }
        });
        self.0.facts.send_replace(facts);
    }
}

/// Sends decisions to the cluster as events.
impl Recorder for Membership {
    fn record(&self, event: &Event) {
        if let Some(pods) = &self.0.pods {
            pods.ended.record(event);
        }
        self.0.events.record(event);
    }
}

// === impl PodSide ===

impl PodSide {
    fn prepare(
        parts: PodsParts,
        config: PodControllerConfig,
        (boot_id, clock): (&str, &BootClock),
        connection: &Connection,
        events: &Events,
        wall: &WallClock,
    ) -> (Self, start::PodsWork) {
        let state = parts.state.join("cluster");
        let (outbox, outbox_driver) = Outbox::new(&OutboxConfig {
            directory: Some(state.join("statuses")),
            wall: wall.clone(),
            ..OutboxConfig::default()
        });
        // A soft-reboot keeps the boot id.
        let system = match clock.system_start().as_millis() {
            0 => boot_id.to_owned(),
            start => format!("{boot_id} {start}"),
        };
        let ended = TerminatedPods::new(state.join("ended"), Some(system.into()), wall.clone());
        let (mirrors, mirror_driver) =
            Mirrors::new(&*config.node_name, outbox.clone(), wall.clone());
        let resolving = ResolverConfig::new(parts.volumes, parts.secret_volumes);
        let (resolver, freshener) =
            Resolver::new(connection.client(), resolving, events.clone(), wall.clone());
        let records = KeptPods::parent(&parts.volatile);
        let kept = KeptPods::of_boot(&records, (boot_id, clock), resolver.memory_room());
        let found = kept.load();
        let api_pods = KubePods::new(connection.client(), config.node_name.clone());
        let config = PodControllerConfig { orphans: parts.orphans, ..config };
        let controller = PodController::new(connection.client(), Arc::new(outbox.clone()), config)
            .with_prepare(Arc::new(resolver.clone()))
            .with_mirrors(Arc::new(mirrors.clone()))
            .with_keep(found, Arc::new(kept));
        let wanted = controller.wanted();
        let (handle, refusals) = (controller.handle(), controller.refusals());
        let side = Self { wanted, outbox, mirrors, ended, resolver, controller: handle, refusals };
        let work = start::PodsWork {
            outbox_driver,
            mirror_driver,
            freshener,
            policy: parts.ended,
            api_pods,
            controller,
            runtime: parts.runtime,
        };
        (side, work)
    }
}
