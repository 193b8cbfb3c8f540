//! The state of the node at the time of a scrape.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
#[cfg(feature = "eviction")]
use winddown_control::api::PressureStatus;
use winddown_shared::{GateReason, GateReasons, PressureCondition, WallTime};

use super::cluster::ClusterFacts;
use super::counts::{ByOrigin, PodCounts};
use super::document::Document;
use super::plugin::PluginGauge;
use super::process::ProcessUsage;
use crate::Product;

/// The current state of a node, for a scrape.
#[derive(Clone, Debug, Default)]
pub struct ScrapedNode {
    /// The program that it is part of.
    pub product: Product,
    /// The numbers of its pods.
    pub pods: PodCounts,
    /// Its inhibitor lock.
    pub inhibitor: InhibitorFacts,
    /// Whether its pods end in order at a shutdown, false if that is not known; `None` if the agent has no part in
    /// shutdowns.
    pub protected: Option<bool>,
    /// What keeps new pods out.
    pub gate: GateReasons,
    /// Whether every pod exited by itself before this boot; `None` if unknown.
    pub last_shutdown_graceful: Option<bool>,
    /// Whether the report of the last drain could not be written; `None` if the agent has no part in shutdowns.
    pub report_lost: Option<bool>,
    /// The gauges of plug-ins, in this order.
    pub of_plugins: Vec<PluginGauge>,
    /// The pressure conditions that hold.
    pub pressure: Vec<PressureCondition>,
    /// Its eviction thresholds, with the amounts available, and its swap.
    #[cfg(feature = "eviction")]
    pub eviction: PressureStatus,
    /// The number of problems in the manifests directory.
    pub manifest_problems: usize,
    /// Its state in the cluster; `None` outside a cluster.
    pub cluster: Option<ClusterFacts>,
    /// The resource usage of the agent; `None` if unknown.
    pub process: Option<ProcessUsage>,
}

/// The state of the inhibitor lock.
#[derive(Clone, Debug, Default)]
pub struct InhibitorFacts {
    /// Whether a shutdown waits for this agent.
    pub held: bool,
    /// How long it waits at most; `None` if unknown.
    pub delay_max: Option<Duration>,
    /// How long it has to wait for the configured grace periods.
    pub delay_wanted: Duration,
    /// The number of shutdown signals that were rejected.
    pub refused_signals: u64,
    /// When the shutdown begins that is scheduled, if one is.
    pub scheduled: Option<WallTime>,
}

impl Collector for ScrapedNode {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Document { encoder: &mut encoder, product: &self.product };
        self.encode_pods(&mut out)?;
        self.encode_node(&mut out)?;
        #[cfg(feature = "eviction")]
        super::eviction::encode(&self.eviction, &mut out)?;
        if let Some(cluster) = &self.cluster {
            cluster.encode(&mut out)?;
        }
        self.process.as_ref().map_or(Ok(()), |usage| encode_process(&mut out, usage))
    }
}

impl InhibitorFacts {
    fn encode(&self, out: &mut Document<'_, '_>) -> fmt::Result {
        let Self { held, delay_max, delay_wanted, refused_signals, scheduled } = self;
        out.gauge(
            "winddown_inhibitor_held",
            "Whether the machine's shutdown waits for this agent.",
            None,
            i64::from(*held),
        )?;
        out.gauge_if(
            "winddown_scheduled_shutdown_time",
            "When the scheduled shutdown begins, in seconds since 1970; absent without one.",
            Some(&Unit::Seconds),
            scheduled.map(WallTime::as_second),
        )?;
        out.gauge_if(
            "winddown_inhibit_delay_max",
            "The longest time that the login manager delays a shutdown.",
            Some(&Unit::Seconds),
            delay_max.map(|delay| delay.as_secs_f64()),
        )?;
        out.gauge(
            "winddown_inhibit_delay_required",
            "The delay of a shutdown that the configured grace periods require.",
            Some(&Unit::Seconds),
            delay_wanted.as_secs_f64(),
        )?;
        out.counter(
            "winddown_ignored_shutdown_signals",
            "Shutdown signals that were ignored: not sent by the login manager, or denied by it.",
            None,
            *refused_signals,
        )
    }
}

impl ScrapedNode {
    fn encode_pods(&self, out: &mut Document<'_, '_>) -> fmt::Result {
        let PodCounts { desired, active, mirrors, working, staying } = &self.pods;
        out.gauges(
            "kubelet_desired_pods",
            "Pods that a source wants on this node, including rejected and terminated ones.",
            &by_origin(*desired),
        )?;
        out.gauges(
            "kubelet_active_pods",
            "Desired pods that have not terminated.",
            &by_origin(*active),
        )?;
        out.gauge("kubelet_mirror_pods", "Mirror pods on the API server.", None, *mirrors)?;
        let mut samples = Vec::with_capacity(15);
        for (lifecycle, stage) in working.stages() {
            for (config, origin, value) in [
                ("desired", "", stage.desired.regular),
                ("desired", "true", stage.desired.from_manifests),
                ("orphan", "", stage.orphan.regular),
                ("orphan", "true", stage.orphan.from_manifests),
                ("runtime_only", "unknown", stage.runtime_only),
            ] {
                let labels = [("lifecycle", lifecycle), ("config", config), ("static", origin)];
                samples.push((labels, value));
            }
        }
        out.gauges(
            "kubelet_working_pods",
            "Pods that have a worker, by stage, by whether a source wants them, and by origin.",
            &samples,
        )?;
        out.gauge(
            "winddown_reboot_in_place_pods",
            "Pods that a shutdown terminates and that restart here after the boot.",
            None,
            *staying,
        )
    }

    fn encode_node(&self, out: &mut Document<'_, '_>) -> fmt::Result {
        out.gauge_if(
            "winddown_protected",
            "Whether the pods of this node terminate in order at a shutdown; 0 also if unknown.",
            None,
            self.protected.map(i64::from),
        )?;
        let closed = GateReason::ALL
            .map(|why| ([("reason", reason(why))], usize::from(self.gate.contains(why))));
        out.gauges("winddown_admission_closed", "Why new pods are not admitted.", &closed)?;
        self.inhibitor.encode(out)?;
        out.gauge_if(
            "winddown_last_shutdown_graceful",
            "Whether every pod exited by itself before this boot.",
            None,
            self.last_shutdown_graceful.map(i64::from),
        )?;
        out.gauge_if(
            "winddown_report_lost",
            "Whether the report of the last drain could not be written.",
            None,
            self.report_lost.map(i64::from),
        )?;
        for gauge in &self.of_plugins {
            gauge.encode(out)?;
        }
        let sample = |one: PressureCondition| {
            ([("condition", one.as_str())], usize::from(self.pressure.contains(&one)))
        };
        out.gauges(
            "winddown_node_pressure",
            "Whether the node is under pressure, by condition.",
            &PressureCondition::ALL.map(sample),
        )?;
        out.gauge(
            "winddown_manifest_problems",
            "Problems in the manifests directory.",
            None,
            self.manifest_problems,
        )?;
        out.info("winddown_build", "The program.", &[("version", self.product.version())])
    }
}

/// The name of a reason, as in the status.
fn reason(reason: GateReason) -> &'static str {
    match reason {
        GateReason::Startup => "startup",
        GateReason::Shutdown => "shutdown",
        GateReason::UnitStop => "unitStop",
        GateReason::Notice => "notice",
        GateReason::Drain => "drain",
    }
}

/// The kubelet's label is empty, not `false`, for pods of the API server.
fn by_origin(pods: ByOrigin) -> [([(&'static str, &'static str); 1], usize); 2] {
    [([("static", "")], pods.regular), ([("static", "true")], pods.from_manifests)]
}

fn encode_process(out: &mut Document<'_, '_>, usage: &ProcessUsage) -> fmt::Result {
    let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
    let help = "User and system time used by the agent.";
    out.counter("process_cpu", help, seconds, usage.cpu_seconds)?;
    let help = "Resident memory of the agent.";
    out.gauge("process_resident_memory", help, bytes, usage.resident_bytes)?;
    let help = "Virtual memory of the agent.";
    out.gauge("process_virtual_memory", help, bytes, usage.virtual_bytes)?;
    let help = "Open file descriptors of the agent.";
    out.gauge_if("process_open_fds", help, None, usage.open_fds)?;
    let help = "The most file descriptors that the agent may have open.";
    out.gauge_if("process_max_fds", help, None, usage.max_fds)?;
    let help = "When the agent started, in seconds since 1970.";
    out.gauge_if("process_start_time", help, seconds, usage.started_at)
}
