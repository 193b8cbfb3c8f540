//! Stops a pod that a kubelet runs.
//!
//! Several tasks run concurrently, and the first to finish ends the stop: requests to the API
//! server, checks whether the pod is gone, and the stop of its containers through the container runtime.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use winddown_shared::{
    Grace, KillReason, Pod, PodRuntimeStatus, PodStopped, PodUid, RuntimeError, StoppedContainer,
};

use super::api::EndPods;
use super::api_outage::ApiOutage;
use super::budgets::Budgets;
use super::config::CompanionConfig;
use super::facts;
use super::known::{CurrentPod, PodIndex};
use super::kubelet_hold::KubeletHold;
use super::local_node::{KubeletHost, NodeError, RuntimePodState};
use super::recent::Recent;
use super::restart_guard::RestartGuard;
use super::runtime_poller::{RuntimePoller, RuntimeSnapshot};
use super::unused_volumes::UnusedVolumes;

mod asking;
mod consent;
mod directly;
mod exit_codes;
mod plan;
mod request;
mod responders;
mod seen;

use request::StopProgress;
pub(crate) use request::StopRequest;
use seen::{Look, SeenPod};

/// The wait between two checks of the mounts.
pub(super) const MOUNT_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of concurrent requests that stop pods, each with a connection of its own: enough for a whole group on
/// most nodes. While a kubelet stops the first pods of a group, requests for the others are delayed.
const MAX_CONCURRENT_STOPS: usize = 100;
/// Why a mirror pod is not stopped while the node stays up.
const STAYS: &str = "the kubelet runs it from a manifest file, and only removing that file \
                     terminates it while the node stays up";
/// Why a running pod does not count as unwanted.
const WANTED: &str = "the kubelet runs it for the API server: deleting it there terminates it";

/// The pods of one node, and everything needed to stop them.
pub(super) struct StopCore<A, N> {
    pub(super) api: A,
    pub(super) node: N,
    pub(super) config: CompanionConfig,
    pub(super) known: PodIndex,
    pub(super) outage: ApiOutage,
    budgets: Budgets,
    serves_requests: Recent<bool>,
    turns: Semaphore,
    pub(super) poller: RuntimePoller,
    pub(super) kubelet: KubeletHold,
    /// Has a receiver for each pod whose hooks the kubelet may be running.
    pub(super) kubelets_hooks: watch::Sender<()>,
    pub(super) restart_guard: RestartGuard,
    pub(super) unused_volumes: UnusedVolumes,
    /// Whether it was logged that the container runtime cannot be queried.
    query_error_logged: AtomicBool,
}

impl<A, N> StopCore<A, N> {
    pub(super) fn new(api: A, node: N, config: CompanionConfig) -> Self {
        let known = PodIndex::new(config.own_pod.clone(), config.node.clone());
        Self {
            api,
            node,
            config,
            known,
            outage: ApiOutage::default(),
            budgets: Budgets::default(),
            serves_requests: Recent::default(),
            turns: Semaphore::new(MAX_CONCURRENT_STOPS),
            poller: RuntimePoller::default(),
            kubelet: KubeletHold::default(),
            kubelets_hooks: watch::Sender::new(()),
            restart_guard: RestartGuard::default(),
            unused_volumes: UnusedVolumes::default(),
            query_error_logged: AtomicBool::new(false),
        }
    }

    pub(super) fn is_going_down(&self) -> bool {
        *self.config.going_down.borrow()
    }

    /// Begins a run of the pod, or continues it: returns its containers as the kubelet reports them.
    pub(super) fn sync(&self, pod: &Pod) -> PodRuntimeStatus {
        self.known.set_stop_begun(pod.uid(), false);
        self.known.status(pod.uid()).unwrap_or_else(|| facts::status(pod, true))
    }

    /// Why the pod would not be stopped for `reason`; `None` if it would. A mirror pod that the API server no longer
    /// has is about to be over, or replaced.
    pub(super) fn refuses_stop(&self, uid: &PodUid, reason: KillReason) -> Option<Arc<str>> {
        let CurrentPod { pod, gone } = self.known.look(uid)?;
        if !pod.is_mirror() {
            let is_wanted = reason == KillReason::Removed && self.known.runs_on(uid);
            return is_wanted.then(|| WANTED.into());
        }
        let stays = !gone && !facts::has_ended(&pod) && !self.is_going_down();
        // A shutdown may ask just before the node counts as going down. Once the stop has begun, it was called off.
        let is_asked_early = reason == KillReason::Shutdown && !self.known.is_stop_begun(uid);
        (stays && !is_asked_early).then(|| STAYS.into())
    }
}

impl<A: EndPods, N: KubeletHost> StopCore<A, N> {
    /// Stops the pod, and resolves when none of its containers runs. Dropping the future abandons the
    /// wait: requests that the API server accepted stay in effect.
    pub(super) async fn stop(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        // The volumes are checked concurrently: their disk may hang.
        let mut end = pin!(self.end(uid, pod, grace));
        tokio::select! {
            biased;
            stopped = &mut end => stopped,
            () = self.look_at_volumes(uid) => end.await,
        }
    }

    async fn end(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        if self.known.look(uid).is_some_and(|view| view.pod.is_mirror()) {
            // If the runtime cannot be queried, the pod counts as a mirror pod, and its stop says so.
            let _ = self.prove().await;
        }
        let Some(pod) = self.known.look(uid).map(|view| view.pod).or_else(|| pod.cloned()) else {
            return self.known.listed().map(|()| PodStopped::default());
        };
        let before = facts::running(&pod);
        let runtime_uid = facts::runtime_uid(&pod);
        if self.is_replaced(&pod, &runtime_uid).await {
            let mut stopped = PodStopped::at(Instant::now(), Vec::new());
            stopped.remark = Some("its mirror pod is gone, and nothing was stopped for it".into());
            return Ok(stopped);
        }
        let request = StopRequest::default();
        if pod.is_mirror() {
            self.stop_mirror(&pod, &runtime_uid, &grace, &request).await?;
        } else {
            tokio::select! {
                biased;
                () = self.gone(uid, &runtime_uid, !before.is_empty(), &request) => {
                    self.ended(&pod, &runtime_uid, &request);
                }
                () = self.exited(&runtime_uid, &request) => {
                    self.ended(&pod, &runtime_uid, &request);
                }
                never = self.learn_of_begun_hooks(&pod, &runtime_uid, &request) => match never {},
                () = self.stop_directly(&pod, &runtime_uid, &grace, &request) => {
                    self.ended(&pod, &runtime_uid, &request);
                }
                never = self.ask(&pod, &grace, &request) => match never {},
                never = request.keep_time(grace.clone()) => match never {},
                never = self.hear_end(uid, &request) => match never {},
            }
        }
        let (ended_at, has_hooks) = (Instant::now(), facts::has_pre_stop(&pod));
        let after = self.known.look(uid).map_or(pod, |view| view.pod);
        let containers = self.how_they_ended(&after, &runtime_uid, &before, &grace).await;
        let mut stopped = PodStopped::at(ended_at, containers);
        stopped.signalled_at = request.now().signalled_at(has_hooks).filter(|_| !before.is_empty());
        stopped.afterwards = request.afterwards.clone();
        stopped.remark = request.into_remark();
        Ok(stopped)
    }

    /// Records when the API server tells the pod's end: from then on it tells the kubelet as well. It has accepted a request
    /// then, if another's. Never returns.
    async fn hear_end(&self, uid: &PodUid, request: &StopRequest) -> Infallible {
        let mut news = self.known.news(uid);
        let known_at = loop {
            match self.known.end_known_at(uid) {
                Some(at) => break at,
                None => heard(&mut news).await,
            }
        };
        sleep_until(known_at).await;
        request.accepted();
        request.told();
        pending().await
    }

    /// Resolves when the pod's containers have stopped for good (`seen.rs`). `ran`: whether one of them ran before.
    async fn gone(&self, uid: &PodUid, runtime_uid: &PodUid, ran: bool, request: &StopRequest) {
        let mut seen = SeenPod::new(ran);
        let mut snapshots = self.poller.subscribe();
        let mut news = self.known.news(uid);
        loop {
            // Changes from here on are not missed.
            if let Some(news) = &mut news {
                news.borrow_and_update();
            }
            let view = self.known.look(uid);
            seen.told(view.is_none_or(|view| view.gone || facts::has_ended(&view.pod)));
            let snapshot = snapshots.borrow_and_update().clone();
            if let Some(snapshot) = snapshot {
                let accepted = request.now().accepted;
                let look =
                    Look { begun: snapshot.begun, accepted, is_going_down: self.is_going_down() };
                match snapshot.of(runtime_uid) {
                    Ok(state) if seen.has_stopped(&state, look) => return,
                    Err(error) if seen.is_told(look) => return self.log_query_error(error),
                    Ok(_) | Err(_) => {}
                }
            }
            tokio::select! {
                // The sender lives as long as `self`.
                _ = snapshots.changed() => {}
                () = heard(&mut news) => {}
            }
        }
    }

    /// Resolves when the node goes down and the kernel has reported the exits of the containers that ran when they were
    /// asked to end. A container runtime that stops many sandboxes reports them seconds later.
    async fn exited(&self, runtime_uid: &PodUid, request: &StopRequest) {
        request.until(StopProgress::is_asked).await;
        let (mut snapshots, mut going_down) =
            (self.poller.subscribe(), self.config.going_down.clone());
        // If the sender is gone, the agent is ending.
        while going_down.wait_for(|is_down| *is_down).await.is_ok() {
            let mut ends = self.node.ends(runtime_uid);
            let listed = ends.len();
            // Containers that had already exited may have been restarted since.
            ends.retain_mut(|end| end.now_or_never().is_none());
            let all_ran = ends.len() == listed;
            if !ends.is_empty() {
                join_all(ends).await;
                if self.stay_ended(runtime_uid, request, all_ran).await {
                    return;
                }
            }
            // If many pods run, an agent that has just started does not know their processes yet. The sender lives as
            // long as `self`.
            let _ = snapshots.changed().await;
        }
        pending::<()>().await;
    }

    /// Waits until the kubelet starts nothing of the pod again, whose containers have exited: the API server has accepted
    /// the pod's end, or the kubelet is held. Returns whether nothing runs then. `all_ran`: whether none had exited before.
    async fn stay_ended(&self, runtime_uid: &PodUid, request: &StopRequest, all_ran: bool) -> bool {
        if all_ran && (request.now().accepted.is_some() || self.kubelet.is_held()) {
            return true;
        }
        tokio::select! {
            () = request.until(|asked| asked.accepted.is_some()) => {}
            () = self.kubelet.held() => {}
        }
        // Until now it may have.
        self.runs_nothing(runtime_uid).await
    }

    /// Whether the container runtime says that nothing of the pod runs now.
    async fn runs_nothing(&self, runtime_uid: &PodUid) -> bool {
        self.has_now(runtime_uid).await.is_ok_and(|now| now.running.is_empty())
    }

    /// The pod's current state in the container runtime.
    async fn has_now(&self, runtime_uid: &PodUid) -> Result<RuntimePodState, NodeError> {
        match self.first_snapshot(|_| true).await {
            Some(snapshot) => snapshot.of(runtime_uid).map_err(NodeError::clone),
            None => Err(NodeError::because("the container runtime is no longer asked")),
        }
    }

    /// The first answer of the container runtime, asked from now on, that `is_wanted`. Cancel-safe.
    async fn first_snapshot(
        &self,
        is_wanted: impl Fn(&RuntimeSnapshot) -> bool,
    ) -> Option<RuntimeSnapshot> {
        let (now, mut snapshots) = (Instant::now(), self.poller.subscribe());
        let is_it = |newest: &Option<RuntimeSnapshot>| {
            newest.as_ref().is_some_and(|one| one.begun >= now && is_wanted(one))
        };
        // The sender lives as long as `self`.
        snapshots.wait_for(is_it).await.ok().and_then(|newest| newest.clone())
    }

    /// Whether the pod is stopped without a request to the API server, which has not listed it.
    pub(super) fn stops_as_found(&self, uid: &PodUid) -> bool {
        self.may_stop_containers() && self.known.is_found(uid)
    }

    pub(super) fn may_stop_containers(&self) -> bool {
        !self.config.waits_for_api && self.is_going_down()
    }

    /// Whether the pod is a mirror pod that the API server no longer has and that stands for nothing any more: another one
    /// has taken its place, or what the container runtime has of its pod, or, while the node stays up, nothing of that
    /// runs. A kubelet replaces a mirror pod that is deleted, or whose manifest changes.
    async fn is_replaced(&self, pod: &Pod, runtime_uid: &PodUid) -> bool {
        if !pod.is_mirror() || self.known.look(pod.uid()).is_some_and(|view| !view.gone) {
            return false;
        }
        let stays_up = !self.is_going_down();
        if !stays_up {
            // It has its turn as what the runtime has.
            self.find().await;
        }
        self.known.has_mirror_of(runtime_uid) || (stays_up && self.runs_nothing(runtime_uid).await)
    }

    /// Whether the node goes down. If a shutdown asks just before that is known, or an earlier agent's may resume, the next
    /// word tells; no word means no. The removal of a pod whose mirror pod is gone waits for none.
    async fn learns_of_shutdown(&self, uid: &PodUid) -> bool {
        let mut going_down = self.config.going_down.clone();
        let is_gone = self.known.look(uid).is_none_or(|view| view.gone);
        if !*going_down.borrow_and_update() && !is_gone {
            let _ = timeout(CompanionConfig::RESUME_TIMEOUT, going_down.changed()).await;
        }
        self.is_going_down()
    }

    /// Stops the pod of a manifest file. Deleting its mirror pod from the API server would stop nothing.
    async fn stop_mirror(
        &self,
        pod: &Pod,
        runtime_uid: &PodUid,
        grace: &Grace,
        request: &StopRequest,
    ) -> Result<(), RuntimeError> {
        let left = |why: &str| RuntimeError::Failed {
            what: format!("pod {} is left as it is: {why}", pod.pod_ref()),
            source: None,
        };
        if facts::has_ended(pod) {
            return Ok(());
        }
        let goes_down = self.learns_of_shutdown(pod.uid()).await;
        // Not before: a shutdown that resumes asks meanwhile.
        self.known.set_stop_begun(pod.uid(), true);
        if !goes_down {
            return Err(left(STAYS));
        }
        let failed = |error: NodeError| {
            let why = "the kubelet runs it from a manifest file, and the container runtime";
            left(&format!("{why}: {error}"))
        };
        // Pods of the API server may need the kubelet for their stop; without it, none of the mirror pods restarts. On a busy
        // machine its stop takes a second, in which the last of the others terminate.
        let half = Instant::now() + grace.remaining() / 2;
        let _ = timeout_at(half, self.needs_kubelet_no_more()).await;
        // The shutdown may have been cancelled meanwhile.
        if self.is_going_down() {
            self.kubelet.hold().await;
        }
        // Pods of manifests serve the others, with a kubelet or without.
        let _ = timeout_at(half, self.known.only_manifests_run()).await;
        if !self.is_going_down() {
            return Err(left(STAYS));
        }
        request.stopping();
        let runtime_uid = &self.confirmed_uid(pod, runtime_uid).await.map_err(failed)?;
        let hooks = facts::has_pre_stop(pod);
        let stopped = self.stop_within(pod, runtime_uid, grace, hooks).await.map_err(failed)?;
        request.remark_stopped(&stopped);
        self.ended(pod, runtime_uid, request);
        Ok(())
    }

    /// The UID by which the container runtime knows the pod, if it confirms that. Otherwise the pod's own.
    async fn confirmed_uid(&self, pod: &Pod, known: &PodUid) -> Result<PodUid, NodeError> {
        if !self.known.is_open(pod.uid()) {
            return Ok(known.clone());
        }
        self.prove().await?;
        let view = self.known.look(pod.uid());
        Ok(view.map_or_else(|| known.clone(), |view| facts::runtime_uid(&view.pod)))
    }

    /// What the kubelet still holds for the pod, as text for users.
    pub(super) async fn held(&self, uid: &PodUid) -> Result<Vec<String>, NodeError> {
        // The kubelet started it again after a shutdown that was called off: it holds that for the next run.
        if !self.is_going_down() && self.known.runs_on(uid) {
            return Ok(Vec::new());
        }
        let mut held = self.mounted(uid).await?;
        if self.network(uid).await?.is_some() {
            held.push("its network".to_owned());
        }
        Ok(held)
    }

    /// Stops the pod's sandbox if no kubelet runs that would, or none was asked to.
    pub(super) async fn give_network_back(&self, uid: &PodUid) -> Result<(), NodeError> {
        if !self.kubelet.is_held() && !self.stops_as_found(uid) {
            return Ok(());
        }
        match self.network(uid).await? {
            Some(runtime_uid) => self.node.take_down(&runtime_uid).await,
            None => Ok(()),
        }
    }

    /// The UID that the container runtime knows, if the pod has a sandbox with a network of its own.
    async fn network(&self, uid: &PodUid) -> Result<Option<PodUid>, NodeError> {
        let Some(CurrentPod { pod, gone }) = self.known.look(uid) else { return Ok(None) };
        // The network of a pod whose mirror pod was replaced is shown by the next one.
        if pod.is_on_host_network() || (gone && pod.is_mirror()) {
            return Ok(None);
        }
        let runtime_uid = facts::runtime_uid(&pod);
        let has_sandbox = self.has_now(&runtime_uid).await?.has_sandbox;
        Ok(has_sandbox.then_some(runtime_uid))
    }

    /// What is mounted, staged and prepared for the pod.
    async fn mounted(&self, uid: &PodUid) -> Result<Vec<String>, NodeError> {
        let view = self.known.look(uid);
        let has_claims = view.as_ref().is_some_and(|view| facts::has_claims(&view.pod));
        let mut held = self.node.held(uid, has_claims).await?;
        if view.is_some_and(|view| facts::has_volumes(&view.pod)) {
            let at = Instant::now();
            let unused = self.node.unused_volumes().await?;
            held.extend(self.unused_volumes.of(uid, at, unused));
        }
        if held.is_empty() {
            self.known.freed(uid);
        }
        Ok(held)
    }

    /// Records which volumes are unused when the pod's stop begins: they are not the pod's.
    async fn look_at_volumes(&self, uid: &PodUid) {
        let at = Instant::now();
        if self.known.look(uid).is_some_and(|view| facts::has_volumes(&view.pod))
            && let Ok(unused) = self.node.unused_volumes().await
        {
            self.unused_volumes.begin(uid, at, &unused);
        }
    }

    /// Resolves when the kubelet has none but pods of manifests to stop, and holds nothing of the others or is held itself.
    /// Until the others have terminated it goes on reporting, if it is quick enough for that to be worth the wait for its
    /// stop. Cancel-safe.
    async fn needs_kubelet_no_more(&self) {
        self.known.kubelet_stops_none().await;
        tokio::select! {
            () = self.known.only_manifests_run() => {}
            () = self.known.kubelet_is_late() => {}
        }
        let freed = self.known.not_free().into_iter().map(async |uid| {
            // If it cannot be queried, it is not waited for.
            while self.mounted(&uid).await.is_ok_and(|held| !held.is_empty()) {
                // Nothing is unmounted before.
                self.known.ended(&uid).await;
                sleep(MOUNT_CHECK_INTERVAL).await;
            }
        });
        tokio::select! {
            _ = join_all(freed) => {}
            // It unmounts nothing.
            () = self.kubelet.held() => {}
        }
    }

    /// Records that nothing of the pod runs any more. If a kubelet restarts it regardless, because it does not know
    /// of the stop or because it was held and then started by hand, it is stopped again while the node goes down.
    fn ended(&self, pod: &Pod, runtime_uid: &PodUid, request: &StopRequest) {
        self.known.stopped(pod.uid());
        if self.is_going_down() {
            let afterwards = request.afterwards.clone();
            let is_known = request.now().told.is_some();
            self.restart_guard.add(
                runtime_uid.clone(),
                pod.pod_ref().clone(),
                is_known,
                afterwards,
            );
        }
    }

    fn log_query_error(&self, error: &NodeError) {
        if !self.query_error_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "cannot ask the container runtime whether pods are gone, relying on the API \
                 server alone: {error}"
            );
        }
    }
}

/// Resolves when a pod changes. Cancel-safe.
async fn heard(news: &mut Option<watch::Receiver<()>>) {
    let Some(receiver) = news else { return pending().await };
    // The sender is dropped with the pod, which is then gone.
    if receiver.changed().await.is_err() {
        *news = None;
    }
}
