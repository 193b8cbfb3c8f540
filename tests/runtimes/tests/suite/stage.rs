//! Where the common suite is played. What a stage does not say otherwise is that of programs of the host.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use winddown_runtime_conformance::{BrokenPromise, PodBehaviour, RuntimeUnderTest};
use winddown_runtimes::process::CrashBackoff;
use winddown_runtimes::process::{ProcessConfig, ShimCommand};
use winddown_shared::{Pod, PodUid, Runtime};

use crate::bed::{ACT, Act, Gate, PATIENCE, POLITE, STUBBORN, clock, eventually, pod, run};

/// A runtime and what it runs on, each test's own.
pub(crate) trait Stage: Sized {
    type Runtime: Runtime;

    /// Its containers do not see the machine's files.
    const HAS_OWN_FILES: bool = false;

    /// It runs what is added to a running pod.
    const RUNS_EPHEMERAL: bool = Self::HAS_OWN_FILES;

    /// Why this machine cannot have one.
    fn missing() -> Option<&'static str> {
        None
    }

    async fn set() -> Self;

    /// An agent's view of it. One at a time.
    async fn open(&self) -> Self::Runtime;

    /// Cleans up after a pod.
    async fn clean(&self, runtime: &Self::Runtime, uid: &PodUid) {
        runtime.clean_pod(uid).await.unwrap();
    }

    /// The test's own directory, made by [`dir_with_act`] unless containers have their own files.
    fn dir(&self) -> &Path;

    /// A container.
    fn container(&self, name: &str, act: Act) -> Value {
        let program = self.dir().join("act").display().to_string();
        let [run, code, stop, stop_code] = act.words();
        json!({"name": name, "image": "none", "command": [program, run, code, stop, stop_code]})
    }

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

    /// A directory that the containers see.
    fn gates(&self) -> PathBuf {
        let gates = self.dir().join("gates");
        std::fs::create_dir_all(&gates).unwrap();
        gates
    }

    /// Makes what is below the runtime unreachable; false if there is nothing that could be.
    fn cut_off(&self) -> bool {
        false
    }

    /// Where pods read of their end.
    fn notices(&self) -> PathBuf {
        self.dir().join("notices")
    }

    /// Where the containers' logs are; none if they write none.
    fn logs(&self) -> Option<PathBuf> {
        Some(self.dir().join("logs"))
    }

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

/// A stage as the subject of what any runtime must do.
pub(crate) struct OnStage<S>(pub(crate) S);

impl<S: Stage> RuntimeUnderTest for OnStage<S> {
    type Runtime = S::Runtime;

    const PATIENCE: Duration = PATIENCE;

    async fn open(&self) -> S::Runtime {
        self.0.open().await
    }

    fn pod(&self, name: &str, behaviour: PodBehaviour) -> Pod {
        let (act, policy) = match behaviour {
            PodBehaviour::UntilStopped => (POLITE, "Always"),
            PodBehaviour::IgnoresSigterm => (STUBBORN, "Always"),
            PodBehaviour::Exits(code) => (Act::exits(code), "Never"),
            PodBehaviour::Crashes(code) => (Act::exits(code), "Always"),
        };
        let containers = [self.0.container("main", act)];
        pod(name, &json!({"restartPolicy": policy, "containers": containers}))
    }

    async fn hears_signals(&self, pod: &Pod) {
        self.0.hears(pod).await;
    }

    async fn cut_off(&self) -> bool {
        self.0.cut_off()
    }
}

pub(crate) fn kept(promise: Result<(), BrokenPromise>) {
    assert!(promise.is_ok(), "{}", promise.unwrap_err());
}

/// The log of the newest run.
fn newest_log(folder: &Path) -> Option<String> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u32>().ok();
    let newest =
        files.filter(|path| path.extension().is_some_and(|e| e == "log")).max_by_key(number)?;
    std::fs::read_to_string(newest).ok()
}

/// A stage whose containers are units of a service manager.
pub(crate) trait ManagedStage: Stage {
    /// The names of all units of containers that are loaded and have not ended.
    async fn running(&self) -> Vec<String>;

    /// Waits until no unit of a pod is loaded any more.
    async fn nothing_loaded(&self);
}

pub(crate) fn dir_with_act() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let act = dir.path().join("act");
    std::fs::write(&act, ACT).unwrap();
    std::fs::set_permissions(&act, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(dir.path().join("containers")).unwrap();
    dir
}

/// Supervised, and logged, by `shim`.
pub(crate) fn process_config(dir: &TempDir, shim: ShimCommand) -> ProcessConfig {
    let path = |name| dir.path().join(name);
    let mut config = ProcessConfig::new(path("state"), path("logs"), shim, clock());
    config.volatile_dir = Some(path("run"));
    config.notice_dir = Some(path("notices"));
    config.log_links = Some(path("containers"));
    config.backoff = backoff();
    config
}

/// Soon over, and sooner or later longer than a slow machine takes to look.
pub(crate) fn backoff() -> CrashBackoff {
    CrashBackoff {
        initial: Duration::from_millis(300),
        max: Duration::from_secs(5),
        reset_after: Duration::from_secs(600),
    }
}
