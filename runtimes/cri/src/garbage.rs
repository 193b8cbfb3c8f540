//! Removes what pods leave behind: sandboxes, dead containers, logs, volumes.

use std::collections::HashSet;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use winddown_engine::disk_notes::RunNote;
use winddown_engine::{files, stopping};
use winddown_host::PodFiles;
use winddown_shared::{Grace, PodUid, RuntimeError, RuntimePod, error_chain};

use super::client::CallError;
use super::config::CriConfig;
use super::direct::HeldMounts;
use super::pod::{self, Dead, PodEntry, PodState, Run, Sandbox};
use super::{
    CriContext, api, blocking, blocking_on, caused, cgroup, dead_links, dirs, failed, host_mount,
    list, shares, volumes,
};

/// Number of sandboxes that are stopped at the same time.
const MAX_CONCURRENT_STOPS: usize = 4;
/// How long no stop must have been in progress before sandboxes are stopped.
const QUIET_TIME: Duration = Duration::from_millis(300);
/// How long a clean-up waits for that before it continues anyway.
const QUIET_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a clean-up counts as one of those that run at the same time.
const LONGEST_TURN: Duration = Duration::from_secs(2);

/// Delays clean-ups while containers are being stopped: tearing down a sandbox costs the runtime more than stopping
/// a container, and in a shutdown the next group of pods is waiting to be signalled.
#[derive(Debug)]
pub(crate) struct Cleaning {
    stops: watch::Sender<usize>,
    /// Whether nothing was left running when the last stop ended, so that no other stop can follow.
    all_stopped: AtomicBool,
    turns: Semaphore,
}

/// Marks a stop as in progress for as long as it lives.
pub(crate) struct StopInProgress<'a, R: Fn() -> bool> {
    cleaning: &'a Cleaning,
    anything_runs: R,
}

/// Releases what a stopped pod holds: its mounts at once, and its sandboxes' namespaces and cgroups when nothing is
/// being stopped. The containers stay in the runtime, because they are the record of how the pod
/// ended. What the runtime has started of the pod since it stopped is stopped first.
///
/// # Errors
/// Something still runs, or could not be released.
pub(super) async fn clean(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
) -> Result<(), RuntimeError> {
    if entry.lock().any_running() {
        stopping::stop(context, entry, None, Grace::fixed(Grace::SHORTEST)).await?;
    }
    release(context, entry, false).await
}

/// The same, at once if it is urgent.
async fn release(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    is_urgent: bool,
) -> Result<(), RuntimeError> {
    let uid = entry.uid();
    if entry.lock().any_running() {
        return Err(failed(format!("pod {uid} still runs: stop it before it is cleaned up")));
    }
    let may_mount = entry.lock().pod.as_ref().is_none_or(volumes::may_mount);
    if may_mount && files::is_safe(uid.as_str()) {
        let (config, path) = (context.config.clone(), dirs::pod(&context.config, uid));
        let what = format!("unmounting the volumes of pod {}", pod::title(entry));
        // Without waiting for volumes that are still being created: their file system may hang.
        blocking_on(PodFiles::Unmount, move || {
            host_mount::unmount_below(&config.paths.own_program, &config.paths.proc, &path)
                .map_err(|e| caused(what, e))
        })
        .await?;
    }
    context.termination_notices.forget(entry);
    // The mounts have to be made again if the pod comes back.
    entry.lock().own.prepared = false;
    // Callers that wait for this pod's volumes wait for this call, so it must not wait for other pods' stops.
    let work = async {
        let held = take_held(&mut entry.lock());
        if !held.is_empty() {
            // Dropping each one waits for the kernel, so a task does it: this call may be given up.
            let drop = blocking_on(PodFiles::Unmount, move || {
                drop(held);
                Ok(())
            });
            let _ = tokio::spawn(drop).await;
        }
        let stopped = stop_sandboxes(context, entry).await;
        stopped.map_err(|e| e.during(format!("stopping the sandbox of pod {uid}")))
    };
    context.cleaning.in_turn(is_urgent || may_mount, work).await?;
    shares::give(context, entry).await;
    Ok(())
}

/// Stops the pod's sandboxes, also those whose process died: only a stop releases the network that they still hold.
pub(super) async fn stop_sandboxes(
    context: &CriContext,
    entry: &PodEntry,
) -> Result<(), CallError> {
    let sandboxes: Vec<Arc<str>> = {
        let state = entry.lock();
        let left = state.own.all.iter().filter(|s| !s.stopped);
        left.map(|s| Arc::clone(&s.id)).collect()
    };
    for id in sandboxes {
        let request = api::StopPodSandboxRequest { pod_sandbox_id: id.to_string() };
        gone(context.client.stop_pod_sandbox(request).await.map(drop))?;
        let mut state = entry.lock();
        for sandbox in state.own.all.iter_mut().filter(|s| s.id == id) {
            (sandbox.ready, sandbox.stopped) = (false, true);
        }
    }
    Ok(())
}

/// Removes the last traces of a pod.
///
/// # Errors
/// Something still runs, or could not be removed.
pub(super) async fn forget(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
) -> Result<(), RuntimeError> {
    let uid = entry.uid();
    if entry.lock().any_running() {
        return Err(failed(format!("pod {uid} still runs: stop it before it is forgotten")));
    }
    // Its caller would give up before no other pod is being stopped, each time, and its sandboxes are stopped already.
    release(context, entry, true).await?;
    // The listing includes what an earlier agent left and this one never asked about.
    list::list_pod(context, entry).await?;
    let (containers, sandboxes) = {
        let state = entry.lock();
        if state.any_running() {
            return Err(failed(format!("pod {uid} runs again: stop it before it is forgotten")));
        }
        let runs = state.containers.iter().filter_map(|c| Some(Arc::clone(&c.run.as_ref()?.id)));
        let dead = state.containers.iter().flat_map(|c| c.own.iter().map(|d| Arc::clone(&d.id)));
        let containers: Vec<Arc<str>> = runs.chain(dead).collect();
        let sandboxes: Vec<Arc<str>> = state.own.all.iter().map(|s| Arc::clone(&s.id)).collect();
        (containers, sandboxes)
    };
    let removals = containers.iter().map(|id| remove_container(context, id));
    let removed: Result<Vec<()>, CallError> = join_all(removals).await.into_iter().collect();
    removed.map_err(|e| e.during(format!("removing the containers of pod {uid}")))?;
    for id in sandboxes {
        let request = api::RemovePodSandboxRequest { pod_sandbox_id: id.to_string() };
        let removed = context.client.remove_pod_sandbox(request).await;
        gone(removed.map(drop))
            .map_err(|e| e.during(format!("removing the sandbox of pod {uid}")))?;
    }
    cgroup::stop_slices(context, uid).await;
    let (config, uid, label) = (context.config.clone(), uid.clone(), entry.lock().label.clone());
    let removal = move || {
        if !files::is_safe(uid.as_str()) {
            return Err(failed(format!("{uid} cannot be the name of a directory")));
        }
        cgroup::remove(&config, &uid);
        let all = &config.logs.dir;
        let cannot = |e| caused(format!("cannot read {}", all.display()), e);
        for logs in dirs::logs_of_uid(&config, &uid, (&label.0, &label.1)).map_err(cannot)? {
            dead_links::remove_of_pod(&config, &logs);
            volumes::remove_all(&config.paths.proc, all, &logs)?;
        }
        // Last: while it is there, the pod is listed.
        volumes::remove(&config, &uid)
    };
    entry.with_files(PodFiles::Remove, removal).await
}

/// The pods of which the runtime has nothing, as CRI-O has of none when the machine has booted, and of which their
/// directories are left.
pub(super) async fn forgotten(context: &Arc<CriContext>) -> Result<Vec<RuntimePod>, RuntimeError> {
    let config = context.config.clone();
    let what = format!("cannot read {}", dirs::pods(&config).display());
    let mut left = blocking(move || dirs::uids(&config).map_err(|e| caused(what, e))).await?;
    left.retain(|uid| context.pods.get(uid).is_none());
    Ok(left.into_iter().map(|uid| RuntimePod::new(uid, "", "", false)).collect())
}

/// Removes dead containers except the last one of each name, with their logs, and sandboxes in which no container is
/// left. Does so in the background, without delaying the pod.
pub(super) fn prune(context: &Arc<CriContext>, entry: &Arc<PodEntry>) {
    let (garbage, sandboxes) = {
        let mut state = entry.lock();
        (take_garbage(&mut state), take_old_sandboxes(&mut state))
    };
    if garbage.is_empty() && sandboxes.is_empty() {
        return;
    }
    let (context, entry) = (Arc::clone(context), Arc::clone(entry));
    tokio::spawn(async move {
        let mut left = HashSet::new();
        for (name, dead) in garbage {
            if let Err(error) = remove_run(&context, &entry, &name, &dead).await {
                // The next listing includes it again, and its sandbox.
                tracing::debug!(pod = %pod::title(&entry), container = %name, error = error_chain(&error), "cannot remove a dead container");
                left.insert(dead.sandbox);
            }
        }
        for id in sandboxes.into_iter().filter(|id| !left.contains(id)) {
            let request = api::RemovePodSandboxRequest { pod_sandbox_id: id.to_string() };
            if let Err(error) = context.client.remove_pod_sandbox(request).await {
                tracing::debug!(pod = %pod::title(&entry), error = error_chain(&error), "cannot remove an old sandbox");
            }
        }
    });
}

/// Removes one dead run of a container, with its log.
pub(super) async fn remove_run(
    context: &CriContext,
    entry: &PodEntry,
    name: &str,
    dead: &Dead,
) -> Result<(), CallError> {
    remove_container(context, &dead.id).await?;
    let (namespace, pod) = entry.lock().label.clone();
    let logs = files::pod_logs(&context.config.logs.dir, &namespace, &pod, entry.uid());
    let (config, uid) = (context.config.clone(), entry.uid().clone());
    let (name, attempt) = (name.to_owned(), dead.attempt);
    let work = move || {
        remove_files(&config, &uid, &logs, (&name, attempt));
        Ok(())
    };
    let _ = blocking_on(PodFiles::Remove, work).await;
    Ok(())
}

/// Removes the files of one run of a container. `logs` is the directory of its pod's logs. Blocking.
pub(super) fn remove_files(
    config: &CriConfig,
    uid: &PodUid,
    logs: &Path,
    (name, attempt): (&str, u32),
) {
    for path in [dirs::termination_log, dirs::asked, dirs::process] {
        files::remove_note(&path(config, uid, name, attempt));
    }
    for note in RunNote::ALL {
        files::remove_note(&dirs::note(config, uid, name, attempt, note));
    }
    files::remove_log(&logs.join(files::run_log(name, attempt)));
}

async fn remove_container(context: &CriContext, id: &str) -> Result<(), CallError> {
    let request = api::RemoveContainerRequest { container_id: id.to_owned() };
    gone(context.client.remove_container(request).await.map(drop))
}

/// Treats "not found" as success.
fn gone(outcome: Result<(), CallError>) -> Result<(), CallError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// Takes the handles that keep mount namespaces of exited containers alive.
fn take_held(state: &mut PodState) -> Vec<HeldMounts> {
    let runs = state.containers.iter_mut().filter_map(|c| c.run.as_mut());
    runs.filter_map(|run| run.own.mounts.take()).collect()
}

/// Takes the dead containers except the last one of each name.
fn take_garbage(state: &mut PodState) -> Vec<(Arc<str>, Dead)> {
    let all = state.containers.iter_mut().flat_map(|container| {
        let keep = 1.min(container.own.len());
        let name = Arc::clone(&container.name);
        container.own.split_off(keep).into_iter().map(move |dead| (Arc::clone(&name), dead))
    });
    all.collect()
}

/// The newest runs of a pod that has terminated, by container name and ID.
pub(super) fn over(state: &PodState) -> Vec<(Arc<str>, Arc<str>)> {
    if !state.is_over() {
        return Vec::new();
    }
    let runs = state.containers.iter().filter_map(|c| Some((&c.name, c.run.as_ref()?)));
    runs.map(|(name, run)| (Arc::clone(name), Arc::clone(&run.id))).collect()
}

/// Takes every dead container of a pod that was stopped, the newest of each name last: its output may be what fills the
/// disk. How it ended is noted. Of other pods [`prune`] has left only what their statuses refer to.
pub(super) fn take_dead(state: &mut PodState) -> Vec<(Arc<str>, Dead)> {
    if !state.is_over() {
        return Vec::new();
    }
    let all = state.containers.iter_mut().flat_map(|container| {
        let name = Arc::clone(&container.name);
        let is_due = |run: &&mut Run| pod::is_settled(run) && !run.own.reclaimed;
        let newest = container.run.as_mut().filter(is_due).map(|run| {
            run.own.reclaimed = true;
            pod::as_dead(run)
        });
        let dead = std::mem::take(&mut container.own).into_iter().chain(newest);
        dead.map(move |dead| (Arc::clone(&name), dead))
    });
    all.collect()
}

/// Takes former sandboxes that contain neither a newest run nor the last one before it: removing a sandbox removes the
/// containers in it, and leaves their logs.
fn take_old_sandboxes(state: &mut PodState) -> Vec<Arc<str>> {
    let newest = state.own.all.iter().map(|s| s.attempt).max();
    let runs = state.containers.iter().filter_map(|c| Some(&c.run.as_ref()?.own.sandbox));
    let dead = state.containers.iter().flat_map(|c| c.own.iter().map(|dead| &dead.sandbox));
    let used: HashSet<_> = runs.chain(dead).collect();
    let is_old = |s: &Sandbox| !s.ready && Some(s.attempt) != newest && !used.contains(&s.id);
    let (old, kept) = state.own.all.iter().cloned().partition(is_old);
    state.own.all = kept;
    let old: Vec<Sandbox> = old;
    old.into_iter().map(|s| s.id).collect()
}

// === impl Cleaning ===

impl Default for Cleaning {
    fn default() -> Self {
        let (stops, turns) = (watch::Sender::new(0), Semaphore::new(MAX_CONCURRENT_STOPS));
        Self { stops, all_stopped: AtomicBool::new(false), turns }
    }
}

impl Cleaning {
    /// Registers a stop for as long as the result lives. `anything_runs` is asked when no stop is in progress any more, and
    /// not for each clean-up, which would be quadratic.
    pub(crate) fn hold<R: Fn() -> bool>(&self, anything_runs: R) -> StopInProgress<'_, R> {
        self.stops.send_modify(|stops| *stops += 1);
        StopInProgress { cleaning: self, anything_runs }
    }

    /// The number of stops in progress, with its changes.
    pub(super) fn stops(&self) -> watch::Receiver<usize> {
        self.stops.subscribe()
    }

    /// Does the work of one clean-up, few at a time. Unless it is urgent, it waits first until nothing is being stopped, and
    /// for [`QUIET_TIME`] more if anything runs; for [`QUIET_TIMEOUT`] at most.
    async fn in_turn<T>(&self, is_urgent: bool, work: impl Future<Output = T>) -> T {
        if !is_urgent {
            // After that time the clean-up continues regardless.
            let _ = timeout(QUIET_TIMEOUT, self.quiet()).await;
        }
        // The semaphore is never closed.
        let turn = self.turns.acquire().await;
        let mut work = pin!(work);
        if let Ok(done) = timeout(LONGEST_TURN, &mut work).await {
            return done;
        }
        // A network plugin that hangs for some pods must delay no other.
        drop(turn);
        work.await
    }

    async fn quiet(&self) {
        let mut stops = self.stops.subscribe();
        loop {
            // Cannot fail: the sender is a field of `self`.
            let _ = stops.wait_for(|stops| *stops == 0).await;
            let is_last = self.all_stopped.load(Ordering::Relaxed);
            if is_last || timeout(QUIET_TIME, stops.changed()).await.is_err() {
                return;
            }
        }
    }
}

impl<R: Fn() -> bool> Drop for StopInProgress<'_, R> {
    fn drop(&mut self) {
        let Cleaning { stops, all_stopped, .. } = self.cleaning;
        stops.send_modify(|stops| {
            *stops -= 1;
            all_stopped.store(*stops == 0 && !(self.anything_runs)(), Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};
    use winddown_runtimes_tests::FakeCri;
    use winddown_shared::Runtime as _;

    use super::*;
    use crate::CriRuntime;

    /// Its caller gives up after 10 s, and an emptyDir of many files takes longer.
    #[tokio::test]
    async fn a_pod_whose_files_are_still_being_removed_is_forgotten_after_that() {
        let dir = tempfile::tempdir().unwrap();
        let config = CriConfig::below(dir.path());
        let _cri = FakeCri::start(&dir.path().join("cri.sock"), config.wall.clone());
        let runtime = CriRuntime::open(config).await.unwrap();
        let entry = runtime.context.pods.get_or_new(&PodUid::new("u"));
        let (begins, begun) = oneshot::channel();
        let (_never, slow) = mpsc::channel::<()>();
        let is_done = Arc::new(AtomicBool::new(false));
        let removal = {
            let is_done = Arc::clone(&is_done);
            move || {
                let _ = begins.send(());
                let _ = slow.recv_timeout(Duration::from_millis(200));
                is_done.store(true, Ordering::SeqCst);
                Ok(())
            }
        };
        tokio::select! {
            _ = entry.with_files(PodFiles::Remove, removal) => unreachable!("it is slow"),
            told = begun => told.unwrap(),
        }
        runtime.forget_pod(entry.uid()).await.unwrap();
        assert!(is_done.load(Ordering::SeqCst), "it was begun again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clean_up_waits_until_nothing_is_being_stopped() {
        let cleaning = Cleaning::default();
        let began = Instant::now();
        cleaning.in_turn(false, async {}).await;
        assert_eq!(began.elapsed(), QUIET_TIME);
        let began = Instant::now();
        let stop = async {
            let first = cleaning.hold(|| true);
            sleep(Duration::from_secs(2)).await;
            drop(first);
            sleep(Duration::from_millis(100)).await;
            let _second = cleaning.hold(|| true);
            sleep(Duration::from_secs(1)).await;
        };
        let clean = async {
            // The stop begins first.
            tokio::task::yield_now().await;
            cleaning.in_turn(false, async {}).await;
            began.elapsed()
        };
        let ((), cleaned) = tokio::join!(stop, clean);
        assert_eq!(cleaned, Duration::from_millis(3100) + QUIET_TIME);
    }

    /// At the end of a shutdown the lock waits for the network of pods that have their own.
    #[tokio::test(start_paused = true)]
    async fn a_clean_up_begins_at_once_when_nothing_is_left_that_could_be_stopped() {
        let cleaning = Cleaning::default();
        let (first, last) = (cleaning.hold(|| true), cleaning.hold(|| false));
        let began = Instant::now();
        let stop = async {
            drop(first);
            sleep(Duration::from_secs(1)).await;
            drop(last);
        };
        let clean = async {
            cleaning.in_turn(false, async {}).await;
            began.elapsed()
        };
        let ((), cleaned) = tokio::join!(stop, clean);
        assert_eq!(cleaned, Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_that_hangs_does_not_keep_a_pod_from_being_cleaned_up_for_ever() {
        let cleaning = Cleaning::default();
        let _hung = cleaning.hold(|| true);
        let began = Instant::now();
        cleaning.in_turn(false, async {}).await;
        assert_eq!(began.elapsed(), QUIET_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn clean_ups_that_hang_hold_up_no_other() {
        let cleaning = Cleaning::default();
        let began = Instant::now();
        let hang = || cleaning.in_turn(true, std::future::pending::<()>());
        let all = join_all(std::iter::repeat_with(hang).take(MAX_CONCURRENT_STOPS));
        let other = async {
            timeout(QUIET_TIMEOUT, cleaning.in_turn(true, async {})).await.unwrap();
            began.elapsed()
        };
        let waited = tokio::select! {
            biased;
            _ = all => Duration::MAX,
            waited = other => waited,
        };
        assert_eq!(waited, LONGEST_TURN);
    }
}
