//! The one rule by which `winddown doctor`, the agent's status, the condition of its Node and the metric
//! `winddown_protected` say whether the pods of a node end in order and in time at a shutdown. Pure.

mod sentences;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::api::{Protection, ProtectionReason, ProtectionState, TerminatedBy};

/// The facts about a node that decide. An absent value could not be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionFacts {
    /// What winddown's configuration makes of the agent.
    pub role: AgentRole,
    /// Whether the agent runs.
    pub agent_runs: Option<bool>,
    /// Whether the login manager lists the agent's shutdown lock, or whatever the node has in place of a login manager
    /// waits for the agent. Also true while the agent ends pods for a shutdown.
    pub agent_lock: Option<bool>,
    /// How long a shutdown has to wait for the agent; zero if graceful shutdown is switched off.
    pub agent_wants: Duration,
    /// How long the login manager waits at most.
    pub delay: Option<Duration>,
    /// Whether the agent rehearses: its lock is not the login manager's.
    pub is_rehearsal: bool,
    /// What use the API server would be to an agent beside a kubelet.
    pub api_server: ApiServerUse,
    /// The node's kubelet.
    pub kubelet: KubeletFacts,
}

/// The facts about a node's kubelet. An absent value could not be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubeletFacts {
    /// Whether there is one.
    pub presence: Option<KubeletPresence>,
    /// The total time of its own graceful shutdown; zero if that is switched off.
    pub wants: Option<Duration>,
    /// Whether the login manager lists its shutdown lock.
    pub lock: Option<bool>,
    /// Whether the agent is set up for another node, container runtime or directory than the kubelet's.
    pub is_another: bool,
}

/// What use the API server would be to a shutdown of a kubelet's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiServerUse {
    /// It can be used, or is merely away for now.
    #[default]
    Usable,
    /// It cannot be used until someone corrects the credentials: the pods terminate without it.
    Unusable,
    /// It cannot be used, and the agent would wait for it before it ends a pod.
    Awaited,
}

/// What winddown's configuration makes of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentRole {
    /// Nothing: winddown is not installed.
    None,
    /// It runs the pods that it ends.
    Runtime,
    /// It ends the pods of a kubelet.
    Companion,
}

/// Whether a node has a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletPresence {
    /// It has none.
    Absent,
    /// It does not run, and is set up to run.
    Enabled,
    /// It runs.
    Runs,
}

/// Judges the facts.
pub fn protection(facts: &ProtectionFacts) -> Protection {
    let reason = facts.reason();
    let (state, terminated_by) = (state_of(reason), facts.terminated_by(reason));
    let (configured, in_effect) = match facts.is_about_kubelet(reason) {
        true => facts.time_of_kubelet(),
        false => facts.time_of_agent(),
    };
    let in_effect =
        if terminated_by == TerminatedBy::None { Some(Duration::ZERO) } else { in_effect };
    Protection {
        state,
        terminated_by,
        reason,
        text: sentences::text(facts, reason, terminated_by),
        next: sentences::next(reason).to_owned(),
        configured_seconds: configured.map(|time| time.as_secs_f64()),
        effective_seconds: in_effect.map(|time| time.as_secs_f64()),
    }
}

fn state_of(reason: ProtectionReason) -> ProtectionState {
    use ProtectionReason as Why;
    match reason {
        Why::LockHeld => ProtectionState::Protected,
        Why::DelayTooShort | Why::ApiServerUnusable => ProtectionState::Limited,
        Why::KubeletTerminatesToo
        | Why::NoKubelet
        | Why::AnotherKubelet
        | Why::NoAgent
        | Why::Disabled
        | Why::LockNotHeld
        | Why::Rehearsal
        | Why::NoDelay
        | Why::NotACompanion
        | Why::None
        | Why::KubeletDisabled
        | Why::KubeletDelayTooShort
        | Why::KubeletLockNotHeld
        | Why::ApiServerAwaited => ProtectionState::Unprotected,
        Why::AgentUnknown
        | Why::LockUnknown
        | Why::DelayUnknown
        | Why::KubeletUnknown
        | Why::KubeletConfigurationUnknown
        | Why::Unknown => ProtectionState::Unknown,
    }
}

impl ProtectionFacts {
    fn has_kubelet(&self) -> bool {
        matches!(self.kubelet.presence, Some(KubeletPresence::Enabled | KubeletPresence::Runs))
    }

    fn reason(&self) -> ProtectionReason {
        match self.role {
            AgentRole::None => self.reason_without_agent(),
            // Whatever becomes of the agent's own pods, nobody in this agent's place ends the kubelet's.
            AgentRole::Runtime if self.has_kubelet() => ProtectionReason::NotACompanion,
            AgentRole::Runtime => match self.reason_of_agent() {
                ProtectionReason::LockHeld | ProtectionReason::DelayTooShort
                    if self.kubelet.presence.is_none() =>
                {
                    ProtectionReason::KubeletUnknown
                }
                reason => reason,
            },
            AgentRole::Companion => match self.reason_of_agent() {
                ProtectionReason::LockHeld | ProtectionReason::DelayTooShort => {
                    self.reason_of_companion()
                }
                reason => reason,
            },
        }
    }

    /// The verdict on a companion that would end the pods. In a pod of its own it may see neither the kubelet nor the
    /// kubelet's files; that leaves open only whether the kubelet ends the same pods.
    fn reason_of_companion(&self) -> ProtectionReason {
        match self.kubelet.presence {
            Some(KubeletPresence::Absent | KubeletPresence::Enabled) => ProtectionReason::NoKubelet,
            _ if self.kubelet.is_another => ProtectionReason::AnotherKubelet,
            _ if self.kubelet_ends_too() => ProtectionReason::KubeletTerminatesToo,
            Some(KubeletPresence::Runs) | None => match (self.api_server, self.reason_of_agent()) {
                (ApiServerUse::Awaited, _) => ProtectionReason::ApiServerAwaited,
                // The shorter time has its own fix.
                (ApiServerUse::Unusable, ProtectionReason::LockHeld) => {
                    ProtectionReason::ApiServerUnusable
                }
                (ApiServerUse::Unusable | ApiServerUse::Usable, reason) => reason,
            },
        }
    }

    fn reason_of_agent(&self) -> ProtectionReason {
        match (self.agent_runs, self.agent_lock, self.delay) {
            (Some(false), ..) => ProtectionReason::NoAgent,
            (None, ..) => ProtectionReason::AgentUnknown,
            _ if self.is_rehearsal => ProtectionReason::Rehearsal,
            _ if self.agent_wants.is_zero() => ProtectionReason::Disabled,
            (_, Some(false), _) => ProtectionReason::LockNotHeld,
            (_, None, _) => ProtectionReason::LockUnknown,
            (.., None) => ProtectionReason::DelayUnknown,
            (.., Some(Duration::ZERO)) => ProtectionReason::NoDelay,
            (.., Some(delay)) if delay < self.agent_wants => ProtectionReason::DelayTooShort,
            _ => ProtectionReason::LockHeld,
        }
    }

    fn reason_without_agent(&self) -> ProtectionReason {
        match self.kubelet.presence {
            None => ProtectionReason::KubeletUnknown,
            Some(KubeletPresence::Absent) => ProtectionReason::None,
            Some(KubeletPresence::Enabled | KubeletPresence::Runs) => self.reason_of_kubelet(),
        }
    }

    /// The verdict on the kubelet's own graceful shutdown.
    fn reason_of_kubelet(&self) -> ProtectionReason {
        match (self.kubelet.wants, self.kubelet.lock, self.delay) {
            (None, ..) => ProtectionReason::KubeletConfigurationUnknown,
            (Some(Duration::ZERO), ..) => ProtectionReason::KubeletDisabled,
            (Some(wants), _, Some(delay)) if delay < wants => {
                ProtectionReason::KubeletDelayTooShort
            }
            (_, Some(false), _) => ProtectionReason::KubeletLockNotHeld,
            (_, None, _) => ProtectionReason::LockUnknown,
            (.., None) => ProtectionReason::DelayUnknown,
            _ => ProtectionReason::LockHeld,
        }
    }

    /// Whether the kubelet also ends the pods, or will once it is started again. A lock outlives the configuration
    /// that it was taken for.
    fn kubelet_ends_too(&self) -> bool {
        self.kubelet.lock == Some(true) || self.kubelet.wants.is_some_and(|wants| !wants.is_zero())
    }

    fn is_about_kubelet(&self, reason: ProtectionReason) -> bool {
        self.role == AgentRole::None || reason == ProtectionReason::NotACompanion
    }

    fn terminated_by(&self, reason: ProtectionReason) -> TerminatedBy {
        let of_kubelet = || match state_of(self.reason_of_kubelet()) {
            ProtectionState::Protected | ProtectionState::Limited => TerminatedBy::Kubelet,
            ProtectionState::Unprotected => TerminatedBy::None,
            ProtectionState::Unknown => TerminatedBy::Unknown,
        };
        match (reason, state_of(reason)) {
            (ProtectionReason::None, _) => TerminatedBy::None,
            (ProtectionReason::KubeletUnknown, _) => TerminatedBy::Unknown,
            (ProtectionReason::KubeletTerminatesToo | ProtectionReason::NoKubelet, _) => {
                self.agent()
            }
            _ if self.is_about_kubelet(reason) => of_kubelet(),
            (_, ProtectionState::Protected | ProtectionState::Limited) => self.agent(),
            (_, ProtectionState::Unknown) => TerminatedBy::Unknown,
            (_, ProtectionState::Unprotected) if self.has_kubelet() => of_kubelet(),
            (_, ProtectionState::Unprotected) => TerminatedBy::None,
        }
    }

    fn agent(&self) -> TerminatedBy {
        match self.role {
            AgentRole::None => TerminatedBy::None,
            AgentRole::Runtime => TerminatedBy::Agent,
            AgentRole::Companion => TerminatedBy::Companion,
        }
    }

    /// The time that is configured for the agent, and the time that a shutdown waits for it.
    fn time_of_agent(&self) -> (Option<Duration>, Option<Duration>) {
        let wants = self.agent_wants;
        let in_effect = match (self.agent_runs, self.agent_lock, self.delay) {
            (Some(false), ..) | (_, Some(false), _) => Some(Duration::ZERO),
            (Some(true), Some(true), delay) => delay.map(|delay| delay.min(wants)),
            _ => None,
        };
        (Some(wants), in_effect)
    }

    /// The time that is configured for the kubelet, and the time that a shutdown waits for it: all or nothing.
    fn time_of_kubelet(&self) -> (Option<Duration>, Option<Duration>) {
        let in_effect = match state_of(self.reason_of_kubelet()) {
            ProtectionState::Unknown => None,
            ProtectionState::Unprotected => Some(Duration::ZERO),
            ProtectionState::Protected | ProtectionState::Limited => self.kubelet.wants,
        };
        (self.kubelet.wants, in_effect)
    }
}
