//! Problems that an operator can fix.

use winddown_shared::WAITING_FOR_PREEMPTION;
use winddown_shared::display::{bytes, clean, seconds};

use super::pod_state;
use crate::rows::being_drained;
use winddown_control::api::{
    ClosedBy, ClusterStatus, DirectoryStatus, DirectoryUse, LockState, LockStatus, ManifestProblem,
    PodStatus, PodTrouble, RejectedPod, Status, TroubleKind,
};

/// A problem, and what to do next. Both are safe to print.
pub(crate) struct StatusProblem {
    pub(crate) text: String,
    pub(crate) next: String,
}

// The commands that a status can tell to type. A test types each on a node.
const PLAN_PREEMPTION: &str = "winddown plan preemption";
const PLAN_EVICTION: &str = "winddown plan eviction";
/// Followed by a pod.
const DESCRIBE: &str = "winddown describe";
const STATUS_WIDE: &str = "winddown status -o wide";
const DRAIN: &str = "winddown drain";
const UNDRAIN: &str = "winddown undrain";
const RELOAD: &str = "systemctl reload winddown";
const DOCTOR: &str = "winddown doctor";
const JOURNAL: &str = "journalctl -u winddown -e";

/// All commands that a status can tell to type.
pub const COMMANDS: [&str; 8] =
    [PLAN_PREEMPTION, PLAN_EVICTION, STATUS_WIDE, DRAIN, UNDRAIN, RELOAD, DOCTOR, JOURNAL];

/// The number of manifest problems that are shown unless all are requested.
const SHOWN_MANIFEST_PROBLEMS: usize = 20;

/// The problems of a node, the worst first. Unless `all` is set, only the first problems of the manifests are listed,
/// and the rest are counted.
pub(crate) fn of(status: &Status, all: bool) -> Vec<StatusProblem> {
    let mut found = Vec::new();
    node(status, &mut found);
    manifests(status, all, &mut found);
    // Those that a drain or a shutdown keeps out are admitted when it is over, which is said once.
    for pod in status.rejected.iter().filter(|pod| pod.reason != "NodeShutdown") {
        found.push(StatusProblem {
            text: format!(
                "{} was rejected, {}: {}",
                clean(&format!("{}/{}", pod.namespace, pod.name)),
                clean(&pod.reason),
                clean(&pod.message)
            ),
            next: next_for_rejected(pod),
        });
    }
    for pod in &status.pods {
        let state = pod_state(pod);
        if state == WAITING_FOR_PREEMPTION {
            let name = clean(&format!("{}/{}", pod.namespace, pod.name)).into_owned();
            found.push(StatusProblem {
                text: format!("{name} does not fit yet, {}", clean(&pod.message)),
                next: format!("`{PLAN_PREEMPTION}` shows the resources and which pods have them"),
            });
        }
        if let Some(trouble) = status.trouble(pod) {
            found.push(in_trouble(pod, &trouble));
        }
    }
    found.extend(status.directories.iter().filter(|one| one.is_low).map(low));
    if let Some(why) = &status.lost_report {
        found.push(StatusProblem {
            text: format!("the report of the last drain is lost: {}", clean(why)),
            next: format!("make room on the disk of the state directory; `{DOCTOR}` checks it"),
        });
    }
    found.extend(changed_configuration(status));
    for warning in &status.config.warnings {
        found.push(StatusProblem { text: clean(warning).into_owned(), next: String::new() });
    }
    found
}

/// A configuration file that was changed after the agent had read it.
fn changed_configuration(status: &Status) -> Option<StatusProblem> {
    let at = status.config.changed_at?;
    Some(StatusProblem {
        text: format!("the configuration was changed at {at:.0} and is not in effect"),
        next: format!("`{RELOAD}` has the agent read it again; in a pod, a rollout does"),
    })
}

/// What to do about a pod that was rejected. Most reasons are names of what the pod does not fit, which grow with the
/// kubelet's.
pub(crate) fn next_for_rejected(pod: &RejectedPod) -> String {
    if let Some(held) = &pod.held_by {
        return format!("{}: correct either manifest", clean(held));
    }
    match &*pod.reason {
        "Evicted" => format!("it starts when the pressure is over: `{PLAN_EVICTION}`"),
        "PodFeatureUnsupported" => "correct its manifest".to_owned(),
        _ => format!("correct its manifest, or see who has what it lacks: `{PLAN_PREEMPTION}`"),
    }
}

/// A directory on whose disk too little is left.
fn low(directory: &DirectoryStatus) -> StatusProblem {
    let DirectoryStatus { holds, path, free_bytes, read_only, is_full, .. } = directory;
    let what = match holds {
        DirectoryUse::State => "state directory",
        DirectoryUse::Logs => "pods' logs",
        _ => "agent's run directory",
    };
    let how = match free_bytes {
        None => "does not answer".to_owned(),
        Some(_) if *read_only => "is read-only".to_owned(),
        Some(_) if *is_full => "is full".to_owned(),
        Some(free) => format!("is almost full ({} free)", bytes(*free)),
    };
    let may = if *is_full || *read_only || free_bytes.is_none() { "are" } else { "may be" };
    let harm = match holds {
        DirectoryUse::State => format!("reports {may} lost, and new pods may not start"),
        DirectoryUse::Logs => format!("lines that pods print {may} lost"),
        _ => "an agent that restarts during a shutdown may not continue it".to_owned(),
    };
    StatusProblem {
        text: format!("the disk of the {what} ({}) {how}: {harm}", clean(path)),
        next: match read_only {
            true => "mount it read-write again; the kernel's log may say why it is not".to_owned(),
            false => format!("make room there; `{DOCTOR}` names what is left"),
        },
    }
}

/// A pod in trouble, with the cause and what to do next.
fn in_trouble(pod: &PodStatus, trouble: &PodTrouble<'_>) -> StatusProblem {
    let name = clean(&format!("{}/{}", pod.namespace, pod.name)).into_owned();
    let reason = trouble.container.map_or("", |container| &container.reason);
    let log = trouble.container.map_or("", |container| &container.log);
    let what = match (trouble.kind, reason) {
        (TroubleKind::Failed, _) => "has failed",
        (TroubleKind::Loops, _) | (_, "CreateContainerError" | "RunContainerError") => {
            "does not stay up"
        }
        (_, "CreateContainerConfigError") => "cannot be started as it is written",
        (_, reason) if lacks_image(reason) => "has no image",
        _ => "cannot start",
    };
    let text = format!("{name} {what}: {}", clean(&trouble.cause));
    let ended = trouble.check.map(|check| {
        format!(
            "its {check} ends it: correct that or what it asks, or give the container more time; `{DESCRIBE} {name}` \
             shows more"
        )
    });
    let next = ended.unwrap_or_else(|| match reason {
        "ErrImageNeverPull" | "ImageInspectError" => {
            "crictl, or with containerd ctr -n k8s.io images ls, shows the images of this node".to_owned()
        }
        reason if lacks_image(reason) => {
            "pulled on this node with crictl, or with containerd by ctr -n k8s.io images pull, it shows what the registry \
             answers"
                .to_owned()
        }
        _ if exits_with_success(trouble) => {
            format!(
                "it exits by itself: keep its program in the foreground, or write `restartPolicy: OnFailure`; \
                 `{DESCRIBE} {name}` shows more"
            )
        }
        _ if !log.is_empty() => {
            format!("`{DESCRIBE} {name}` shows more; its output is in {}", clean(log))
        }
        _ => format!("it is retried; `{DESCRIBE} {name}` shows more"),
    });
    StatusProblem { text, next }
}

/// Whether the container exits without an error each time it is started.
fn exits_with_success(trouble: &PodTrouble<'_>) -> bool {
    let last = trouble.container.and_then(|container| container.last_state.as_ref());
    trouble.kind == TroubleKind::Loops && last.is_some_and(|last| last.terminated.exit_code == 0)
}

fn lacks_image(reason: &str) -> bool {
    matches!(
        reason,
        "ErrImageNeverPull"
            | "ImageInspectError"
            | "ErrImagePull"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "RegistryUnavailable"
            | "SignatureValidationFailed"
    )
}

fn manifests(status: &Status, all: bool, found: &mut Vec<StatusProblem>) {
    let problems = &status.manifests.problems;
    let shown = if all { problems.len() } else { SHOWN_MANIFEST_PROBLEMS.min(problems.len()) };
    for problem in problems.iter().take(shown) {
        found.push(StatusProblem { text: manifest(problem), next: String::new() });
    }
    match problems.len() - shown {
        0 => {}
        more => found.push(StatusProblem {
            text: format!("and {more} more problems are in the manifests"),
            next: format!("`{STATUS_WIDE}` lists them all"),
        }),
    }
    // The message about the directory itself says what to do.
    let is_file = |problem: &ManifestProblem| problem.file != status.manifests.directory;
    if let Some(last) = found.last_mut().filter(|_| problems.iter().any(is_file)) {
        let fix = "fix or remove the file; it is read again at once";
        let gap = if last.next.is_empty() { "" } else { "; " };
        last.next.push_str(&format!("{gap}{fix}"));
    }
}

fn notices(status: &Status, found: &mut Vec<StatusProblem>) {
    for notice in &status.notices {
        let Some(problem) = &notice.problem else { continue };
        let (source, problem) = (clean(&notice.source), clean(problem));
        found.push(match &*source {
            "operator" => StatusProblem { text: problem.into_owned(), next: String::new() },
            _ => StatusProblem {
                text: format!("cannot receive notices from {source}: {problem}"),
                next: match notice.deadline {
                    Some(_) => {
                        "its previous notice stays in effect; shutdownNotices names the sources"
                    }
                    None => "shutdownNotices names the sources",
                }
                .to_owned(),
            },
        });
    }
}

fn node(status: &Status, found: &mut Vec<StatusProblem>) {
    notices(status, found);
    if status.admission_closed_by == [ClosedBy::Drain] {
        let (text, next) = match &status.drain {
            Some(drain) => (
                being_drained(drain),
                match drain.is_over() {
                    true => format!("`{JOURNAL}` says what holds them"),
                    false => {
                        format!("`{UNDRAIN}` cancels it: pods that were not asked yet keep running")
                    }
                },
            ),
            None => (
                "the node was drained: its pods are terminated and no new one is admitted"
                    .to_owned(),
                format!("`{UNDRAIN}` brings the pods back"),
            ),
        };
        found.push(StatusProblem { text, next });
    }
    if let Some(was_set) = status.clock_was_set() {
        found.push(StatusProblem {
            text: format!("{was_set} since the agent started"),
            next: "times from before are wrong by that, and ages may be; grace periods are not"
                .to_owned(),
        });
    }
    if let Some(cluster) = &status.cluster {
        api_server(cluster, found);
        found.extend(deleted(cluster));
        found.extend(certificate(cluster));
    }
    // A delay of zero limits no plan, and no period helps against another one that is short.
    let next = match short_delay(&status.lock).is_some_and(|delay| delay > 0.0) {
        true => format!("`{DOCTOR}` says how to raise logind's delay"),
        false => format!("raise {}, then `{RELOAD}`", clean(&status.shutdown_plan.raise)),
    };
    found.extend(status.shutdown_plan.warnings.iter().map(|warning| StatusProblem {
        text: format!("a shutdown would not give every pod its time: {}", clean(warning)),
        next: next.clone(),
    }));
    if let Some(verdict) = status.protection.as_ref().filter(|verdict| verdict.is_unexplained()) {
        found.push(StatusProblem {
            text: clean(&verdict.text).into_owned(),
            next: clean(&verdict.next).into_owned(),
        });
    }
    lock(&status.lock, found);
    if !status.shutdown_plan.enabled {
        found.push(StatusProblem {
            text: "graceful shutdown is switched off".to_owned(),
            next: format!("set shutdownGracePeriod in the configuration, then `{RELOAD}`"),
        });
    }
    found.extend(runtime(status));
}

/// A runtime that does not answer. Beside a kubelet the runtime's word says all.
fn runtime(status: &Status) -> Option<StatusProblem> {
    let runtime = Some(&status.runtime).filter(|one| !one.healthy && !one.name.is_empty())?;
    let (name, message) = (clean(&runtime.name), clean(&runtime.message));
    Some(match status.is_beside_kubelet() {
        true => StatusProblem {
            text: format!("the kubelet's pods: {message}"),
            next: format!("`{DOCTOR}` says what to check"),
        },
        false => StatusProblem {
            text: format!("runtime {name}: {message}"),
            next: format!("running pods continue; `{DOCTOR}` checks the runtime"),
        },
    })
}

/// What brings a deleted Node object back.
pub const REGISTERS_AGAIN: &str = "restart the agent, which registers the node again; with `recreateNode: true` it does so by itself. Replace a token that was bound to the Node first";

/// A Node object that was deleted, without which the control plane deletes the node's pods.
fn deleted(cluster: &ClusterStatus) -> Option<StatusProblem> {
    (cluster.registered == Some(false)).then(|| StatusProblem {
        text: "the Node object was deleted: the cluster knows no such node, and deletes its pods"
            .to_owned(),
        next: match cluster.is_beside_kubelet() {
            true => "restart the kubelet, which registers the node again".to_owned(),
            false => REGISTERS_AGAIN.to_owned(),
        },
    })
}

/// A client certificate that is not renewed.
fn certificate(cluster: &ClusterStatus) -> Option<StatusProblem> {
    let why = clean(cluster.certificate_problem.as_ref()?);
    let expires = cluster.certificate_expires.map(|at| format!(", and expires at {at}"));
    let expires = expires.unwrap_or_default();
    Some(StatusProblem {
        text: format!("the client certificate is not renewed{expires}: {why}"),
        next: format!(
            "`{JOURNAL}` shows the attempts; after that time the API server rejects the node"
        ),
    })
}

/// An API server that cannot be used.
fn api_server(cluster: &ClusterStatus, found: &mut Vec<StatusProblem>) {
    let api = &cluster.api;
    let Some(trouble) = api.trouble() else { return };
    found.push(StatusProblem {
        text: clean(&trouble).into_owned(),
        // Beside a kubelet, the problem of the runtime has what a shutdown does.
        next: match cluster.is_beside_kubelet() {
            true => format!("running pods continue; `{DOCTOR}` says what to check"),
            false => {
                format!(
                    "running pods continue, and a shutdown works; `{DOCTOR}` says what to check"
                )
            }
        },
    });
}

/// What keeps a shutdown from waiting for the pods, or lets it wait for too short a time.
fn lock(lock: &LockStatus, found: &mut Vec<StatusProblem>) {
    match lock.state {
        LockState::Waiting => found.push(StatusProblem {
            text: "a shutdown now would not wait for the pods: the lock is not held".to_owned(),
            next: format!("`{JOURNAL}` shows the attempts; it is retried until it works"),
        }),
        LockState::Absent => found.push(StatusProblem {
            text: "a shutdown cannot be delayed on this node: there is no login manager".to_owned(),
            next: format!(
                "`{DOCTOR}` says how to start systemd-logind; or terminate the pods with `{DRAIN}` before a shutdown"
            ),
        }),
        _ => {}
    }
    if let Some(delay) = short_delay(lock) {
        let (delay, wanted) = (seconds(delay), seconds(lock.required_seconds));
        let by = lock.set_by.as_ref().map(|file| format!(", set by {}", clean(file)));
        let by = by.unwrap_or_default();
        let text = match lock.delay_seconds {
            Some(0.0) => {
                format!("logind waits for no lock{by}: only the stop of the agent's unit does")
            }
            _ => format!("logind waits {delay} of the {wanted} required{by}: pods get less time"),
        };
        found.push(StatusProblem { text, next: format!("`{DOCTOR}` says how to raise it") });
    }
}

/// How long logind waits for a lock that is held, if that is too short.
fn short_delay(lock: &LockStatus) -> Option<f64> {
    let delay = lock.delay_seconds.filter(|_| lock.state == LockState::Held);
    delay.filter(|delay| *delay < lock.required_seconds)
}

/// Formats a problem as compilers do: `file:line: field: message`.
pub(crate) fn manifest(problem: &ManifestProblem) -> String {
    let mut text = clean(&problem.file).into_owned();
    if let Some(line) = problem.line {
        text.push_str(&format!(":{line}"));
    }
    text.push_str(": ");
    if !problem.field.is_empty() {
        text.push_str(&clean(&problem.field));
        text.push_str(": ");
    }
    text.push_str(&clean(&problem.message));
    text
}

#[cfg(test)]
mod tests {
    use super::COMMANDS;

    /// What other crates say of themselves is shown as well.
    const SOURCES: [&str; 2] = [
        include_str!("problems.rs"),
        include_str!("../../../../node/control/src/protection/sentences.rs"),
    ];

    #[test]
    fn a_status_tells_to_type_no_command_but_those_that_are_typed_by_a_test() {
        for source in SOURCES {
            let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            let lines = lines.take_while(|line| !line.contains("mod tests"));
            for line in lines {
                for command in line.split('`').skip(1).step_by(2) {
                    let is_field = command.contains(": ");
                    let is_one = command.starts_with('{') || COMMANDS.contains(&command);
                    assert!(is_one || is_field, "{command}: {line}");
                }
            }
        }
    }
}
