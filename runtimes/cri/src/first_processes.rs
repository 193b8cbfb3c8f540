//! The first processes of containers that another program runs: the kernel reports their exits at once, a
//! runtime that tears down sandboxes reports them seconds later. And they can be ended while the runtime is away.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use winddown_host::{PodFiles, cgroups_of, ready::Ready};
use winddown_shared::{Mutex, PodUid, Retry};

use super::client::{CallError, CriClient, MAX_CONCURRENT_QUERIES};
use super::direct::{DEFAULT_SIGNAL, Direct, HeldMounts};
use super::handlers::Handlers;
use super::{api, image, labels, observe, pod_groups};

/// Where kubelets and container runtimes find the kernel's control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

#[derive(Debug)]
pub(super) struct FirstProcesses {
    /// By container ID.
    all: Mutex<HashMap<String, Followed>>,
    turns: Semaphore,
    handlers: Handlers,
}

#[derive(Debug)]
struct Followed {
    pod: PodUid,
    /// As it was first listed.
    container: Box<api::Container>,
    /// `None` while it is being looked up, or if the kernel does not provide it.
    process: Option<Arc<ForeignProcess>>,
    /// Whether its mount namespace is held.
    is_held: bool,
}

/// The first process of a container of another program.
#[derive(Debug)]
pub(super) struct ForeignProcess {
    pid: i32,
    exit: Arc<Ready>,
    /// Signals it without the runtime. `None` unless it is an ordinary process of this kernel.
    direct: Option<Direct>,
    /// Whether it was sent its stop signal.
    is_asked: AtomicBool,
    /// The cgroups of its container. Those above are its pod's, unless its creator makes none for pods.
    groups: Vec<PathBuf>,
}

// === impl FirstProcesses ===

impl Default for FirstProcesses {
    fn default() -> Self {
        let turns = Semaphore::new(MAX_CONCURRENT_QUERIES);
        Self { all: Mutex::default(), turns, handlers: Handlers::default() }
    }
}

impl FirstProcesses {
    /// Replaces the set of running containers. Looks up the processes of new ones in the background.
    pub(super) fn follow(self: &Arc<Self>, client: &Arc<CriClient>, running: &[api::Container]) {
        let mut all = self.all.lock();
        let mut known = std::mem::take(&mut *all);
        for container in running {
            let Some(pod) = container.labels.get(labels::POD_UID) else { continue };
            let id = container.id.clone();
            let followed = known.remove(&id).unwrap_or_else(|| {
                let (followed, client, id) = (Arc::clone(self), Arc::clone(client), id.clone());
                tokio::spawn(async move { followed.find(&client, id).await });
                let (pod, container) = (PodUid::new(pod.as_str()), Box::new(container.clone()));
                Followed { pod, container, process: None, is_held: false }
            });
            all.insert(id, followed);
        }
    }

    /// Whether the kernel reports that the container has exited.
    pub(super) fn has_ended(&self, id: &str) -> bool {
        self.process(id).is_some_and(|process| process.exit.is_readable())
    }

    /// Has the kernel report the container's exit before it tears down the container's mounts. A container that exits by
    /// itself meanwhile, or whose process is not known, is left as it is.
    pub(super) fn hold_mounts(&self, id: &str) {
        let process = {
            let mut all = self.all.lock();
            let Some(followed) = all.get_mut(id).filter(|followed| !followed.is_held) else {
                return;
            };
            followed.is_held = followed.process.is_some();
            followed.process.clone()
        };
        let Some(process) = process else { return };
        let Some(held) = HeldMounts::of(process.pid, &process.exit) else { return };
        tokio::spawn(async move {
            // Fails only when the agent itself exits.
            let _ = process.exit.readable().await;
            // The last holder of a namespace tears it down, and waits for the kernel.
            let _ = PodFiles::Unmount.work(move || drop(held)).await;
        });
    }

    /// The container's first process, if it can be ended without the runtime.
    pub(super) fn ordinary(&self, id: &str) -> Option<Arc<ForeignProcess>> {
        self.process(id).filter(|process| process.direct.is_some())
    }

    fn process(&self, id: &str) -> Option<Arc<ForeignProcess>> {
        self.all.lock().get(id).and_then(|followed| followed.process.clone())
    }

    /// The containers of the pod that ran when they were last listed.
    pub(super) fn of_pod(&self, pod: &PodUid) -> Vec<api::Container> {
        let all = self.all.lock();
        let of_pod = all.values().filter(|followed| followed.pod == *pod);
        of_pod.map(|followed| (*followed.container).clone()).collect()
    }

    /// The cgroups of the pod of these containers; none if its creator makes none for pods.
    pub(super) fn pod_groups(&self, pod: &PodUid, containers: &[api::Container]) -> Vec<PathBuf> {
        let processes = containers.iter().filter_map(|container| self.process(&container.id));
        let mut groups = pod_groups::above(processes.flat_map(|process| process.groups.clone()));
        groups.retain(|group| pod_groups::is_of(group, pod));
        groups
    }

    pub(super) fn ends(&self, pod: &PodUid) -> Vec<BoxFuture<'static, ()>> {
        let all = self.all.lock();
        let of_pod = all.values().filter(|followed| followed.pod == *pod);
        let processes: Option<Vec<_>> = of_pod.map(|followed| followed.process.clone()).collect();
        let end = |process: Arc<ForeignProcess>| -> BoxFuture<'static, ()> {
            Box::pin(async move {
                // Fails only when the agent itself exits.
                if process.exit.readable().await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        };
        processes.into_iter().flatten().map(end).collect()
    }

    async fn find(&self, client: &CriClient, id: String) {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        if !self.all.lock().contains_key(&id) {
            return;
        }
        let found = self.look_up(client, &id).await;
        let mut all = self.all.lock();
        match found {
            Ok(process) => {
                if let Some(followed) = all.get_mut(&id) {
                    followed.process = process.map(Arc::new);
                }
            }
            // The next listing asks again.
            Err(_) => drop(all.remove(&id)),
        }
    }

    async fn look_up(
        &self,
        client: &CriClient,
        id: &str,
    ) -> Result<Option<ForeignProcess>, CallError> {
        let request = api::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let answer = client.container_status(request).await?;
        let Some(reported) = observe::process(&answer.info) else { return Ok(None) };
        let Some(mut process) = ForeignProcess::open(reported.pid, id) else { return Ok(None) };
        if self.is_plain(client, &reported).await? {
            let status = answer.status.unwrap_or_default();
            let signal = stop_signal(client, &status).await?;
            process.direct = Direct::of(&process.exit, process.pid, id, Some(&signal));
        }
        Ok(Some(process))
    }

    /// Whether it is an ordinary process of this kernel.
    async fn is_plain(
        &self,
        client: &CriClient,
        reported: &observe::ReportedProcess,
    ) -> Result<bool, CallError> {
        let mut handler = None;
        if reported.runtime_type.is_empty() {
            let pod_sandbox_id = reported.sandbox.clone();
            let request = api::PodSandboxStatusRequest { pod_sandbox_id, verbose: false };
            let status = client.pod_sandbox_status(request).await?.status;
            handler = status.map(|status| status.runtime_handler);
        }
        let epoch = client.process().unwrap_or_default().into();
        self.handlers.is_plain((client, epoch), &reported.runtime_type, handler.as_deref()).await
    }
}

// === impl ForeignProcess ===

impl ForeignProcess {
    /// Opens the process if it is the container's: PIDs are reused, and differ between PID namespaces.
    fn open(pid: i32, id: &str) -> Option<Self> {
        let opened = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let cgroups = cgroups_of(pid)?;
        let exit = cgroups.contains(id).then(|| Ready::new(opened).ok()).flatten()?;
        let groups = pod_groups::of_container(Path::new(CGROUPS), id, &cgroups);
        let (exit, is_asked) = (Arc::new(exit), AtomicBool::new(false));
        Some(Self { pid, exit, direct: None, is_asked, groups })
    }

    /// Records that the runtime has sent the stop signal.
    pub(super) fn was_asked(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// Ends the process without the runtime: with its stop signal, unless it was sent that, and with SIGKILL at `kill_at`.
    /// Resolves when it has exited, or when nothing is left in its cgroup: the kernel does not report the exit of the first
    /// process of a PID namespace before the others have been reaped, and a hung shim reaps nothing. Dropping the future
    /// leaves it to exit by itself.
    ///
    /// # Errors
    /// It may not be signalled, is no ordinary process of this kernel, or still runs some seconds after SIGKILL.
    pub(super) async fn end(&self, kill_at: Instant) -> io::Result<()> {
        let not_ordinary = || io::Error::other("only the container runtime can signal it");
        let direct = self.direct.as_ref().ok_or_else(not_ordinary)?;
        // One that has exited cannot be signalled.
        let unless_exited = |sent: io::Result<()>| {
            sent.or_else(|error| match self.exit.is_readable() {
                true => Ok(()),
                false => Err(error),
            })
        };
        if Instant::now() < kill_at && !self.is_asked.swap(true, Ordering::Relaxed) {
            unless_exited(direct.ask())?;
        }
        if let Ok(exited) = timeout_at(kill_at, self.exit.readable()).await {
            return exited;
        }
        if self.has_left_its_cgroup() {
            return Ok(());
        }
        unless_exited(direct.kill())?;
        let mut looks = Retry::UNREAPED.backoff();
        let gone = async {
            while !self.has_left_its_cgroup() {
                sleep(looks.next_delay()).await;
            }
        };
        tokio::select! {
            exited = self.exit.readable() => exited,
            () = gone => Ok(()),
            () = sleep(Retry::KILL_TIMEOUT) => Err(io::Error::other("it still runs after SIGKILL")),
        }
    }

    /// Whether nothing of its container runs. Reads small files of the kernel.
    fn has_left_its_cgroup(&self) -> bool {
        pod_groups::have_left(&self.groups)
    }
}

/// The container's stop signal, as far as the runtime reports it.
async fn stop_signal(
    client: &CriClient,
    status: &api::ContainerStatus,
) -> Result<String, CallError> {
    if status.stop_signal() != api::Signal::RuntimeDefault {
        return Ok(status.stop_signal().as_str_name().trim_start_matches("SIGNAL_").to_owned());
    }
    let image = Some(api::ImageSpec { image: status.image_ref.clone(), ..Default::default() });
    match client.image_status(api::ImageStatusRequest { image, verbose: true }).await {
        Ok(answer) => {
            let of_image = answer.info.get("info").and_then(|json| image::stop_signal(json));
            Ok(of_image.unwrap_or_else(|| DEFAULT_SIGNAL.to_owned()))
        }
        Err(CallError::Refused { .. }) => Ok(DEFAULT_SIGNAL.to_owned()),
        Err(error) => Err(error),
    }
}
