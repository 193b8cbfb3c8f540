//! `winddown drill`: a rehearsal with the real agent, real pods and a real run, but a stand-in for logind. The machine
//! stays up. The agent's state and logs are in a temporary directory; what the pods' programs and hooks do is done to the
//! machine.

mod progress;
mod start;

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_companion::kubelet;
use winddown_host::machine::wall_clock;
use winddown_host::{in_root, path_word};
use winddown_runtimes::process::{
    CgroupParent, OpenError, ProcessConfig, ProcessRuntime, ShimCommand,
};
use winddown_shared::display::{clean, duration, pod_count};
use winddown_shared::{
    Inhibitor, KillReason, KillRequest, LockState, PluginName, PodKiller, ShutdownKind, error_chain,
};
use winddown_shutdown::{Outcome, ProgressPhase, ShutdownReport, Trigger};
use winddown_systemd::stand_in::{ShutdownOutcome, StandIn};
use winddown_systemd::{InhibitorConfig, LogindInhibitor};

use start::{DrillStart, DrillStep, START_TIMEOUT, is_probed, not_ready};

use crate::ask;
use crate::end_signals::EndSignals;
use crate::{CommandError, DrillArgs, Exit, GlobalArgs, Output, TextFormat};
use winddown_config::{Config, ConfigError, Mode};
use winddown_control::StatusApi;
use winddown_control::api::{PodState, PodStatus, RejectedPod, Status};
use winddown_node::{Configured, Node, NodeIdentity, PluginError, ShutdownHandle, policy_of};
use winddown_render::priority_of;
use winddown_static_pods::{DesiredManifests, ManifestDirectory, ManifestProblem};

/// The node name of the rehearsal, in place of the machine's.
const NODE_NAME: &str = "drill";

/// Why the pods are terminated in the end: for good, or those that exit first would start again beside the slower ones.
const ENDED: KillReason = KillReason::Plugin(PluginName::new("drill"));

/// The pods of a rehearsal without a directory.
const BUILT_IN: &[(&str, &str)] = &[
    ("broker.yaml", include_str!("../../docs/examples/node/broker.yaml")),
    ("cache.yaml", include_str!("../../docs/examples/node/cache.yaml")),
    ("database.yaml", include_str!("../../docs/examples/node/database.yaml")),
    ("dns.yaml", include_str!("../../docs/examples/node/dns.yaml")),
    ("mailer.yaml", include_str!("../../docs/examples/node/mailer.yaml")),
    ("network-agent.yaml", include_str!("../../docs/examples/node/network-agent.yaml")),
    ("nightly-report.yaml", include_str!("../../docs/examples/node/nightly-report.yaml")),
    ("queue-worker.yaml", include_str!("../../docs/examples/node/queue-worker.yaml")),
    ("stubborn.yaml", include_str!("../../docs/examples/node/stubborn.yaml")),
    ("thumbnails.yaml", include_str!("../../docs/examples/node/thumbnails.yaml")),
    ("web-1.yaml", include_str!("../../docs/examples/node/web-1.yaml")),
    ("web-2.yaml", include_str!("../../docs/examples/node/web-2.yaml")),
];

/// Returns the configuration of a rehearsal, and whose it is: the file that was named, or for the user's own pods the
/// node's, as the agent would load it below `root`; for the built-in pods, one with a group for each of their priorities.
///
/// # Errors
/// The file cannot be read or is invalid.
fn configuration(
    root: &Path,
    named: Option<&Path>,
    pods: Option<&Path>,
) -> Result<(Config, String), ConfigError> {
    if named.is_none() && pods.is_none() {
        let text = include_bytes!("../../docs/examples/node-config.yaml");
        let (config, _) = Config::parse(Path::new("docs/examples/node-config.yaml"), text)?;
        let own = winddown_config::load(root, None);
        let is_beside = own.is_ok_and(|own| own.config.node.mode == Mode::Companion);
        return Ok((config, if is_beside { BESIDE.to_owned() } else { String::new() }));
    }
    let loaded = winddown_config::load(root, named)?;
    let whose = loaded.stands_in();
    let mut whose = whose.unwrap_or_else(|| format!("configuration: {}", loaded.file.display()));
    if loaded.config.node.mode == Mode::Companion {
        whose.push('\n');
        whose.push_str(BESIDE);
    }
    Ok((loaded.config, whose))
}

/// What a rehearsal on a node with a kubelet leaves out.
const BESIDE: &str = "The kubelet and its pods have no part in it: `winddown plan shutdown` shows what becomes of them.";

/// Why a rehearsal failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum DrillError {
    /// The directory for temporary files takes no other. The source names the path.
    #[error("cannot create a directory among the temporary files")]
    Temporary(#[source] io::Error),
    /// The temporary directory cannot be used.
    #[error("cannot prepare {}", .path.display())]
    Prepare {
        /// The path that could not be created or written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The pods cannot be read.
    #[error("cannot read {}", .path.display())]
    Pods {
        /// The directory or manifest.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The shim program cannot be used.
    #[error("cannot use the containers' supervisor (winddown-shim)")]
    Shim(#[source] io::Error),
    /// The process runtime cannot start.
    #[error("the process runtime cannot start")]
    Runtime(#[source] OpenError),
    /// The names or metrics of plug-ins conflict.
    #[error(transparent)]
    Plugins(#[from] PluginError),
    #[error("{}: no pod can be run from here{}", .pods.display(), list(.problems))]
    NoPods {
        /// The directory or manifest.
        pods: PathBuf,
        /// The errors in the manifests, and why the agent refuses the pods.
        problems: Vec<String>,
    },
    /// The node runs the pods already.
    #[error(
        "{}: this node runs these pods: a rehearsal would run each program a second time, on the same files and ports, \
         and its hooks could stop the first",
        .pods.display()
    )]
    RunsAlready {
        /// The directory or manifest.
        pods: PathBuf,
    },
    /// The configuration switches graceful shutdown off.
    #[error("the configuration switches graceful shutdown off (shutdownGracePeriod: 0s)")]
    Disabled,
    /// The run left no report.
    #[error("the run left no report")]
    NoReport,
    /// The output cannot be written.
    #[error("the output cannot be written")]
    Output(CommandError),
    /// The user pressed Ctrl-C, the terminal was closed, or the like.
    #[error("interrupted; the rehearsal's pods were terminated")]
    Interrupted,
}

impl DrillError {
    fn exit(&self) -> Exit {
        match self {
            Self::NoPods { problems, .. } if !problems.is_empty() => Exit::ConfigInvalid,
            _ => Exit::Failure,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Pods { path, source } => match crate::exit::reading_hint(path, source) {
                hint if source.kind() == io::ErrorKind::NotFound => {
                    format!("{hint}; `winddown drill` without it has pods of its own")
                }
                hint => hint,
            },
            Self::NoPods { .. } => {
                "`winddown drill` without a directory has pods of its own".into()
            }
            Self::RunsAlready { pods } => format!(
                "`winddown plan shutdown` shows what a shutdown would do; where it does no harm: `winddown drill --twice {}`",
                path_word(pods)
            ),
            Self::Disabled => "name another with --config, or set shutdownGracePeriod".into(),
            Self::Temporary(_) | Self::Prepare { .. } | Self::NoReport => {
                "name a directory with room for temporary files: `TMPDIR=/var/tmp winddown drill`"
                    .into()
            }
            _ => String::new(),
        }
    }
}

impl From<CommandError> for DrillError {
    fn from(error: CommandError) -> Self {
        Self::Output(error)
    }
}

/// Rehearses a shutdown and shows its progress and its report.
pub(super) fn run(
    global: &GlobalArgs,
    args: &DrillArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    winddown_daemon::logging::start_at("error");
    let (named, pods) = (global.config.as_deref(), args.pods.as_deref());
    let (config, whose) = configuration(Path::new("/"), named, pods)?;
    // A whole agent runs on this runtime.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(hold(args, config, &whose, out));
    runtime.shutdown_timeout(ask::LAST_THREADS);
    match result {
        Ok(Outcome::Clean) => Ok(Exit::Success),
        Ok(_) => Ok(Exit::PodsLeft),
        Err(DrillError::Output(error)) => Err(error),
        Err(error) => {
            let (exit, hint) = (error.exit(), error.hint());
            Err(CommandError::new(exit, error).with_hint(hint))
        }
    }
}

/// Runs a rehearsal and returns its outcome.
///
/// # Errors
/// The rehearsal failed. Pods that were started have been stopped.
async fn hold(
    args: &DrillArgs,
    config: Config,
    whose: &str,
    out: &mut Output,
) -> Result<Outcome, DrillError> {
    if let Some(pods) = args.pods.as_deref().filter(|_| !args.twice)
        && runs_any(Path::new("/"), &config, pods)
    {
        return Err(DrillError::RunsAlready { pods: pods.to_owned() });
    }
    let scratch = scratch_in(&std::env::temp_dir())?;
    let root = scratch.path().to_owned();
    if args.keep {
        let kept = scratch.keep();
        let say = args.output == TextFormat::Text;
        tell(say, &format!("state and logs are kept in {}", kept.display()), out)?;
    }
    let pods = pods_directory(args.pods.as_deref(), &root)?;
    if args.pods.is_some() && rustix::process::geteuid().is_root() {
        warn_if_others_may_write(&pods, out)?;
    }
    let policy = policy_of(&config.shutdown);
    if !policy.is_enabled() {
        return Err(DrillError::Disabled);
    }
    let logind = StandIn::new(args.delay.unwrap_or(policy.delay_wanted()));
    // Before the first pod starts: the pods would outlive a process that such a signal ends.
    let mut ends = EndSignals::unless_ignored().map_err(CommandError::from)?;
    let drill = Drill::start(args, config, &root, &pods, &logind).await?;
    let result = tokio::select! {
        result = drill.rehearse(args, whose, &logind, out) => result,
        () = ends.next() => Err(DrillError::Interrupted),
    };
    drill.end_all().await;
    drop(drill);
    logind.leave().await;
    result
}

struct Drill {
    node: Node<ProcessRuntime>,
    shutdown: ShutdownHandle,
    inhibitor: Arc<LogindInhibitor>,
    manifests: watch::Receiver<Arc<DesiredManifests>>,
    pods: PathBuf,
    stop: CancellationToken,
}

impl Drill {
    async fn start(
        args: &DrillArgs,
        mut config: Config,
        root: &Path,
        pods: &Path,
        logind: &StandIn,
    ) -> Result<Self, DrillError> {
        let wall = wall_clock();
        config.access.state_directory = root.join("state");
        config.access.pod_logs_dir = root.join("logs");
        config.pods.static_pod_path = Some(pods.to_owned());
        let shim = ShimCommand::beside_this_program().map_err(DrillError::Shim)?;
        let mut process = ProcessConfig::new(
            config.access.state_directory.join("process"),
            &config.access.pod_logs_dir,
            shim,
            wall.clone(),
        );
        process.cgroups = CgroupParent::Rehearsal;
        process.notice_dir = Some(root.join("termination-notices"));
        let runtime = ProcessRuntime::open(process).await.map_err(DrillError::Runtime)?;
        let mut wanted = InhibitorConfig::new(policy_of(&config.shutdown).delay_wanted());
        wanted.bus = logind.peer();
        wanted.root = Some(root.to_owned());
        let inhibitor = Arc::new(LogindInhibitor::start(wanted));
        let stop = CancellationToken::new();
        let every = config.pods.file_check_frequency;
        let (directory, manifests) =
            ManifestDirectory::new(pods.to_owned(), NODE_NAME, every, wall.clone());
        tokio::spawn(directory.run(stop.clone()));
        let configured = Configured::of(config, wall.now());
        let plugin = configured.shutdown(Arc::clone(&inhibitor)).trigger(Trigger::Drill);
        let shutdown = plugin.handle();
        let node = Node::builder(Arc::new(runtime))
            .settings(configured.settings())
            .source(manifests.clone())
            .identity(NodeIdentity { name: NODE_NAME.to_owned(), boot_id: "drill".to_owned() })
            .plugin(plugin)
            .start()?;
        let pods = args.pods.clone().unwrap_or_else(|| pods.to_owned());
        Ok(Self { node, shutdown, inhibitor, manifests, pods, stop })
    }

    async fn rehearse(
        &self,
        args: &DrillArgs,
        whose: &str,
        logind: &StandIn,
        out: &mut Output,
    ) -> Result<Outcome, DrillError> {
        let form = args.output;
        let say = form == TextFormat::Text;
        if say {
            out.line("A rehearsal: real pods, a real run. The signal comes from a stand-in for")?;
            out.line("logind on a private connection; this machine stays up.")?;
            let end = if whose.is_empty() { "" } else { "\n" };
            out.line(&format!("{whose}{end}"))?;
        }
        self.until_started(args.settle, say, out).await?;
        self.until_locked().await;
        if say {
            let wait = duration(logind.delay());
            out.line(&format!("\nThe stand-in says: power off. It waits up to {wait}.\n"))?;
        }
        let shutdown = {
            let logind = logind.clone();
            tokio::spawn(async move { logind.shutdown(ShutdownKind::PowerOff).await })
        };
        let outcome = progress::follow(self.shutdown.progress(), shutdown, say, out).await?;
        let report = self.report().await?;
        match form {
            TextFormat::Json => out.json(&report)?,
            TextFormat::Yaml => out.yaml(&report)?,
            TextFormat::Text => {
                out.line("")?;
                out.text(&winddown_render::report::text(&report, out.color))?;
                out.line(&closing_line(outcome.as_ref()))?;
            }
        }
        Ok(report.outcome)
    }

    /// Waits until every pod is ready, has finished or was refused, for at most [`START_TIMEOUT`], and then until
    /// programs whose readiness nothing tells have had `settle` to begin.
    async fn until_started(
        &self,
        settle: Duration,
        say: bool,
        out: &mut Output,
    ) -> Result<(), DrillError> {
        let mut manifests = self.manifests.clone();
        let read = timeout(START_TIMEOUT, manifests.wait_for(|m| m.generation > 0)).await;
        let (wanted, problems, settle) = match read {
            Ok(Ok(m)) => {
                let problems = m.errors.iter().map(|problem| self.told(problem)).collect();
                let unprobed = m.pods.iter().any(|pod| !is_probed(pod));
                (m.pods.len(), problems, if unprobed { settle } else { Duration::ZERO })
            }
            _ => (0, Vec::new(), settle),
        };
        let no_pods = |problems| Err(DrillError::NoPods { pods: self.pods.clone(), problems });
        if wanted == 0 {
            return no_pods(problems);
        }
        for problem in &problems {
            tell(say, &format!("left out: {}", clean(problem)), out)?;
        }
        let mut start = DrillStart::new(Instant::now(), settle);
        let mut changes = self.node.changes();
        loop {
            let status = self.node.status();
            let late: Vec<_> = status.pods.iter().filter(|pod| !is_up(pod)).collect();
            let up = status.pods.len() - late.len() + status.rejected.len();
            let line = format!("starting the pods: {up} of {wanted}{}", not_ready(&late));
            out.progress_over(&line);
            match start.step(up >= wanted, Instant::now()) {
                DrillStep::Wait(next) => {
                    let _ = timeout(next, changes.changed()).await;
                }
                // Where lines cannot be overwritten, silence would look like a hang.
                DrillStep::Tell if !out.progress_terminal => out.progress(&line),
                DrillStep::Tell => {}
                DrillStep::Go => {
                    out.progress_over("");
                    if status.rejected.len() >= wanted {
                        return no_pods(status.rejected.iter().map(refusal).collect());
                    }
                    let took = start.took(Instant::now());
                    return if say { print_started(&status, wanted, took, out) } else { Ok(()) };
                }
            }
        }
    }

    /// A problem, with the manifest by the name that the user gave it: the directory has a link to it.
    fn told(&self, problem: &ManifestProblem) -> String {
        if self.pods.is_file() {
            return ManifestProblem { file: self.pods.clone(), ..problem.clone() }.to_string();
        }
        problem.to_string()
    }

    async fn until_locked(&self) {
        let mut state = self.inhibitor.state();
        let _ = timeout(START_TIMEOUT, state.wait_for(|s| s.lock == LockState::Held)).await;
    }

    /// Reads the report once the run is over. The stand-in may have stopped waiting earlier, which the report then
    /// shows.
    async fn report(&self) -> Result<ShutdownReport, DrillError> {
        use ProgressPhase::{Cancelled, Released};
        let mut progress = self.shutdown.progress();
        let over = progress.wait_for(|now| matches!(now.phase, Released | Cancelled));
        let _ = timeout(START_TIMEOUT, over).await;
        let store = self.shutdown.reports().clone();
        let read = tokio::task::spawn_blocking(move || store.latest()).await;
        read.ok().and_then(Result::ok).flatten().ok_or(DrillError::NoReport)
    }

    /// Stops everything, whatever the result of the rehearsal.
    async fn end_all(&self) {
        self.stop.cancel();
        let workers = self.node.workers();
        let mut ended = HashSet::new();
        loop {
            let mut pods = workers.running().into_pods();
            pods.retain(|pod| ended.insert(pod.uid().clone()));
            if pods.is_empty() {
                break;
            }
            let kills = pods.into_iter().map(|pod| {
                let request = KillRequest::new(ENDED).with_grace(Some(Duration::from_secs(1)));
                workers.kill_pod(pod, request)
            });
            for result in join_all(kills).await {
                if let Err(error) = result {
                    tracing::warn!(error = error_chain(&error), "a pod of the rehearsal is left");
                }
            }
            // Others may have been admitted meanwhile.
        }
        self.node.shut_down().await;
    }
}

/// Prints a line that is not part of the report: on standard output if that is for people (`say`), else on standard
/// error.
fn tell(say: bool, line: &str, out: &mut Output) -> Result<(), CommandError> {
    if say {
        return out.line(line);
    }
    out.progress(line);
    Ok(())
}

/// Whether the node below `root` runs the manifest, or one of those in the directory: its agent, with the configuration of
/// the rehearsal or with its own, or its kubelet.
fn runs_any(root: &Path, config: &Config, pods: &Path) -> bool {
    let own = winddown_config::load(root, None).map(|loaded| loaded.config).unwrap_or_default();
    let agents = [config.clone(), own].into_iter().filter_map(|config| {
        let is_kubelets = config.node.mode == Mode::Companion;
        config.rooted(root).pods.static_pod_path.filter(|_| !is_kubelets)
    });
    let kubelets = kubelet::find(root, true).into_iter();
    let kubelets = kubelets.filter_map(|found| Some(in_root(root, found.manifests(root)?)));
    let running: HashSet<_> = agents.chain(kubelets).flat_map(|path| files(&path)).collect();
    files(pods).iter().any(|file| running.contains(file))
}

/// The manifest, or what is in the directory: the file system and the number in it of each, which are the same by whatever
/// name it is reached.
fn files(path: &Path) -> Vec<(u64, u64)> {
    let number = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().filter_map(|entry| number(&entry.path())).collect(),
        Err(_) => number(path).into_iter().collect(),
    }
}

/// Warns of manifests that someone other than root and the user who runs this command may write: each can run any program as
/// root.
fn warn_if_others_may_write(pods: &Path, out: &mut Output) -> Result<(), DrillError> {
    let found = winddown_static_pods::others_may_write(&winddown_install::caller(), pods);
    let found = found.map_err(|source| DrillError::Pods { path: pods.to_owned(), source })?;
    if let Some(first) = found.first() {
        let found = first.to_string();
        out.progress(&format!("warning: {}, and the pods run as root", clean(&found)));
    }
    Ok(())
}

/// Creates the directory of a rehearsal, which is removed with the value.
fn scratch_in(directory: &Path) -> Result<tempfile::TempDir, DrillError> {
    tempfile::Builder::new()
        .prefix("winddown-drill-")
        .tempdir_in(directory)
        .map_err(DrillError::Temporary)
}

/// Returns the directory of the pods: the given one, or a new one with the given manifest or with the built-in pods.
fn pods_directory(named: Option<&Path>, root: &Path) -> Result<PathBuf, DrillError> {
    let named = named.map(|named| {
        let read = |source| DrillError::Pods { path: named.to_owned(), source };
        let named = std::path::absolute(named).map_err(read)?;
        Ok::<_, DrillError>((std::fs::metadata(&named).map_err(read)?.is_dir(), named))
    });
    let named = named.transpose()?;
    if let Some((true, directory)) = named {
        return Ok(directory);
    }
    let pods = root.join("pods");
    let prepare = |path: &Path| {
        let path = path.to_owned();
        move |source| DrillError::Prepare { path, source }
    };
    std::fs::create_dir_all(&pods).map_err(prepare(&pods))?;
    if let Some((_, file)) = named {
        let link = pods.join(file.file_name().unwrap_or_default());
        std::os::unix::fs::symlink(&file, &link).map_err(prepare(&link))?;
        return Ok(pods);
    }
    for (name, text) in BUILT_IN {
        let path = pods.join(name);
        std::fs::write(&path, text).map_err(prepare(&path))?;
    }
    Ok(pods)
}

fn is_up(pod: &PodStatus) -> bool {
    let ready = pod.desired_containers > 0 && pod.ready_containers == pod.desired_containers;
    ready || has_completed(pod)
}

fn has_completed(pod: &PodStatus) -> bool {
    pod.state == PodState::Finished
}

fn print_started(
    status: &Status,
    wanted: usize,
    took: Duration,
    out: &mut Output,
) -> Result<(), DrillError> {
    let up = status.pods.iter().filter(|pod| is_up(pod)).count();
    let started = match up == wanted {
        true => pod_count(wanted),
        false => format!("{up} of {}", pod_count(wanted)),
    };
    let completed = match status.pods.iter().filter(|pod| has_completed(pod)).count() {
        0 => String::new(),
        1 => ", 1 of them has completed".to_owned(),
        many => format!(", {many} of them have completed"),
    };
    out.line(&format!("{started} started in {}{completed}:", duration(took)))?;
    for pod in &status.pods {
        let name = named(&pod.namespace, &pod.name);
        let note = match is_up(pod) {
            true if has_completed(pod) => "  completed".to_owned(),
            true => String::new(),
            false => format!("  not ready: {}", pod.phase),
        };
        out.line(&format!("  {:>10}  {name}{note}", priority_of(pod)))?;
    }
    for pod in &status.rejected {
        out.line(&format!("  refused     {}", refusal(pod)))?;
    }
    Ok(())
}

fn refusal(pod: &RejectedPod) -> String {
    format!("{}: {}", named(&pod.namespace, &pod.name), clean(&pod.message))
}

fn named(namespace: &str, name: &str) -> String {
    clean(&format!("{namespace}/{name}")).into_owned()
}

fn closing_line(outcome: Option<&ShutdownOutcome>) -> String {
    match outcome {
        Some(outcome) if outcome.late.is_empty() => {
            let took = duration(outcome.took);
            format!("Lock released after {took}. A real machine would power off now.")
        }
        Some(outcome) => {
            let took = duration(outcome.took);
            format!(
                "The lock was still held when the time was over ({took}): a real machine would have gone down under the pods."
            )
        }
        None => "The stand-in did not report the outcome.".to_owned(),
    }
}

fn list(problems: &[String]) -> String {
    if problems.is_empty() {
        return "; each file is the manifest of a pod, unless its name begins with a dot"
            .to_owned();
    }
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_for_temporary_files_that_is_not_there_is_named_once_with_what_to_do() {
        let error = scratch_in(Path::new("/nonexistent/tmp")).unwrap_err();
        let said = error_chain(&error);
        assert_eq!(said.matches("/nonexistent/tmp").count(), 1, "{said}");
        assert!(said.contains("temporary files") && error.hint().contains("TMPDIR"), "{said}");
    }

    #[test]
    fn a_manifest_that_the_node_runs_is_known_whoever_runs_it_and_by_whatever_path() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let put = |path: &str, text: &str| {
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), text).unwrap();
        };
        let head = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n";
        put("etc/winddown/config.yaml", &format!("{head}staticPodPath: /srv/pods\n"));
        put("etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n");
        let head_of_kubelet =
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let manifests = "staticPodPath: /etc/kubernetes/manifests";
        put("var/lib/kubelet/config.yaml", &format!("{head_of_kubelet}{manifests}\n"));
        for pod in ["srv/pods/a", "etc/kubernetes/manifests/b", "trial/c", "elsewhere/d", "copy/a"]
        {
            put(pod, "");
        }
        let link = |to: &str, path: &str| std::os::unix::fs::symlink(at(to), at(path)).unwrap();
        link("elsewhere/d", "srv/pods/d");
        link("srv/pods", "linked");
        let trial = format!("{head}staticPodPath: /trial\n");
        let (trial, _) = Config::parse(Path::new("trial.yaml"), trial.as_bytes()).unwrap();
        let runs = |pods: &str| runs_any(root.path(), &trial, &at(pods));
        for (pods, expected) in [
            ("trial", true),
            ("srv/pods", true),
            ("srv/pods/a", true),
            ("linked/a", true),
            ("elsewhere", true),
            ("etc/kubernetes/manifests", true),
            ("copy", false),
            ("nowhere", false),
        ] {
            assert_eq!(runs(pods), expected, "{pods}");
        }
        put("etc/winddown/config.yaml", &format!("{head}mode: companion\nruntime: cri\n"));
        put("etc/winddown/pods/e", "");
        assert!(!runs("etc/winddown/pods"), "beside a kubelet the agent runs no manifests");
    }

    #[test]
    fn the_users_own_pods_are_rehearsed_with_the_nodes_configuration() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("etc/winddown/config.yaml");
        let of = |named: Option<&Path>, pods: Option<&str>| {
            let (config, whose) = configuration(root.path(), named, pods.map(Path::new)).unwrap();
            // With the two seconds that are asked of logind beyond the grace period.
            (policy_of(&config.shutdown).delay_wanted().as_secs(), whose)
        };
        let missing = format!("{} does not exist: the defaults are in effect", below.display());
        assert_eq!(of(None, Some("pods")), (62, missing));
        std::fs::create_dir_all(below.parent().unwrap()).unwrap();
        let text = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n";
        std::fs::write(&below, format!("{text}shutdownGracePeriod: 3s\n")).unwrap();
        assert_eq!(of(None, Some("pods")), (5, format!("configuration: {}", below.display())));
        let other = root.path().join("other.yaml");
        std::fs::write(&other, format!("{text}shutdownGracePeriod: 5s\n")).unwrap();
        let named = (7, format!("configuration: {}", other.display()));
        assert_eq!(of(Some(&other), Some("pods")), named);
        assert_eq!(of(Some(&other), None), named);
        assert_eq!(of(None, None).1, "", "the built-in pods have one of their own");
        // It says nothing of how the kubelet's pods would fare.
        std::fs::write(&below, format!("{text}mode: companion\n")).unwrap();
        assert_eq!(of(None, None).1, BESIDE);
        assert!(of(None, Some("pods")).1.ends_with(BESIDE));
    }
}
