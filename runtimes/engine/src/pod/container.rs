//! A container of a pod and its runs, in memory.

use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::Instant;
use winddown_shared::{ContainerExit, ContainerKind, ContainerState, WallTime};

use super::RunScope;
use crate::container_plan::{ContainerObservation, ContainerRule, CrashBackoff};
use crate::disk_notes::NotedRun;
use crate::probing::ProbeState;

/// The kubelet's reason for an image that could not be pulled, unless it is one of the next.
pub const IMAGE_PULL: &str = "ErrImagePull";
/// The kubelet's reason for an image whose registry is unavailable, as CRI-O says it.
pub const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
/// The kubelet's reason for an image whose signature is missing or wrong, as CRI-O says it.
pub const SIGNATURE_INVALID: &str = "SignatureValidationFailed";
/// The kubelet's reason from the second failure on.
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";

/// An exit that is older than this when it is found was reported by the agent that ran then.
const REPORTED_BY_EARLIER_AGENT: Duration = Duration::from_secs(10);

/// What decides instead of the exit code 0 of a run that was cut short: that of SIGKILL.
const CUT_SHORT: i32 = 137;

/// A container.
#[derive(Debug)]
pub struct Container<B: RunScope> {
    /// Its name in the spec.
    pub name: Arc<str>,
    /// The kind of container.
    pub kind: ContainerKind,
    /// The newest run.
    pub run: Option<Run<B>>,
    /// How the run before the newest ended.
    pub last_exit: Option<ContainerExit>,
    /// The image as the pod's spec names it now; none while the pod is unknown.
    pub image: Option<Arc<str>>,
    /// Why it could not be started, if that failed.
    pub trouble: Option<StartFailure>,
    /// Its spec as far as it is known while the pod is unknown.
    pub found_spec: Option<Box<k8s::Container>>,
    /// State of this kind of runtime.
    pub own: B::Container,
}

/// One run of a container.
#[derive(Debug)]
pub struct Run<B: RunScope> {
    /// The runtime's id, without the name of the runtime.
    pub id: Arc<str>,
    /// The number of the run; 0 for the first.
    pub attempt: u32,
    /// The image that the spec named when the run was created; none if unknown, or if images have no meaning.
    pub image: Option<Arc<str>>,
    /// The resolved image with its digest; empty if the runtime does not report it.
    pub image_id: Arc<str>,
    /// When it started; none while it is only created.
    pub started_at: Option<WallTime>,
    /// The backoff that follows this run if it is short.
    pub backoff: Duration,
    /// The state of its postStart hook and its probes.
    pub probe_state: ProbeState,
    /// Whether it is being stopped because it fails.
    pub ending: bool,
    /// Whether this agent or an earlier one stopped it to start it again: it has failed, whatever its exit code. As with a
    /// kubelet, not so if its postStart hook had failed.
    pub cut_short: bool,
    /// Its preStop hook.
    pub(crate) pre_stop: PreStop,
    /// The request to stop, if it was asked to.
    pub stop_request: Option<RunStopRequest>,
    /// Whether SIGKILL was needed.
    pub forced: bool,
    /// Whether its start was abandoned because the caller was gone. That says nothing about the container, which counts
    /// as never started.
    pub undone: bool,
    /// How it ended, if it has.
    pub end: Option<End>,
    /// State of this kind of runtime.
    pub own: B::Run,
}

/// The preStop hook of a run.
#[derive(Debug, Default)]
pub(crate) struct PreStop {
    /// Alive while it runs.
    runs: Weak<()>,
    /// Whether it has run; an abandoned one has not.
    pub(crate) is_over: bool,
}

/// A request to stop a run. Whether and when the stop signal was sent is in the record of the stop.
#[derive(Clone, Copy, Debug)]
pub struct RunStopRequest {
    /// When the run was first asked, or was found if an earlier agent had asked.
    pub at: Instant,
    /// Whether its pod was being stopped: then its exit is no crash, and does not say that its work is done.
    pub of_pod: bool,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct End {
    /// The exit status.
    pub exit: ContainerExit,
    /// How long it ran.
    pub ran: Duration,
    /// Whether a stop of its pod had requested it, so that it does not count as a crash.
    pub asked: bool,
    /// The backoff after it.
    pub backoff: Duration,
    /// When it may be started again.
    pub restart_at: Instant,
    /// Whether the wait for the restart was reported.
    pub told: bool,
    /// Whether its pod was stopped and is wanted again, so that it starts over.
    pub(crate) is_past: bool,
    /// Whether the exit was reported, also by an earlier agent.
    pub(crate) reported: bool,
}

/// Why a container could not be started, and when the next try is.
#[derive(Clone, Debug)]
pub struct StartFailure {
    /// `ErrImagePull`, `CreateContainerError`, …
    pub reason: &'static str,
    /// A description for people.
    pub message: String,
    /// When the next try is.
    pub until: Instant,
    /// The length of the wait that ends then.
    pub wait: Duration,
}

/// Whether it is a reason of an image that could not be pulled.
pub fn is_of_pull(reason: &str) -> bool {
    matches!(reason, IMAGE_PULL | REGISTRY_UNAVAILABLE | SIGNATURE_INVALID)
}

// === impl Container ===

impl<B: RunScope> Container<B> {
    /// A container that never ran.
    pub fn new(name: Arc<str>, kind: ContainerKind) -> Self {
        Self {
            name,
            kind,
            run: None,
            last_exit: None,
            image: None,
            trouble: None,
            found_spec: None,
            own: B::Container::default(),
        }
    }

    /// Updates the container from its pod's spec. Another image is not waited for, as with a kubelet: it may be what
    /// makes the container start.
    pub(super) fn take(&mut self, kind: ContainerKind, spec: Option<&k8s::Container>) {
        self.kind = kind;
        let image = spec.and_then(|spec| spec.image.as_deref());
        if self.image.as_deref() != image {
            self.trouble = None;
            self.image = image.map(Into::into);
        }
        self.found_spec = None;
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(Run::is_running)
    }

    /// Whether it was started by an earlier agent and has no prober yet.
    pub fn is_adopted(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_running() && run.probe_state.is_adopted())
    }

    /// Takes the id of its newest run if an earlier agent has left that one's postStart hook to this one.
    pub fn take_left_hook(&mut self) -> Option<Arc<str>> {
        let run = self.run.as_mut().filter(|run| run.is_running())?;
        std::mem::take(&mut run.probe_state.hook_left).then(|| Arc::clone(&run.id))
    }

    /// Whether its newest run has another image than the spec names now. Never true for init containers, which have
    /// done their work, and ephemeral ones, which run once.
    pub fn is_outdated(&self) -> bool {
        self.has_other_image()
            && !matches!(self.kind, ContainerKind::Init | ContainerKind::Ephemeral)
    }

    /// Whether its newest run has another image than the spec names now, and so says nothing about that.
    fn has_other_image(&self) -> bool {
        let made_of = self.run.as_ref().and_then(|run| run.image.as_ref());
        made_of.zip(self.image.as_ref()).is_some_and(|(a, b)| a != b)
    }

    /// The number of the next attempt, and the backoff that follows it. `is_past`: the sandbox or boot of the newest
    /// run is gone.
    pub(super) fn next(&self, is_past: bool, backoff: &CrashBackoff) -> (u32, Duration) {
        let Some(run) = &self.run else { return (0, Duration::ZERO) };
        // These are not crashes of the container, and a new image has not failed yet.
        let says_nothing = is_past || run.undone || self.has_other_image();
        let crash = run.end.as_ref().filter(|end| !says_nothing && !end.asked);
        let follow = crash.map(|end| backoff.next(backoff.after(run.backoff, end.ran)));
        (run.attempt.saturating_add(1), follow.unwrap_or_default())
    }

    /// Makes `run` the newest one; returns the previous one.
    pub fn begin(&mut self, run: Run<B>) -> Option<Run<B>> {
        self.trouble = None;
        let old = self.run.replace(run)?;
        if !old.undone {
            self.last_exit = old.end.as_ref().map(|end| end.exit.clone());
        }
        Some(old)
    }

    /// Records that it could not be started. Returns the reason for its status. As with a kubelet, the wait grows only if
    /// the same image could not be pulled the time before either.
    pub fn fail(
        &mut self,
        reason: &'static str,
        mut message: String,
        retry: &CrashBackoff,
    ) -> &'static str {
        let pull_before = self.trouble.as_ref().filter(|before| {
            is_of_pull(reason)
                && (is_of_pull(before.reason) || before.reason == IMAGE_PULL_BACK_OFF)
        });
        let wait = retry.next(pull_before.map_or(Duration::ZERO, |before| before.wait));
        let reason = match pull_before {
            Some(_) => {
                let image = self.image.as_deref().unwrap_or_default();
                message = format!("Back-off pulling image {image:?}: {reason}: {message}");
                IMAGE_PULL_BACK_OFF
            }
            None => reason,
        };
        self.trouble = Some(StartFailure { reason, message, until: Instant::now() + wait, wait });
        reason
    }

    /// Records that it cannot be started before `wait` is over, through no fault of its own.
    pub fn wait(&mut self, reason: &'static str, message: String, wait: Duration) {
        let until = Instant::now() + wait;
        self.trouble = Some(StartFailure { reason, message, until, wait: Duration::ZERO });
    }

    /// The current state, for the plan. `is_past`: the sandbox or boot of the newest run is gone.
    pub(super) fn seen(
        &self,
        rule: &ContainerRule,
        is_past: bool,
        now: Instant,
    ) -> ContainerObservation {
        let Some(run) = &self.run else { return ContainerObservation::Never };
        let is_outdated = self.is_outdated();
        let Some((end, exit_code)) = run.end.as_ref().zip(run.deciding_code(rule.kind)) else {
            return match run.started_at {
                None => ContainerObservation::Never,
                Some(_) => run.probe_state.seen(is_outdated),
            };
        };
        if is_outdated && run.cut_short {
            ContainerObservation::Outdated
        } else if run.undone {
            ContainerObservation::Never
        } else if !is_past && !end.asked {
            let wait = end.restart_at.saturating_duration_since(now);
            let wait = if self.has_other_image() { Duration::ZERO } else { wait };
            ContainerObservation::Ended { exit_code, wait }
        } else if rule.is_for_good(exit_code, end.asked) {
            ContainerObservation::Done { exit_code }
        } else {
            // The work of init containers and sidecars is gone too.
            ContainerObservation::Never
        }
    }
}

// === impl Run ===

impl<B: RunScope> Run<B> {
    /// A run that was created but not started.
    pub fn new(id: impl Into<Arc<str>>, attempt: u32, backoff: Duration, own: B::Run) -> Self {
        Self {
            id: id.into(),
            attempt,
            image: None,
            image_id: Arc::default(),
            started_at: None,
            backoff,
            probe_state: ProbeState::default(),
            ending: false,
            cut_short: false,
            pre_stop: PreStop::default(),
            stop_request: None,
            forced: false,
            undone: false,
            end: None,
            own,
        }
    }

    /// Records that an earlier agent started it, and what that noted.
    pub fn adopt(&mut self, noted: NotedRun) {
        self.probe_state = ProbeState::adopted(noted);
        self.recall(noted);
    }

    /// Records what an earlier agent noted about its end, which may be past.
    pub fn recall(&mut self, noted: NotedRun) {
        if noted.asked {
            self.ask(true);
        }
        self.cut_short |= noted.cut_short;
    }

    /// Records that it is or was asked to stop; `of_pod`: by a stop of its pod. Returns the request.
    pub fn ask(&mut self, of_pod: bool) -> RunStopRequest {
        let first = RunStopRequest { at: Instant::now(), of_pod };
        let request = self.stop_request.get_or_insert(first);
        request.of_pod |= of_pod;
        *request
    }

    /// Begins its preStop hook, which runs for as long as `turn` lives. Returns false if it runs or has run.
    pub(crate) fn begin_hook(&mut self, turn: &Arc<()>) -> bool {
        let is_first = !self.pre_stop.is_over && self.pre_stop.runs.strong_count() == 0;
        if is_first {
            self.pre_stop.runs = Arc::downgrade(turn);
        }
        is_first
    }

    /// Whether it runs: it has started and has not ended.
    pub fn is_running(&self) -> bool {
        self.end.is_none() && self.started_at.is_some()
    }

    /// The exit code that decides what becomes of the container, if it has exited.
    pub(crate) fn deciding_code(&self, kind: ContainerKind) -> Option<i32> {
        let code = self.end.as_ref()?.exit.deciding_code(kind);
        Some(if self.cut_short && code == 0 { CUT_SHORT } else { code })
    }

    /// Records how it ended, `since` ago, after running for `ran`.
    pub fn finish(
        &mut self,
        exit: ContainerExit,
        (ran, since): (Duration, Duration),
        backoff: &CrashBackoff,
    ) {
        let asked = self.stop_request.is_some_and(|request| request.of_pod);
        let backoff = if asked { Duration::ZERO } else { backoff.after(self.backoff, ran) };
        let restart_at = Instant::now() + backoff.saturating_sub(since);
        self.probe_state.ready = false;
        // The runtime may learn more of an exit later.
        let was_reported = self.end.as_ref().is_some_and(|end| end.reported);
        let is_past = self.end.as_ref().is_some_and(|end| end.is_past);
        let reported = was_reported || since > REPORTED_BY_EARLIER_AGENT;
        let told = false;
        self.end = Some(End { exit, ran, asked, backoff, restart_at, told, is_past, reported });
    }
}

// === impl StartFailure ===

impl StartFailure {
    /// The state of a container that waits for the next try.
    pub fn state(&self) -> ContainerState {
        let message = self.message.clone();
        ContainerState::Waiting { reason: self.reason.into(), message }
    }
}
