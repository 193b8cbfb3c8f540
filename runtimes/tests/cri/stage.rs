//! Where the common suite is played: each runtime with what is below it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use winddown_runtimes::cri::fake::FakeCri;
use winddown_runtimes::cri::{CriConfig, CriOpenError, CriRuntime, CriTimes};
use winddown_runtimes::plan::Backoff;
use winddown_runtimes::process::{ProcessConfig, ProcessRuntime, ShimCommand};
use winddown_runtimes::transient::TransientRuntime;
use winddown_shared::{Pod, Runtime};

use crate::bed::{ACT, Act, Gate, clock, eventually, pod, run};
use crate::containerd::{Containerd, IMAGE, unmount_below};
use crate::units::LocalUnits;

/// A runtime and what it runs on, each test's own.
pub(crate) trait Stage: Sized {
    type Runtime: Runtime;

    /// Its containers do not see the machine's files.
    const HAS_OWN_FILES: bool = true;

    /// Why this machine cannot have one.
    fn missing() -> Option<&'static str> {
        None
    }

    async fn set() -> Self;

    /// An agent's view of it. One at a time.
    async fn open(&self) -> Self::Runtime;

    /// A container.
    fn container(&self, name: &str, act: Act) -> Value;

    /// A pod that is never started again, with the container `main`, which waits for a gate where `act`
    /// says `gate`.
    fn gated(&self, name: &str, act: Act) -> (Pod, Gate) {
        let gate = self.gates().join("gate");
        let mut main = self.container("main", act);
        if let Some(command) = main["command"].as_array_mut() {
            command.push(json!(gate));
        }
        let mut spec = json!({"restartPolicy": "Never"});
        if Self::HAS_OWN_FILES {
            main["volumeMounts"] = json!([{"name": "gates", "mountPath": self.gates()}]);
            spec["volumes"] = json!([{"name": "gates", "hostPath": {"path": self.gates()}}]);
        }
        spec["containers"] = json!([main]);
        (pod(name, &spec), Gate(gate))
    }

    /// A directory of the test's own.
    fn gates(&self) -> PathBuf;

    /// Where the containers' logs are; none if they write none.
    fn logs(&self) -> Option<PathBuf>;

    /// Syncs until every container runs and hears when it is asked to end.
    async fn up(&self, runtime: &Self::Runtime, pod: &Pod) {
        run(runtime, pod).await;
        self.hears(pod).await;
    }

    /// Waits until every container has set its traps: a first process that is asked to end before
    /// that is asked in vain.
    async fn hears(&self, pod: &Pod) {
        let Some(logs) = self.logs() else { return };
        let logs = logs.join(format!("{}_{}_{}", pod.namespace(), pod.name(), pod.uid()));
        let spec = pod.spec.as_ref().unwrap();
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            let folder = logs.join(&container.name);
            let is_up = || newest_log(&folder).is_some_and(|text| text.contains("F up\n"));
            eventually(&format!("{} is up", container.name), is_up).await;
        }
    }
}

/// The log of the newest run.
fn newest_log(folder: &Path) -> Option<String> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u32>().ok();
    let newest =
        files.filter(|path| path.extension().is_some_and(|e| e == "log")).max_by_key(number)?;
    std::fs::read_to_string(newest).ok()
}

/// The CRI runtime on a scripted runtime.
pub(crate) struct Fake {
    pub(crate) dir: TempDir,
    pub(crate) cri: FakeCri,
}

/// The CRI runtime on a containerd.
pub(crate) struct Real {
    pub(crate) dir: TempDir,
    pub(crate) containerd: Containerd,
}

/// The process runtime.
pub(crate) struct Processes {
    dir: TempDir,
}

/// Opens the runtime as soon as its lock is free: a program that another test starts in this moment has a
/// copy of the lock until it has begun.
async fn open_in_time(config: &CriConfig) -> CriRuntime {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match CriRuntime::open(config.clone()).await {
            Err(CriOpenError::InUse { .. }) if Instant::now() < deadline => {
                tokio::task::yield_now().await;
            }
            opened => return opened.unwrap(),
        }
    }
}

impl Fake {
    pub(crate) fn config(&self) -> CriConfig {
        config(&self.dir, &self.cri.socket().display().to_string())
    }

    pub(crate) async fn open_now(&self) -> CriRuntime {
        open_in_time(&self.config()).await
    }
}

impl Real {
    pub(crate) fn config(&self) -> CriConfig {
        let mut config = config(&self.dir, &self.containerd.socket().display().to_string());
        config.cgroup_parent = Some(self.containerd.cgroup_parent());
        config
    }

    pub(crate) async fn open_now(&self) -> CriRuntime {
        open_in_time(&self.config()).await
    }

    /// The log of one run of a container of a pod that `bed::pod` made.
    pub(crate) fn log(&self, pod: &str, container: &str, attempt: u32) -> String {
        let folder = format!("default_{pod}_uid-{pod}");
        let file = self.dir.path().join("logs").join(folder).join(container);
        std::fs::read_to_string(file.join(format!("{attempt}.log"))).unwrap_or_default()
    }
}

impl Stage for Fake {
    type Runtime = CriRuntime;

    async fn set() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cri = FakeCri::start(&dir.path().join("fake.sock"), clock());
        cri.set_image(IMAGE, true);
        Self { dir, cri }
    }

    async fn open(&self) -> CriRuntime {
        self.open_now().await
    }

    fn container(&self, name: &str, act: Act) -> Value {
        container_of(name, act)
    }

    fn gates(&self) -> PathBuf {
        gates(&self.dir)
    }

    fn logs(&self) -> Option<PathBuf> {
        None
    }
}

impl Stage for Real {
    type Runtime = CriRuntime;

    fn missing() -> Option<&'static str> {
        Containerd::missing()
    }

    async fn set() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, containerd: Containerd::start().await }
    }

    async fn open(&self) -> CriRuntime {
        self.open_now().await
    }

    fn container(&self, name: &str, act: Act) -> Value {
        container_of(name, act)
    }

    fn gates(&self) -> PathBuf {
        gates(&self.dir)
    }

    fn logs(&self) -> Option<PathBuf> {
        Some(self.dir.path().join("logs"))
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        unmount_below(self.dir.path());
    }
}

impl Stage for Processes {
    type Runtime = ProcessRuntime;

    const HAS_OWN_FILES: bool = false;

    async fn set() -> Self {
        Self { dir: dir_with_act() }
    }

    async fn open(&self) -> ProcessRuntime {
        ProcessRuntime::open(process_config(&self.dir)).await.unwrap()
    }

    fn container(&self, name: &str, act: Act) -> Value {
        program_of(&self.dir, name, act)
    }

    fn gates(&self) -> PathBuf {
        gates(&self.dir)
    }

    fn logs(&self) -> Option<PathBuf> {
        Some(self.dir.path().join("logs"))
    }
}

/// The systemd runtime on a small service manager.
pub(crate) struct Services {
    pub(crate) dir: TempDir,
    pub(crate) units: LocalUnits,
}

impl Services {
    pub(crate) fn config(&self) -> ProcessConfig {
        process_config(&self.dir)
    }
}

impl Stage for Services {
    type Runtime = TransientRuntime<LocalUnits>;

    const HAS_OWN_FILES: bool = false;

    async fn set() -> Self {
        Self { dir: dir_with_act(), units: LocalUnits::new() }
    }

    async fn open(&self) -> TransientRuntime<LocalUnits> {
        TransientRuntime::open(self.config(), self.units.clone()).await.unwrap()
    }

    fn container(&self, name: &str, act: Act) -> Value {
        program_of(&self.dir, name, act)
    }

    fn gates(&self) -> PathBuf {
        gates(&self.dir)
    }

    fn logs(&self) -> Option<PathBuf> {
        Some(self.dir.path().join("logs"))
    }
}

fn dir_with_act() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let act = dir.path().join("act");
    std::fs::write(&act, ACT).unwrap();
    std::fs::set_permissions(&act, std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn process_config(dir: &TempDir) -> ProcessConfig {
    let shim = ShimCommand { program: host(), args: vec!["shim".into()] };
    let path = |name| dir.path().join(name);
    let mut config = ProcessConfig::new(path("state"), path("logs"), shim, clock());
    config.backoff = backoff();
    config
}

fn program_of(dir: &TempDir, name: &str, act: Act) -> Value {
    let program = dir.path().join("act").display().to_string();
    let [run, code, stop, stop_code] = act.words();
    json!({"name": name, "image": "none", "command": [program, run, code, stop, stop_code]})
}

fn gates(dir: &TempDir) -> PathBuf {
    let gates = dir.path().join("gates");
    std::fs::create_dir_all(&gates).unwrap();
    gates
}

/// A container of the CRI stages.
pub(crate) fn container_of(name: &str, act: Act) -> Value {
    let [run, code, stop, stop_code] = act.words();
    let command = json!(["/bin/act", run, code, stop, stop_code]);
    json!({"name": name, "image": IMAGE, "command": command})
}

fn config(dir: &TempDir, endpoint: &str) -> CriConfig {
    let mut config =
        CriConfig::new(endpoint, dir.path().join("state"), dir.path().join("logs"), clock());
    config.backoff = backoff();
    config.times = CriTimes {
        ask: Duration::from_secs(3),
        change: Duration::from_secs(20),
        kill: Duration::from_secs(3),
        start_patience: Duration::from_millis(500),
        ..CriTimes::default()
    };
    config
}

fn backoff() -> Backoff {
    Backoff {
        initial: Duration::from_millis(300),
        max: Duration::from_millis(600),
        reset_after: Duration::from_secs(600),
    }
}

/// The example that serves as supervisor. `cargo test -p winddown-runtimes` builds it.
fn host() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/host");
    assert!(path.exists(), "build it: cargo build -p winddown-runtimes --example host");
    path
}
