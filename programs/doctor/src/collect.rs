//! Observes the node. Every observation has a time limit: whatever hangs becomes a fact.

mod bus;
mod cluster;
mod files;
pub(crate) mod kubelet;
mod sandbox;
mod shortages;

pub(crate) use bus::agents_service;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use winddown_shared::{WallClock, error_chain};
use winddown_systemd::inspect::ServiceView;
use winddown_systemd::{Bus, drop_in};

use super::facts::{
    ApiFacts, BeyondAgent, Clock, ConfigFact, ConfigRead, ContainerRuntimeFacts, Fact, Facts,
    FileFacts, KILLERS, KubeletOnDisk, NotObserved, OutOfReach, runtime_in_use,
};
use winddown_companion::kubelet::processes::{self, KubeletProcess};
use winddown_config::{Config, Exposed, Mode, RuntimeKind};
use winddown_control::api::Status;
use winddown_control::{Client, ClientError};
use winddown_host::{OthersMayWrite, Trusted};
use winddown_node::{policy_of, trusted_paths};

/// The node to observe, and how.
#[derive(Clone, Debug)]
pub struct ObservedNode {
    /// The directory that stands for `/`.
    pub root: PathBuf,
    /// Whether `root` is that of the running machine. Otherwise only files are read.
    pub live: bool,
    /// The configuration file that the user named, as given; `None` for the default one below `root`.
    pub config: Option<PathBuf>,
    /// The control socket that the user named; the default path stands for the configured one.
    pub socket: PathBuf,
    /// The D-Bus system bus.
    pub bus: Bus,
    /// Time limit of each observation. They run concurrently, after the configuration is read.
    pub patience: Duration,
    /// The clock.
    pub wall: WallClock,
}

// === impl ObservedNode ===

impl ObservedNode {
    /// The machine that runs, with its configuration and its socket at their places.
    pub fn this_machine(patience: Duration) -> Self {
        Self {
            root: PathBuf::from("/"),
            live: true,
            config: None,
            socket: winddown_control::DEFAULT_SOCKET.into(),
            bus: Bus::System,
            patience,
            wall: winddown_host::machine::wall_clock(),
        }
    }
}

/// Makes all observations. Takes about three times [`ObservedNode::patience`] at most, whatever hangs.
///
/// Cancel-safe; the file that is being written to the state directory is then removed later.
pub async fn collect(place: &ObservedNode) -> Facts {
    let asked = place.clone();
    let config =
        blocking(place.patience, "the configuration", move || Fact::Known(files::config(&asked)));
    let config = match config.await {
        Fact::Known(config) => config,
        Fact::Unknown(kind, why) => unread_config(place, kind, why),
    };
    let policy = policy_of(&config.config.shutdown);
    let rooted = config.config.clone().rooted(&place.root);
    let socket = match &place.socket {
        usual if usual == Path::new(winddown_control::DEFAULT_SOCKET) => {
            rooted.access.control_socket.clone()
        }
        named => named.clone(),
    };
    let look = Look { place, state: rooted.access.state_directory.clone(), socket };
    let (agent, bus, files, runtime, kubelet, api, shortages, newest) = tokio::join!(
        agent(place, &look.socket),
        bus::look(place, &config.config),
        files(&look, &config, &rooted),
        runtime(&look, &rooted),
        kubelet(&look, &config.config),
        api(place, &rooted),
        shortages::look(place, &config.config, &rooted.access.state_directory),
        look.live_disk("time stamps", |_, state, _| Fact::Known(files::newest(state))),
    );
    let clock = Clock { now: place.wall.now(), newest: newest.known().cloned().flatten() };
    let (unenforced, missing_group, out_of_reach) = tokio::join!(
        unenforced(place, &config.config, &agent),
        missing_group(place, &config.config),
        out_of_reach(place, &config.config, &bus.service),
    );
    let node = match &agent {
        Fact::Known(status) => status.node.name.clone(),
        Fact::Unknown(..) if !place.live => place.root.display().to_string(),
        Fact::Unknown(..) => config.config.node_name_or(&winddown_host::machine::node_name()),
    };
    Facts {
        live: place.live,
        root: place.root.clone(),
        node,
        wanted: policy.delay_wanted(),
        budget: policy.requested(),
        config,
        agent,
        bus,
        files,
        runtime,
        kubelet,
        api,
        beyond: BeyondAgent { missing_group, out_of_reach, unenforced },
        shortages,
        clock,
    }
}

async fn files(look: &Look<'_>, config: &ConfigFact, rooted: &Config) -> FileFacts {
    // Beside a kubelet, the containers' logs are the kubelet's.
    let logs = (rooted.node.mode != Mode::Companion).then(|| rooted.access.pod_logs_dir.clone());
    let (
        setting,
        installed,
        others_may_write,
        exposed,
        state,
        in_place_of_logs,
        socket,
        reports,
        unreported,
        commands,
    ) = tokio::join!(
        look.disk("logind's files", |place, _, _| Fact::Known(drop_in::find(&place.root))),
        look.disk("the installed files", |place, _, _| Fact::Known(files::installed(&place.root))),
        others_may_write(look.place, rooted.pods.static_pod_path.as_deref()),
        exposed(look.place, config),
        look.live_disk("the state directory", |_, state, _| files::state(state)),
        look.live_disk("the directory of logs", move |_, _, _| files::in_place_of_logs(logs)),
        look.live_disk("the control socket", |_, _, socket| files::socket(socket)),
        look.disk("the reports", |_, state, _| files::kept_reports(state)),
        look.disk("the records of runs", files::unreported),
        look.disk("the shutdown commands", |place, _, _| {
            Fact::Known(files::commands(&place.root))
        }),
    );
    FileFacts {
        setting,
        installed,
        others_may_write,
        exposed,
        state,
        in_place_of_logs,
        socket,
        reports,
        unreported,
        commands,
    }
}

async fn runtime(look: &Look<'_>, rooted: &Config) -> ContainerRuntimeFacts {
    let (endpoint, endpoints, killers) = tokio::join!(
        endpoint(look.place, rooted.node.runtime, &rooted.node.container_runtime_endpoint),
        look.disk("the container runtimes", |place, _, _| {
            Fact::Known(winddown_config::runtime_endpoints(&place.root, place.live))
        }),
        look.live_disk("the processes", |place, _, _| killers(&place.root)),
    );
    ContainerRuntimeFacts { endpoint, endpoints, killers }
}

async fn kubelet(look: &Look<'_>, config: &Config) -> KubeletOnDisk {
    let config = config.clone();
    let found = look.disk("the kubelet", move |place, _, _| {
        Fact::Known(KubeletOnDisk::look(&place.root, place.live, &config))
    });
    match found.await {
        Fact::Known(found) => found,
        Fact::Unknown(kind, why) => KubeletOnDisk::unseen(kind, &why),
    }
}

async fn api(place: &ObservedNode, rooted: &Config) -> ApiFacts {
    let (rights, server_verified) =
        tokio::join!(rights(place, rooted), server_verified(place, rooted));
    ApiFacts { rights, server_verified }
}

/// The limits that the runtime cannot enforce: the process runtime according to the agent's cgroups, systemd according to
/// the machine's. A container runtime is not asked: it sets them itself.
async fn unenforced(
    place: &ObservedNode,
    config: &Config,
    agent: &Fact<Status>,
) -> Fact<Vec<String>> {
    let pid = match (runtime_in_use(agent, config), agent) {
        _ if !place.live => return Fact::not_live(),
        (RuntimeKind::Cri, _) => return Fact::Known(Vec::new()),
        (RuntimeKind::Systemd, _) => None,
        (RuntimeKind::Process, Fact::Known(status)) => Some(status.node.pid),
        (RuntimeKind::Process, Fact::Unknown(kind, why)) => {
            return Fact::Unknown(*kind, why.clone());
        }
    };
    let (proc_root, cgroups) = (place.root.join("proc"), place.root.join("sys/fs/cgroup"));
    blocking(place.patience, "the control groups", move || {
        Fact::Known(winddown_runtimes::process::unenforced(&proc_root, &cgroups, pid))
    })
    .await
}

/// The configured group of the control socket, if there is no such group. A name service may hang.
pub(crate) async fn missing_group(place: &ObservedNode, config: &Config) -> Fact<Option<String>> {
    let group = config.access.control_socket_group.clone();
    let Some(group) = group.filter(|_| place.live) else { return Fact::Known(None) };
    blocking(place.patience, "the group of the control socket", move || {
        Fact::Known(winddown_host::machine::group_id(&group).is_none().then_some(group))
    })
    .await
}

/// The configured paths that the sandbox of the agent's unit keeps from the agent.
pub(crate) async fn out_of_reach(
    place: &ObservedNode,
    config: &Config,
    service: &Fact<ServiceView>,
) -> Fact<Vec<OutOfReach>> {
    let view = match service {
        Fact::Known(service) => service.sandbox.clone(),
        Fact::Unknown(kind, why) => return Fact::Unknown(*kind, why.clone()),
    };
    let config = config.clone();
    blocking(place.patience, "the configured paths", move || {
        Fact::Known(sandbox::out_of_reach(&config, &view))
    })
    .await
}

/// Parameters of the observations of files.
struct Look<'a> {
    place: &'a ObservedNode,
    state: PathBuf,
    socket: PathBuf,
}

impl Look<'_> {
    async fn disk<T: Send + 'static>(
        &self,
        what: &'static str,
        look: impl FnOnce(&ObservedNode, &Path, &Path) -> Fact<T> + Send + 'static,
    ) -> Fact<T> {
        let (place, state, socket) = (self.place.clone(), self.state.clone(), self.socket.clone());
        blocking(self.place.patience, what, move || look(&place, &state, &socket)).await
    }

    async fn live_disk<T: Send + 'static>(
        &self,
        what: &'static str,
        look: impl FnOnce(&ObservedNode, &Path, &Path) -> Fact<T> + Send + 'static,
    ) -> Fact<T> {
        if self.place.live { self.disk(what, look).await } else { Fact::not_live() }
    }
}

/// Maximum number of processes of one kind: every user can start processes of any name.
const MOST_PROCESSES: usize = 32;

/// Programs that kill processes when memory runs out.
fn killers(root: &Path) -> Fact<Vec<KubeletProcess>> {
    match processes::named(root, &KILLERS) {
        Ok(found) => Fact::Known(found.into_iter().take(MOST_PROCESSES).collect()),
        Err(error) => not_observed(&error, &root.join("proc")),
    }
}

/// Converts a file system error to a fact.
fn not_observed<T>(error: &std::io::Error, what: &Path) -> Fact<T> {
    Fact::Unknown(kind(error), format!("{}: {error}", what.display()))
}

fn kind(error: &std::io::Error) -> NotObserved {
    use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
    match error.kind() {
        NotFound | NotADirectory | ConnectionRefused => NotObserved::Absent,
        PermissionDenied => NotObserved::Denied,
        _ => NotObserved::Failed,
    }
}

/// Runs an observation on a blocking thread, which may hang for as long as a dead disk does.
async fn blocking<T: Send + 'static>(
    patience: Duration,
    what: &str,
    look: impl FnOnce() -> Fact<T> + Send + 'static,
) -> Fact<T> {
    match tokio::time::timeout(patience, tokio::task::spawn_blocking(look)).await {
        Ok(Ok(fact)) => fact,
        Ok(Err(error)) => Fact::Unknown(NotObserved::Failed, format!("{what}: {error}")),
        Err(_) => silent(what, patience),
    }
}

fn silent<T>(what: &str, patience: Duration) -> Fact<T> {
    Fact::Unknown(NotObserved::Silent, format!("{what}: no answer within {patience:?}"))
}

fn unread_config(place: &ObservedNode, kind: NotObserved, why: String) -> ConfigFact {
    ConfigFact {
        file: files::config_path(place),
        read: ConfigRead::Unread(kind, why),
        config: winddown_config::Config::default(),
        has_lines: false,
    }
}

async fn agent(place: &ObservedNode, socket: &Path) -> Fact<Status> {
    let client = Client::new(socket);
    let error = match tokio::time::timeout(place.patience, client.status()).await {
        Ok(Ok(status)) => return Fact::Known(status),
        Ok(Err(error)) => error,
        Err(_) => return silent(&socket.display().to_string(), place.patience),
    };
    let kind = match &error {
        _ if !place.live => NotObserved::NotLive,
        ClientError::Missing { .. }
        | ClientError::NotListening { .. }
        | ClientError::NotASocket { .. } => NotObserved::Absent,
        ClientError::Denied { .. } => NotObserved::Denied,
        ClientError::Silent { .. } | ClientError::Closed { .. } => NotObserved::Silent,
        _ => NotObserved::Failed,
    };
    Fact::Unknown(kind, error_chain(&error))
}

/// Whether the container runtime's socket accepts connections.
async fn endpoint(place: &ObservedNode, runtime: RuntimeKind, endpoint: &str) -> Fact<()> {
    if !place.live || runtime != RuntimeKind::Cri {
        return Fact::not_live();
    }
    let path = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    match tokio::time::timeout(place.patience, UnixStream::connect(path)).await {
        Ok(Ok(_)) => Fact::Known(()),
        Ok(Err(error)) => match error.kind() {
            // The listen queue is full: a process has the socket but does not accept connections.
            std::io::ErrorKind::WouldBlock => {
                Fact::Unknown(NotObserved::Silent, "its queue of connections is full".to_owned())
            }
            _ => Fact::Unknown(kind(&error), error.to_string()),
        },
        Err(_) => silent(endpoint, place.patience),
    }
}

/// The permissions that are required next to a kubelet and that the API server does not grant.
async fn rights(place: &ObservedNode, config: &Config) -> Fact<Vec<String>> {
    if !place.live || config.node.mode != Mode::Companion {
        return Fact::not_live();
    }
    match tokio::time::timeout(place.patience, cluster::missing_rights(config, &place.wall)).await {
        Ok(Ok(missing)) => Fact::Known(missing),
        Ok(Err((kind, why))) => Fact::Unknown(kind, why),
        Err(_) => silent("the API server", place.patience),
    }
}

async fn server_verified(place: &ObservedNode, config: &Config) -> Fact<bool> {
    if !place.live || config.node.mode == Mode::Standalone {
        return Fact::not_live();
    }
    let look = cluster::verifies_server(config, &place.wall);
    match tokio::time::timeout(place.patience, look).await {
        Ok(Ok(verified)) => Fact::Known(verified),
        Ok(Err((kind, why))) => Fact::Unknown(kind, why),
        Err(_) => silent("the files of the credentials", place.patience),
    }
}

/// What the agent trusts, and others may write or, if it is secret, read. In an image, without what its kubeconfig names.
async fn exposed(place: &ObservedNode, config: &ConfigFact) -> Fact<Vec<Exposed>> {
    if !config.is_read() {
        return Fact::Unknown(NotObserved::Absent, "the configuration is not known".to_owned());
    }
    let (root, live) = (place.root.clone(), place.live);
    let (file, config) = (config.file.clone(), config.config.clone());
    blocking(place.patience, "the paths that root trusts", move || {
        // The file's own path includes the root.
        let file = std::path::absolute(&file).unwrap_or(file);
        let file = file.strip_prefix(&root).map(|file| Path::new("/").join(file)).unwrap_or(file);
        let paths = match live {
            true => trusted_paths(&config, Some(&file)),
            false => config.trusted_paths(),
        };
        Fact::Known(winddown_config::exposed(&root, &paths))
    })
    .await
}

async fn others_may_write(place: &ObservedNode, pods: Option<&Path>) -> Fact<Vec<OthersMayWrite>> {
    let Some(pods) = pods.filter(|_| place.live).map(Path::to_owned) else {
        return Fact::not_live();
    };
    blocking(place.patience, "the manifests", move || match winddown_static_pods::others_may_write(
        &Trusted::default(),
        &pods,
    ) {
        Ok(found) => Fact::Known(found),
        Err(error) => not_observed(&error, &pods),
    })
    .await
}
