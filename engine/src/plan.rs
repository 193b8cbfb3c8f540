//! What to do next with a pod's containers.
//!
//! [`plan`] is a pure function of the pod's rules and of what each container does now: no clock, no
//! I/O. Every runtime uses it, so that pods behave the same whatever runs them.
//!
//! # Behaviour
//! * Init containers run one after the other. One that fails is started again after its back-off,
//!   or fails the pod (`restartPolicy: Never`).
//! * A sidecar (KEP-753) lets the next container start once it has started; it is restarted whatever
//!   its exit code, before, during and after the regular containers' life.
//! * Regular containers start together when every init container is done. Once one of them was
//!   started, init containers are not looked at again.
//! * A pod that lost what it ran in (its sandbox, or the machine was booted) begins anew, init containers
//!   first. What ended for good before that is [`ContainerObservation::Done`], the rest [`ContainerObservation::Never`].
//! * A container that ends is restarted as `restartPolicy` says: at once the first time, then after
//!   10 s, doubling to 5 min; a run of 10 min clears that ([`Backoff`]).
//! * An ephemeral container is started once, whatever the others do.
//! * When no regular container runs or will run again, nothing is started any more, sidecars neither.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_shared::{ContainerKind, Pod};

mod backoff;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;

/// When a container that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Whatever its exit code.
    Always,
    /// When its exit code is not 0.
    OnFailure,
    /// Never.
    Never,
}

/// One container, as far as the plan is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRule {
    /// Its name in the spec.
    pub name: Arc<str>,
    /// The part it plays.
    pub kind: ContainerKind,
    /// What happens when it ends.
    pub restart: Restart,
}

/// What a container does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerObservation {
    /// It was never started.
    Never,
    /// It runs.
    Running {
        /// Its startup probe passed and its postStart hook is done, or it has neither.
        started: bool,
        /// A liveness or startup probe wants it restarted.
        failing: bool,
    },
    /// It was ended because its definition changed: it is started again at once, whatever its policy says.
    Outdated,
    /// It has ended.
    Ended {
        /// 0 is success.
        exit_code: i32,
        /// What is left of its back-off.
        wait: Duration,
    },
    /// It ended for good before the pod had to begin anew ([`ContainerRule::is_for_good`]).
    Done {
        /// 0 is success.
        exit_code: i32,
    },
}

/// What to do now. Indices are those of the slices given to [`plan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Containers to start, in this order.
    pub start: Vec<usize>,
    /// Running containers to end, because they are to be restarted.
    pub stop: Vec<usize>,
    /// When the next back-off ends; nothing happens before that by itself.
    pub again_in: Option<Duration>,
    /// Nothing of the pod will be started again.
    pub done: bool,
}

/// The rules of a pod's containers without the ephemeral ones: init containers first, then the regular ones, in spec
/// order.
pub fn rules(pod: &Pod) -> Vec<ContainerRule> {
    let Some(spec) = pod.spec.as_ref() else { return Vec::new() };
    let restart = match spec.restart_policy.as_deref() {
        Some("Never") => Restart::Never,
        Some("OnFailure") => Restart::OnFailure,
        _ => Restart::Always,
    };
    // An init container runs to success once, whatever it may do afterwards.
    let once = if restart == Restart::Never { Restart::Never } else { Restart::OnFailure };
    let init =
        spec.init_containers.iter().flatten().map(|container| match kind_of_init(container) {
            ContainerKind::Sidecar => rule(container, ContainerKind::Sidecar, Restart::Always),
            kind => rule(container, kind, once),
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

/// The part an entry of `spec.initContainers` plays.
pub fn kind_of_init(container: &api::Container) -> ContainerKind {
    match container.restart_policy.as_deref() {
        Some("Always") => ContainerKind::Sidecar,
        _ => ContainerKind::Init,
    }
}

/// A container in its pod's spec.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// What the spec says of it.
    pub container: Cow<'a, api::Container>,
    /// Its path, for example `spec.containers[0]`.
    pub field: String,
    /// The part it plays.
    pub kind: ContainerKind,
    /// Init containers first, then the regular ones, then the ephemeral ones.
    pub place: usize,
    /// The container whose processes an ephemeral one sees.
    pub target: Option<&'a str>,
}

/// The container of this name.
pub fn find<'a>(pod: &'a Pod, name: &str) -> Option<Found<'a>> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.as_deref().unwrap_or_default();
    if let Some(i) = init.iter().position(|c| c.name == name) {
        let (container, field) = (&init[i], format!("spec.initContainers[{i}]"));
        let (kind, container) = (kind_of_init(container), Cow::Borrowed(container));
        return Some(Found { container, field, kind, place: i, target: None });
    }
    if let Some(i) = spec.containers.iter().position(|c| c.name == name) {
        let container = Cow::Borrowed(&spec.containers[i]);
        let (field, kind) = (format!("spec.containers[{i}]"), ContainerKind::Regular);
        return Some(Found { container, field, kind, place: init.len() + i, target: None });
    }
    let ephemeral = spec.ephemeral_containers.as_deref().unwrap_or_default();
    let i = ephemeral.iter().position(|c| c.name == name)?;
    // Its fields are a container's, and the target.
    let container = serde_json::from_value(serde_json::to_value(&ephemeral[i]).ok()?).ok()?;
    Some(Found {
        container: Cow::Owned(container),
        field: format!("spec.ephemeralContainers[{i}]"),
        kind: ContainerKind::Ephemeral,
        place: init.len() + spec.containers.len() + i,
        target: ephemeral[i].target_container_name.as_deref().filter(|name| !name.is_empty()),
    })
}

/// What to do next. `seen` has one entry for each rule, in the same order; a missing one counts as
/// [`ContainerObservation::Never`].
pub fn plan(rules: &[ContainerRule], seen: &[ContainerObservation]) -> Plan {
    let mut plan = Plan::default();
    let at = |i: usize| seen.get(i).copied().unwrap_or(ContainerObservation::Never);
    let kinds = |kind| rules.iter().enumerate().filter(move |(_, r)| r.kind == kind);
    let is_begun =
        |seen| !matches!(seen, ContainerObservation::Never | ContainerObservation::Done { .. });
    let begun = kinds(ContainerKind::Regular).any(|(i, _)| is_begun(at(i)));
    if is_done(rules, at, begun) {
        return Plan { done: true, ..plan };
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

/// Nothing will be started again: an init container failed for good, or every regular container
/// ended for good.
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
    /// Whether a container that ended like this stays so when its pod begins anew.
    pub fn is_for_good(&self, exit_code: i32) -> bool {
        match self.kind {
            ContainerKind::Regular => !self.restart.applies_to(exit_code),
            // An init container's work may have been lost; one that failed the pod has.
            ContainerKind::Init => self.restart == Restart::Never && exit_code != 0,
            ContainerKind::Sidecar => false,
            ContainerKind::Ephemeral => true,
        }
    }
}

// === impl Restart ===

impl Restart {
    /// Whether a container that ended with this code is started again.
    pub fn applies_to(self, exit_code: i32) -> bool {
        match self {
            Restart::Always => true,
            Restart::OnFailure => exit_code != 0,
            Restart::Never => false,
        }
    }
}

// === impl Plan ===

impl Plan {
    /// Walks the init containers up to the first that is not done. True when all are.
    fn initialize(
        &mut self,
        rules: &[ContainerRule],
        at: impl Fn(usize) -> ContainerObservation,
    ) -> bool {
        // Sidecars before the one that holds things up are kept running meanwhile.
        for (i, rule) in rules.iter().enumerate() {
            match (rule.kind, at(i)) {
                (ContainerKind::Regular | ContainerKind::Ephemeral, _)
                | (ContainerKind::Init, ContainerObservation::Ended { exit_code: 0, .. })
                | (
                    ContainerKind::Sidecar,
                    ContainerObservation::Running { started: true, failing: false },
                ) => {}
                (_, seen) => {
                    self.consider(i, rule, seen);
                    self.keep_sidecars(rules, i + 1, &at);
                    return false;
                }
            }
        }
        true
    }

    /// Restarts the sidecars from `from` on that had been started before.
    fn keep_sidecars(
        &mut self,
        rules: &[ContainerRule],
        from: usize,
        at: &impl Fn(usize) -> ContainerObservation,
    ) {
        for (i, rule) in rules.iter().enumerate().skip(from) {
            if rule.kind == ContainerKind::Sidecar && at(i) != ContainerObservation::Never {
                self.consider(i, rule, at(i));
            }
        }
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
