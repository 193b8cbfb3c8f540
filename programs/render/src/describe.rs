//! The output of `winddown describe`, laid out as that of kubectl.

use std::fmt::Write as _;

use winddown_control::api::{
    ContainerStatus, ExitedRun, PodStatus, RejectedPod, ShutdownPlan, Status,
};
use winddown_shared::WallTime;
use winddown_shared::display::{clean, quoted, seconds};

use super::plan::group_title;
use super::priority_of;
use super::status::pod_state;
use super::status::problems::next_for_rejected;
use super::times::Times;
use super::{View, hanging, wrap};

/// The width of the names of a pod's fields, in columns.
const FIELD_COLUMNS: usize = 20;

/// All that is known of one pod of the node, and what `plan` would do with it.
pub fn describe(status: &Status, pod: &PodStatus, plan: &ShutdownPlan, view: &View) -> String {
    let times = Times { status, now: status.time, clock: false, brief: false };
    let mut page = Page { text: String::new(), view, times };
    page.pod(status, pod);
    page.text.push_str("Containers:\n");
    for container in &pod.containers {
        page.container(status, pod, container);
    }
    page.shutdown(pod, plan);
    page.decisions(status, &format!("{}/{}", pod.namespace, pod.name));
    page.text
}

/// All that is known of a pod that was rejected.
pub fn describe_rejected(status: &Status, pod: &RejectedPod, view: &View) -> String {
    let times = Times { status, now: status.time, clock: false, brief: false };
    let mut page = Page { text: String::new(), view, times };
    page.field(0, "Name", &pod.name);
    page.field(0, "Namespace", &pod.namespace);
    page.field(0, "UID", &pod.uid);
    page.field(0, "Node", &status.node.name);
    page.field(0, "Status", "Rejected");
    page.field(0, "Reason", &pod.reason);
    page.field(0, "Message", &pod.message);
    page.field(0, "Next", &next_for_rejected(pod));
    page.decisions(status, &format!("{}/{}", pod.namespace, pod.name));
    page.text
}

struct Page<'a> {
    text: String,
    view: &'a View,
    times: Times<'a>,
}

impl Page<'_> {
    /// Adds a field; nothing if its value is empty.
    fn field(&mut self, indent: usize, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        let name = format!("{name}:");
        let width = FIELD_COLUMNS.saturating_sub(indent);
        let lines = wrap(&clean(value), self.view.width, FIELD_COLUMNS);
        for (number, line) in lines.iter().enumerate() {
            let name = if number == 0 { name.as_str() } else { "" };
            // Writing to a String cannot fail.
            let _ = writeln!(self.text, "{:indent$}{name:<width$}{line}", "");
        }
    }

    /// Adds a field with what a container wrote.
    fn written(&mut self, indent: usize, name: &str, value: &str) {
        if !value.is_empty() {
            self.field(indent, name, &quoted(value));
        }
    }

    fn pod(&mut self, status: &Status, pod: &PodStatus) {
        self.field(0, "Name", &pod.name);
        self.field(0, "Namespace", &pod.namespace);
        self.field(0, "UID", &pod.uid);
        self.field(0, "Priority", &priority_of(pod));
        self.field(0, "QoS Class", &pod.qos);
        self.field(0, "Node", &status.node.name);
        self.field(0, "Source", &pod.source);
        self.field(0, "Start Time", &self.time(pod.started_at));
        self.field(0, "Status", &pod_state(pod));
        self.field(0, "Reason", &pod.reason);
        self.field(0, "Message", &pod.message);
        if let Some(trouble) = status.trouble(pod) {
            self.field(0, "Trouble", &trouble.cause);
        }
    }

    fn container(&mut self, status: &Status, pod: &PodStatus, container: &ContainerStatus) {
        let _ = writeln!(self.text, "  {}:", clean(&container.name));
        if container.kind != "regular" {
            self.field(4, "Kind", &container.kind);
        }
        let state = match container.state.as_str() {
            "running" => "Running",
            "exited" => "Terminated",
            _ => "Waiting",
        };
        self.field(4, "State", state);
        self.field(6, "Reason", &container.reason);
        match state {
            "Terminated" => self.written(6, "Message", &container.message),
            _ => self.field(6, "Message", &container.message),
        }
        if let Some(code) = container.exit_code {
            self.field(6, "Exit Code", &code.to_string());
        }
        self.field(6, "Started", &self.time(container.started_at));
        self.field(6, "Finished", &self.time(container.finished_at));
        if let Some(last) = &container.last_state {
            self.exited(&last.terminated);
        }
        let (check, line) = status.last_exit(pod, &container.name);
        self.field(4, "Failed Check", check.unwrap_or_default());
        self.written(4, "Last Line", line.unwrap_or_default());
        self.field(4, "Ready", if container.ready { "True" } else { "False" });
        self.field(4, "Restart Count", &container.restarts.to_string());
        self.field(4, "Log", &container.log);
    }

    fn exited(&mut self, run: &ExitedRun) {
        self.field(4, "Last State", "Terminated");
        self.field(6, "Reason", &run.reason);
        self.written(6, "Message", &run.message);
        self.field(6, "Exit Code", &run.exit_code.to_string());
        self.field(6, "Started", &self.time(run.started_at));
        self.field(6, "Finished", &self.time(run.finished_at));
    }

    fn shutdown(&mut self, pod: &PodStatus, plan: &ShutdownPlan) {
        self.text.push_str("At a Shutdown:\n");
        let groups: Vec<_> = plan.groups.iter().filter(|group| !group.pods.is_empty()).collect();
        let place = groups.iter().enumerate().find_map(|(place, group)| {
            let planned = group.pods.iter().find(|planned| planned.uid == pod.uid)?;
            Some((place, group, planned))
        });
        let Some((place, group, planned)) = place else {
            let is_cut = plan.not_protected.iter().any(|planned| planned.uid == pod.uid);
            let text = if is_cut {
                "killed at once: graceful shutdown is off"
            } else {
                "nothing to terminate"
            };
            let _ = writeln!(self.text, "  {text}");
            return;
        };
        let title = group_title(group.name.as_deref(), group.priority);
        let nth = format!("{title}, {} of {}", place + 1, groups.len());
        self.field(2, "Group", &nth);
        self.field(2, "Grace", &super::plan::grace(planned.grace_seconds));
        if let Some(latest) = group.deadline_seconds {
            self.field(
                2,
                "Terminated",
                &format!("{} after the signal at the latest", seconds(latest)),
            );
        }
        let afterwards = match (planned.stays_on_reboot, planned.survives_soft_reboot) {
            (_, true) => "survives a soft-reboot; after another reboot it starts again here",
            (true, false) => "starts again here when the node is back",
            (false, false) => "",
        };
        self.field(2, "Afterwards", afterwards);
    }

    fn decisions(&mut self, status: &Status, name: &str) {
        let about: Vec<_> = status.decisions.iter().filter(|one| one.pod == name).collect();
        if about.is_empty() {
            self.text
                .push_str("Decisions:          none in memory; `journalctl -u winddown` has all\n");
            return;
        }
        self.text.push_str("Decisions:\n");
        for decision in about {
            let age = decision.time.map(|then| self.times.age(then)).unwrap_or_default();
            let first = format!("  {age:>6}  ");
            self.text.push_str(&hanging(&clean(&decision.text), self.view.width, &first, 10));
        }
    }

    /// A time and how long ago that was; empty if there is none.
    fn time(&self, at: Option<WallTime>) -> String {
        at.map(|at| format!("{at:.0} ({} ago)", self.times.age(at))).unwrap_or_default()
    }
}
