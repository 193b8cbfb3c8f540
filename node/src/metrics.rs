//! The node's metrics, in the OpenMetrics text format.
//!
//! # Behaviour
//! Events are counted as they are recorded ([`Metrics`] is a [`Recorder`] and a [`WorkerObserver`]); the current state
//! is passed in at each scrape as [`ScrapedNode`], so that all samples of one scrape are from one moment.
//! Families that the kubelet has keep its names, labels and meanings; the others begin with
//! `winddown_`, or the name of another [`Product`]. `docs/reference/metrics.md` lists all of them.
//!
//! # Limits
//! No label carries a pod's name, and every label has a bounded set of values, so the number of
//! series does not grow with pods or with time.

mod cluster;
mod counted;
mod counts;
mod document;
#[cfg(feature = "eviction")]
mod eviction;
mod facts;
mod labelled;
mod plugin;
mod port;
mod process;
mod rejection_reason;
mod starting;
mod tally;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use winddown_shared::{
    Event, Pod, PodUid, Recorder, ResourceName, WallClock, WallTime, WorkerObserver,
};

use crate::Product;
use crate::registered_plugin::RegisteredPlugin;
use counted::Counted;
use plugin::OfPlugin;
use starting::StartingPods;

pub use cluster::{CertificateGauges, ClusterFacts};
pub use counts::{ByConfig, ByOrigin, PodCounts, WorkingPods};
pub use facts::{InhibitorFacts, ScrapedNode};
pub use plugin::PluginGauge;
pub use port::{BIND_RETRY_DELAY, serve_over_tcp};
pub use process::{ProcessReader, ProcessUsage};
pub use starting::PodStartup;

/// The metrics of one node; there is no global registry.
#[derive(Debug)]
pub struct Metrics {
    product: Product,
    registry: Registry,
    counted: Counted,
    wall: WallClock,
    /// Whether a shutdown is in progress.
    ending: AtomicBool,
    starting: StartingPods,
}

impl Metrics {
    /// Creates the metrics of `product`, all at zero. Those of third-party plug-ins come after the node's own.
    pub fn new(wall: WallClock, plugins: &[RegisteredPlugin], product: &Product) -> Self {
        let mut registry = Registry::default();
        let counted = Counted::register(&mut registry, product);
        for RegisteredPlugin { name, metrics } in plugins {
            counted.plugin_choices.of(name.as_str());
            for metric in metrics {
                registry.register(metric.name(), metric.help(), OfPlugin(metric.clone()));
            }
        }
        let ending = AtomicBool::new(false);
        let (product, starting) = (product.clone(), StartingPods::default());
        Self { product, registry, counted, wall, ending, starting }
    }

    /// The program that they are of.
    pub fn product(&self) -> &Product {
        &self.product
    }

    /// Sets when the last shutdown began and when it had ended its pods, from its state file.
    pub fn last_shutdown(&self, start: Option<WallTime>, end: Option<WallTime>) {
        self.counted.shutdown.start.set(unix_seconds(start));
        self.counted.shutdown.end.set(unix_seconds(end));
    }

    /// Exposes the preemption metrics from the start.
    pub(crate) fn of_preemption(&self) {
        self.counted.show_preemption();
    }

    /// Exposes the eviction metrics from the start.
    #[cfg(feature = "eviction")]
    pub(crate) fn of_eviction(&self) {
        self.counted.show_eviction();
    }

    /// All metrics as an OpenMetrics document, including `# EOF`. Does not block.
    pub fn text(&self, facts: ScrapedNode) -> String {
        let mut now = Registry::default();
        now.register_collector(Box::new(facts));
        let mut text = String::with_capacity(16 * 1024);
        // Writing to a String cannot fail.
        let _ = encode_registry(&mut text, &now);
        let _ = encode_registry(&mut text, &self.registry);
        let _ = encode_eof(&mut text);
        text
    }

    /// Resolves when pods were admitted that are not known to run yet. Cancel-safe.
    pub async fn pods_start(&self) {
        self.starting.any().await;
    }

    /// Checks the admitted pods and records the start duration of those that run now. Returns whether some
    /// have not started yet.
    pub fn look_at_starts(&self, look: impl FnMut(&PodUid) -> PodStartup) -> bool {
        let measured = |took: Duration| self.counted.pod_start.observe(took.as_secs_f64());
        self.starting.settle(look, measured)
    }

    /// Forgets admitted pods that will not start.
    pub fn forget_starts(&self, is_over: impl FnMut(&PodUid) -> bool) {
        self.starting.forget_all(is_over);
    }

    fn shutdown_began(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.counted.shutdown.start.set(unix_seconds(Some(self.wall.now())));
        self.counted.shutdown.end.set(0);
    }

    /// Sets the end time, unless the run had ended its pods before it was cancelled. It may be one of an earlier agent.
    fn shutdown_ended(&self) {
        self.ending.store(false, Ordering::Relaxed);
        let times = &self.counted.shutdown;
        if times.start.get() != 0 && times.end.get() == 0 {
            times.end.set(unix_seconds(Some(self.wall.now())));
        }
    }
}

impl WorkerObserver for Metrics {
    fn pod_started(&self, pod: &Pod, waited: Duration) {
        self.counted.worker_start.observe(waited.as_secs_f64());
        let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        let containers = u32::try_from(containers).unwrap_or(u32::MAX);
        self.counted.containers_per_pod.observe(f64::from(containers));
    }

    fn step_ended(&self, operation: &'static str, took: Duration) {
        self.counted.steps.of(operation).observe(took.as_secs_f64());
    }
}

impl Recorder for Metrics {
    fn record(&self, event: &Event) {
        let counted = &self.counted;
        match event {
            Event::PodRejected { pod, reason, .. } => {
                self.starting.forget(&pod.uid);
                counted.rejection(reason).inc();
            }
            Event::PodAdmitted { pod } => self.starting.begin(&pod.uid),
            Event::PodRestarted { is_static, .. } => {
                counted.restarted(*is_static).inc();
            }
            Event::OrphanFound { .. } => {
                counted.orphans.inc();
            }
            Event::PodStopped { pod, by, took, forced, .. } => {
                self.starting.forget(&pod.uid);
                if by.is_some() {
                    counted.pod_stop.observe(took.as_secs_f64());
                }
                if !forced.is_empty() && self.ending.load(Ordering::Relaxed) {
                    counted.shutdown.cut_killed.inc();
                }
            }
            Event::PodPreempted { signal, .. } => {
                let signal = signal.as_ref().map_or("", ResourceName::as_str);
                counted.preemptions.of(signal).inc();
            }
            Event::EvictionThresholdMet { signal, stats_age: Some(age), .. } => {
                counted.eviction_stats_age.of(signal).observe(age.as_secs_f64());
            }
            Event::PodEvicted { signal, .. } => counted.evictions.of(signal).inc(),
            Event::PluginChose { by, .. } => {
                counted.plugin_choices.of(by.as_str()).inc();
            }
            Event::GroupFinished { priority, took, .. } => {
                counted.shutdown.group(*priority).observe(took.as_secs_f64());
            }
            Event::ShutdownStarted { .. } => self.shutdown_began(),
            // The start time comes from the state file.
            Event::ShutdownResumed { .. } => self.ending.store(true, Ordering::Relaxed),
            Event::ShutdownFinished { left, .. } => {
                counted.shutdown.cut_left.inc_by(u64::try_from(*left).unwrap_or(u64::MAX));
                self.shutdown_ended();
            }
            Event::ShutdownCancelled { .. } => self.shutdown_ended(),
            _ => {}
        }
    }
}

/// Whole seconds, as the kubelet reports them; 0 means never.
fn unix_seconds(time: Option<WallTime>) -> i64 {
    time.map_or(0, |time| time.as_second())
}
