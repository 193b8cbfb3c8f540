//! Decides what to do next with a pod's containers.
//!
//! [`plan`] is a pure function of the pod's rules and of the current state of each container: no clock, no I/O. Every
//! runtime uses it, so that pods behave the same on all of them.
//!
//! # Behaviour
//! * Init containers run one after the other. An init container that fails is started again after its backoff, or fails
//!   the pod (`restartPolicy: Never`).
//! * A sidecar (KEP-753) lets the next container start once it has started; it is restarted whatever its exit code, before,
//!   during and after the regular containers' life. What was let start goes on, also while the sidecar is in its backoff.
//! * Regular containers start in their order when every init container is done, at once unless one has a postStart hook.
//!   Once one of them was started, init containers are not considered any more.
//! * A pod whose sandbox was lost, whose machine was rebooted, or that was stopped and is wanted again, starts over, init
//!   containers first. A container that ended for good before that is [`ContainerObservation::Done`], all others are
//!   [`ContainerObservation::Never`].
//! * A container that exits is restarted according to `restartPolicy`: immediately the first time, then after 10 s,
//!   doubling up to 5 min; a run of 10 min resets the backoff ([`CrashBackoff`]).
//! * A container that exited because a stop of its pod had requested it has not done its work, whatever its exit code:
//!   when the pod is wanted again it is started again, unless the policy is `Never`.
//! * So has one that was stopped to be started again, because a probe failed or its sandbox was lost: it has failed.
//! * An ephemeral container is started once, whatever the other containers do, unless the pod is done.
//! * When no regular container runs or will run again, nothing is started any more, not even sidecars.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::status::Restart;
use winddown_shared::{ContainerKind, Pod};

mod backoff;
#[cfg(test)]
mod tests;

pub use backoff::CrashBackoff;

/// The properties of a container that matter for the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRule {
    /// Its name in the spec.
    pub name: Arc<str>,
    /// The kind of container.
    pub kind: ContainerKind,
    /// Whether it is restarted when it exits.
    pub restart: Restart,
}

/// The current state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerObservation {
    /// It was never started.
    Never,
    /// It runs.
    Running {
        /// Its startup probe passed and its postStart hook is done, or it has neither.
        started: bool,
        /// A failed probe or postStart hook, or a change of its definition, requires a restart.
        failing: bool,
    },
    /// It was stopped because its definition changed: it is started again at once, regardless of its policy.
    Outdated,
    /// It has exited.
    Ended {
        /// 0 is success.
        exit_code: i32,
        /// What remains of its backoff.
        wait: Duration,
    },
    /// It ended for good before the pod had to start over ([`ContainerRule::is_for_good`]).
    Done {
        /// 0 is success.
        exit_code: i32,
    },
}

/// The next steps. Indices refer to the slices given to [`plan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextSteps {
    /// Containers to start, in this order.
    pub start: Vec<usize>,
    /// Running containers to stop, because they have to be restarted.
    pub stop: Vec<usize>,
    /// When the next backoff ends; before that, nothing happens by itself.
    pub again_in: Option<Duration>,
    /// No container of the pod will be started again.
    pub done: bool,
}

/// The rules of a pod's containers except the ephemeral ones: init containers first, then the regular ones, in spec
/// order.
pub fn rules(pod: &Pod) -> Vec<ContainerRule> {
    let Some(spec) = pod.spec.as_ref() else { return Vec::new() };
    let restart = Restart::of(pod);
    // An init container has to succeed once, whatever the policy says about restarts after that.
    let once = if restart == Restart::Never { Restart::Never } else { Restart::OnFailure };
    let init = spec.init_containers.iter().flatten().map(|container| {
        let kind = ContainerKind::of_init(container);
        let is_sidecar = kind == ContainerKind::Sidecar;
        rule(container, kind, if is_sidecar { Restart::Always } else { once })
    });
    let regular = spec.containers.iter().map(|c| rule(c, ContainerKind::Regular, restart));
    init.chain(regular).collect()
}

/// The rules of a pod's ephemeral containers, which come after the others.
pub fn ephemeral_rules(pod: &Pod) -> impl Iterator<Item = ContainerRule> {
    let all = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    all.map(|one| ContainerRule {
        name: one.name.as_str().into(),
        kind: ContainerKind::Ephemeral,
        restart: Restart::Never,
    })
}

/// A container in its pod's spec.
#[derive(Clone, Debug)]
pub struct SpecContainer<'a> {
    /// Its definition in the spec.
    pub container: Cow<'a, api::Container>,
    /// Its path, for example `spec.containers[0]`.
    pub field: String,
    /// The kind of container.
    pub kind: ContainerKind,
    /// Its index: init containers first, then the regular ones, then the ephemeral ones.
    pub place: usize,
    /// The container whose processes an ephemeral one sees.
    pub target: Option<&'a str>,
}

/// Finds the container of this name.
pub fn find<'a>(pod: &'a Pod, name: &str) -> Option<SpecContainer<'a>> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.as_deref().unwrap_or_default();
    if let Some(i) = init.iter().position(|c| c.name == name) {
        let (container, field) = (&init[i], format!("spec.initContainers[{i}]"));
        let (kind, container) = (ContainerKind::of_init(container), Cow::Borrowed(container));
        return Some(SpecContainer { container, field, kind, place: i, target: None });
    }
    if let Some(i) = spec.containers.iter().position(|c| c.name == name) {
        let container = Cow::Borrowed(&spec.containers[i]);
        let (field, kind) = (format!("spec.containers[{i}]"), ContainerKind::Regular);
        return Some(SpecContainer { container, field, kind, place: init.len() + i, target: None });
    }
    let ephemeral = spec.ephemeral_containers.as_deref().unwrap_or_default();
    let i = ephemeral.iter().position(|c| c.name == name)?;
    // It has the fields of a container, and the target.
    let container = serde_json::from_value(serde_json::to_value(&ephemeral[i]).ok()?).ok()?;
    Some(SpecContainer {
        container: Cow::Owned(container),
        field: format!("spec.ephemeralContainers[{i}]"),
        kind: ContainerKind::Ephemeral,
        place: init.len() + spec.containers.len() + i,
        target: ephemeral[i].target_container_name.as_deref().filter(|name| !name.is_empty()),
    })
}

/// Decides what to do next. `seen` has one entry for each rule, in the same order; a missing entry counts as
/// [`ContainerObservation::Never`].
pub fn plan(rules: &[ContainerRule], seen: &[ContainerObservation]) -> NextSteps {
    let mut plan = NextSteps::default();
    let at = |i: usize| seen.get(i).copied().unwrap_or(ContainerObservation::Never);
    let kinds = |kind| rules.iter().enumerate().filter(move |(_, r)| r.kind == kind);
    let is_begun =
        |seen| !matches!(seen, ContainerObservation::Never | ContainerObservation::Done { .. });
    let begun = kinds(ContainerKind::Regular).any(|(i, _)| is_begun(at(i)));
    if is_done(rules, at, begun) {
        return NextSteps { done: true, ..plan };
    }
    for (i, rule) in kinds(ContainerKind::Ephemeral) {
        plan.consider(i, rule, at(i));
    }
    if begun {
        for (i, rule) in kinds(ContainerKind::Sidecar) {
            plan.consider(i, rule, at(i));
        }
    } else if !plan.initialize(rules, at) {
        return plan;
    }
    for (i, rule) in kinds(ContainerKind::Regular) {
        plan.consider(i, rule, at(i));
    }
    plan
}

fn rule(container: &api::Container, kind: ContainerKind, restart: Restart) -> ContainerRule {
    ContainerRule { name: container.name.as_str().into(), kind, restart }
}

/// Whether nothing will be started again: an init container failed for good, or every regular container ended for good.
fn is_done(
    rules: &[ContainerRule],
    at: impl Fn(usize) -> ContainerObservation,
    begun: bool,
) -> bool {
    let ended_for_good = |i: usize, rule: &ContainerRule| match at(i) {
        ContainerObservation::Ended { exit_code, .. } => !rule.restart.applies_to(exit_code),
        ContainerObservation::Done { .. } => true,
        ContainerObservation::Never
        | ContainerObservation::Outdated
        | ContainerObservation::Running { .. } => false,
    };
    let all = || rules.iter().enumerate();
    let regular = || all().filter(|(_, r)| r.kind == ContainerKind::Regular);
    let any_ran = regular().any(|(i, _)| at(i) != ContainerObservation::Never);
    if any_ran && regular().all(|(i, rule)| ended_for_good(i, rule)) {
        return true;
    }
    if begun {
        return false;
    }
    let failed = |i: usize| match at(i) {
        ContainerObservation::Ended { exit_code, .. }
        | ContainerObservation::Done { exit_code } => exit_code != 0,
        ContainerObservation::Never
        | ContainerObservation::Outdated
        | ContainerObservation::Running { .. } => false,
    };
    all().any(|(i, r)| r.kind == ContainerKind::Init && failed(i) && ended_for_good(i, r))
}

// === impl ContainerRule ===

impl ContainerRule {
    /// Whether a container that exited with this code is not run again when its pod starts over. `asked`: a stop of its
    /// pod had requested the exit, so its code does not say that the container has done its work.
    pub fn is_for_good(&self, exit_code: i32, asked: bool) -> bool {
        match self.kind {
            ContainerKind::Regular if asked => self.restart == Restart::Never,
            ContainerKind::Regular => !self.restart.applies_to(exit_code),
            // A successful init container runs again, because its work may have been lost; one that failed the pod does
            // not.
            ContainerKind::Init => self.restart == Restart::Never && exit_code != 0,
            ContainerKind::Sidecar => false,
            ContainerKind::Ephemeral => true,
        }
    }
}

// === impl NextSteps ===

impl NextSteps {
    /// Goes through the init containers up to the first that is not done. Returns whether all are done.
    fn initialize(
        &mut self,
        rules: &[ContainerRule],
        at: impl Fn(usize) -> ContainerObservation,
    ) -> bool {
        let is_init =
            |r: &ContainerRule| matches!(r.kind, ContainerKind::Init | ContainerKind::Sidecar);
        let init = rules.iter().enumerate().filter(|(_, rule)| is_init(rule));
        let began = |&(i, _): &(usize, _)| at(i) != ContainerObservation::Never;
        // What a sidecar has let start goes on, whatever becomes of the sidecar.
        let last_begun = init.clone().rev().find(began).map_or(0, |(i, _)| i);
        let mut is_turn = true;
        for (i, rule) in init {
            let is_sidecar = rule.kind == ContainerKind::Sidecar;
            // Sidecars that were started before are kept running.
            if is_turn || is_sidecar && began(&(i, rule)) {
                self.consider(i, rule, at(i));
            }
            is_turn &= match at(i) {
                ContainerObservation::Ended { exit_code: 0, .. } if !is_sidecar => true,
                ContainerObservation::Running { started: true, .. } if is_sidecar => true,
                _ => is_sidecar && i < last_begun,
            };
        }
        is_turn
    }

    fn consider(&mut self, index: usize, rule: &ContainerRule, seen: ContainerObservation) {
        match seen {
            ContainerObservation::Never | ContainerObservation::Outdated => self.start.push(index),
            ContainerObservation::Running { failing: true, .. } => self.stop.push(index),
            ContainerObservation::Running { .. } => {}
            ContainerObservation::Ended { exit_code, wait }
                if rule.restart.applies_to(exit_code) =>
            {
                if wait.is_zero() {
                    self.start.push(index);
                } else {
                    self.again_in = Some(self.again_in.map_or(wait, |w| w.min(wait)));
                }
            }
            ContainerObservation::Ended { .. } | ContainerObservation::Done { .. } => {}
        }
    }
}
