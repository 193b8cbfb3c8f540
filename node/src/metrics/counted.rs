//! Metrics that are updated by events: counters, histograms, and the times of the last shutdown.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::labelled::Labelled;
use super::rejection_reason::rejection_reason;
use super::tally::Tally;
use crate::Product;

/// Bucket bounds in seconds of histograms for which the kubelet has the default buckets.
const DEFAULT: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Bucket bounds in seconds of durations in the range of grace periods.
const GRACE: [f64; 14] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Bucket bounds of a number of containers.
const CONTAINERS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];

/// The most shutdown groups with a label value of their own. Configurations with more are rare, but valid.
const MOST_GROUPS: usize = 16;

/// The most rejection reasons; more than [`rejection_reason`] returns.
const MOST_REASONS: usize = 64;

/// The most resources for which pods are preempted: the node's own and some that its configuration adds.
const MOST_RESOURCES: usize = 16;

/// The causes of an eviction; without that plug-in there is none.
#[cfg(feature = "eviction")]
const MOST_CAUSES: usize = winddown_eviction::Cause::COUNT;
#[cfg(not(feature = "eviction"))]
const MOST_CAUSES: usize = 0;

/// The most plug-ins with a label value of their own; further ones are counted together.
const MOST_PLUGINS: usize = 16;

/// The reasons for a worker's step. `terminated` is the step after which nothing is left to do.
const OPERATIONS: [&str; 5] = ["sync", "update", "create", "kill", "terminated"];

#[derive(Debug)]
pub(super) struct Counted {
    restarted: [Counter; 2],
    pub(super) orphans: Counter,
    steps: Labelled<Histogram>,
    pub(super) worker_start: Histogram,
    pub(super) containers_per_pod: Histogram,
    rejections: Labelled<Counter>,
    preemptions: Labelled<Tally>,
    evictions: Labelled<Tally>,
    eviction_stats_age: Labelled<Histogram>,
    plugin_choices: Labelled<Counter>,
    pub(super) shutdown: OfShutdown,
    pub(super) pod_stop: Histogram,
    pub(super) pod_start: Histogram,
}

#[derive(Debug)]
pub(super) struct OfShutdown {
    pub(super) start: Gauge,
    pub(super) end: Gauge,
    groups: Labelled<Histogram>,
    pub(super) cut_killed: Counter,
    pub(super) cut_left: Counter,
}

impl OfShutdown {
    fn register(registry: &mut Registry, product: &Product) -> Self {
        let help = "When the last shutdown started, in seconds since 1970; 0 if there was none";
        let start = gauge(registry, "kubelet_graceful_shutdown_start_time", help);
        let help = "When the last shutdown had terminated its pods, in seconds since 1970; 0 if it did not";
        let end = gauge(registry, "kubelet_graceful_shutdown_end_time", help);
        let groups = Labelled::new("priority", MOST_GROUPS, || Histogram::new(GRACE));
        let help = "How long a group of pods took to terminate at a shutdown or a drain";
        seconds(
            registry,
            &product.metric("winddown_shutdown_group_duration"),
            help,
            groups.clone(),
        );
        let cut = labelled(
            registry,
            &product.metric("winddown_pods_cut_short"),
            "how",
            2,
            "Pods that a shutdown killed (killed) or left running (stillRunning)",
        );
        let (cut_killed, cut_left) = (cut.of("killed"), cut.of("stillRunning"));
        Self { start, end, groups, cut_killed, cut_left }
    }
}

impl Counted {
    /// Registers all metrics at zero. Series whose label values are known exist from the start, because a rate
    /// over a series that appears with its first event would miss that event.
    pub(super) fn register(registry: &mut Registry, product: &Product) -> Self {
        let restarted = labelled(
            registry,
            "kubelet_restarted_pods",
            "static",
            2,
            "Pods restarted because they were deleted and re-created under the same UID",
        );
        let orphans = Counter::default();
        let help = "Pods found in the container runtime that no source wants and no worker knows";
        registry.register("kubelet_orphaned_runtime_pods", help, orphans.clone());
        let steps = Labelled::new("operation_type", OPERATIONS.len(), || Histogram::new(DEFAULT));
        let help = "Time from a pod's update to the completion of its worker's step";
        seconds(registry, "kubelet_pod_worker_duration", help, steps.clone());
        OPERATIONS.iter().for_each(|operation| drop(steps.of(operation)));
        let help = "Time from the first sight of a pod to the start of its worker";
        let worker_start = histogram(registry, "kubelet_pod_worker_start_duration", help, &DEFAULT);
        let containers_per_pod = Histogram::new(CONTAINERS);
        let help = "Regular containers of each pod that was started";
        registry.register("kubelet_containers_per_pod_count", help, containers_per_pod.clone());
        let rejections = labelled(
            registry,
            "kubelet_admission_rejections",
            "reason",
            MOST_REASONS,
            "Pods that were rejected, by reason",
        );
        rejections.of("NodeShutdown");
        let preemptions = preemptions(registry);
        let (evictions, eviction_stats_age) = evictions(registry);
        let plugin_choices = labelled(
            registry,
            &product.metric("winddown_plugin_terminations"),
            "plugin",
            MOST_PLUGINS,
            "Pods that a plug-in terminated",
        );
        let shutdown = OfShutdown::register(registry, product);
        let help = "Time from the first request to terminate a pod to its last container's exit";
        let name = product.metric("winddown_pod_stop_duration");
        let pod_stop = histogram(registry, &name, help, &GRACE);
        let help = "Time from admitting a pod to its containers running";
        let name = product.metric("winddown_pod_start_duration");
        let pod_start = histogram(registry, &name, help, &GRACE);
        Self {
            restarted: [restarted.of(""), restarted.of("true")],
            orphans,
            steps,
            worker_start,
            containers_per_pod,
            rejections,
            preemptions,
            evictions,
            eviction_stats_age,
            plugin_choices,
            shutdown,
            pod_stop,
            pod_start,
        }
    }

    pub(super) fn restarted(&self, is_static: bool) -> &Counter {
        &self.restarted[usize::from(is_static)]
    }

    pub(super) fn step(&self, operation: &str) -> Histogram {
        self.steps.of(operation)
    }

    pub(super) fn group(&self, priority: i32) -> Histogram {
        self.shutdown.groups.of(&priority.to_string())
    }

    pub(super) fn preemption(&self, signal: &str) -> Tally {
        self.preemptions.of(signal)
    }

    /// Creates the preemption series, so that they exist from the start.
    pub(super) fn show_preemption(&self) {
        for signal in ["cpu", "memory", "pods"] {
            self.preemptions.of(signal);
        }
    }

    /// Creates the eviction series, so that they exist from the start.
    #[cfg(feature = "eviction")]
    pub(super) fn show_eviction(&self) {
        use winddown_eviction::Signal;

        for signal in Signal::first_of_each_resource() {
            self.evictions.of(signal.as_str());
        }
        // A histogram has many series, so those of the other signals appear with their first event.
        self.eviction_stats_age.of(Signal::MemoryAvailable.as_str());
    }

    pub(super) fn eviction(&self, signal: &str) -> Tally {
        self.evictions.of(signal)
    }

    pub(super) fn eviction_stats_age(&self, signal: &str) -> Histogram {
        self.eviction_stats_age.of(signal)
    }

    pub(super) fn plugin_choices(&self, plugin: &str) -> Counter {
        self.plugin_choices.of(plugin)
    }

    pub(super) fn rejection(&self, reason: &str) -> Counter {
        self.rejections.of(rejection_reason(reason))
    }
}

fn preemptions(registry: &mut Registry) -> Labelled<Tally> {
    let preemptions = Labelled::new("preemption_signal", MOST_RESOURCES, Tally::default);
    let help = "Pods preempted for a critical pod, by the first resource that it lacked";
    registry.register("kubelet_preemptions", help, preemptions.clone());
    preemptions
}

fn evictions(registry: &mut Registry) -> (Labelled<Tally>, Labelled<Histogram>) {
    let evictions = Labelled::new("eviction_signal", MOST_CAUSES, Tally::default);
    let help = "Pods evicted, by eviction signal";
    registry.register("kubelet_evictions", help, evictions.clone());
    let ages = Labelled::new("eviction_signal", MOST_CAUSES, || Histogram::new(DEFAULT));
    let help = "Age of the measurements when a threshold was acted on";
    seconds(registry, "kubelet_eviction_stats_age", help, ages.clone());
    (evictions, ages)
}

fn labelled(
    registry: &mut Registry,
    name: &str,
    label: &'static str,
    most: usize,
    help: &str,
) -> Labelled<Counter> {
    let counters = Labelled::new(label, most, Counter::default);
    registry.register(name, help, counters.clone());
    counters
}

fn histogram(registry: &mut Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let histogram = Histogram::new(buckets.iter().copied());
    seconds(registry, name, help, histogram.clone());
    histogram
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    seconds(registry, name, help, gauge.clone());
    gauge
}

/// The library appends the unit to the name, as it appends `_total` to a counter's.
fn seconds(registry: &mut Registry, name: &str, help: &str, metric: impl Metric) {
    registry.register_with_unit(name, help, Unit::Seconds, metric);
}
