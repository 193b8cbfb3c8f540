//! The agent as a service: the node on the real runtime and the real logind, with the service
//! manager's protocol around it.

mod cluster;
mod companion;
mod configured;
mod control_loop;
mod former_runtime;
mod host;
mod kubelet;
mod node_api;
mod notices;
mod reload;
mod runtime;
mod shims;
mod signals;
mod slices;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_host::machine::{boot_id, group_id, node_name, wall_clock};
use winddown_host::{FreeSpace, shell_word};
use winddown_node_api::PodStreams;
use winddown_shared::display::duration;
use winddown_shared::{LockState, Runtime, WallClock, WallTime, critical, error_chain};
use winddown_systemd::{Bus, InhibitorConfig, LogindInhibitor, Notifier, hold_block};

use winddown_api_client::ApiHealth;
use winddown_config::{Config, ConfigError, Loaded, Mode, Origin, RuntimeKind, exposed, file_hint};
use winddown_control::{ControlSocket, Limits, Server, SocketError};
use winddown_node::cluster::{Cluster, certificate_folder};
use winddown_node::metrics;
use winddown_node::{
    ConfigFile, Configuration, Configured, Machine, Node, NodeIdentity, NodePlugin, PluginError,
    PodSource, Shutdown, kept_directories, policy_of, trusted_paths,
};
use winddown_node_api::NodeApi;
use winddown_static_pods::{DesiredManifests, ManifestDirectory};

use control_loop::ControlLoop;
use signals::Ends;

pub use cluster::ClusterStartError;
pub use configured::ConfiguredRuntime;
pub use runtime::RuntimeStartError;
pub use slices::units_of_pods;

/// A node on the real runtimes and the real logind.
pub type ServiceNode = Node<ConfiguredRuntime>;

/// The options that the agent is started with.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The requested configuration file. `None` selects the default file, or the built-in defaults if that
    /// does not exist.
    pub config: Option<PathBuf>,
    /// The requested control socket. `None` selects the configured one.
    pub socket: Option<PathBuf>,
    /// A directory that is put before every path of the configuration.
    pub root: PathBuf,
}

/// Why the agent could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration is valid, and the agent of this machine cannot use it, for these reasons.
    #[error("{}", .0.join("; "))]
    Obstacles(Vec<String>),
    /// The cluster cannot be joined.
    #[error(transparent)]
    Cluster(#[from] ClusterStartError),
    /// The configured runtime cannot be used.
    #[error(transparent)]
    Runtime(#[from] RuntimeStartError),
    /// Whether pods of a runtime other than the configured one run is unknown, and none of the configured one runs.
    #[error(
        "cannot see, in /proc and {}, whether pods of `runtime: {runtime}` run: none is started, as it might be a second \
         one", .records.display()
    )]
    FormerRuntime {
        /// The other runtime.
        runtime: RuntimeKind,
        /// Its records.
        records: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The names of plug-ins or of their metrics are invalid or not unique.
    #[error(transparent)]
    Plugins(#[from] PluginError),
    /// The control socket cannot be opened.
    #[error("the control socket cannot be opened")]
    Socket(#[source] SocketError),
    /// The threads of the async runtime cannot be started.
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
    /// The signal handlers cannot be installed.
    #[error("cannot receive signals")]
    Signals(#[source] std::io::Error),
    /// A directory cannot be created.
    #[error("cannot create {}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A directory cannot be written to.
    #[error("cannot write to {}", .path.display())]
    ReadOnly {
        /// The directory.
        path: PathBuf,
        /// Says that its file system is read-only.
        source: std::io::Error,
    },
    /// The group of the control socket does not exist.
    #[error("controlSocketGroup: there is no group {group}")]
    Group {
        /// The group's name.
        group: String,
    },
}

impl StartError {
    /// What to do next, for display; empty if the error itself is enough.
    pub fn hint(&self) -> String {
        match self {
            Self::Config(error) => error.hint(),
            Self::Obstacles(_) => "`winddown doctor` says what to do".to_owned(),
            Self::Directory { source, .. } | Self::ReadOnly { source, .. } => {
                file_hint(source).to_owned()
            }
            Self::Socket(SocketError::InUse { .. }) => {
                "`winddown status` shows the agent that runs; `systemctl restart winddown` restarts it, and no \
                 pod terminates"
                    .to_owned()
            }
            Self::Socket(SocketError::NotASocket { .. }) => {
                "move it away, or write another path into the configuration: controlSocket".to_owned()
            }
            Self::Group { group } => format!("create it: groupadd -r {}", shell_word(group)),
            _ => String::new(),
        }
    }
}

/// The parts of a service that do not depend on the runtime.
struct Service {
    options: ServiceOptions,
    configured: Configured,
    identity: NodeIdentity,
    socket: ControlSocket,
    notifier: Notifier,
    wall: WallClock,
    ends: Ends,
    /// SIGHUP, which requests a reload; several that arrive meanwhile count as one.
    reloads: Signal,
}

/// Runs the agent until the service manager or a signal stops it.
///
/// # Errors
/// The agent could not start; nothing was changed and no pod was touched.
pub async fn run(options: ServiceOptions) -> Result<(), StartError> {
    // First, because until then these signals terminate the process, and pods of the agent before it may run.
    let ends = Ends::listen().map_err(StartError::Signals)?;
    let reloads = signal(SignalKind::hangup()).map_err(StartError::Signals)?;
    let notifier = Notifier::from_env();
    let wall = wall_clock();
    let (configuration, loaded, group) = load_usable(&options, wall.now())?;
    log_warnings(&configuration.warnings, &loaded);
    let config = Arc::clone(&configuration.config);
    // The socket comes first: it keeps a second agent from touching the pods of the first.
    let path = options.socket.as_deref().unwrap_or(&config.access.control_socket);
    make_way(path, &options.root);
    let socket = ControlSocket::bind(path, group).await.map_err(StartError::Socket)?;
    remove_drafts(&config);
    warn_of_others(&configuration);
    keep(&options.root, loaded);
    let configuration = former_runtime::kept(configuration, &wall)?;
    let config = Arc::clone(&configuration.config);
    let name = config.node_name_or(&node_name());
    let identity = NodeIdentity { name, boot_id: boot_id() };
    let configured = Configured::new(configuration);
    let service = Service { options, configured, identity, socket, notifier, wall, ends, reloads };
    let joined = match config.node.mode {
        Mode::Standalone => None,
        Mode::Companion => return service.run_companion().await,
        Mode::Cluster => Some(cluster::parts(&config, &service.identity, &service.wall).await?),
    };
    let (configured, identity, wall) = (&service.configured, &service.identity, &service.wall);
    let runs = match config.node.runtime {
        RuntimeKind::Process => {
            let process = Arc::new(runtime::process(configured, identity, wall).await?);
            Runs::own(process, ConfiguredRuntime::Process, &service, joined)
        }
        RuntimeKind::Cri => {
            let cri = Arc::new(runtime::cri(configured, identity, wall).await?);
            let joined = joined.map(|parts| cluster::with_runtime_facts(parts, Arc::clone(&cri)));
            Runs::own(cri, ConfiguredRuntime::Cri, &service, joined)
        }
        RuntimeKind::Systemd => {
            let units = Arc::new(runtime::systemd(configured, identity, wall).await?);
            Runs::own(units, ConfiguredRuntime::Systemd, &service, joined)
        }
    };
    service.run(runs).await
}

/// Logs what is wrong with a configuration; that it is not the file's is an error.
fn log_warnings(warnings: &[String], loaded: &Loaded) {
    for warning in warnings {
        match loaded.refused {
            Some(_) if warning.starts_with(winddown_config::DEFAULT_FILE) => {
                tracing::error!("{warning}");
            }
            _ => tracing::warn!("{warning}"),
        }
    }
}

/// The parts of a service that depend on the mode: the runtime, the source of pods and the plug-ins.
struct Runs {
    runtime: ConfiguredRuntime,
    /// The source of pods. `None` selects the manifests directory.
    source: Option<PodSource>,
    machine: Option<Machine>,
    admits_all: bool,
    /// The plug-ins other than the shutdown.
    plugins: Vec<Box<dyn NodePlugin<ConfiguredRuntime>>>,
    /// The node API, which the API server calls.
    node_api: Option<NodeApi>,
    /// The health of the connection to the API server.
    api: Option<watch::Receiver<ApiHealth>>,
    /// Receives what goes down.
    going_down: Option<companion::GoingDown>,
    stop: CancellationToken,
}

impl Runs {
    /// The parts for a mode in which the agent runs the pods itself.
    fn own<R: Runtime + PodStreams>(
        runtime: Arc<R>,
        is: fn(Arc<R>) -> ConfiguredRuntime,
        service: &Service,
        cluster: Option<Cluster>,
    ) -> Self {
        let configured = &service.configured;
        let config = configured.configuration().config;
        let places = host::usage_places(&config);
        let mut plugins: Vec<Box<dyn NodePlugin<ConfiguredRuntime>>> =
            vec![Box::new(configured.preemption()), Box::new(configured.eviction(places))];
        let api = cluster.as_ref().map(|cluster| cluster.connection.health());
        let node_api =
            cluster.as_ref().and_then(|cluster| node_api::plugin(service, cluster, &runtime));
        let after_nodes =
            cluster.as_ref().and_then(|cluster| cluster::after_nodes(&config, &cluster.connection));
        plugins.extend(cluster.map(|cluster| Box::new(cluster) as _));
        plugins.extend(after_nodes.map(|plugin| Box::new(plugin) as _));
        Self {
            source: None,
            machine: Some(Machine::of_host(&config.access.state_directory)),
            plugins,
            node_api,
            admits_all: false,
            api,
            going_down: None,
            runtime: is(runtime),
            stop: CancellationToken::new(),
        }
    }
}

impl Service {
    /// Assembles the node and runs it until a signal stops the agent.
    ///
    /// # Errors
    /// The node could not start; no pod was touched.
    async fn run(self, runs: Runs) -> Result<(), StartError> {
        let Self { options, configured, identity, socket, notifier, wall, ends, reloads } = self;
        let config = configured.configuration().config;
        let stop = runs.stop;
        let source =
            runs.source.or_else(|| manifests(&config, &identity, &wall, &stop).map(Into::into));
        let inhibitor =
            Arc::new(LogindInhibitor::start(inhibitor_config(&config, &options, &notifier)));
        let boot = host::boot_clock_of_user_space().await;
        let notices = notices::listen(&config, &wall, &boot, &identity.boot_id, &stop);
        let volatile = config.access.control_socket.parent().map(PathBuf::from);
        let runtime = Arc::new(runs.runtime);
        let plugin = shutdown(&configured, &inhibitor, &runtime, runs.api.clone(), &options.root)
            .notices(notices.clone());
        let shutdown = plugin.handle();
        let guard = configured.guard(volatile, |wanted| hold_block(Bus::System, wanted));
        if let Some(going_down) = runs.going_down {
            let log = companion::log_going_down(shutdown.progress(), shutdown.lock(), going_down);
            critical::spawn("a shutdown's progress", log);
        }
        let node = Node::builder(runtime)
            .settings(configured.settings())
            .state_directory(cluster::volatile(&config))
            .runtime_health(ConfiguredRuntime::health)
            .sources(source)
            .identity(identity)
            .machine(runs.machine)
            .admits_all(runs.admits_all)
            .clocks(wall, boot)
            .plugin(plugin)
            .plugin(guard)
            .plugin(configured.ordered_start())
            .plugin(host::disk_room(&config))
            .plugin(ConfigFile::new(configured.clone(), config_file(&options)))
            .plugins(runs.plugins)
            .plugins(runs.node_api)
            .start()?;
        let server = Server::new(Arc::new(node.clone()), Limits::default(), stop.clone());
        let served = serve(server, socket, config.access.metrics_address, node.clone(), &stop);
        let control = ControlLoop {
            options,
            configured,
            node,
            shutdown,
            notices,
            inhibitor,
            api: runs.api,
            notifier,
            reloads,
            ends,
        };
        control.run().await;
        stop.cancel();
        // The server removes its socket, and has logged any failure by then.
        served.await;
        Ok(())
    }
}

/// The shutdown plug-in, with what it asks of this machine and its runtime.
fn shutdown(
    configured: &Configured,
    inhibitor: &Arc<LogindInhibitor>,
    runtime: &Arc<ConfiguredRuntime>,
    api: Option<watch::Receiver<ApiHealth>>,
    root: &Path,
) -> Shutdown {
    let (logind, runtime) = (Arc::clone(inhibitor), Arc::clone(runtime));
    let used = move |api: &watch::Receiver<ApiHealth>| runtime.api_server_use(&api.borrow().state);
    configured
        .shutdown(Arc::clone(inhibitor))
        .kubelet_inspector(host::look_at_kubelet(root, &configured.configuration().config))
        .api_server(move || api.as_ref().map(&used).unwrap_or_default())
        .refused_signals(move || logind.refused_signals())
}

/// Serves the control API on the socket, and metrics over TCP where an address is configured. The result resolves when
/// both have ended.
fn serve(
    server: Server<ServiceNode>,
    socket: ControlSocket,
    metrics_address: Option<SocketAddr>,
    node: ServiceNode,
    stop: &CancellationToken,
) -> impl Future<Output = ()> + use<> {
    // Clones share the limits, and scrapes over TCP cannot crowd out root on the socket.
    let scraped = metrics_address.map(|address| {
        let again = metrics::BIND_RETRY_DELAY;
        let problem = move |problem| node.set_metrics_problem(problem);
        let (server, stop) = (server.clone(), stop.clone());
        tokio::spawn(metrics::serve_over_tcp(server, address, again, stop, problem))
    });
    let served = critical::spawn("control server", server.serve(socket));
    async move {
        let _ = served.await;
        if let Some(scraped) = scraped {
            let _ = scraped.await;
        }
    }
}

/// Moves a file out of the control socket's place, if that is in the agent's own directory: nothing else belongs there.
fn make_way(socket: &Path, root: &Path) {
    let usual = root.join(winddown_control::DEFAULT_SOCKET.trim_start_matches('/'));
    if socket.parent() != usual.parent() {
        return;
    }
    match ControlSocket::make_way(socket) {
        Ok(None) => {}
        Ok(Some(aside)) => tracing::warn!(
            to = %aside.display(),
            "something that is not a socket was in the control socket's place, and was moved away"
        ),
        // The start fails, and says what is there.
        Err(error) => {
            tracing::debug!(error = error_chain(&error), "what is in the socket's place stays");
        }
    }
}

/// The configuration file that `options` name, which need not exist.
fn config_file(options: &ServiceOptions) -> PathBuf {
    let usual = || options.root.join(winddown_config::DEFAULT_FILE.trim_start_matches('/'));
    options.config.clone().unwrap_or_else(usual)
}

/// Reads the configuration that `options` name, and returns it with what was read. Nothing stands in for a file that
/// `must_exist`.
fn load(
    options: &ServiceOptions,
    now: WallTime,
    must_exist: bool,
) -> Result<(Configuration, Loaded), StartError> {
    let named = options.config.clone().or_else(|| must_exist.then(|| config_file(options)));
    let loaded = winddown_config::load(&options.root, named.as_deref())?;
    Ok((configuration(&loaded, options, now), loaded))
}

/// Reads the configuration as [`load`] does for a start, makes its directories, and returns it with the group of its socket.
/// If this machine does not let an agent use it, what was last in force stands in for it, as for a file that is wrong. A disk
/// that became read-only keeps no agent from starting that can do without: nothing else stands in for it.
fn load_usable(
    options: &ServiceOptions,
    now: WallTime,
) -> Result<(Configuration, Loaded, Option<u32>), StartError> {
    let (read, loaded) = load(options, now, false)?;
    let (prepared, closed) = (prepare(&read.config), read_only(&read.config));
    let error = match (&prepared, &closed) {
        (Ok(group), None) => return Ok((read, loaded, *group)),
        (Err(error), _) | (Ok(_), Some(error)) => error_chain(error),
    };
    let last = loaded.last_instead(&options.root, &error);
    let last = last.map(|last| (configuration(&last, options, now), last));
    match (prepared, last) {
        (Ok(group), Some((stands_in, _))) if read_only(&stands_in.config).is_some() => {
            Ok((read, loaded, group))
        }
        (_, Some((stands_in, last))) => {
            let group = prepare(&stands_in.config)?;
            Ok((stands_in, last, group))
        }
        (Ok(group), None) => {
            tracing::error!("{error}");
            Ok((read, loaded, group))
        }
        (Err(error), None) => Err(error),
    }
}

/// The first directory of the configuration that cannot be written to, as an error.
fn read_only(config: &Config) -> Option<StartError> {
    let is_closed = |path: &Path| FreeSpace::of(path).is_ok_and(|disk| disk.read_only);
    let closed = config.written_directories().into_iter().find(|(_, path)| is_closed(path));
    closed.map(|(_, path)| StartError::ReadOnly {
        path: path.to_owned(),
        source: std::io::ErrorKind::ReadOnlyFilesystem.into(),
    })
}

/// Makes the directories of the configuration, and returns the group of its socket.
fn prepare(config: &Config) -> Result<Option<u32>, StartError> {
    make_directories(config)?;
    group_of(config)
}

fn configuration(loaded: &Loaded, options: &ServiceOptions, now: WallTime) -> Configuration {
    let mut warnings: Vec<String> = loaded.stands_in().into_iter().collect();
    warnings.extend(loaded.warnings.iter().map(ToString::to_string));
    let config = Arc::new(loaded.config.clone().rooted(&options.root));
    let file = (loaded.origin != Origin::Defaults).then(|| loaded.file.clone());
    Configuration { config, file, warnings, at_restart: Vec::new(), loaded_at: now }
}

/// Keeps what is in force from now on for a start without its file. A disk that is full or hangs keeps no agent from
/// starting.
fn keep(root: &Path, loaded: Loaded) {
    let root = root.to_owned();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = loaded.keep(&root) {
            tracing::warn!(
                error = error_chain(&error),
                "no copy of the configuration is kept: if the file is lost, a restart has an old one, or the defaults"
            );
        }
    });
}

/// Warns, without delaying the start, about each path that root trusts and others may write.
fn warn_of_others(configuration: &Configuration) {
    let Configuration { config, file, .. } = configuration.clone();
    tokio::task::spawn_blocking(move || {
        let file = file.and_then(|file| std::path::absolute(file).ok());
        for one in exposed(Path::new("/"), &trusted_paths(&config, file.as_deref())) {
            tracing::warn!("{one}: root trusts what is there; `winddown doctor` says what to do");
        }
    });
}

fn make_directories(config: &Config) -> Result<(), StartError> {
    // To make one that exists waits for a disk that hangs.
    let written = config.written_directories().into_iter();
    // A pod may have put it there. The runtime says so.
    let is_taken =
        |path: &Path| path == config.access.pod_logs_dir && path.symlink_metadata().is_ok();
    for (_, path) in written.filter(|(_, path)| !path.is_dir() && !is_taken(path)) {
        std::fs::create_dir_all(path)
            .map_err(|source| StartError::Directory { path: path.to_owned(), source })?;
    }
    Ok(())
}

/// Removes what a killed agent, or one whose machine lost power, left half-written in the directories of kept files: it
/// may be a key. Only while the socket is held: another agent may be writing. Blocking.
fn remove_drafts(config: &Config) {
    let kept = [
        config.access.state_directory.clone(),
        certificate_folder(config),
        former_runtime::records(config, RuntimeKind::Cri),
    ];
    let all = kept.into_iter().chain(kept_directories(cluster::volatile(config)));
    all.for_each(|directory| winddown_host::remove_drafts(&directory));
}

/// The id of the group whose members may use the sockets in addition to root.
fn group_of(config: &Config) -> Result<Option<u32>, StartError> {
    let Some(name) = &config.access.control_socket_group else { return Ok(None) };
    let missing = || StartError::Group { group: name.clone() };
    group_id(name).map(Some).ok_or_else(missing)
}

/// Watches the manifests directory until `stop` is cancelled, and returns its pods. `None` if none is configured.
fn manifests(
    config: &Config,
    identity: &NodeIdentity,
    wall: &WallClock,
    stop: &CancellationToken,
) -> Option<watch::Receiver<Arc<DesiredManifests>>> {
    let path = config.pods.static_pod_path.clone()?;
    let rescan = config.pods.file_check_frequency;
    let (directory, desired) = ManifestDirectory::new(path, &identity.name, rescan, wall.clone());
    let directory = directory.kept_in(cluster::volatile(config).join("second-manifests.json"));
    critical::spawn_until("manifests", stop.clone(), directory.run(stop.clone()));
    Some(desired)
}

fn inhibitor_config(
    config: &Config,
    options: &ServiceOptions,
    notifier: &Notifier,
) -> InhibitorConfig {
    let delay = policy_of(&config.shutdown).delay_wanted();
    let mut wanted = InhibitorConfig::of_service(notifier, delay);
    wanted.root = Some(options.root.clone());
    wanted
}

/// The status line of the agent that `systemctl status` shows.
fn status_line(lock: &LockState, delay: Option<Duration>, wanted: Duration) -> String {
    match lock {
        LockState::Held => match delay {
            Some(delay) if delay < wanted => format!(
                "Holding the shutdown lock; logind waits {}, less than the {} required",
                duration(delay),
                duration(wanted)
            ),
            _ => format!("Holding the shutdown lock for up to {}", duration(wanted)),
        },
        LockState::Waiting { why } => format!("NOT holding the shutdown lock: {why}"),
        LockState::Absent { why } => format!("Running without a shutdown lock: {why}"),
        LockState::Released => "Pods have terminated; the node may go down".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::reload::FileReading;
    use super::*;

    fn put(root: &Path, path: &str, fields: &str) {
        let file = root.join(&path[1..]);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let head = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n";
        std::fs::write(file, format!("{head}{fields}")).unwrap();
    }

    fn options(root: &Path) -> ServiceOptions {
        ServiceOptions { config: None, socket: None, root: root.to_owned() }
    }

    async fn reloaded(options: &ServiceOptions) -> Result<Configuration, StartError> {
        reload::end_of(&mut Some(FileReading::start(options, true))).await.unwrap()
    }

    /// It destroyed what the next agent would have started with.
    #[tokio::test]
    async fn a_reload_with_which_no_agent_can_start_leaves_the_copy_of_the_last_one() {
        let root = tempfile::tempdir().unwrap();
        let options = options(root.path());
        std::fs::write(root.path().join("file"), "").unwrap();
        put(root.path(), winddown_config::LAST_IN_FORCE, "mode: companion\n");
        put(root.path(), winddown_config::DEFAULT_FILE, "stateDirectory: /file/state\n");
        let error = reloaded(&options).await.unwrap_err();
        assert!(matches!(&error, StartError::Directory { .. }), "{error:?}");
        let (read, loaded, _) = load_usable(&options, wall_clock().now()).unwrap();
        assert_eq!((loaded.origin, read.config.node.mode), (Origin::LastInForce, Mode::Companion));
    }

    #[tokio::test]
    async fn a_reload_still_says_that_pods_of_another_runtime_run() {
        let root = tempfile::tempdir().unwrap();
        let pods = root.path().join("var/lib/winddown/process/pods");
        std::fs::create_dir_all(&pods).unwrap();
        put(root.path(), winddown_config::DEFAULT_FILE, "runtime: systemd\n");
        let mut supervisor = std::process::Command::new("/bin/sh")
            .args(["-c", "read line", "run"])
            .arg(pods.join("u1"))
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let read = reloaded(&options(root.path())).await;
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        let Configuration { config, warnings, at_restart, .. } = read.unwrap();
        assert_eq!(
            (config.node.runtime, &*at_restart),
            (RuntimeKind::Process, &["runtime".into()][..])
        );
        assert!(
            warnings.iter().any(|said| said.starts_with("runtime was changed")),
            "{warnings:?}"
        );
    }

    /// It cost the node its lock, and every pod its grace at the next shutdown.
    #[test]
    fn a_configuration_that_this_machine_refuses_leaves_the_last_one_in_effect() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, fields: &str| put(root.path(), path, fields);
        let options = options(root.path());
        let load = || load_usable(&options, wall_clock().now());
        std::fs::write(root.path().join("file"), "").unwrap();
        for wrong in ["controlSocketGroup: no-such-group\n", "stateDirectory: /file/state\n"] {
            put(winddown_config::DEFAULT_FILE, wrong);
            let error = load().unwrap_err();
            put(winddown_config::LAST_IN_FORCE, "mode: companion\npodLogsDir: /pods/logs\n");
            let (read, loaded, group) = load().unwrap();
            assert_eq!((loaded.origin, group), (Origin::LastInForce, None), "{wrong}");
            assert_eq!(read.config.node.mode, Mode::Companion);
            let why = error_chain(&error);
            assert!(read.warnings[0].contains(&why), "{why}: {:?}", read.warnings);
            std::fs::remove_file(root.path().join(&winddown_config::LAST_IN_FORCE[1..])).unwrap();
        }
        assert!(!root.path().join("pods").exists(), "the kubelet makes the logs of its pods");
    }

    #[test]
    fn what_a_killed_agent_left_half_written_is_removed_and_no_file_of_a_pod() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.access.state_directory = dir.path().join("state");
        config.access.control_socket = dir.path().join("run/control.sock");
        let write = |name: &str| {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "half").unwrap();
            file
        };
        let drafts = [
            "state/.tmp-shutdown.json-012abc",
            "state/cluster/certificate/.tmp-client.pem-012abc",
            "state/cri/.tmp-cpu-weight-012abc",
            "run/.tmp-guard.json-012abc",
            "run/kills/.tmp-u1.json-012abc",
            "run/api-pods/boot/.tmp-u1.json-012abc",
        ];
        let drafts = drafts.map(write);
        let of_pod = write("state/cluster/volumes/u1/data/.tmp-draft-012abc");
        remove_drafts(&config);
        let left: Vec<_> = drafts.iter().filter(|file| file.exists()).collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(of_pod.exists());
    }
}
