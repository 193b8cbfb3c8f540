//! A bounded part of this machine with an agent and its pods.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::task::JoinHandle;
use winddown_node_tests::cgroup::Group;
use winddown_node_tests::programs;
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::usage::Watch;

pub(crate) const MIB: u64 = 1 << 20;

/// So little memory, in MiB, is short.
pub(crate) const SHORT: u64 = 100;

/// Longest wait for what is sure to come.
const LIMIT: Duration = Duration::from_secs(180);

/// What bounds the node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounds {
    /// In MiB.
    pub(crate) memory: Option<u64>,
    pub(crate) tasks: Option<u64>,
    /// A file system of the node's own, in MiB.
    pub(crate) disk: Option<u64>,
    /// No other test of this program runs meanwhile.
    pub(crate) alone: bool,
}

/// What a test holds as long as its node is there: one that others would disturb holds it for writing.
static TURN: RwLock<()> = RwLock::const_new(());

/// A test's turn.
#[derive(Debug)]
pub(crate) enum Turn {
    Beside { _others: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

impl Turn {
    pub(crate) async fn wait(alone: bool) -> Self {
        match alone {
            true => Self::Alone { _guard: TURN.write().await },
            false => Self::Beside { _others: TURN.read().await },
        }
    }
}

/// One pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec<'a> {
    pub(crate) name: &'a str,
    pub(crate) priority: i32,
    /// What it asks for, in MiB.
    pub(crate) asks: u64,
    /// What it does: a mode of `pressure-pod`, and its number.
    pub(crate) does: (&'a str, u64),
}

/// An agent with its pods in control groups of their own. Dropping it ends all of them.
#[derive(Debug)]
pub(crate) struct Bounded {
    root: tempfile::TempDir,
    group: Arc<Group>,
    agent: Child,
    programs: PathBuf,
    is_mounted: bool,
    /// When its memory ran short first.
    crossing: Option<JoinHandle<Option<i128>>>,
    _turn: Turn,
}

impl Bounded {
    /// Starts an agent with `config` and `pods`, and waits until all pods have started. None, after
    /// saying so, where there are no control groups to bound it with.
    pub(crate) async fn start(
        test: &str,
        bounds: Bounds,
        config: &str,
        pods: &[Spec<'_>],
    ) -> TestResult<Option<Self>> {
        let Some(group) = bounded(bounds)? else {
            let why = "needs root and control groups with memory and pids";
            println!("SKIPPED: {test}: {why}");
            if std::env::var_os("WINDDOWN_NO_SKIP").is_some() {
                return Err(format!("{test} was skipped: {why}").into());
            }
            return Ok(None);
        };
        let turn = Turn::wait(bounds.alone).await;
        let root = tempfile::tempdir()?;
        if let Some(size) = bounds.disk {
            run(Command::new("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={size}m")])
                .arg("none")
                .arg(root.path()))?;
        }
        let programs = programs().await?;
        for directory in ["etc/winddown/pods", "run/winddown", "logs"] {
            fs::create_dir_all(root.path().join(directory))?;
        }
        let head = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: process\nnodeName: n1\n";
        fs::write(root.path().join("etc/winddown/config.yaml"), format!("{head}{config}"))?;
        for pod in pods {
            let file = root.path().join(format!("etc/winddown/pods/{}.json", pod.name));
            fs::write(file, manifest(pod, root.path()))?;
        }
        // From before the first pod: on a busy machine one may start long after another.
        let crossing = bounds.memory.map(|_| {
            let group = Arc::clone(&group);
            let logs = pods.iter().map(|pod| root.path().join("logs").join(pod.name));
            let logs: Vec<PathBuf> = logs.collect();
            let is_asked = move || {
                let mut texts = logs.iter().filter_map(|log| fs::read_to_string(log).ok());
                texts.any(|log| asked(&log).is_some())
            };
            tokio::spawn(async move { crossing(&group, SHORT, is_asked).await.ok() })
        });
        let agent = start_agent(&programs, root.path(), &group)?;
        let is_mounted = bounds.disk.is_some();
        let bed = Self { root, group, agent, programs, is_mounted, crossing, _turn: turn };
        bed.until("all pods run", || pods.iter().all(|pod| bed.log(pod.name).contains("start")))
            .await?;
        Ok(Some(bed))
    }

    /// What a pod has written down.
    pub(crate) fn log(&self, pod: &str) -> String {
        fs::read_to_string(self.root.path().join("logs").join(pod)).unwrap_or_default()
    }

    /// Waits until the agent has logged a line with all of these.
    pub(crate) async fn until_said(&self, words: &[&str]) -> TestResult {
        let log = self.root.path().join("agent.log");
        let is_said = || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            log.lines().any(|line| words.iter().all(|word| line.contains(word)))
        };
        self.until(&format!("{words:?} in the log"), is_said).await
    }

    /// The name of the control groups that bound the node.
    pub(crate) fn name(&self) -> TestResult<&str> {
        Ok(name_of(&self.group).ok_or("no group")?)
    }

    /// When the pod was asked to stop, in ns on the monotonic clock.
    pub(crate) fn asked(&self, pod: &str) -> Option<i128> {
        asked(&self.log(pod))
    }

    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) -> TestResult {
        let wait = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(LIMIT, wait).await.is_err() {
            let log = fs::read_to_string(self.root.path().join("agent.log")).unwrap_or_default();
            return Err(format!("never: {what}\n{}\n{log}", self.status()?).into());
        }
        Ok(())
    }

    pub(crate) fn status(&self) -> TestResult<Value> {
        Ok(serde_json::from_str(&self.winddown(&["status", "-o", "json"])?)?)
    }

    /// What the program says of this agent.
    pub(crate) fn winddown(&self, arguments: &[&str]) -> TestResult<String> {
        let socket = self.root.path().join("run/winddown/winddown.sock");
        let mut command = Command::new(self.programs.join("winddown"));
        let output = command.arg("--socket").arg(socket).args(arguments).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The pods that were evicted, by the agent's own account.
    pub(crate) fn evicted(&self) -> TestResult<Vec<String>> {
        let status = self.status()?;
        let pods = status["pods"].as_array().into_iter().flatten();
        let evicted = pods.filter(|pod| pod["reason"] == "Evicted");
        Ok(evicted
            .filter_map(|pod| pod["name"].as_str()?.strip_suffix("-n1").map(str::to_owned))
            .collect())
    }

    /// When less than [`SHORT`] MiB of the node's memory were left first. See [`crossing`].
    pub(crate) async fn crossing(&mut self) -> TestResult<i128> {
        let watching = self.crossing.take().ok_or("nothing bounds the memory")?;
        Ok(watching.await?.ok_or("memory never ran short")?)
    }

    /// The least that was left of the node's memory within so long, and the most that its page cache
    /// held, in MiB. Samples every 20 ms.
    pub(crate) async fn extremes(&self, long: Duration) -> TestResult<(u64, u64)> {
        let end = monotonic() + i128::try_from(long.as_nanos())?;
        let (mut least, mut cached) = (u64::MAX, 0);
        while monotonic() < end {
            least = least.min(self.group.memory_left().ok_or("the group tells nothing")?);
            cached = cached.max(self.group.page_cache().ok_or("the group tells nothing")?);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok((least / MIB, cached / MIB))
    }

    /// How many bytes lie in a file that a pod writes beside its log.
    pub(crate) fn written(&self, file: &str) -> u64 {
        fs::metadata(self.root.path().join("logs").join(file)).map_or(0, |file| file.len())
    }

    /// Starts to count what the agent uses.
    pub(crate) fn watch(&self) -> Watch {
        Watch::new(vec![self.agent.id()])
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        if let Some(watching) = &self.crossing {
            watching.abort();
        }
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(self.root.path()).status();
        }
    }
}

/// When less than `least` MiB were left first, in ns on the monotonic clock. Samples every ms. On a busy
/// machine a pod may have been `asked` to stop, and may be gone, between two samples: then it is the first of
/// these two.
pub(crate) async fn crossing(
    group: &Group,
    least: u64,
    asked: impl Fn() -> bool,
) -> TestResult<i128> {
    let begun = monotonic();
    let mut last = begun;
    loop {
        let now = monotonic();
        if group.memory_left().is_some_and(|left| left < least * MIB) {
            return Ok(now);
        }
        if asked() {
            return Ok(last);
        }
        if now - begun > 300_000_000_000 {
            return Err("memory never ran short".into());
        }
        last = now;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// When a pod was asked to stop, by what it wrote down, in ns on the monotonic clock.
pub(crate) fn asked(log: &str) -> Option<i128> {
    log.lines().find_map(|line| line.strip_prefix("term ")?.parse().ok())
}

pub(crate) fn monotonic() -> i128 {
    let now = clock_gettime(ClockId::Monotonic);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// Makes the group; none where it cannot be made.
fn bounded(bounds: Bounds) -> TestResult<Option<Arc<Group>>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("winddown-pressure-{}-{number}", std::process::id());
    let Some(group) = Group::make(&name)? else { return Ok(None) };
    if let Some(mib) = bounds.memory {
        group.bound_memory(mib * MIB)?;
    }
    if let Some(tasks) = bounds.tasks {
        group.bound_tasks(tasks)?;
    }
    Ok(Some(Arc::new(group)))
}

fn name_of(group: &Group) -> Option<&str> {
    group.places().first()?.file_name()?.to_str()
}

fn start_agent(programs: &Path, root: &Path, group: &Group) -> TestResult<Child> {
    let log = fs::File::create(root.join("agent.log"))?;
    let name = name_of(group).ok_or("no group")?;
    let mut command = Command::new("sh");
    command
        .args(["-c", "for g do [ \"$g\" = -- ] && break; echo $$ > \"$g/cgroup.procs\" || exit; shift; done; shift; exec \"$@\"", "sh"])
        .args(group.places())
        .arg("--")
        .arg(programs.join("winddownd"))
        .arg("--root")
        .arg(root)
        .env("WINDDOWN_NODE_CGROUP", Path::new("/").join(name))
        // Never the login manager of the machine that runs the tests.
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .env_remove("WINDDOWN_CONFIG")
        .env("WINDDOWN_LOG", "info,winddown_node::pressure=debug")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command.spawn()?)
}

fn manifest(pod: &Spec<'_>, root: &Path) -> String {
    let (mode, number) = pod.does;
    let log = root.join("logs").join(pod.name);
    let mut manifest = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": pod.name, "namespace": "default" },
        "spec": {
            "hostNetwork": true,
            "priority": pod.priority,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main",
                "image": "host",
                "command": [env!("CARGO_BIN_EXE_pressure-pod"), log, mode, number.to_string()],
            }],
        },
    });
    if pod.asks > 0 {
        let memory = format!("{}Mi", pod.asks);
        manifest["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory.into();
    }
    manifest.to_string()
}

fn run(command: &mut Command) -> TestResult {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}
