//! Pods that hold shutdowns, and the block lock that is held for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;
use winddown_control::ApiError;
use winddown_control::api::{self, ErrorCode, HoldingPod, ReleaseAnswer};
use winddown_shared::{
    BootClock, GateReason, LockState, Pod, PodKiller, PodUid, PodUidMap, Runtime, ShutdownBlock,
    WallTime, error_chain,
};
use winddown_shutdown::{Guard, GuardPolicy};

use super::Joined;
use crate::core::Core;
use crate::kept_file;
use crate::links::next_change;
use crate::metrics::GuardFacts;

/// Lets pods hold shutdowns, by a block lock of the login manager.
pub struct ShutdownGuard {
    /// The namespaces whose pods may hold shutdowns, and for how long. No other pods may.
    pub policy: watch::Receiver<GuardPolicy>,
    /// Receives the reason to refuse shutdowns, or `None`.
    pub wanted: watch::Sender<Option<ShutdownBlock>>,
    /// The state of the lock that refuses them.
    pub lock: watch::Receiver<LockState>,
}

/// The pods that hold shutdowns now.
pub(super) struct Guarded {
    means: Option<ShutdownGuard>,
    guard: watch::Sender<Guard>,
    /// The file that keeps `guard` for the next agent of this boot.
    file: Option<PathBuf>,
}

/// The contents of the file for the next agent of this boot.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredHold {
    boot_id: String,
    guard: Guard,
}

/// How often the end of a hold is compared with its clock: timers stand still while the machine sleeps.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
thread_local! {
    /// Number of times that all pods were checked.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

// === impl ShutdownGuard ===

impl ShutdownGuard {
    fn want(&self, block: Option<ShutdownBlock>) {
        self.wanted.send_if_modified(|wanted| {
            if *wanted == block {
                return false;
            }
            match &block {
                Some(ShutdownBlock { who, why }) => {
                    tracing::info!("shutdowns are to be refused: {who} {why}");
                }
                None => tracing::info!("shutdowns are let through again"),
            }
            *wanted = block;
            true
        });
    }
}

// === impl Guarded ===

impl Guarded {
    /// Restores what an earlier agent of this boot left in `directory`. Blocks on the disk.
    pub(super) fn of_boot<R: Runtime>(
        core: &Core<R>,
        directory: Option<&Path>,
        means: Option<ShutdownGuard>,
    ) -> Self {
        let file = directory.map(|directory| directory.join("guard.json"));
        let kept = means.as_ref().zip(file.as_deref());
        let kept = kept.and_then(|(_, file)| kept_file::read::<StoredHold>(file).ok());
        let kept = kept.filter(|kept| *kept.boot_id == *core.identity.boot_id);
        let guard = kept.map(|kept| kept.guard.since(core.boot_clock.system_start()));
        Self { means, guard: watch::Sender::new(guard.unwrap_or_default()), file }
    }

    pub(super) fn guard(&self) -> watch::Receiver<Guard> {
        self.guard.subscribe()
    }

    pub(super) fn facts(&self) -> Option<GuardFacts> {
        let means = self.means.as_ref()?;
        if means.policy.borrow().is_empty() {
            return None;
        }
        let guard = self.guard.borrow();
        Some(GuardFacts {
            holding: guard.holding().count(),
            expired: guard.expired().count(),
            blocked: *means.lock.borrow() == LockState::Held,
        })
    }

    /// Counts every change as a change of the node's status.
    pub(super) fn count<R: Runtime>(&self, core: &Core<R>) {
        core.count(self.guard());
        if let Some(means) = &self.means {
            core.count(means.lock.clone());
        }
    }

    fn keep(&self, boot_id: &str) {
        let Some(file) = &self.file else { return };
        let kept = StoredHold { boot_id: boot_id.to_owned(), guard: self.guard.borrow().clone() };
        if let Err(error) = kept_file::write(file, &kept) {
            tracing::warn!(
                file = %file.display(), error = error_chain(&error),
                "which pods hold shutdowns cannot be kept: the next agent gives each its whole time again"
            );
        }
    }
}

// === impl Joined ===

impl<R: Runtime> Joined<R> {
    /// Has shutdowns refused while a pod holds them. Never returns.
    pub(super) async fn hold_shutdowns(self: Arc<Self>) {
        let (core, guarded) = (&self.core, &self.guarded);
        let Some(means) = &guarded.means else { return std::future::pending().await };
        let mut policy = means.policy.clone();
        let (mut statuses, mut wanted) = (core.statuses.changes(), core.wanted.subscribe());
        let (mut gate, mut more) = (core.gate.changes(), core.workers.more_known());
        let mut guard = guarded.guard();
        guard.mark_changed();
        let (mut block, mut seen) = (None, 0);
        loop {
            if policy.borrow_and_update().is_empty() && block.is_none() {
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
            guarded.guard.send_if_modified(|guard| {
                let next = guard.reconcile(&pods, known, &policy.borrow(), now);
                let changed = *guard != next;
                *guard = next;
                changed
            });
            // Only on a change, because the wall time of the end moves with the wall clock.
            if guard.has_changed().unwrap_or(false) {
                guarded.keep(&core.identity.boot_id);
                block = guard.borrow_and_update().block(|at| self.wall_at(at));
            }
            let end = guarded.guard.borrow().next_end();
            let reasons = *gate.borrow_and_update();
            let goes_down =
                reasons.contains(GateReason::Shutdown) || reasons.contains(GateReason::UnitStop);
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
            let guard = self.guarded.guard.borrow();
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

    /// The pods that hold shutdowns, for the status; `None` while there are none.
    pub(super) fn guard_status(&self) -> Option<api::GuardStatus> {
        let means = self.guarded.means.as_ref()?;
        let guard = self.guarded.guard.borrow();
        let pods: Vec<HoldingPod> = guard
            .holding()
            .map(|(uid, hold)| {
                let (namespace, name) = hold.pod.split_once('/').unwrap_or_default();
                HoldingPod {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    uid: uid.to_owned(),
                    since: self.wall_at(hold.since),
                    until: self.wall_at(hold.until),
                }
            })
            .collect();
        if pods.is_empty() {
            return None;
        }
        let (state, why) = super::view::lock_state(&means.lock.borrow());
        Some(api::GuardStatus { state, why, pods })
    }

    /// Describes the pods that hold shutdowns, for display.
    pub(super) fn held_by(&self) -> Option<String> {
        let block = self.guarded.guard.borrow().block(|at| self.wall_at(at))?;
        Some(format!("{} {}", block.who, block.why))
    }

    /// Ends a pod's hold on shutdowns. Waits until the lock is released, unless other pods still hold shutdowns.
    pub(super) async fn release_pod(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<ReleaseAnswer, ApiError> {
        let pods = self.guard_status().map(|status| status.pods).unwrap_or_default();
        let found = pods.iter().find(|pod| pod.namespace == namespace && pod.name == name);
        let Some((pod, means)) = found.zip(self.guarded.means.as_ref()) else {
            let text = format!("the pod {namespace}/{name} holds no shutdown of this node");
            let hint = "`winddown status` lists those that do";
            return Err(ApiError::new(ErrorCode::NotFound, text).with_hint(hint));
        };
        self.guarded.guard.send_if_modified(|guard| guard.release(&pod.uid));
        if pods.len() == 1 {
            let mut lock = means.lock.clone();
            let given_back = lock.wait_for(|lock| *lock != LockState::Held);
            // Releasing takes at most a call to the login manager.
            let _ = tokio::time::timeout(Duration::from_secs(10), given_back).await;
        }
        Ok(ReleaseAnswer {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            still_held_by: pods
                .iter()
                .filter(|other| other.uid != pod.uid)
                .map(|other| format!("{}/{}", other.namespace, other.name))
                .collect(),
        })
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
