//! A container of a pod and its runs, in memory.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::Instant;
use winddown_shared::{ContainerExit, ContainerKind, ContainerState, WallTime};

use super::Boundary;
use crate::plan::{Backoff, ContainerObservation, ContainerRule};
use crate::probing::ProbeState;

/// The kubelet's reason for an image that could not be pulled.
pub const IMAGE_PULL: &str = "ErrImagePull";
/// The same from the second time on.
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";

/// A container.
#[derive(Debug)]
pub struct Container<B: Boundary> {
    /// Its name in the spec.
    pub name: Arc<str>,
    /// The part it plays.
    pub kind: ContainerKind,
    /// The newest run.
    pub run: Option<Run<B>>,
    /// How the run before the newest ended.
    pub last_exit: Option<ContainerExit>,
    /// The image as the pod's spec names it now; none while the pod is unknown.
    pub image: Option<Arc<str>>,
    /// What kept it from being started, if it could not be.
    pub trouble: Option<Trouble>,
    /// What is known of its spec while the pod is unknown.
    pub found_spec: Option<Box<k8s::Container>>,
    /// What only this kind of runtime knows.
    pub own: B::Container,
}

/// One run of a container.
#[derive(Debug)]
pub struct Run<B: Boundary> {
    /// The runtime's id, without the name of the runtime.
    pub id: Arc<str>,
    /// 0 for the first.
    pub attempt: u32,
    /// The image as the spec named it when it was made; none if that is not known, or of no meaning.
    pub image: Option<Arc<str>>,
    /// What that was, with its digest; empty if the runtime does not tell.
    pub image_id: Arc<str>,
    /// When it started; none while it is only made.
    pub started_at: Option<WallTime>,
    /// The back-off to follow this run if it is short.
    pub backoff: Duration,
    /// What its postStart hook and its probes have come to.
    pub probe_state: ProbeState,
    /// It is being ended because it fails.
    pub ending: bool,
    /// When it was asked to end.
    pub signalled_at: Option<Instant>,
    /// SIGKILL was needed.
    pub forced: bool,
    /// Its start was given up because its caller was gone. That says nothing of the container: it counts as never
    /// started.
    pub undone: bool,
    /// How it ended, if it has.
    pub end: Option<End>,
    /// What only this kind of runtime knows.
    pub own: B::Run,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct End {
    /// Its exit.
    pub exit: ContainerExit,
    /// How long it ran.
    pub ran: Duration,
    /// A stop of its pod had asked for it, so it says nothing against the container: it is no crash.
    pub asked: bool,
    /// The back-off after it.
    pub backoff: Duration,
    /// When it may be started again.
    pub restart_at: Instant,
    /// It was told that it waits for that.
    pub told: bool,
}

/// Why a container could not be started, and when that is tried again.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// `ErrImagePull`, `CreateContainerError`, …
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// When it is tried again.
    pub until: Instant,
    /// The wait that ends then.
    pub wait: Duration,
}

// === impl Container ===

impl<B: Boundary> Container<B> {
    /// One that never ran.
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

    /// Takes what its pod's spec says of it now.
    pub(super) fn take(&mut self, kind: ContainerKind, spec: Option<&k8s::Container>) {
        self.kind = kind;
        self.image = spec.and_then(|spec| spec.image.as_deref()).map(Into::into);
        self.found_spec = None;
    }

    /// It runs, or it is created and could.
    pub fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(Run::is_running)
    }

    /// It was started by an earlier agent and has no prober yet.
    pub fn is_adopted(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_running() && run.probe_state.is_adopted())
    }

    /// Its newest run is of another image than the spec names by now, and it is one that goes on: an init
    /// container has done its work, and an ephemeral one runs once.
    pub fn is_outdated(&self) -> bool {
        let made_of = self.run.as_ref().and_then(|run| run.image.as_ref());
        let differs = made_of.zip(self.image.as_ref()).is_some_and(|(a, b)| a != b);
        differs && !matches!(self.kind, ContainerKind::Init | ContainerKind::Ephemeral)
    }

    /// The number of the next attempt, and the back-off to follow it. `is_past`: what the newest run was in is gone.
    pub(super) fn next(&self, is_past: bool, backoff: &Backoff) -> (u32, Duration) {
        let Some(run) = &self.run else { return (0, Duration::ZERO) };
        // Neither is a crash of the container; and a new image has not failed yet.
        let says_nothing = is_past || run.undone || self.is_outdated();
        let crash = run.end.as_ref().filter(|end| !says_nothing && !end.asked);
        let follow = crash.map(|end| backoff.next(backoff.after(run.backoff, end.ran)));
        (run.attempt.saturating_add(1), follow.unwrap_or_default())
    }

    /// Makes `run` the newest one; gives the one before.
    pub fn begin(&mut self, run: Run<B>) -> Option<Run<B>> {
        self.trouble = None;
        let old = self.run.replace(run)?;
        if !old.undone {
            self.last_exit = old.end.as_ref().map(|end| end.exit.clone());
        }
        Some(old)
    }

    /// Notes that it could not be started. Gives the reason that its status has.
    pub fn fail(
        &mut self,
        reason: &'static str,
        mut message: String,
        retry: &Backoff,
    ) -> &'static str {
        let waited = self.trouble.as_ref().map_or(Duration::ZERO, |t| t.wait);
        let wait = retry.next(waited);
        // The kubelet's word for an image that is not there the second time either.
        let reason = match (reason, &self.trouble) {
            (IMAGE_PULL, Some(_)) => {
                let image = self.image.as_deref().unwrap_or_default();
                message = format!("Back-off pulling image {image:?}: {IMAGE_PULL}: {message}");
                IMAGE_PULL_BACK_OFF
            }
            (reason, _) => reason,
        };
        self.trouble = Some(Trouble { reason, message, until: Instant::now() + wait, wait });
        reason
    }

    /// Notes that it cannot be started before `wait` is over, through no fault of its own.
    pub fn wait(&mut self, reason: &'static str, message: String, wait: Duration) {
        let until = Instant::now() + wait;
        self.trouble = Some(Trouble { reason, message, until, wait: Duration::ZERO });
    }

    /// What it does, for the plan. `is_past`: what its newest run was in is gone.
    pub(super) fn seen(
        &self,
        rule: &ContainerRule,
        is_past: bool,
        now: Instant,
    ) -> ContainerObservation {
        let Some(run) = &self.run else { return ContainerObservation::Never };
        let is_outdated = self.is_outdated();
        let Some(end) = &run.end else {
            return match run.started_at {
                None => ContainerObservation::Never,
                Some(_) => run.probe_state.seen(is_outdated),
            };
        };
        let exit_code = end.exit.exit_code;
        if is_outdated && run.ending {
            ContainerObservation::Outdated
        } else if run.undone {
            ContainerObservation::Never
        } else if !is_past {
            let wait = end.restart_at.saturating_duration_since(now);
            let wait = if is_outdated { Duration::ZERO } else { wait };
            ContainerObservation::Ended { exit_code, wait }
        } else if rule.is_for_good(exit_code) {
            ContainerObservation::Done { exit_code }
        } else {
            // What init containers and sidecars did is gone too.
            ContainerObservation::Never
        }
    }
}

// === impl Run ===

impl<B: Boundary> Run<B> {
    /// One that was made and not started.
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
            signalled_at: None,
            forced: false,
            undone: false,
            end: None,
            own,
        }
    }

    /// Notes that an earlier agent started it. When exactly it was asked to end is not known any more, but whether
    /// it was: it is not asked twice.
    pub fn adopt(&mut self, asked: bool) {
        self.probe_state = ProbeState::ADOPTED;
        self.signalled_at = asked.then(Instant::now);
    }

    /// Whether it runs or could: one that is only made holds nothing but its place.
    pub fn is_running(&self) -> bool {
        self.end.is_none() && self.started_at.is_some()
    }

    /// Notes how it ended, `since` ago, after it `ran` that long; `asked` as in [`End`].
    pub fn finish(
        &mut self,
        exit: ContainerExit,
        (ran, since): (Duration, Duration),
        asked: bool,
        backoff: &Backoff,
    ) {
        let backoff = if asked { Duration::ZERO } else { backoff.after(self.backoff, ran) };
        let restart_at = Instant::now() + backoff.saturating_sub(since);
        self.probe_state.ready = false;
        self.end = Some(End { exit, ran, asked, backoff, restart_at, told: false });
    }
}

// === impl Trouble ===

impl Trouble {
    /// The state of a container that waits for this to pass.
    pub fn state(&self) -> ContainerState {
        let message = self.message.clone();
        ContainerState::Waiting { reason: self.reason.into(), message }
    }
}
