//! Eviction as a plug-in: its measurements, what it reclaims, and its status and metrics.

mod disks;
mod measure;
mod reclaim;
mod runtime;
mod stalls;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use winddown_eviction::{
    Alternative, Conditions, EarlierEviction, EarlierEvictions, EvictionController, EvictionParts,
    EvictionView, ExplainError, Policy, Readmit, Signal,
};
use winddown_host::UsagePaths;
use winddown_shared::{
    DesiredPods, KillReason, Mutex, Pod, PodUid, PodWorkers, PressureCondition, Runtime,
    RuntimeError, RuntimeSyncer, critical,
};

use crate::core::Core;
use crate::links::{Observe, next_change};
use crate::metrics::ScrapedNode;
use crate::plugin::{EvictionAnswers, NodePlugin, PluginRegistry, PluginSection};
use measure::{Measured, MeasuredPlaces};
use reclaim::GiveBack;
pub(crate) use runtime::EvictionRuntime;
use winddown_control::ApiError;
use winddown_control::api::{self, ErrorCode, EvictionPlan};

/// Makes what is tried before an eviction, on the node's runtime.
type MakeAlternative =
    Box<dyn FnOnce(Arc<dyn EvictionRuntime>) -> Arc<dyn Alternative> + Send + Sync>;

/// Evicts pods when the node runs short of a resource. The node's runtime measures its pods, and reclaims what none needs;
/// if it measures none ([`Runtime::pod_stats`]), they are evicted by priority alone.
pub struct Eviction {
    places: UsagePaths,
    policy: watch::Receiver<Arc<Policy>>,
    image_age: watch::Receiver<Duration>,
    alternative: Option<MakeAlternative>,
}

/// The eviction section of the status, the metrics and the control API.
struct Pressure<R: Runtime> {
    core: Arc<Core<R>>,
    view: EvictionView,
    signals: Arc<Measured>,
}

/// Signals when the node's pressure conditions change, or when an evicted pod comes back.
struct Relief {
    conditions: watch::Receiver<Conditions>,
    returning: Arc<Notify>,
}

/// Brings back static pods that were evicted.
struct Manifests<R: Runtime> {
    core: Arc<Core<R>>,
    returning: Arc<Notify>,
    /// The pods that an earlier agent evicted and that no worker has taken up yet.
    earlier: Mutex<Vec<PodUid>>,
}

// === impl Eviction ===

impl Eviction {
    /// Evicts by `policy` when the machine, measured at `places`, runs short. The runtime adds the pods' cgroup and the
    /// location of images. Unused images are kept until they have been present for two minutes.
    pub fn new(places: UsagePaths, policy: Policy) -> Self {
        let policy = watch::Sender::new(Arc::new(policy)).subscribe();
        let image_age = watch::Sender::new(Duration::from_secs(120)).subscribe();
        Self { places, policy, image_age, alternative: None }
    }

    /// Follows a policy and a minimum age for the removal of unused images, which can change.
    #[must_use]
    pub fn following(
        self,
        policy: watch::Receiver<Arc<Policy>>,
        image_age: watch::Receiver<Duration>,
    ) -> Self {
        Self { policy, image_age, ..self }
    }

    /// Sets what may make an eviction unnecessary, made on the node's runtime. By default nothing does.
    pub(crate) fn alternative_on(
        self,
        make: impl FnOnce(Arc<dyn EvictionRuntime>) -> Arc<dyn Alternative> + Send + Sync + 'static,
    ) -> Self {
        Self { alternative: Some(Box::new(make)), ..self }
    }
}

impl<R: Runtime> NodePlugin<R> for Eviction {
    fn register(self: Box<Self>, node: &mut PluginRegistry<R>) {
        let Self { places, policy, image_age, alternative } = *self;
        let core = Arc::clone(&node.core);
        let runtime: Arc<dyn EvictionRuntime> = Arc::clone(&core.runtime) as _;
        let alternative = alternative.map(|make| make(Arc::clone(&runtime)));
        core.recorders.metrics.of_eviction();
        let places = MeasuredPlaces::new(places, Arc::clone(&runtime));
        let signals = Arc::new(Measured::new(&places, Arc::clone(&runtime), policy.clone()));
        let wake = Arc::new(Notify::new());
        let returning = Arc::<Notify>::default();
        let static_pods = Manifests {
            core: Arc::clone(&core),
            returning: Arc::clone(&returning),
            earlier: Mutex::new(core.recorders.requested_by(KillReason::Eviction)),
        };
        let killer = Arc::new(core.workers.clone());
        let reclaim = Arc::new(GiveBack { runtime, image_age });
        let first = Policy::clone(&policy.borrow());
        let (measured, wall) = (Arc::clone(&signals), core.wall.clone());
        let mut parts = EvictionParts::new(killer, measured, reclaim, first, &core.gate, wall);
        (parts.policy, parts.alternative) = (policy, alternative);
        (parts.recorder, parts.victims) = (core.recorder(), core.fit.victim_lock());
        (parts.static_pods, parts.wake) = (Arc::new(static_pods), Arc::clone(&wake));
        let (controller, view) = EvictionController::new(parts);
        let contributions = &mut node.contributions;
        contributions.admission.push(Arc::new(view.gate()));
        let relief = Relief { conditions: view.conditions(), returning };
        contributions.links.relief.push(Box::new(relief));
        contributions.links.pressure = Some(Box::new(view.conditions()));
        let pressure = Arc::new(Pressure { core: Arc::clone(&core), view, signals });
        contributions.sections.push(Arc::clone(&pressure) as _);
        contributions.answers.eviction = Some(pressure);
        node.start(move |_| {
            let stop = core.stop.clone();
            // Boxed, because the future is large and is moved several times.
            let work = Box::pin(watch_pressure(core, controller, places, wake));
            critical::spawn_until("eviction", stop, work);
        });
    }
}

/// Runs eviction from when the pods are known until the agent stops.
async fn watch_pressure<R: Runtime>(
    core: Arc<Core<R>>,
    controller: EvictionController<PodWorkers<RuntimeSyncer<R>>, Measured, GiveBack>,
    places: MeasuredPlaces,
    wake: Arc<Notify>,
) {
    let proc_and_cgroup = places.roots();
    let run = async {
        core.pods_are_known().await;
        tokio::join!(controller.run(), places.find(), stalls::wake(proc_and_cgroup, &wake));
    };
    // Not `run_until_cancelled`, which would hold the large future twice.
    tokio::select! {
        () = run => {}
        () = core.stop.cancelled() => {}
    }
}

// === impl Pressure ===

impl<R: Runtime> PluginSection for Pressure<R> {
    fn status(&self, status: &mut api::Status) {
        status.pressure = Some(self.view.status());
    }

    fn facts(&self, facts: &mut ScrapedNode) {
        facts.pressure = self.view.conditions().borrow().iter().collect();
        facts.eviction = self.view.status();
    }
}

impl<R: Runtime> EvictionAnswers for Pressure<R> {
    /// Explains which pod would be evicted for `signal`, or else for the resource that is short or nearest to it.
    /// Evicts nothing.
    fn plan(&self, signal: Option<String>) -> BoxFuture<'_, Result<EvictionPlan, ApiError>> {
        async move {
            let signal = signal.as_deref().map(str::parse::<Signal>).transpose();
            let wrong = |error| ApiError::new(ErrorCode::BadRequest, format!("signal: {error}"));
            let signal = signal.map_err(wrong)?;
            let explained = self.view.explain(&self.core.workers, &*self.signals, signal).await;
            let unknown =
                |error: ExplainError| ApiError::new(ErrorCode::NotFound, error.to_string());
            let explained = explained.map_err(unknown)?;
            Ok(EvictionPlan {
                signal: explained.signal.map(|signal| signal.to_string()),
                waits: explained.waits,
                pods: explained.pods,
                history: self.view.history(),
                pressure: self.view.status(),
            })
        }
        .boxed()
    }
}

impl Observe<Vec<PressureCondition>> for watch::Receiver<Conditions> {
    fn now(&mut self) -> Vec<PressureCondition> {
        self.borrow_and_update().iter().collect()
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        next_change(self).boxed()
    }
}

// === impl Relief ===

impl Observe<()> for Relief {
    fn now(&mut self) {}

    /// Pending for ever once eviction has stopped.
    fn changed(&mut self) -> BoxFuture<'_, ()> {
        async {
            tokio::select! {
                Ok(()) = self.conditions.changed() => {}
                () = self.returning.notified() => {}
            }
        }
        .boxed()
    }
}

/// Whether the sources list the pod, or may do so yet.
fn may_list(wanted: &DesiredPods, uid: &PodUid) -> bool {
    let mut listed = wanted.pods.iter().map(Pod::uid).chain(&wanted.waiting);
    !wanted.complete || listed.any(|listed| listed == uid)
}

// === impl Manifests ===

impl<R: Runtime> Readmit for Manifests<R> {
    fn earlier_evictions(&self) -> EarlierEvictions {
        let mut earlier = self.earlier.lock();
        if earlier.is_empty() {
            return EarlierEvictions::default();
        }
        let taken_up = self.core.workers.snapshot();
        let wanted = self.core.wanted.borrow().clone();
        let mut known = Vec::new();
        earlier.retain(|uid| {
            let Some(one) = taken_up.iter().find(|one| one.uid == *uid) else {
                return wanted.as_ref().is_none_or(|wanted| may_list(wanted, uid));
            };
            let evicted =
                one.pod.clone().filter(|_| one.prior_reason == Some(KillReason::Eviction));
            known.extend(evicted.map(|pod| EarlierEviction::new(pod, one.grace_left)));
            false
        });
        EarlierEvictions::new(known, !earlier.is_empty())
    }

    /// Replaces the worker that terminated the pod by a new one. The intake runs admission before the new one starts.
    fn readmit(&self, pod: &Pod, empty: bool) -> BoxFuture<'static, Result<(), RuntimeError>> {
        let (core, uid) = (Arc::clone(&self.core), pod.uid().clone());
        let returning = Arc::clone(&self.returning);
        // A pod that the workers no longer know would otherwise start without admission.
        let wanted = move |core: &Core<R>| {
            let wanted = core.wanted.borrow().clone()?;
            let pod = wanted.pods.iter().find(|wanted| *wanted.uid() == uid)?;
            core.workers.is_termination_requested(&uid).then(|| pod.clone())
        };
        async move {
            if let (true, Some(pod)) = (empty, wanted(&core)) {
                core.runtime.forget_pod(pod.uid()).await?;
            }
            if let Some(pod) = wanted(&core) {
                core.workers.update(winddown_shared::UpdateKind::Create, pod, None);
                returning.notify_one();
            }
            Ok(())
        }
        .boxed()
    }
}
