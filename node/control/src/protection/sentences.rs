//! The sentences of a verdict.

use std::time::Duration;

use crate::api::{ProtectionReason as Why, TerminatedBy};
use winddown_shared::display::duration;

use super::{AgentRole, KubeletPresence, ProtectionFacts};

/// The verdict in one sentence.
pub(super) fn text(facts: &ProtectionFacts, reason: Why, terminated_by: TerminatedBy) -> String {
    let delay = span(facts.delay);
    let wants = span(facts.kubelet.wants);
    let text = match reason {
        Why::LockHeld => return protected(facts),
        Why::NotACompanion => return not_a_companion(facts, terminated_by),
        Why::DelayTooShort => {
            let wanted = duration(facts.agent_wants);
            return format!("logind waits {delay} of the {wanted} required: pods get less time");
        }
        Why::KubeletDelayTooShort => {
            return format!(
                "a shutdown of this node kills its pods: logind waits {delay} of the {wants} that the \
                 kubelet wants"
            );
        }
        Why::KubeletTerminatesToo => {
            "the kubelet terminates the same pods at a shutdown as this agent"
        }
        Why::NoKubelet => "no kubelet runs here, and with `mode: companion` nothing else runs pods",
        Why::AnotherKubelet => {
            "this agent is not set up for the kubelet that is here, whose pods it does not terminate in order"
        }
        Why::NoAgent => "no agent answers: nothing terminates the pods in order",
        Why::Disabled => "graceful shutdown is switched off: a shutdown kills the pods",
        Why::LockNotHeld => "the shutdown lock is not held: a shutdown would not wait for the pods",
        Why::Rehearsal => "this agent only rehearses: no shutdown of this node waits for it",
        Why::NoDelay => {
            "logind waits for no lock: pods have only the time that the stop of the agent's unit gives them"
        }
        Why::None => "there is neither an agent nor a kubelet: nothing terminates pods in order",
        Why::KubeletDisabled => {
            "a shutdown of this node kills its pods: the kubelet's graceful shutdown is switched off"
        }
        Why::KubeletLockNotHeld => {
            "a shutdown of this node kills its pods: the kubelet holds no shutdown lock"
        }
        Why::ApiServerAwaited => {
            "a shutdown kills the kubelet's pods: this agent waits for the API server, which it cannot use"
        }
        Why::ApiServerUnusable => {
            "this agent terminates the kubelet's pods without the API server, which it cannot use: no evictions, no \
             disruption budgets, no cordon and no statuses"
        }
        Why::AgentUnknown => "whether the pods are protected is not known: the agent was not asked",
        Why::LockUnknown => {
            "whether a shutdown waits for the pods is not known: nothing lists the locks"
        }
        Why::DelayUnknown => "how long a shutdown waits for the pods is not known",
        Why::KubeletUnknown => {
            "whether a kubelet runs here, whose pods nothing would terminate, is not known"
        }
        Why::KubeletConfigurationUnknown => {
            "whether the kubelet terminates its pods at a shutdown is not known: its configuration was not found"
        }
        Why::Unknown => "whether the pods are protected is not known",
    };
    text.to_owned()
}

/// What to do next; empty if nothing has to be done.
pub(super) fn next(reason: Why) -> &'static str {
    match reason {
        Why::LockHeld => "",
        Why::Rehearsal => "an agent that is to protect the node needs logind, not a stand-in",
        Why::NotACompanion => {
            "`winddown doctor` has each step by which it terminates the kubelet's pods"
        }
        Why::ApiServerAwaited => {
            "`winddown doctor` says why it cannot; without `companionWithoutApi: wait` the agent stops the containers itself"
        }
        _ => "`winddown doctor` says why, and what to do",
    }
}

fn protected(facts: &ProtectionFacts) -> String {
    let whose = match facts.role {
        AgentRole::None => {
            let wants = span(facts.kubelet.wants);
            return format!(
                "the kubelet terminates its pods: a shutdown waits for it, up to {wants}"
            );
        }
        AgentRole::Runtime => "the pods",
        AgentRole::Companion => "the kubelet's pods",
    };
    let wants = duration(facts.agent_wants);
    format!("this agent terminates {whose}: a shutdown waits for it, up to {wants}")
}

fn not_a_companion(facts: &ProtectionFacts, terminated_by: TerminatedBy) -> String {
    let kubelet = match facts.kubelet.presence {
        Some(KubeletPresence::Enabled) => "a kubelet is set up to run pods here",
        _ => "a kubelet runs pods here",
    };
    match terminated_by {
        TerminatedBy::Kubelet => format!(
            "{kubelet} and terminates them by itself, at the same time as this agent, which is not its \
             companion"
        ),
        TerminatedBy::None => format!(
            "{kubelet}, and a shutdown kills them: this agent is not its companion, and the kubelet \
             does not terminate them either"
        ),
        _ => format!("{kubelet}, and this agent does not terminate them: it is not its companion"),
    }
}

fn span(time: Option<Duration>) -> String {
    time.map_or_else(|| "an unknown time".to_owned(), duration)
}
