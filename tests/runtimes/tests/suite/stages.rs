//! The stages of this crate: each runtime with what is below it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use winddown_cri::{CriConfig, CriOpenError, CriRuntime, CriTimes};
use winddown_runtimes::process::{ProcessConfig, ProcessRuntime, ShimCommand};
use winddown_runtimes::systemd::SystemdRuntime;
use winddown_runtimes_tests::{FakeCri, Fault};
use winddown_shared::PodUid;

use crate::bed::{Act, clean, clock};
use crate::containerd::{Containerd, IMAGE, Systemd, unmount_below};
use crate::stage::{ManagedStage, Stage, backoff, dir_with_act, process_config};
use crate::units::LocalUnits;

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
pub(crate) async fn open_in_time(config: &CriConfig) -> CriRuntime {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match CriRuntime::open(config.clone()).await {
            Err(CriOpenError::InUse { .. } | CriOpenError::RuntimeInUse { .. })
                if Instant::now() < deadline =>
            {
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
        config.cgroups.parent = Some(self.containerd.cgroup_parent());
        config.cgroups.slices = Some(Arc::new(Systemd));
        // A busy or emulated machine takes seconds to answer, and to end what was killed.
        config.times.ask = Duration::from_secs(20);
        config.times.kill = Duration::from_secs(20);
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

    const HAS_OWN_FILES: bool = true;

    async fn set() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cri = FakeCri::start(&dir.path().join("fake.sock"), clock());
        cri.set_image(IMAGE, true);
        Self { dir, cri }
    }

    async fn open(&self) -> CriRuntime {
        self.open_now().await
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn container(&self, name: &str, act: Act) -> Value {
        container_of(name, act)
    }

    fn logs(&self) -> Option<PathBuf> {
        None
    }

    fn cut_off(&self) -> bool {
        self.cri.script("*", usize::MAX, Fault::Error("the runtime is away"));
        true
    }
}

impl Stage for Real {
    type Runtime = CriRuntime;

    const HAS_OWN_FILES: bool = true;

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

    async fn clean(&self, runtime: &CriRuntime, uid: &PodUid) {
        clean(runtime, uid).await;
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn container(&self, name: &str, act: Act) -> Value {
        container_of(name, act)
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        unmount_below(self.dir.path());
    }
}

impl Stage for Processes {
    type Runtime = ProcessRuntime;

    async fn set() -> Self {
        Self { dir: dir_with_act() }
    }

    async fn open(&self) -> ProcessRuntime {
        ProcessRuntime::open(process_config(
            &self.dir,
            ShimCommand::new(env!("CARGO_BIN_EXE_suite-shim"), []),
        ))
        .await
        .unwrap()
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// The systemd runtime on a small service manager.
pub(crate) struct Services {
    pub(crate) dir: TempDir,
    pub(crate) units: LocalUnits,
}

impl Services {
    pub(crate) fn config(&self) -> ProcessConfig {
        process_config(&self.dir, ShimCommand::new(env!("CARGO_BIN_EXE_suite-shim"), []))
    }
}

impl Stage for Services {
    type Runtime = SystemdRuntime<LocalUnits>;

    async fn set() -> Self {
        Self { dir: dir_with_act(), units: LocalUnits::new() }
    }

    async fn open(&self) -> SystemdRuntime<LocalUnits> {
        SystemdRuntime::open(self.config(), self.units.clone()).await.unwrap()
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl ManagedStage for Services {
    async fn running(&self) -> Vec<String> {
        let is_main = |name: &String| name.ends_with("-0.service") && !name.contains("-hook-");
        let names = self.units.names().into_iter().filter(is_main);
        names.filter(|name| !self.units.has_ended(name)).collect()
    }

    async fn nothing_loaded(&self) {
        crate::units::nothing_loaded(&self.units).await;
    }
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
    config.paths.notices = Some(dir.path().join("notices"));
    let links = dir.path().join("containers");
    std::fs::create_dir_all(&links).unwrap();
    config.logs.links = Some(links);
    config.times = CriTimes {
        ask: Duration::from_secs(3),
        change: Duration::from_secs(20),
        sandbox: Duration::from_secs(20),
        kill: Duration::from_secs(3),
        start_patience: Duration::from_millis(500),
        ..CriTimes::default()
    };
    config
}
