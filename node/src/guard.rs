//! The guard as a plug-in: pods that hold shutdowns, each for a limited time, and the block lock that is held for them.

mod holds;
mod view;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;
#[cfg(feature = "config")]
use winddown_config::Config;
use winddown_shared::{
    BootClock, GateReason, LockState, Pod, PodKiller, PodUid, PodUidMap, Runtime, ShutdownBlock,
    WallTime, critical, error_chain,
};

use crate::core::Core;
use crate::kept_file;
use crate::links::next_change;
use crate::plugin::{NodePlugin, PluginRegistry};
use holds::Guard;

pub use holds::{GUARD_LABEL, GuardPolicy};

/// The plug-in that lets pods hold shutdowns, by a block lock of the login manager.
pub struct ShutdownGuard {
    /// The namespaces whose pods may hold shutdowns, and for how long. No other pods may.
    pub policy: watch::Receiver<GuardPolicy>,
    /// Receives the reason to refuse shutdowns, or `None`.
    pub wanted: watch::Sender<Option<ShutdownBlock>>,
    /// The state of the lock that refuses them.
    pub lock: watch::Receiver<LockState>,
    /// A directory that is lost with the boot: the next agent of this boot finds in it which pods hold shutdowns.
    pub directory: Option<PathBuf>,
}

/// The guard of a node, once the plug-in has joined it.
struct GuardedNode<R: Runtime> {
    core: Arc<Core<R>>,
    means: ShutdownGuard,
    guard: watch::Sender<Guard>,
}

/// The contents of the file for the next agent of this boot.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredHold {
    boot_id: String,
    guard: Guard,
}

/// The target of the log lines, which filters and readers of the journal know.
const TARGET: &str = "winddown_node::shutdown::guard";
/// How often the end of a hold is compared with its clock: timers stand still while the machine sleeps.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
thread_local! {
    /// Number of times that all pods were checked.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

// === impl ShutdownGuard ===

impl ShutdownGuard {
    fn file(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join("guard.json"))
    }

    /// What an earlier agent of this boot left. Blocks on the disk.
    fn of_boot<R: Runtime>(&self, core: &Core<R>) -> Guard {
        let problem = "cannot read which pods block shutdowns, and give each its full time again";
        let kept = self.file().and_then(|file| kept_file::read_if_there(&file, problem));
        let kept = kept.filter(|kept: &StoredHold| *kept.boot_id == *core.identity.boot_id);
        kept.map(|kept| kept.guard.since(core.boot_clock.system_start())).unwrap_or_default()
    }

    fn keep(&self, boot_id: &str, guard: Guard) {
        let Some(file) = self.file() else { return };
        let kept = StoredHold { boot_id: boot_id.to_owned(), guard };
        if let Err(error) = kept_file::write(&file, &kept) {
            tracing::warn!(
                target: TARGET,
                file = %file.display(), error = error_chain(&error),
                "cannot record which pods block shutdowns: the next agent gives each its full time again"
            );
        }
    }

    fn want(&self, block: Option<ShutdownBlock>) {
        self.wanted.send_if_modified(|wanted| {
            if *wanted == block {
                return false;
            }
            match &block {
                Some(ShutdownBlock { who, why }) => {
                    tracing::info!(target: TARGET, "shutdowns will be refused: {who} {why}");
                }
                None => tracing::info!(target: TARGET, "shutdowns are allowed again"),
            }
            *wanted = block;
            true
        });
    }
}

impl<R: Runtime> NodePlugin<R> for ShutdownGuard {
    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        let core = Arc::clone(&node.core);
        core.count(self.lock.clone());
        let guard = watch::Sender::new(self.of_boot(&core));
        core.count(guard.subscribe());
        let stop = core.stop.clone();
        let guarded = Arc::new(GuardedNode { core, means: *self, guard });
        let contributions = &mut node.contributions;
        contributions.sections.push(Arc::clone(&guarded) as _);
        contributions.answers.release = Some(Arc::clone(&guarded) as _);
        contributions.links.objection = Some(Arc::clone(&guarded) as _);
        contributions.links.held = Some(Box::new(view::Held::of(&guarded)));
        node.start(move |_| {
            critical::spawn_until("shutdown guard", stop, guarded.hold_shutdowns());
        });
    }
}

// === impl GuardedNode ===

impl<R: Runtime> GuardedNode<R> {
    /// Has shutdowns refused while a pod holds them. Never returns.
    async fn hold_shutdowns(self: Arc<Self>) {
        let (core, means) = (&self.core, &self.means);
        let mut policy = means.policy.clone();
        let (mut statuses, mut wanted) = (core.statuses.changes(), core.wanted.subscribe());
        let (mut gate, mut more) = (core.gate.changes(), core.workers.more_known());
        let mut guard = self.guard.subscribe();
        guard.mark_changed();
        let (mut block, mut seen) = (None, 0);
        loop {
            // An earlier agent's holds end too where none is allowed any more.
            let is_idle = block.is_none() && self.guard.borrow().holding().next().is_none();
            if policy.borrow_and_update().is_empty() && is_idle {
                next_change(&mut policy).await;
                continue;
            }
            statuses.mark_unchanged();
            (_, seen) = core.statuses.changed_since(seen);
            wanted.mark_unchanged();
            more.mark_unchanged();
            let now = core.boot_clock.now();
            let (pods, known) = self.staying();
            // In one step, so that a release meanwhile is not lost.
            self.guard.send_if_modified(|guard| {
                let next = guard.reconcile(&pods, known, &policy.borrow(), now);
                let changed = *guard != next;
                *guard = next;
                changed
            });
            // Only on a change, because the wall time of the end moves with the wall clock.
            if guard.has_changed().unwrap_or(false) {
                means.keep(&core.identity.boot_id, guard.borrow().clone());
                block = guard.borrow_and_update().block(|at| self.wall_at(at));
            }
            let end = self.guard.borrow().next_end();
            let reasons = *gate.borrow_and_update();
            let goes_down = [GateReason::Shutdown, GateReason::UnitStop, GateReason::Notice];
            let goes_down = goes_down.into_iter().any(|reason| reasons.contains(reason));
            means.want(block.clone().filter(|_| !goes_down));
            tokio::select! {
                Ok(()) = self.guarded_changed(&mut statuses, &mut seen) => {}
                Ok(()) = wanted.changed() => {}
                Ok(()) = more.changed() => {}
                Ok(()) = gate.changed() => {}
                Ok(()) = guard.changed() => guard.mark_changed(),
                Ok(()) = policy.changed() => {}
                () = reached(&core.boot_clock, end) => {}
            }
        }
    }

    /// Waits until the status of a pod that may hold shutdowns changes. Takes time in the number of changes, not of
    /// pods: while a node boots there are many of both. Dropping it loses no change that is not in `seen`.
    async fn guarded_changed(
        &self,
        statuses: &mut watch::Receiver<u64>,
        seen: &mut u64,
    ) -> Result<(), watch::error::RecvError> {
        loop {
            statuses.changed().await?;
            let changed;
            (changed, *seen) = self.core.statuses.changed_since(*seen);
            let guard = self.guard.borrow();
            // A status that was removed is not among the changes.
            let is_gone = |uid: &str| self.core.statuses.get(&PodUid::new(uid)).is_none();
            if changed.iter().any(|entry| guard.concerns(&entry.pod)) || guard.uids().any(is_gone) {
                return Ok(());
            }
        }
    }

    /// The running pods that were not requested to stop, with the labels that their source gives them now; and whether
    /// these are all.
    fn staying(&self) -> (Vec<Pod>, bool) {
        #[cfg(test)]
        LOOKS.with(|looks| looks.set(looks.get() + 1));
        let running = self.core.workers.running();
        let desired = self.core.wanted.borrow().clone().unwrap_or_default();
        let runs = |pod: &Pod| {
            let phase = self.core.statuses.get(pod.uid()).and_then(|status| status.phase.clone());
            phase.is_none_or(|phase| phase == "Running")
                && pod.metadata.deletion_timestamp.is_none()
                && !self.core.workers.is_termination_requested(pod.uid())
        };
        let desired: PodUidMap<&Pod> =
            desired.pods.iter().map(|pod| (pod.uid().clone(), pod)).collect();
        let latest = |pod: Pod| desired.get(pod.uid()).map_or(pod, |latest| Pod::clone(latest));
        (running.pods.into_iter().map(latest).filter(runs).collect(), running.known)
    }

    /// The wall time at an offset from the boot.
    fn wall_at(&self, at: Duration) -> Option<WallTime> {
        let boot = self.core.wall.now().checked_sub(self.core.boot_clock.now()).ok()?;
        boot.checked_add(at).ok()
    }
}

/// Resolves when `clock` has reached `at`; never without a time. Cancel-safe.
async fn reached(clock: &BootClock, at: Option<Duration>) {
    let Some(at) = at else { return std::future::pending().await };
    loop {
        match at.saturating_sub(clock.now()) {
            Duration::ZERO => return,
            left => sleep(left.min(CLOCK_CHECK_INTERVAL)).await,
        }
    }
}

#[cfg(feature = "config")]
impl crate::Configured {
    /// The guard as configured, which keeps its state in `directory`. `lock` blocks shutdowns while its receiver has a
    /// reason to, and returns the state of that lock.
    pub fn guard(
        &self,
        directory: Option<PathBuf>,
        lock: impl FnOnce(watch::Receiver<Option<ShutdownBlock>>) -> watch::Receiver<LockState>,
    ) -> ShutdownGuard {
        let wanted = watch::Sender::default();
        let lock = lock(wanted.subscribe());
        let policy = self.follow(|config: &Config| -> GuardPolicy {
            let guarded = config.shutdown.guard.iter();
            guarded.map(|one| (one.namespace.clone(), one.timeout)).collect()
        });
        ShutdownGuard { policy, wanted, lock, directory }
    }
}
