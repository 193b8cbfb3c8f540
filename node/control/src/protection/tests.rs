use super::*;
use crate::api::ProtectionReason as Why;

const SHORT: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(32);

/// An agent that runs its own pods, holds its lock, and is alone.
fn alone() -> ProtectionFacts {
    ProtectionFacts {
        role: AgentRole::Runtime,
        agent_runs: Some(true),
        agent_lock: Some(true),
        agent_wants: LONG,
        delay: Some(LONG),
        is_rehearsal: false,
        api_server: ApiServerUse::Usable,
        kubelet: seen(KubeletPresence::Absent, Duration::ZERO, false),
    }
}

fn seen(presence: KubeletPresence, wants: Duration, lock: bool) -> KubeletFacts {
    KubeletFacts {
        presence: Some(presence),
        wants: Some(wants),
        lock: Some(lock),
        is_another: false,
    }
}

fn companion() -> ProtectionFacts {
    let kubelet = seen(KubeletPresence::Runs, Duration::ZERO, false);
    ProtectionFacts { role: AgentRole::Companion, kubelet, ..alone() }
}

/// A kubelet that ends its own pods, without winddown.
fn kubelet() -> ProtectionFacts {
    ProtectionFacts {
        role: AgentRole::None,
        agent_runs: Some(false),
        agent_lock: Some(false),
        kubelet: seen(KubeletPresence::Runs, LONG, true),
        ..alone()
    }
}

/// Every combination of facts.
fn all() -> Vec<ProtectionFacts> {
    let seen = [Some(true), Some(false), None];
    let times = [Some(Duration::ZERO), Some(SHORT), Some(LONG), None];
    let kubelets = [
        Some(KubeletPresence::Absent),
        Some(KubeletPresence::Enabled),
        Some(KubeletPresence::Runs),
        None,
    ];
    let mut all = vec![alone()];
    fn each<T: Copy>(
        all: &mut Vec<ProtectionFacts>,
        values: &[T],
        set: impl Fn(&mut ProtectionFacts, T),
    ) {
        *all = values
            .iter()
            .flat_map(|value| {
                all.iter().map(|facts| {
                    let mut facts = *facts;
                    set(&mut facts, *value);
                    facts
                })
            })
            .collect();
    }
    let roles = [AgentRole::None, AgentRole::Runtime, AgentRole::Companion];
    each(&mut all, &roles, |facts, role| facts.role = role);
    each(&mut all, &seen, |facts, runs| facts.agent_runs = runs);
    each(&mut all, &seen, |facts, lock| facts.agent_lock = lock);
    each(&mut all, &[Duration::ZERO, LONG], |facts, wants| facts.agent_wants = wants);
    each(&mut all, &times, |facts, delay| facts.delay = delay);
    each(&mut all, &kubelets, |facts, kubelet| facts.kubelet.presence = kubelet);
    each(&mut all, &times, |facts, wants| facts.kubelet.wants = wants);
    each(&mut all, &seen, |facts, lock| facts.kubelet.lock = lock);
    let uses = [ApiServerUse::Usable, ApiServerUse::Unusable, ApiServerUse::Awaited];
    each(&mut all, &uses, |facts, api_server| facts.api_server = api_server);
    all
}

#[test]
fn of_all_combinations_only_those_are_protected_whose_pods_somebody_ends_with_a_lock_and_time() {
    let all = all();
    assert_eq!(all.len(), 3 * 3 * 3 * 2 * 4 * 4 * 4 * 3 * 3);
    for facts in &all {
        let verdict = protection(facts);
        let lock_and_time = |lock, wants: Option<Duration>| {
            lock == Some(true)
                && wants.is_some_and(|wants| !wants.is_zero() && facts.delay >= Some(wants))
        };
        let agent_ends = facts.agent_runs == Some(true)
            && lock_and_time(facts.agent_lock, Some(facts.agent_wants));
        let kubelet_ends = lock_and_time(facts.kubelet.lock, facts.kubelet.wants);
        let presence = facts.kubelet.presence;
        let expected = match facts.role {
            AgentRole::None => facts.has_kubelet() && kubelet_ends,
            AgentRole::Runtime => presence == Some(KubeletPresence::Absent) && agent_ends,
            AgentRole::Companion => {
                let might_be_there = matches!(presence, Some(KubeletPresence::Runs) | None);
                let ends_too = facts.kubelet.wants > Some(Duration::ZERO);
                let can_end = agent_ends && facts.api_server == ApiServerUse::Usable;
                can_end && might_be_there && facts.kubelet.lock != Some(true) && !ends_too
            }
        };
        assert_eq!(verdict.state == ProtectionState::Protected, expected, "{facts:?}\n{verdict:?}");
    }
}

#[test]
fn where_nobody_ends_the_pods_the_node_is_unprotected_and_what_is_unseen_is_never_called_well() {
    for facts in &all() {
        let Protection { state, terminated_by, text, next, effective_seconds, .. } =
            protection(facts);
        let why = format!("{facts:?}: {text}");
        assert!(!text.is_empty() && text.len() < 200, "{why}");
        assert_eq!(next.is_empty(), state == ProtectionState::Protected, "{why}");
        if terminated_by == TerminatedBy::None {
            assert_eq!(state, ProtectionState::Unprotected, "{why}");
            assert_eq!(effective_seconds, Some(0.0), "{why}");
        }
        if terminated_by == TerminatedBy::Unknown {
            assert_ne!(state, ProtectionState::Protected, "{why}");
            assert_ne!(state, ProtectionState::Limited, "{why}");
        }
        if state == ProtectionState::Unknown {
            assert!(text.contains("not known"), "{why}");
        }
        if state == ProtectionState::Protected {
            assert!(effective_seconds > Some(0.0), "{why}");
        }
    }
}

#[test]
fn a_kubelet_that_the_agent_is_no_companion_of_is_never_well_whatever_else_is() {
    let beside =
        all().into_iter().filter(|facts| facts.role == AgentRole::Runtime && facts.has_kubelet());
    for facts in beside {
        let verdict = protection(&facts);
        assert_eq!(verdict.state, ProtectionState::Unprotected, "{facts:?}");
        assert_eq!(verdict.reason, Why::NotACompanion, "{facts:?}");
        assert!(verdict.next.contains("winddown doctor"), "{verdict:?}");
    }
}

#[test]
fn each_case_has_its_reason_and_says_who_ends_the_pods_and_for_how_long() {
    use KubeletPresence::{Absent, Enabled, Runs};
    let off = Duration::ZERO;
    let of = |facts: ProtectionFacts, kubelet| ProtectionFacts { kubelet, ..facts };
    let hidden = KubeletFacts::default();
    let unread = KubeletFacts { wants: None, ..seen(Runs, off, true) };
    let another = KubeletFacts { is_another: true, ..seen(Runs, off, false) };
    let impatient = |facts| ProtectionFacts { delay: Some(SHORT), ..facts };
    let down = |facts| ProtectionFacts { agent_runs: Some(false), ..facts };
    let rehearsal = ProtectionFacts { is_rehearsal: true, ..alone() };
    let with = |api_server, facts| ProtectionFacts { api_server, ..facts };
    let awaits = |facts| with(ApiServerUse::Awaited, facts);
    let refused = |facts| with(ApiServerUse::Unusable, facts);
    let switched_off = ProtectionFacts { agent_wants: off, ..alone() };
    let cases = [
        (alone(), Why::LockHeld, TerminatedBy::Agent, Some(32.0)),
        (companion(), Why::LockHeld, TerminatedBy::Companion, Some(32.0)),
        (of(companion(), hidden), Why::LockHeld, TerminatedBy::Companion, Some(32.0)),
        (kubelet(), Why::LockHeld, TerminatedBy::Kubelet, Some(32.0)),
        (impatient(alone()), Why::DelayTooShort, TerminatedBy::Agent, Some(5.0)),
        (impatient(kubelet()), Why::KubeletDelayTooShort, TerminatedBy::None, Some(0.0)),
        (
            of(kubelet(), seen(Runs, off, false)),
            Why::KubeletDisabled,
            TerminatedBy::None,
            Some(0.0),
        ),
        (of(kubelet(), unread), Why::KubeletConfigurationUnknown, TerminatedBy::Unknown, None),
        (
            of(kubelet(), seen(Runs, LONG, false)),
            Why::KubeletLockNotHeld,
            TerminatedBy::None,
            Some(0.0),
        ),
        (of(alone(), seen(Runs, off, false)), Why::NotACompanion, TerminatedBy::None, Some(0.0)),
        (
            of(alone(), seen(Enabled, LONG, false)),
            Why::NotACompanion,
            TerminatedBy::None,
            Some(0.0),
        ),
        (
            of(alone(), seen(Runs, LONG, true)),
            Why::NotACompanion,
            TerminatedBy::Kubelet,
            Some(32.0),
        ),
        (of(alone(), unread), Why::NotACompanion, TerminatedBy::Unknown, None),
        (
            of(companion(), seen(Runs, LONG, false)),
            Why::KubeletTerminatesToo,
            TerminatedBy::Companion,
            Some(32.0),
        ),
        (
            of(companion(), seen(Absent, off, false)),
            Why::NoKubelet,
            TerminatedBy::Companion,
            Some(32.0),
        ),
        (of(companion(), another), Why::AnotherKubelet, TerminatedBy::None, Some(0.0)),
        (refused(companion()), Why::ApiServerUnusable, TerminatedBy::Companion, Some(32.0)),
        (refused(impatient(companion())), Why::DelayTooShort, TerminatedBy::Companion, Some(5.0)),
        (refused(alone()), Why::LockHeld, TerminatedBy::Agent, Some(32.0)),
        (awaits(companion()), Why::ApiServerAwaited, TerminatedBy::None, Some(0.0)),
        (awaits(impatient(companion())), Why::ApiServerAwaited, TerminatedBy::None, Some(0.0)),
        (awaits(down(companion())), Why::NoAgent, TerminatedBy::None, Some(0.0)),
        (down(companion()), Why::NoAgent, TerminatedBy::None, Some(0.0)),
        (down(alone()), Why::NoAgent, TerminatedBy::None, Some(0.0)),
        (rehearsal, Why::Rehearsal, TerminatedBy::None, Some(0.0)),
        (of(alone(), hidden), Why::KubeletUnknown, TerminatedBy::Unknown, Some(32.0)),
        (switched_off, Why::Disabled, TerminatedBy::None, Some(0.0)),
        (of(kubelet(), seen(Absent, off, false)), Why::None, TerminatedBy::None, Some(0.0)),
        (of(kubelet(), hidden), Why::KubeletUnknown, TerminatedBy::Unknown, None),
    ];
    for (facts, reason, terminated_by, in_effect) in cases {
        let verdict = protection(&facts);
        let said = (verdict.reason, verdict.terminated_by, verdict.effective_seconds);
        assert_eq!(said, (reason, terminated_by, in_effect), "{facts:?}: {}", verdict.text);
    }
}
