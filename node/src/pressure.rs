//! Eviction on this node: what it measures, what it gives back, and what others see of it.

mod disks;
mod measure;
mod reclaim;
mod runtime;
mod stalls;
#[cfg(test)]
mod tests;
mod told;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use winddown_eviction::{
    Cadence, Conditions, EvictionController, EvictionParts, EvictionView, Policy, Readmit, Signal,
};
use winddown_machine::UsagePlaces;
use winddown_shared::{
    Inhibitor, Pod, PodWorkers, Recorder, Runtime, RuntimeSyncer, VictimLock, WallClock,
};
use winddown_shutdown::AdmissionGate;

use super::Node;
use measure::{Measured, Places};
use reclaim::GiveBack;
pub use runtime::RuntimeFigures;
use winddown_config::Config;
use winddown_control::api::{EvictionPlan, PressureStatus};
use winddown_static_pods::DesiredManifests;

/// What says how much is left of what.
pub struct PressureSource {
    /// Where the machine is measured. The runtime adds the pods' cgroup and where images are.
    pub places: UsagePlaces,
    /// Measures the pods, and gives back what none of them misses.
    pub runtime: Arc<dyn RuntimeFigures>,
}

/// What the rest of the node needs of eviction.
pub(super) struct Pressure {
    view: EvictionView,
    policy: watch::Sender<Arc<Policy>>,
    image_age: watch::Sender<Duration>,
    signals: Arc<Measured>,
    /// A pod is readmitted.
    returning: Arc<Notify>,
}

/// Eviction, ready to run.
pub(super) struct PressureLoop<R: Runtime> {
    controller: EvictionController<PodWorkers<RuntimeSyncer<R>>, Measured, GiveBack>,
    places: Places,
    wake: Arc<Notify>,
}

/// Whom eviction acts on, and whom it tells.
pub(super) struct Around<R: Runtime> {
    pub(super) workers: PodWorkers<RuntimeSyncer<R>>,
    pub(super) manifests: watch::Receiver<Arc<DesiredManifests>>,
    pub(super) recorder: Arc<dyn Recorder>,
    pub(super) victims: VictimLock,
    /// While it is shut the node goes down or is drained, and eviction stands still.
    pub(super) gate: AdmissionGate,
    pub(super) wall: WallClock,
}

/// Tells when the node runs short of something else than before, or of nothing, or when an evicted
/// pod comes back.
pub(super) struct Relief {
    conditions: watch::Receiver<Conditions>,
    returning: Arc<Notify>,
}

/// Starts static pods anew that were ended for want of something.
struct Manifests<R: Runtime> {
    workers: PodWorkers<RuntimeSyncer<R>>,
    wanted: watch::Receiver<Arc<DesiredManifests>>,
    returning: Arc<Notify>,
}

// === impl Pressure ===

impl Pressure {
    /// Prepares eviction; nothing is measured yet.
    pub(super) fn prepare<R: Runtime>(
        source: PressureSource,
        config: &Config,
        around: Around<R>,
    ) -> (Self, PressureLoop<R>) {
        let PressureSource { places, runtime } = source;
        let Around { workers, manifests, recorder, victims, gate, wall } = around;
        let places = Places::new(places, Arc::clone(&runtime));
        let policy = watch::Sender::new(Arc::new(config.eviction.policy()));
        let image_age = watch::Sender::new(config.eviction.image_minimum_gc_age);
        let signals = Measured::new(&places, Arc::clone(&runtime), policy.subscribe());
        let signals = Arc::new(signals);
        let wake = Arc::new(Notify::new());
        let returning = Arc::<Notify>::default();
        let static_pods = Manifests {
            workers: workers.clone(),
            wanted: manifests,
            returning: Arc::clone(&returning),
        };
        let (controller, view) = EvictionController::new(EvictionParts {
            killer: Arc::new(workers),
            signals: Arc::clone(&signals),
            reclaim: Arc::new(GiveBack { runtime, image_age: image_age.subscribe() }),
            recorder,
            victims,
            static_pods: Arc::new(static_pods),
            wall,
            policy: policy.subscribe(),
            still: gate.changes(),
            wake: Arc::clone(&wake),
            cadence: Cadence::default(),
        });
        (
            Self { view, policy, image_age, signals, returning },
            PressureLoop { controller, places, wake },
        )
    }

    /// Follows a configuration that was read again.
    pub(super) fn follow(&self, config: &Config) {
        self.image_age.send_replace(config.eviction.image_minimum_gc_age);
        let policy = config.eviction.policy();
        self.policy.send_if_modified(|now| {
            let changed = **now != policy;
            if changed {
                *now = Arc::new(policy);
            }
            changed
        });
    }

    /// What eviction has seen and done.
    pub(super) const fn view(&self) -> &EvictionView {
        &self.view
    }

    /// Tells when pods are to be asked about again. Must be made before that is so.
    pub(super) fn relief(&self) -> Relief {
        Relief { conditions: self.view.conditions(), returning: Arc::clone(&self.returning) }
    }

    /// The conditions that hold, and every change.
    pub(super) fn changes(&self) -> watch::Receiver<Conditions> {
        self.view.conditions()
    }

    /// The conditions that hold.
    pub(super) fn conditions(&self) -> Conditions {
        *self.view.conditions().borrow()
    }

    pub(super) fn status(&self) -> PressureStatus {
        PressureStatus {
            conditions: self.conditions().iter().map(|condition| condition.to_string()).collect(),
            shadow: self.policy.borrow().shadow,
            thresholds: self.view.thresholds().into_iter().map(told::threshold).collect(),
            away: self.view.away().into_iter().map(told::away).collect(),
        }
    }
}

// === impl Relief ===

impl Relief {
    /// Resolves when that is so; for ever once eviction has ended. Cancel-safe.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            Ok(()) = self.conditions.changed() => {}
            () = self.returning.notified() => {}
        }
    }
}

// === impl Manifests ===

impl<R: Runtime> Readmit for Manifests<R> {
    /// The worker that has ended the pod makes way for a new one. The intake asks admission before it
    /// starts that one.
    fn readmit(&self, pod: &Pod) {
        let wanted = Arc::clone(&self.wanted.borrow());
        let Some(pod) = wanted.pods.iter().find(|wanted| wanted.uid() == pod.uid()) else { return };
        // A pod that is not known any more is not to start past admission.
        if self.workers.is_termination_requested(pod.uid()) {
            self.workers.update(winddown_shared::UpdateKind::Create, pod.clone(), None);
            self.returning.notify_one();
        }
    }
}

// === impl Node ===

impl<R: Runtime, I: Inhibitor> Node<R, I> {
    /// Ends pods while the node runs short, from when the pods are known until the agent stops.
    pub(super) async fn watch_pressure(self, work: PressureLoop<R>) {
        let PressureLoop { controller, places, wake } = work;
        let proc_and_cgroup = places.roots();
        let run = async {
            self.pods_are_known().await;
            tokio::join!(controller.run(), places.find(), stalls::wake(proc_and_cgroup, &wake));
        };
        tokio::select! {
            () = run => {}
            () = self.0.stop.cancelled() => {}
        }
    }

    /// What is short or nearest to it, and who would end for it, or for `signal`. Touches nothing.
    pub(super) async fn pressure_plan(&self, signal: Option<Signal>) -> Option<EvictionPlan> {
        let pressure = self.0.pressure.as_ref()?;
        let view = pressure.view();
        let asked = view.explain(&self.0.workers, &*pressure.signals, signal).await;
        let mut plan = told::plan(asked);
        plan.pressure.away = view.away().into_iter().map(told::away).collect();
        plan.history = view.history().into_iter().map(told::record).collect();
        Some(plan)
    }
}
