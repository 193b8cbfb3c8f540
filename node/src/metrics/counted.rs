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
    pub(super) steps: Labelled<Histogram>,
    pub(super) worker_start: Histogram,
    pub(super) containers_per_pod: Histogram,
    rejections: Labelled<Counter>,
    pub(super) preemptions: Labelled<Tally>,
    pub(super) evictions: Labelled<Tally>,
    pub(super) eviction_stats_age: Labelled<Histogram>,
    pub(super) plugin_choices: Labelled<Counter>,
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
        let start =
            seconds(registry, "kubelet_graceful_shutdown_start_time", help, Gauge::default());
        let help = "When the last shutdown had terminated its pods, in seconds since 1970; 0 if it did not";
        let end = seconds(registry, "kubelet_graceful_shutdown_end_time", help, Gauge::default());
        let groups = Labelled::new("priority", MOST_GROUPS, || Histogram::new(GRACE));
        let help = "How long a group of pods took to terminate at a shutdown or a drain";
        let name = product.metric("winddown_shutdown_group_duration");
        let groups = seconds(registry, &name, help, groups);
        let help = "Pods that a shutdown killed (killed) or left running (stillRunning)";
        let name = product.metric("winddown_pods_cut_short");
        let cut = plain(registry, &name, help, Labelled::new("how", 2, Counter::default));
        let (cut_killed, cut_left) = (cut.of("killed"), cut.of("stillRunning"));
        Self { start, end, groups, cut_killed, cut_left }
    }

    pub(super) fn group(&self, priority: i32) -> Histogram {
        self.groups.of(&priority.to_string())
    }
}

impl Counted {
    /// Registers all metrics at zero. Series whose label values are known exist from the start, because a rate
    /// over a series that appears with its first event would miss that event.
    pub(super) fn register(registry: &mut Registry, product: &Product) -> Self {
        let counter = |label, most| Labelled::new(label, most, Counter::default);
        let tally = |label, most| Labelled::new(label, most, Tally::default);
        let times = |label, most| Labelled::new(label, most, || Histogram::new(DEFAULT));
        let help = "Pods restarted because they were deleted and re-created under the same UID";
        let restarted = plain(registry, "kubelet_restarted_pods", help, counter("static", 2));
        let help = "Pods found in the container runtime that no source wants and no worker knows";
        let orphans = plain(registry, "kubelet_orphaned_runtime_pods", help, Counter::default());
        let help = "Time from a pod's update to the completion of its worker's step";
        let steps = times("operation_type", OPERATIONS.len());
        let steps = seconds(registry, "kubelet_pod_worker_duration", help, steps);
        OPERATIONS.iter().for_each(|operation| drop(steps.of(operation)));
        let (help, started) = (
            "Time from the first sight of a pod to the start of its worker",
            Histogram::new(DEFAULT),
        );
        let worker_start = seconds(registry, "kubelet_pod_worker_start_duration", help, started);
        let (help, containers) =
            ("Regular containers of each pod that was started", Histogram::new(CONTAINERS));
        let containers_per_pod =
            plain(registry, "kubelet_containers_per_pod_count", help, containers);
        let (help, reasons) =
            ("Pods that were rejected, by reason", counter("reason", MOST_REASONS));
        let rejections = plain(registry, "kubelet_admission_rejections", help, reasons);
        rejections.of("NodeShutdown");
        let help = "Pods preempted for a critical pod, by the first resource that it lacked";
        let preemptions = tally("preemption_signal", MOST_RESOURCES);
        let preemptions = plain(registry, "kubelet_preemptions", help, preemptions);
        let (help, causes) =
            ("Pods evicted, by eviction signal", tally("eviction_signal", MOST_CAUSES));
        let evictions = plain(registry, "kubelet_evictions", help, causes);
        let help = "Age of the measurements when a threshold was acted on";
        let ages = times("eviction_signal", MOST_CAUSES);
        let eviction_stats_age = seconds(registry, "kubelet_eviction_stats_age", help, ages);
        let name = product.metric("winddown_plugin_terminations");
        let (help, plugins) = ("Pods that a plug-in terminated", counter("plugin", MOST_PLUGINS));
        let plugin_choices = plain(registry, &name, help, plugins);
        let shutdown = OfShutdown::register(registry, product);
        let help = "Time from the first request to terminate a pod to its last container's exit";
        let name = product.metric("winddown_pod_stop_duration");
        let pod_stop = seconds(registry, &name, help, Histogram::new(GRACE));
        let help = "Time from admitting a pod to its containers running";
        let name = product.metric("winddown_pod_start_duration");
        let pod_start = seconds(registry, &name, help, Histogram::new(GRACE));
        Self {
            restarted: ["", "true"].map(|is_static| restarted.of(is_static)),
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

    pub(super) fn rejection(&self, reason: &str) -> Counter {
        self.rejections.of(rejection_reason(reason))
    }
}

fn plain<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// The library appends the unit to the name, as it appends `_total` to a counter's.
fn seconds<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}
