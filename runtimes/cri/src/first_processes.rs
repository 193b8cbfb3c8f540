//! The first processes of containers that another program runs: the kernel reports their exits at once, a
//! runtime that tears down sandboxes reports them seconds later.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::Semaphore;
use winddown_host::{PodFiles, cgroups_of, ready::Ready};
use winddown_shared::{Mutex, PodUid};

use super::client::{CriClient, MAX_CONCURRENT_QUERIES};
use super::direct::HeldMounts;
use super::{api, labels, observe};

#[derive(Debug)]
pub(super) struct FirstProcesses {
    /// By container ID.
    all: Mutex<HashMap<String, Followed>>,
    turns: Semaphore,
}

#[derive(Debug)]
struct Followed {
    pod: PodUid,
    /// `None` while it is being looked up, or if the kernel does not provide it.
    process: Option<FirstProcess>,
    /// Whether its mount namespace is held.
    is_held: bool,
}

#[derive(Clone, Debug)]
struct FirstProcess {
    pid: i32,
    exit: Arc<Ready>,
}

// === impl FirstProcesses ===

impl Default for FirstProcesses {
    fn default() -> Self {
        Self { all: Mutex::default(), turns: Semaphore::new(MAX_CONCURRENT_QUERIES) }
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
                Followed { pod: PodUid::new(pod.as_str()), process: None, is_held: false }
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

    fn process(&self, id: &str) -> Option<FirstProcess> {
        self.all.lock().get(id).and_then(|followed| followed.process.clone())
    }

    pub(super) fn ends(&self, pod: &PodUid) -> Vec<BoxFuture<'static, ()>> {
        let all = self.all.lock();
        let of_pod = all.values().filter(|followed| followed.pod == *pod);
        let processes: Option<Vec<_>> = of_pod.map(|followed| followed.process.clone()).collect();
        let end = |process: FirstProcess| -> BoxFuture<'static, ()> {
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
        let request = api::ContainerStatusRequest { container_id: id.clone(), verbose: true };
        let answer = client.container_status(request).await;
        let mut all = self.all.lock();
        match answer {
            Ok(answer) => {
                let process = observe::process(&answer.info).and_then(|told| open(told.pid, &id));
                if let Some(followed) = all.get_mut(&id) {
                    followed.process = process;
                }
            }
            // The next listing asks again.
            Err(_) => drop(all.remove(&id)),
        }
    }
}

/// Opens the process if it is the container's: PIDs are reused, and differ between PID namespaces.
fn open(pid: i32, id: &str) -> Option<FirstProcess> {
    let opened = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let exit = cgroups_of(pid)?.contains(id).then(|| Ready::new(opened).ok()).flatten()?;
    Some(FirstProcess { pid, exit: Arc::new(exit) })
}
