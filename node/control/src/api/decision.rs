//! A decision of the agent, as a line for people and fields for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_shared::display::{duration, pod_count, quoted};
use winddown_shared::{EndCause, Event, PodRef, ResourceName, WallTime, seconds_up};

mod pressure;

/// A decision of the agent: what was decided, about which pod, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When the decision was made.
    #[serde(default)]
    pub time: Option<WallTime>,
    /// The kind of decision in one word, for example `podAdmitted`.
    pub kind: String,
    /// `namespace/name` of the pod; empty if the decision is about the node.
    #[serde(default)]
    pub pod: String,
    /// The decision in one line, human-readable.
    pub text: String,
    /// The details, for programs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, serde_json::Value>,
}

impl Decision {
    /// Describes `event`, which happened at `time`.
    pub fn of(time: WallTime, event: &Event) -> Self {
        let mut told = Self { time: Some(time), ..Self::default() };
        match event {
            Event::PodAdmitted { pod } => told.pod("podAdmitted", pod, "admitted"),
            Event::PodRejected { pod, reason, message } => {
                told.pod("podRejected", pod, &format!("rejected, {reason}: {message}"));
                told.field("reason", &**reason).field("message", &**message);
            }
            Event::PodRestarted { pod, .. } => {
                told.pod("podRestarted", pod, "re-created with the same UID, restarted");
            }
            Event::OrphanFound { pod } => {
                told.pod("orphanFound", pod, "runs but is not wanted, terminating it");
            }
            Event::ContainerExited { .. } => told.container_exited(event),
            Event::SyncFailed { pod, error, again_in, .. } => {
                told.pod(
                    "syncFailed",
                    pod,
                    &format!("{error}; retrying in {}", duration(*again_in)),
                );
                told.field("error", error.as_str()).field("againInSeconds", again_in.as_secs_f64());
            }
            Event::FieldsIgnored { pod, message } => {
                told.pod("fieldsIgnored", pod, &format!("continues without {message}"));
                told.field("message", &**message);
            }
            Event::PluginChose { pod, by, reason, message } => {
                told.pod("pluginChose", pod, &format!("chosen by {by}, {reason}: {message}"));
                told.field("by", by.as_str())
                    .field("reason", &**reason)
                    .field("message", &**message);
            }
            Event::KillRequested { .. }
            | Event::PodStopped { .. }
            | Event::ExceededGracePeriod { .. }
            | Event::DeadlineExceeded { .. } => told.end_event(event),
            Event::PodWaiting { .. }
            | Event::PreemptionStarted { .. }
            | Event::PodPreempted { .. } => told.room_event(event),
            Event::EvictionThresholdMet { .. }
            | Event::EvictionStarted { .. }
            | Event::PodEvicted { .. }
            | Event::EvictionFailed { .. }
            | Event::EvictionShadowed { .. }
            | Event::NodePressure { .. } => told.pressure_event(event),
            other => told.node_event(other),
        }
        told
    }

    /// Describes the exit of a container.
    fn container_exited(&mut self, event: &Event) {
        let Event::ContainerExited { pod, container, exit, failed, last_line, again_in } = event
        else {
            return;
        };
        let mut text =
            format!("container {container} exited with code {} ({})", exit.exit_code, exit.reason);
        if let Some(wait) = again_in {
            text += &restarts_in(*wait);
        }
        let check = failed.and_then(check);
        text += &why_exited(check.as_deref(), last_line.as_deref());
        self.pod("containerExited", pod, &text);
        self.field("container", &**container)
            .field("exitCode", exit.exit_code)
            .field("reason", &*exit.reason)
            .field("check", check)
            .field("lastLine", last_line.as_deref());
    }

    /// Describes an event about the end of a pod.
    fn end_event(&mut self, event: &Event) {
        match event {
            Event::KillRequested { pod, by, grace, .. } => {
                let why = by.text();
                self.pod(
                    "killRequested",
                    pod,
                    &format!("asked to terminate within {} ({why})", duration(*grace)),
                );
                self.field("by", by.as_str()).field("graceSeconds", grace.as_secs_f64());
            }
            Event::PodStopped { pod, took, forced, remark, .. } => {
                let mut how = format!("terminated in {}", duration(*took));
                if !forced.is_empty() {
                    how += &format!(", SIGKILL for {}", forced.join(", "));
                }
                if let Some(remark) = remark {
                    how += &format!("; {remark}");
                }
                self.pod("podStopped", pod, &how);
                self.field("tookSeconds", took.as_secs_f64())
                    .field("forced", forced.iter().map(|name| &**name).collect::<Vec<_>>());
            }
            Event::ExceededGracePeriod { pod } => {
                self.pod(
                    "exceededGracePeriod",
                    pod,
                    "still running after its grace period; the kill continues",
                );
            }
            Event::DeadlineExceeded { pod } => {
                let text = "exceeded its activeDeadlineSeconds, terminating it";
                self.pod("deadlineExceeded", pod, text);
            }
            _ => {}
        }
    }

    /// Describes an event about a critical pod that does not fit, or about its victims.
    fn room_event(&mut self, event: &Event) {
        match event {
            Event::PodWaiting { pod, message } => {
                self.pod("podWaiting", pod, &format!("is waiting for room: {message}"));
                self.field("message", &**message);
            }
            Event::PreemptionStarted { pod, victims, signal, message } => {
                let names: Vec<String> = victims.iter().map(PodRef::to_string).collect();
                let lacks = signal.as_ref().map(|name| format!("lacks {name}")).unwrap_or_default();
                let text = format!("{lacks}, preempting {}", names.join(", "));
                self.pod("preemptionStarted", pod, text.trim_start_matches(", "));
                self.field("victims", names).field("message", &**message).signal(signal.as_ref());
            }
            Event::PodPreempted { pod, by, signal, message } => {
                self.pod("podPreempted", pod, &format!("preempted for {by}, which was {message}"));
                self.field("for", by.to_string())
                    .field("message", &**message)
                    .signal(signal.as_ref());
            }
            _ => {}
        }
    }

    /// Describes an event about a group of a shutdown.
    fn group_event(&mut self, event: &Event) {
        match event {
            Event::GroupStarted { priority, name, pods, allowed, .. } => {
                let text = format!(
                    "{}: {} asked to terminate within {}",
                    group(*priority, name.as_deref()),
                    pod_count(*pods),
                    // As the pods' own, which are whole seconds.
                    duration(Duration::from_secs(seconds_up(*allowed)))
                );
                self.node("groupStarted", text);
                self.field("priority", *priority)
                    .field("pods", *pods)
                    .field("allowedSeconds", allowed.as_secs_f64());
            }
            Event::GroupFinished { priority, name, took, left, .. } => {
                let group = group(*priority, name.as_deref());
                let text = match left {
                    0 => format!("{group}: terminated in {}", duration(*took)),
                    left => {
                        format!(
                            "{group}: {} still running after {}",
                            pod_count(*left),
                            duration(*took)
                        )
                    }
                };
                self.node("groupFinished", text);
                self.field("priority", *priority)
                    .field("tookSeconds", took.as_secs_f64())
                    .field("stillRunning", *left);
            }
            _ => {}
        }
    }

    fn node_event(&mut self, event: &Event) {
        match event {
            Event::ShutdownStarted { pods, budget } => {
                self.node(
                    "shutdownStarted",
                    format!(
                        "shutdown started: {} to terminate within {}",
                        pod_count(*pods),
                        duration(*budget)
                    ),
                );
                self.field("pods", *pods).field("budgetSeconds", budget.as_secs_f64());
            }
            Event::GroupStarted { .. } | Event::GroupFinished { .. } => self.group_event(event),
            Event::ShutdownResumed { after, pods } => {
                let (ago, pods) = (duration(*after), *pods);
                let left = pod_count(pods);
                let text =
                    format!("continuing the shutdown that started {ago} ago, {left} still running");
                self.node("shutdownResumed", text);
                self.field("afterSeconds", after.as_secs_f64()).field("pods", pods);
            }
            Event::ShutdownCancelled { spared_groups } => {
                let text = format!("shutdown cancelled, groups not started: {spared_groups}");
                self.node("shutdownCancelled", text);
                self.field("sparedGroups", *spared_groups);
            }
            Event::ShutdownFinished { took, left, unknown, released } => {
                let lock = if *released { ", lock released" } else { "" };
                let text = how_it_ended(*took, *left, *unknown) + lock;
                self.node("shutdownFinished", text);
                self.field("tookSeconds", took.as_secs_f64())
                    .field("stillRunning", *left)
                    .field("unknown", *unknown)
                    .field("released", *released);
            }
            Event::PluginWorked { by, what, took, error } => {
                let took = duration(*took);
                let text = match error {
                    None => format!("plug-in {by}: {what}: done in {took}"),
                    Some(why) => format!("plug-in {by}: {what}: not done after {took}: {why}"),
                };
                self.node("pluginWorked", text);
                self.field("by", by.as_str()).field("error", error.as_deref());
            }
            Event::LastBoot { graceful, text } => {
                self.node("lastBoot", format!("last boot: {text}"));
                self.field("graceful", *graceful);
            }
            // The enum may grow; unknown events are still shown.
            other => self.node("other", format!("{other:?}")),
        }
    }

    fn pod(&mut self, kind: &str, pod: &PodRef, text: &str) {
        self.kind = kind.to_owned();
        self.pod = pod.to_string();
        self.text = format!("{pod} {text}");
        self.field("uid", pod.uid.as_str());
    }

    fn node(&mut self, kind: &str, text: String) {
        self.kind = kind.to_owned();
        self.text = text;
    }

    fn signal(&mut self, signal: Option<&ResourceName>) {
        if let Some(signal) = signal {
            self.field("signal", signal.as_str());
        }
    }

    fn field(&mut self, name: &str, value: impl Into<serde_json::Value>) -> &mut Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }
}

/// The probe or the hook that ends a container by failing, in words.
fn check(failed: EndCause) -> Option<String> {
    match failed {
        EndCause::Probe(kind) => Some(format!("{} probe", kind.as_str().to_lowercase())),
        EndCause::PostStart => Some("postStart hook".to_owned()),
        EndCause::Pod | EndCause::Changed => None,
    }
}

/// Why a container exited, after the words on how.
pub(super) fn why_exited(check: Option<&str>, line: Option<&str>) -> String {
    let check = check.map(|check| format!(": {check} failed")).unwrap_or_default();
    let line = line.map(|line| format!(": {}", quoted(line))).unwrap_or_default();
    check + &line
}

/// When a container that exited is restarted, in words.
fn restarts_in(wait: Duration) -> String {
    match wait.is_zero() {
        true => ", restarting now".to_owned(),
        false => format!(", restarting in {}", duration(wait)),
    }
}

/// How a shutdown ended, in words.
fn how_it_ended(took: Duration, left: usize, unknown: bool) -> String {
    let took = duration(took);
    match left {
        0 if unknown => {
            format!("shutdown finished after {took}: whether pods still run is not known")
        }
        0 => format!("all pods terminated in {took}"),
        left => format!("{} still running after {took}", pod_count(left)),
    }
}

/// The name of a group in the log.
fn group(priority: i32, name: Option<&str>) -> String {
    name.map_or_else(|| format!("priority {priority} and above"), str::to_owned)
}
