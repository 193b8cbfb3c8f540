//! A runtime in a temporary directory, and helpers to inspect the processes below it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use winddown_runtimes::process::CrashBackoff;
use winddown_runtimes::process::{ProcessConfig, ProcessRuntime, ShimCommand};
use winddown_shared::{
    ContainerExit, ContainerState, ContainerStatus, Grace, Pod, PodStopped, Runtime as _, WallClock,
};

use crate::disk::Disk;

/// The name of the link to the program that supervises, which each bed has for itself.
const SHIM: &str = "shim";
/// How long a condition may take to become true on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Directories of a runtime. Dropping it kills what is left of its pods; an agent that still works, because a task of
/// the test has it, starts nothing after that.
pub(crate) struct Bed {
    pub(crate) dir: TempDir,
    /// Where the directory of logs is, if not in `dir`. It is not a link itself: none is followed in its place.
    pub(crate) disk: Option<PathBuf>,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let bed = Self { dir: tempfile::tempdir().unwrap(), disk: None };
        std::os::unix::fs::symlink(host(), bed.path(SHIM)).unwrap();
        bed
    }

    /// A bed whose state and logs are on a disk of their own.
    ///
    /// # Errors
    /// Why this machine cannot mount one.
    pub(crate) fn on_a_disk() -> Result<(Self, Disk), String> {
        let mut bed = Self::new();
        let disk = Disk::new(bed.dir.path())?;
        std::fs::create_dir(disk.path("logs")).unwrap();
        std::fs::create_dir(disk.path("state")).unwrap();
        std::os::unix::fs::symlink(disk.path("state"), bed.path("state")).unwrap();
        bed.disk = Some(disk.path(""));
        Ok((bed, disk))
    }

    /// A bed with an open runtime.
    pub(crate) async fn with_runtime() -> (Self, ProcessRuntime) {
        let bed = Self::new();
        let runtime = bed.open().await;
        (bed, runtime)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let disk = self.disk.as_deref().filter(|_| name == "logs");
        disk.unwrap_or(self.dir.path()).join(name)
    }

    pub(crate) fn config(&self) -> ProcessConfig {
        let shim = ShimCommand::new(self.path(SHIM), ["shim".into()]);
        let mut config = ProcessConfig::new(self.path("state"), self.path("logs"), shim, clock());
        config.volatile_dir = Some(self.path("run"));
        config.backoff = CrashBackoff {
            initial: Duration::from_millis(300),
            max: Duration::from_millis(600),
            reset_after: Duration::from_secs(600),
        };
        config
    }

    pub(crate) async fn open(&self) -> ProcessRuntime {
        ProcessRuntime::open(self.config()).await.unwrap()
    }

    /// A pod of one container `main` that runs a shell script.
    pub(crate) fn pod(&self, script: &str) -> Pod {
        self.pod_of(&json!({"containers": [sh("main", script)]}))
    }

    /// A second pod of this bed.
    pub(crate) fn pod_named(&self, name: &str, script: &str) -> Pod {
        let mut object = self.pod(script).object().clone();
        object.metadata.uid = object.metadata.uid.map(|uid| format!("{uid}-{name}"));
        object.metadata.name = Some(name.to_owned());
        Pod::new(object).unwrap()
    }

    /// Waits until the attempt's supervisor has started and exited.
    pub(crate) async fn settled(&self, container: &str, attempt: u32) {
        let uid = self.pod("true").uid().to_string();
        let dir = self.path("state/pods").join(uid).join(container).join(attempt.to_string());
        let came = || dir.join("started.json").exists();
        eventually("the supervisor came and went", || came() && self.supervisors().is_empty())
            .await;
    }

    /// A pod with this spec, on the host's network, named after the directory.
    pub(crate) fn pod_of(&self, spec: &Value) -> Pod {
        let mut spec = spec.clone();
        spec["hostNetwork"] = json!(true);
        let uid = format!("uid-{}", self.dir.path().file_name().unwrap().to_str().unwrap());
        let meta = json!({"name": "web", "namespace": "default", "uid": uid});
        let object = json!({"metadata": meta, "spec": spec});
        Pod::new(serde_json::from_value(object).unwrap()).unwrap()
    }

    /// Pids of all processes whose environment names this bed's pod.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let uid = self.dir.path().file_name().unwrap().to_str().unwrap().to_owned();
        pids_with(|dir| read_lossy(&dir.join("environ")).contains(&uid))
    }

    /// Pids of the main processes of this bed's containers.
    pub(crate) fn processes_of_containers(&self) -> Vec<i32> {
        let supervisors = self.supervisors();
        let children = self.processes().into_iter().filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
            let parent = fields.clone().nth(1).and_then(|parent| parent.parse().ok());
            parent.is_some_and(|parent| supervisors.contains(&parent))
        });
        children.collect()
    }

    /// Pids of the supervisors of this bed.
    pub(crate) fn supervisors(&self) -> Vec<i32> {
        let path = self.path("state").display().to_string();
        pids_with(|dir| {
            let line = read_lossy(&dir.join("cmdline"));
            line.contains(&path) && line.contains("\0run\0") && line.contains("\0shim\0")
        })
    }

    pub(crate) fn log(&self, container: &str, attempt: u32) -> String {
        let mut found = String::new();
        for pod in std::fs::read_dir(self.path("logs")).into_iter().flatten().flatten() {
            let file = pod.path().join(container).join(format!("{attempt}.log"));
            found.push_str(&std::fs::read_to_string(file).unwrap_or_default());
        }
        found
    }

    /// Waits until the container's log holds `text`.
    pub(crate) async fn logged(&self, container: &str, attempt: u32, text: &str) {
        let what = format!("{text:?} in the log of {container}");
        eventually(&what, || self.log(container, attempt).contains(text)).await;
    }

    /// Starts a pod, and waits until its container `main` has said that it is up: before its program begins, a running
    /// container still writes to its disk, and takes no signal.
    pub(crate) async fn bring_up(&self, runtime: &ProcessRuntime, pod: &Pod) {
        runtime.sync_pod(pod).await.unwrap();
        self.logged("main", 0, "up").await;
    }

    /// Simulates a power cut and a boot for all pods: no process is left, nothing in memory, and on disk only what was
    /// synced. Call it while no runtime is open.
    pub(crate) async fn cut_the_power(&self, files: &[&str]) {
        kill_all(self.supervisors());
        kill_all(self.processes());
        self.nothing_left().await;
        let _ = std::fs::remove_dir_all(self.path("run"));
        for lost in files {
            std::fs::remove_file(self.path("state/pods").join(lost)).unwrap();
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        for record in files_below(&self.path("state/pods")) {
            let text = read_lossy(&record);
            if text.contains(boot.trim()) {
                std::fs::write(&record, text.replace(boot.trim(), "the-boot-before")).unwrap();
            }
        }
    }

    /// Waits until none of the pod's processes is left, nor a supervisor.
    pub(crate) async fn nothing_left(&self) {
        eventually("no process left", || {
            self.processes().is_empty() && self.supervisors().is_empty()
        })
        .await;
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // What has begun to start by now is found below, and what begins later is not.
        let _ = std::fs::remove_file(self.path(SHIM));
        // Supervisors first: they start the processes.
        kill_all(self.supervisors());
        kill_all(self.processes());
    }
}

fn kill_all(pids: Vec<i32>) {
    for pid in pids {
        let pid = nix::unistd::Pid::from_raw(pid);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}

/// A container that runs a shell script.
pub(crate) fn sh(name: &str, script: &str) -> Value {
    json!({"name": name, "image": "none", "command": ["/bin/sh", "-c", script]})
}

pub(crate) fn clock() -> WallClock {
    #[allow(clippy::disallowed_methods, reason = "real processes, real time")]
    WallClock::new(jiff::Timestamp::now)
}

/// The example that serves as supervisor and as agent. `cargo test -p winddown-runtimes` builds it.
pub(crate) fn host() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/host");
    assert!(path.exists(), "build it: cargo build -p winddown-runtimes --example host");
    path
}

pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "did not happen: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Syncs as the pod workers do, until the status satisfies `wanted`.
pub(crate) async fn sync_until(
    runtime: &ProcessRuntime,
    pod: &Pod,
    wanted: impl Fn(&[ContainerStatus]) -> bool,
) -> Vec<ContainerStatus> {
    let mut changes = runtime.changes();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let synced = runtime.sync_pod(pod).await.unwrap();
        if wanted(&synced.status.containers) {
            return synced.status.containers;
        }
        assert!(Instant::now() < deadline, "last seen: {:?}", synced.status.containers);
        let wait = synced.again_in.unwrap_or(PATIENCE);
        let _ = timeout(wait, changes.recv()).await;
    }
}

/// Waits for the status without syncing, following the runtime's reported changes.
pub(crate) async fn status_until(
    runtime: &ProcessRuntime,
    pod: &Pod,
    wanted: impl Fn(&[ContainerStatus]) -> bool,
) -> Vec<ContainerStatus> {
    let mut changes = runtime.changes();
    loop {
        let status = runtime.pod_status(pod.uid()).await.unwrap();
        if wanted(&status.containers) {
            return status.containers;
        }
        let heard = timeout(PATIENCE, changes.recv()).await;
        assert!(heard.is_ok(), "last seen: {:?}", status.containers);
    }
}

/// Stops with a grace period of `ms` milliseconds.
pub(crate) async fn stop(runtime: &ProcessRuntime, pod: &Pod, ms: u64) -> PodStopped {
    let grace = Grace::fixed(Duration::from_millis(ms));
    runtime.stop_pod(pod.uid(), Some(pod), grace).await.unwrap()
}

pub(crate) fn exit_of(container: &ContainerStatus) -> Option<&ContainerExit> {
    match &container.state {
        ContainerState::Exited(exit) => Some(exit),
        _ => None,
    }
}

pub(crate) fn is_running(container: &ContainerStatus) -> bool {
    matches!(container.state, ContainerState::Running { .. })
}

pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn pids_with(wanted: impl Fn(&Path) -> bool) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_alive(*pid) && wanted(&Path::new("/proc").join(pid.to_string()))).collect()
}

/// All files below a directory.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let below = |path: PathBuf| if path.is_dir() { files_below(&path) } else { vec![path] };
    entries.flat_map(|entry| below(entry.path())).collect()
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Reports that a test was skipped. Fails if `WINDDOWN_NO_SKIP` is set.
pub(crate) fn skip(test: &str, why: &str) {
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test}: {why}");
    println!("SKIPPED: {test}: {why}");
}
