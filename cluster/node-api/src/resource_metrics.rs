//! The metrics of `/metrics/resource`, which metrics-server reads. Names, help and labels are byte for byte the
//! kubelet's.

use std::collections::HashMap;
use std::fmt::Write as _;

use winddown_shared::status::StatusEntry;
use winddown_shared::{PodUid, WallTime};

use crate::figures::Taken;
use crate::summary::started_at;

const CONTAINER_CPU: (&str, &str, &str) = (
    "container_cpu_usage_seconds_total",
    "counter",
    "Cumulative cpu time consumed by the container in core-seconds",
);
const CONTAINER_MEMORY: (&str, &str, &str) = (
    "container_memory_working_set_bytes",
    "gauge",
    "Current working set of the container in bytes",
);
const CONTAINER_START: (&str, &str, &str) = (
    "container_start_time_seconds",
    "gauge",
    "Start time of the container since unix epoch in seconds",
);
const NODE_CPU: (&str, &str, &str) = (
    "node_cpu_usage_seconds_total",
    "counter",
    "Cumulative cpu time consumed by the node in core-seconds",
);
const NODE_MEMORY: (&str, &str, &str) =
    ("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes");
const POD_CPU: (&str, &str, &str) = (
    "pod_cpu_usage_seconds_total",
    "counter",
    "Cumulative cpu time consumed by the pod in core-seconds",
);
const POD_MEMORY: (&str, &str, &str) =
    ("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes");
const SCRAPE_ERROR: (&str, &str, &str) = (
    "resource_scrape_error",
    "gauge",
    "1 if there was an error while getting container metrics, 0 otherwise",
);

/// One metric and its samples.
struct Family {
    of: (&'static str, &'static str, &'static str),
    lines: String,
}

/// The whole scrape; without a measurement it reports an error.
pub(crate) fn text(taken: Option<&Taken>, statuses: &[StatusEntry]) -> String {
    let mut families = taken.map(|taken| measured(taken, statuses)).unwrap_or_default();
    let mut error = Family::new(SCRAPE_ERROR);
    error.add("", u8::from(taken.is_none()), None);
    families.push(error);
    let mut text = String::new();
    for Family { of: (name, kind, help), lines } in &families {
        if !lines.is_empty() {
            let _ = writeln!(text, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}");
            text.push_str(lines);
        }
    }
    text
}

fn measured(taken: &Taken, statuses: &[StatusEntry]) -> Vec<Family> {
    let of = [CONTAINER_CPU, CONTAINER_MEMORY, CONTAINER_START, NODE_CPU, NODE_MEMORY, POD_CPU];
    let [mut cpu, mut memory, mut start, mut node_cpu, mut node_memory, mut pod_cpu] =
        of.map(Family::new);
    let mut pod_memory = Family::new(POD_MEMORY);
    let at = Some(taken.at);
    node_cpu.add_known("", taken.figures.cpu_time.map(|time| time.as_secs_f64()), at);
    let node = taken.figures.node.memory.map(|memory| memory.working_set);
    node_memory.add_known("", node, at);
    let known: HashMap<&PodUid, &StatusEntry> =
        statuses.iter().map(|entry| (entry.pod.uid(), entry)).collect();
    for (uid, stats) in &taken.figures.pods {
        let Some(entry) = known.get(uid) else { continue };
        // Names in Kubernetes contain nothing that needs escaping.
        let of_pod =
            format!("namespace=\"{}\",pod=\"{}\"", entry.pod.namespace(), entry.pod.name());
        for one in &stats.containers {
            let labels = format!("{{container=\"{}\",{of_pod}}}", one.name);
            cpu.add_known(&labels, one.cpu_time.map(|time| time.as_secs_f64()), at);
            memory.add_known(&labels, one.memory_working_set, at);
            let since = started_at(&entry.status, &one.name);
            start.add_known(&labels, since.map(|at| at.as_second()), None);
        }
        let labels = format!("{{{of_pod}}}");
        pod_cpu.add_known(&labels, stats.cpu_time.map(|time| time.as_secs_f64()), at);
        pod_memory.add_known(&labels, stats.memory_working_set, at);
    }
    vec![cpu, memory, start, node_cpu, node_memory, pod_cpu, pod_memory]
}

impl Family {
    fn new(of: (&'static str, &'static str, &'static str)) -> Self {
        Self { of, lines: String::new() }
    }

    /// Adds a sample if its value is known.
    fn add_known(
        &mut self,
        labels: &str,
        value: Option<impl std::fmt::Display>,
        at: Option<WallTime>,
    ) {
        if let Some(value) = value {
            self.add(labels, value, at);
        }
    }

    fn add(&mut self, labels: &str, value: impl std::fmt::Display, at: Option<WallTime>) {
        let _ = write!(self.lines, "{}{labels} {value}", self.of.0);
        if let Some(at) = at {
            let _ = write!(self.lines, " {}", at.as_millisecond());
        }
        self.lines.push('\n');
    }
}
