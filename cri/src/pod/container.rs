//! A container of a pod and its runs, in memory.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::Instant;
use winddown_engine::plan::{Backoff, ContainerObservation, ContainerRule};
use winddown_engine::probing::ProbeState;
use winddown_shared::{ContainerExit, ContainerKind, WallTime};

use super::super::direct::{Direct, HeldMounts};

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) name: Arc<str>,
    pub(crate) kind: ContainerKind,
    /// The newest run.
    pub(crate) run: Option<Run>,
    /// How the run before the newest ended.
    pub(crate) last_exit: Option<ContainerExit>,
    /// Dead runs before the newest one, newest first; all but the first are garbage.
    pub(crate) dead: Vec<Dead>,
    /// The image as the pod's spec names it now; none while the pod is unknown.
    pub(crate) wanted_image: Option<Arc<str>>,
    /// What kept it from being started, if it could not be.
    pub(crate) trouble: Option<Trouble>,
    /// The data from its labels, while the pod is unknown.
    pub(crate) by_labels: Option<Box<k8s::Container>>,
}

/// A run that is over and of which the runtime still holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) id: Arc<str>,
    pub(crate) attempt: u32,
}

/// One run of a container.
#[derive(Debug)]
pub(crate) struct Run {
    /// The runtime's id.
    pub(crate) id: Arc<str>,
    /// 0 for the first.
    pub(crate) attempt: u32,
    /// The image as the spec named it when it was made; none if that is not known.
    pub(crate) image: Option<Arc<str>>,
    /// The sandbox it is in.
    pub(crate) sandbox: Arc<str>,
    /// When it started; none while it is only created.
    pub(crate) started_at: Option<WallTime>,
    /// The back-off to follow this run if it is short.
    pub(crate) backoff: Duration,
    /// What its postStart hook and its probes have come to.
    pub(crate) probe_state: ProbeState,
    /// The runtime could not start it, and told this agent so.
    pub(crate) refused: bool,
    /// It is being ended because it fails.
    pub(crate) ending: bool,
    /// The runtime is being asked how it ended.
    pub(crate) settling: bool,
    /// A task waits for its process to end.
    pub(crate) watched: bool,
    /// The number of its first process, where the runtime tells it.
    pub(crate) pid: Option<i32>,
    /// Its first process, where it may be signalled without the runtime.
    pub(crate) direct: Option<Arc<Direct>>,
    /// Its mount namespace, from when it was asked to end until its pod is cleaned up.
    pub(crate) held: Option<HeldMounts>,
    /// When it was asked to end.
    pub(crate) signalled_at: Option<Instant>,
    /// SIGKILL was needed.
    pub(crate) forced: bool,
    /// The runtime was asked to forget it, because its pod is over and its disk was short.
    pub(crate) given_back: bool,
    pub(crate) end: Option<End>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) exit: ContainerExit,
    /// How long it ran.
    pub(crate) ran: Duration,
    /// When it may be started again.
    pub(crate) restart_at: Instant,
    /// The runtime gave its start up before it ran.
    pub(crate) never_ran: bool,
    /// The kernel told; the runtime, which may know more, has not yet.
    pub(crate) early: bool,
}

/// Why a container could not be started, and when that is tried again.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// `ErrImagePull`, `CreateContainerError`, …
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) until: Instant,
    /// The wait that ends then.
    pub(crate) wait: Duration,
}

// === impl Container ===

impl Container {
    pub(crate) fn new(name: Arc<str>, kind: ContainerKind) -> Self {
        Self {
            name,
            kind,
            run: None,
            last_exit: None,
            dead: Vec::new(),
            wanted_image: None,
            trouble: None,
            by_labels: None,
        }
    }

    /// It runs, or it is created and could.
    pub(crate) fn is_running(&self) -> bool {
        self.run.as_ref().is_some_and(Run::is_running)
    }

    /// It was started by an earlier agent and has no prober yet.
    pub(crate) fn is_adopted(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_running() && run.probe_state.is_adopted())
    }

    /// Its newest run is of another image than the spec names by now, and it is one that goes on: an init
    /// container has done its work.
    pub(crate) fn is_outdated(&self) -> bool {
        let made_of = self.run.as_ref().and_then(|run| run.image.as_ref());
        let differs = made_of.zip(self.wanted_image.as_ref()).is_some_and(|(a, b)| a != b);
        differs && self.kind != ContainerKind::Init
    }

    /// The number of the next attempt, and the back-off to follow it.
    pub(crate) fn next(&self, backoff: &Backoff) -> (u32, Duration) {
        let newest_dead = self.dead.iter().map(|d| d.attempt).max();
        let attempt = self.run.as_ref().map(|run| run.attempt).max(newest_dead);
        let ended = self.run.as_ref().filter(|run| !run.is_undone());
        let waited = ended.and_then(|run| {
            let end = run.end.as_ref()?;
            Some(backoff.after(run.backoff, end.ran))
        });
        let follow = match waited {
            // The new image has not failed yet.
            Some(_) if self.is_outdated() => Duration::ZERO,
            Some(waited) => backoff.next(waited),
            None => Duration::ZERO,
        };
        (attempt.map_or(0, |n| n.saturating_add(1)), follow)
    }

    /// Makes `run` the newest one.
    pub(crate) fn begin(&mut self, run: Run) {
        self.trouble = None;
        if let Some(old) = self.run.replace(run) {
            if !old.is_undone() {
                self.last_exit = old.end.map(|end| end.exit);
            }
            self.dead.insert(0, Dead { id: old.id, attempt: old.attempt });
        }
    }

    /// Notes that it could not be started.
    pub(crate) fn fail(&mut self, reason: &'static str, message: String, retry: &Backoff) {
        let waited = self.trouble.as_ref().map_or(Duration::ZERO, |t| t.wait);
        let wait = retry.next(waited);
        // The kubelet's word for an image that is not there the second time either.
        let reason = match (reason, &self.trouble) {
            ("ErrImagePull", Some(_)) => "ImagePullBackOff",
            (reason, _) => reason,
        };
        self.trouble = Some(Trouble { reason, message, until: Instant::now() + wait, wait });
    }

    /// Notes that it cannot be started before `wait` is over, through no fault of its own.
    pub(crate) fn wait(&mut self, reason: &'static str, message: String, wait: Duration) {
        let until = Instant::now() + wait;
        self.trouble = Some(Trouble { reason, message, until, wait: Duration::ZERO });
    }

    pub(super) fn seen(
        &self,
        rule: &ContainerRule,
        sandbox: Option<&Arc<str>>,
        now: Instant,
    ) -> ContainerObservation {
        let Some(run) = &self.run else { return ContainerObservation::Never };
        let Some(end) = &run.end else {
            if run.started_at.is_none() {
                return ContainerObservation::Never;
            }
            return match self.is_outdated() {
                true => ContainerObservation::Running {
                    started: run.probe_state.started,
                    failing: true,
                },
                false => run.probe_state.seen(),
            };
        };
        if self.is_outdated() && run.ending {
            return ContainerObservation::Outdated;
        }
        if run.is_undone() {
            return ContainerObservation::Never;
        }
        let exit_code = end.exit.exit_code;
        if sandbox != Some(&run.sandbox) {
            let is_for_good = rule.is_for_good(exit_code);
            return if is_for_good {
                ContainerObservation::Done { exit_code }
            } else {
                ContainerObservation::Never
            };
        }
        let wait = end.restart_at.saturating_duration_since(now);
        ContainerObservation::Ended {
            exit_code,
            wait: if self.is_outdated() { Duration::ZERO } else { wait },
        }
    }
}

// === impl Run ===

impl Run {
    /// A container that was created and not started.
    pub(crate) fn created(id: &str, attempt: u32, sandbox: &str, backoff: Duration) -> Self {
        Self {
            id: id.into(),
            attempt,
            image: None,
            sandbox: sandbox.into(),
            started_at: None,
            backoff,
            probe_state: ProbeState::default(),
            refused: false,
            ending: false,
            settling: false,
            watched: false,
            pid: None,
            direct: None,
            held: None,
            signalled_at: None,
            forced: false,
            given_back: false,
            end: None,
        }
    }

    /// Its start was given up because its caller was gone. That says nothing of the container: it
    /// counts as never started.
    pub(crate) fn is_undone(&self) -> bool {
        !self.refused && self.end.as_ref().is_some_and(|end| end.never_ran)
    }

    /// Whether the runtime has said how it ended.
    pub(crate) fn is_settled(&self) -> bool {
        self.end.as_ref().is_some_and(|end| !end.early)
    }

    /// Whether it runs or could: one that is only created holds nothing but its place.
    pub(crate) fn is_running(&self) -> bool {
        self.end.is_none() && self.started_at.is_some()
    }
}
