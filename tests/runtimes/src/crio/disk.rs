//! What the stand-in knows: sandboxes and containers on disk, and the processes that write there.
//!
//! ```text
//! DIR/sandboxes/ID            the request
//! DIR/sandboxes/ID.stopped    there if it was stopped
//! DIR/containers/ID/request   the request
//! DIR/containers/ID/pid       the first process, written by itself
//! DIR/containers/ID/go        a pipe from which it reads that it is started
//! DIR/containers/ID/started   there if it was started
//! DIR/containers/ID/exit      its exit code, written by its monitor
//! ```

#![allow(clippy::disallowed_methods, reason = "a test reads what it wrote")]

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use prost::Message;

use crate::api::*;

/// Watches a container from a scope of its own, as conmon does, and makes its first process in another. That one waits
/// for its start, and ignores SIGTERM until then, as crun's does.
const MONITOR: &str = r#"dir=$1 id=$2 slice=$3; shift 3
systemd-run --quiet --scope --unit="crio-$id" --slice="$slice" --property=TimeoutStopSec=10 -- sh -c '
    trap "" TERM
    dir=$1; shift
    echo $$ >"$dir/pid.new"; mv "$dir/pid.new" "$dir/pid"
    read -r _ <"$dir/go"
    trap - TERM
    exec "$@"' init "$dir" "$@"
echo $? >"$dir/exit.new"; mv "$dir/exit.new" "$dir/exit"
"#;

#[derive(Debug)]
pub(super) struct Disk {
    dir: PathBuf,
    next: AtomicU64,
}

/// A container as the disk has it.
pub(super) struct Found {
    pub(super) id: String,
    pub(super) request: CreateContainerRequest,
    pub(super) pid: Option<i32>,
    created_at: i64,
    started_at: i64,
    /// The exit code, and when it was written.
    pub(super) exit: Option<(i32, i64)>,
}

impl Disk {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir.join("sandboxes"))?;
        fs::create_dir_all(dir.join("containers"))?;
        Ok(Self { dir: dir.to_owned(), next: AtomicU64::new(0) })
    }

    /// Unique also among those of another life.
    fn new_id(&self) -> String {
        let since = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        format!("{since:032x}{:032x}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn add_sandbox(&self, request: &RunPodSandboxRequest) -> io::Result<String> {
        let id = self.new_id();
        fs::write(self.dir.join("sandboxes").join(&id), request.encode_to_vec())?;
        Ok(id)
    }

    pub(super) fn stop_sandbox(&self, id: &str) -> io::Result<()> {
        fs::write(self.dir.join("sandboxes").join(format!("{id}.stopped")), [])
    }

    pub(super) fn remove_sandbox(&self, id: &str) {
        for name in [id.to_owned(), format!("{id}.stopped")] {
            let _ = fs::remove_file(self.dir.join("sandboxes").join(name));
        }
    }

    pub(super) fn sandboxes(&self) -> Vec<PodSandbox> {
        let dir = self.dir.join("sandboxes");
        let sandbox = |id: String| {
            let request = RunPodSandboxRequest::decode(&*fs::read(dir.join(&id)).ok()?).ok()?;
            let config = request.config?;
            let state = match dir.join(format!("{id}.stopped")).exists() {
                true => PodSandboxState::SandboxNotready,
                false => PodSandboxState::SandboxReady,
            };
            Some(PodSandbox {
                created_at: written_at(&dir.join(&id)),
                id,
                metadata: config.metadata,
                state: state.into(),
                labels: config.labels,
                annotations: config.annotations,
                runtime_handler: request.runtime_handler,
            })
        };
        let names = names(&dir).into_iter().filter(|name| !name.contains('.'));
        names.filter_map(sandbox).collect()
    }

    /// Creates a container with its first process, which waits for its start.
    pub(super) fn add_container(&self, request: &CreateContainerRequest) -> io::Result<String> {
        let id = self.new_id();
        let dir = below(&self.dir, &id);
        fs::create_dir(&dir)?;
        fs::write(dir.join("request"), request.encode_to_vec())?;
        Command::new("mkfifo").arg(dir.join("go")).status()?;
        let config = request.config.clone().unwrap_or_default();
        let sandbox = request.sandbox_config.clone().unwrap_or_default();
        let parent = sandbox.linux.unwrap_or_default().cgroup_parent;
        let mut command = Command::new("systemd-run");
        command.args(["--quiet", "--scope", &format!("--unit=crio-conmon-{id}")]);
        command.args(["--slice=system.slice", "--", "sh", "-c", MONITOR, "monitor"]);
        command.arg(&dir).args([&id, &parent, "env", "-i"]);
        for env in &config.envs {
            command.arg(format!("{}={}", env.key, String::from_utf8_lossy(&env.value)));
        }
        command.args(config.command.iter().chain(&config.args));
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let mut monitor = command.spawn()?;
        // Nothing is left of it while this service lives.
        std::thread::spawn(move || monitor.wait());
        Ok(id)
    }

    pub(super) fn start(&self, id: &str) -> io::Result<()> {
        let dir = below(&self.dir, id);
        fs::write(dir.join("started"), [])?;
        fs::write(dir.join("go"), "\n")
    }

    pub(super) fn remove_container(&self, id: &str) {
        let _ = fs::remove_dir_all(below(&self.dir, id));
    }

    pub(super) fn containers(&self) -> Vec<Found> {
        let ids = names(&self.dir.join("containers"));
        ids.iter().filter_map(|id| self.container(id)).collect()
    }

    pub(super) fn container(&self, id: &str) -> Option<Found> {
        let dir = below(&self.dir, id);
        let number = |name: &str| -> Option<i32> {
            fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
        };
        let request = fs::read(dir.join("request")).ok()?;
        Some(Found {
            id: id.to_owned(),
            request: CreateContainerRequest::decode(&*request).ok()?,
            pid: number("pid"),
            created_at: written_at(&dir.join("request")),
            started_at: written_at(&dir.join("started")),
            exit: number("exit").map(|code| (code, written_at(&dir.join("exit")))),
        })
    }

    /// The container's first process, while it is there.
    pub(super) fn process(&self, id: &str) -> Option<i32> {
        let found = self.container(id)?;
        let pid = found.pid.filter(|_| found.exit.is_none())?;
        Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
    }
}

impl Found {
    pub(super) fn state(&self) -> ContainerState {
        match (self.exit, self.started_at) {
            (Some(_), _) => ContainerState::ContainerExited,
            (None, 0) => ContainerState::ContainerCreated,
            (None, _) => ContainerState::ContainerRunning,
        }
    }

    pub(super) fn status(self) -> ContainerStatus {
        let state = self.state().into();
        let config = self.request.config.unwrap_or_default();
        let (exit_code, finished_at) = self.exit.unwrap_or_default();
        ContainerStatus {
            id: self.id,
            metadata: config.metadata,
            state,
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at,
            exit_code,
            image_ref: config.image.clone().unwrap_or_default().image,
            image: config.image,
            labels: config.labels,
            annotations: config.annotations,
            ..ContainerStatus::default()
        }
    }

    pub(super) fn listed(self) -> Container {
        let pod_sandbox_id = self.request.pod_sandbox_id.clone();
        let status = self.status();
        Container {
            id: status.id,
            pod_sandbox_id,
            metadata: status.metadata,
            image: status.image,
            state: status.state,
            created_at: status.created_at,
            labels: status.labels,
            annotations: status.annotations,
            ..Container::default()
        }
    }
}

/// The directory of one container.
fn below(dir: &Path, id: &str) -> PathBuf {
    dir.join("containers").join(id)
}

/// When a file was written, in nanoseconds since 1970; 0 if it is not there.
fn written_at(file: &Path) -> i64 {
    let written = fs::metadata(file).and_then(|metadata| metadata.modified());
    let since = written.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
