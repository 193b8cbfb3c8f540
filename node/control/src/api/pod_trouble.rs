//! Why a pod does not do its work, from its status and the last decisions.

use std::fmt::Write as _;

use super::decision::why_exited;
use super::{ContainerStatus, Decision, ExitedRun, PodState, PodStatus, Status};

/// Reasons with which containers normally wait.
const USUAL: [&str; 3] = ["ContainerCreating", "NodeNotReady", "PodInitializing"];
/// A call that failed is shown for this long after it should have been repeated, in seconds.
const SHOWN_AFTER_RETRY: f64 = 60.0;
/// How much of the last line of a message is shown, in characters. The container's status has all of it.
const SHOWN_OF_LINE: usize = 200;

/// Why a pod does not do its work.
#[derive(Clone, Debug, PartialEq)]
pub struct PodTrouble<'s> {
    /// What kind of trouble it is.
    pub kind: TroubleKind,
    /// The container that has it; `None` if it is the whole pod.
    pub container: Option<&'s ContainerStatus>,
    /// What ended the container by failing, for people: `startup probe`. `None` if it exited by itself.
    pub check: Option<&'s str>,
    /// The cause, for people. What the container wrote is quoted; names and errors in it are as others wrote them.
    pub cause: String,
}

/// Kinds of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TroubleKind {
    /// It cannot be started, and is retried.
    CannotStart,
    /// A container exits again and again, and is restarted each time.
    Loops,
    /// It has failed and is not restarted.
    Failed,
}

impl Status {
    /// Why the pod does not do its work; `None` if nothing is known to be wrong, or if it is terminating.
    pub fn trouble<'s>(&'s self, pod: &'s PodStatus) -> Option<PodTrouble<'s>> {
        if pod.state == PodState::Terminating {
            return None;
        }
        self.waiting(pod).or_else(|| self.failed(pod)).or_else(|| self.failed_call(pod))
    }

    /// What the last decision on an exit of the container says of why it exited: the probe or the hook that ended it by
    /// failing, for people, and the last line, as the container or the probe wrote it.
    pub fn last_exit(&self, pod: &PodStatus, container: &str) -> (Option<&str>, Option<&str>) {
        let of_container = |decision: &&Decision| {
            decision.kind == "containerExited"
                && is_about(decision, pod)
                && decision.fields.get("container").is_some_and(|name| name == container)
        };
        let last = self.decisions.iter().rev().find(of_container);
        let field = |name| last.and_then(|last| last.fields.get(name)?.as_str());
        (field("check"), field("lastLine"))
    }

    /// A container that waits for another reason than usual.
    fn waiting<'s>(&'s self, pod: &'s PodStatus) -> Option<PodTrouble<'s>> {
        let container = pod.containers.iter().find(|container| {
            let reason = container.reason.as_str();
            container.state == "waiting" && !reason.is_empty() && !USUAL.contains(&reason)
        })?;
        let ContainerStatus { name, reason, message, .. } = container;
        let (kind, (check, cause)) = match (&container.last_state, reason.as_str()) {
            (Some(last), "CrashLoopBackOff") => {
                (TroubleKind::Loops, self.exit(pod, container, &last.terminated))
            }
            _ if message.is_empty() => {
                (TroubleKind::CannotStart, (None, format!("container {name}: {reason}")))
            }
            _ => {
                (TroubleKind::CannotStart, (None, format!("container {name}: {reason}: {message}")))
            }
        };
        Some(PodTrouble { kind, container: Some(container), check, cause })
    }

    /// A container of a failed pod that exited with an error. A pod that was terminated has its own reason.
    fn failed<'s>(&'s self, pod: &'s PodStatus) -> Option<PodTrouble<'s>> {
        if pod.phase != "Failed" || !pod.reason.is_empty() {
            return None;
        }
        let container = pod.containers.iter().find(|one| one.exit_code.is_some_and(|c| c != 0))?;
        let run = ExitedRun {
            exit_code: container.exit_code.unwrap_or_default(),
            reason: container.reason.clone(),
            message: container.message.clone(),
            ..ExitedRun::default()
        };
        let (kind, (check, cause)) = (TroubleKind::Failed, self.exit(pod, container, &run));
        Some(PodTrouble { kind, container: Some(container), check, cause })
    }

    /// The probe or the hook that ended the container's last run by failing, and how that run exited, with the last line
    /// of its message or output.
    fn exit(
        &self,
        pod: &PodStatus,
        container: &ContainerStatus,
        run: &ExitedRun,
    ) -> (Option<&str>, String) {
        let (check, last_line) = self.last_exit(pod, &container.name);
        let mut text = format!("container {} exited with code {}", container.name, run.exit_code);
        // Writing to a String cannot fail.
        let _ = match run.reason.as_str() {
            "" => Ok(()),
            reason => write!(text, " ({reason})"),
        };
        let message = run.message.lines().rev().map(str::trim).find(|line| !line.is_empty());
        // The reason why it was terminated says more than its own message.
        let message = message.filter(|_| check.is_none());
        let line = message.or(last_line).map(|line| match line.char_indices().nth(SHOWN_OF_LINE) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.to_owned(),
        });
        text += &why_exited(check, line.as_deref());
        (check, text)
    }

    /// The last call for the pod that failed, unless it was repeated with success.
    fn failed_call<'s>(&'s self, pod: &'s PodStatus) -> Option<PodTrouble<'s>> {
        if pod.state != PodState::Syncing || pod.ready {
            return None;
        }
        let newest = |decision: &&Decision| {
            is_about(decision, pod)
                && ["syncFailed", "podAdmitted", "containerExited"].contains(&&*decision.kind)
        };
        let decision = self.decisions.iter().rev().find(newest)?;
        let is_started = !matches!(pod.phase.as_str(), "" | "Pending");
        if decision.kind != "syncFailed" || (is_started && !self.is_recent(decision)) {
            return None;
        }
        let error = decision.fields.get("error").and_then(|error| error.as_str());
        let cause = error.unwrap_or("the last attempt failed").to_owned();
        Some(PodTrouble { kind: TroubleKind::CannotStart, container: None, check: None, cause })
    }

    /// Whether a failed call cannot have succeeded long ago.
    fn is_recent(&self, decision: &Decision) -> bool {
        let again_in = decision.fields.get("againInSeconds").and_then(serde_json::Value::as_f64);
        let (Some(again_in), Some(at)) = (again_in, decision.time) else { return false };
        self.time.duration_since(at).as_secs_f64() <= again_in + SHOWN_AFTER_RETRY
    }
}

fn is_about(decision: &Decision, pod: &PodStatus) -> bool {
    decision.pod.split_once('/') == Some((&pod.namespace, &pod.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use winddown_shared::{ContainerExit, Event, PodRef, PodUid};

    use super::*;

    /// A status with one pod, and these decisions about it.
    fn status(pod: serde_json::Value, decisions: serde_json::Value) -> Status {
        let time = "2026-01-01T00:01:00Z".parse().unwrap();
        let mut status = Status { time, ..Status::default() };
        status.pods = vec![serde_json::from_value(pod).unwrap()];
        status.decisions = serde_json::from_value(decisions).unwrap();
        status
    }

    fn pod(phase: &str, container: &serde_json::Value) -> serde_json::Value {
        json!({
            "namespace": "shop", "name": "web", "uid": "u", "state": "syncing", "phase": phase,
            "containers": [container],
        })
    }

    #[test]
    fn the_trouble_of_a_pod_is_named_with_its_cause() {
        let looping = json!({
            "name": "main", "state": "waiting", "reason": "CrashLoopBackOff", "message": "back-off",
            "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
        });
        let exited = json!([{
            "kind": "containerExited", "pod": "shop/web", "text": "",
            "fields": {"container": "main", "lastLine": "cannot bind port 80"},
        }]);
        let other = json!([{
            "kind": "containerExited", "pod": "shop/web", "text": "",
            "fields": {"container": "side", "lastLine": "bye"},
        }]);
        let absent = json!({
            "name": "main", "state": "waiting", "reason": "ErrImagePull", "message": "no such image",
        });
        let ended = json!({"name": "main", "state": "exited", "reason": "Error", "exitCode": 1});
        let starting = json!({"name": "main", "state": "waiting", "reason": "ContainerCreating"});
        let full = |at: &str| {
            json!([{
                "kind": "syncFailed", "pod": "shop/web", "text": "", "time": at,
                "fields": {"error": "No space left", "againInSeconds": 10.0},
            }])
        };
        let (old, new) = (full("2026-01-01T00:00:00Z"), full("2026-01-01T00:00:55Z"));
        let old_by_an_hour = full("2025-12-31T23:00:00Z");
        let running = json!({"name": "main", "state": "running"});
        use TroubleKind::{CannotStart, Failed, Loops};
        for (phase, container, decisions, wanted) in [
            (
                "Running",
                &looping,
                &exited,
                Some((
                    Loops,
                    r#"container main exited with code 3 (Error): "cannot bind port 80""#,
                )),
            ),
            (
                "Running",
                &looping,
                &other,
                Some((Loops, "container main exited with code 3 (Error)")),
            ),
            (
                "Pending",
                &absent,
                &other,
                Some((CannotStart, "container main: ErrImagePull: no such image")),
            ),
            ("Failed", &ended, &other, Some((Failed, "container main exited with code 1 (Error)"))),
            ("Pending", &starting, &old, Some((CannotStart, "No space left"))),
            ("Running", &starting, &new, Some((CannotStart, "No space left"))),
            ("Running", &running, &old_by_an_hour, None),
            ("Pending", &starting, &json!([]), None),
            ("Succeeded", &ended, &json!([]), None),
        ] {
            let status = status(pod(phase, container), decisions.clone());
            let found = status.trouble(&status.pods[0]);
            let found = found.as_ref().map(|trouble| (trouble.kind, trouble.cause.as_str()));
            assert_eq!(found, wanted, "{phase} {container} {decisions}");
        }
    }

    #[test]
    fn a_container_that_a_probe_or_a_hook_ended_did_not_exit_by_itself() {
        let looping = json!({
            "name": "main", "state": "waiting", "reason": "CrashLoopBackOff",
            "lastState": {"terminated": {"exitCode": 0, "reason": "Completed", "message": "bye"}},
        });
        for (check, line, shown) in [
            (Some("startup probe"), Some("no answer"), r#"startup probe failed: "no answer""#),
            (Some("postStart hook"), None, "postStart hook failed"),
            (None, Some("ignored"), r#""bye""#),
        ] {
            let exited = json!([{
                "kind": "containerExited", "pod": "shop/web", "text": "",
                "fields": {"container": "main", "check": check, "lastLine": line},
            }]);
            let status = status(pod("Running", &looping), exited);
            let found = status.trouble(&status.pods[0]).unwrap();
            let cause = format!("container main exited with code 0 (Completed): {shown}");
            assert_eq!((found.check, found.cause), (check, cause));
        }
    }

    #[test]
    fn what_a_container_wrote_last_is_quoted_and_taken_for_no_failed_probe() {
        let written = "Liveness probe failed: a\" (log: /tmp/x)\r\u{1b}[2Kwinddown: all is well";
        let event = Event::ContainerExited {
            pod: PodRef { namespace: "shop".into(), name: "web".into(), uid: PodUid::new("u") },
            container: "main".into(),
            exit: Box::new(ContainerExit::new(1)),
            failed: None,
            last_line: Some(written.into()),
            again_in: None,
        };
        let told = Decision::of("2026-01-01T00:00:00Z".parse().unwrap(), &event);
        let quoted =
            r#": "Liveness probe failed: a\" (log: /tmp/x)\r\u{1b}[2Kwinddown: all is well""#;
        assert!(told.text.ends_with(quoted), "{}", told.text);
        let ended = json!({"name": "main", "state": "exited", "exitCode": 1});
        for message in ["", &format!("first\n{written}")] {
            let mut ended = ended.clone();
            ended["message"] = json!(message);
            let status = status(pod("Failed", &ended), json!([told]));
            let found = status.trouble(&status.pods[0]).unwrap();
            assert_eq!(found.check, None);
            assert!(found.cause.ends_with(quoted), "{}", found.cause);
            assert_eq!(status.last_exit(&status.pods[0], "main"), (None, Some(written)));
        }
    }

    /// A termination message may have 4 KiB.
    #[test]
    fn a_long_message_is_shortened() {
        let ended = json!({"name": "main", "state": "exited", "exitCode": 1,
            "message": format!("first\n{}", "é".repeat(2048))});
        let status = status(pod("Failed", &ended), json!([]));
        let cause = status.trouble(&status.pods[0]).unwrap().cause;
        let wanted = format!("container main exited with code 1: \"{}…\"", "é".repeat(200));
        assert_eq!(cause, wanted);
    }

    #[test]
    fn a_pod_that_is_terminating_or_was_terminated_has_no_trouble() {
        let ended = json!({"name": "main", "state": "exited", "reason": "Error", "exitCode": 1});
        let mut status = status(pod("Failed", &ended), json!([]));
        assert!(status.trouble(&status.pods[0]).is_some());
        status.pods[0].state = PodState::Terminating;
        assert_eq!(status.trouble(&status.pods[0]), None);
        status.pods[0].state = PodState::Finished;
        status.pods[0].reason = "Terminated".to_owned();
        assert_eq!(status.trouble(&status.pods[0]), None);
    }
}
