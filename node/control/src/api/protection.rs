//! Whether the pods of a node end in order and in time at a shutdown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The verdict on a node: whether its pods terminate in order and in time at a shutdown, and who terminates them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Protection {
    /// The verdict.
    pub state: ProtectionState,
    /// Who terminates the node's pods at a shutdown. If a kubelet runs pods that the agent does not end, this is about the
    /// kubelet's.
    pub terminated_by: TerminatedBy,
    /// Why, as one word for programs.
    pub reason: ProtectionReason,
    /// The verdict in one human-readable sentence.
    pub text: String,
    /// What to do next, human-readable; empty if nothing has to be done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// The time that is configured for the end of the pods, in seconds; absent if unknown, 0 if switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_seconds: Option<f64>,
    /// How long a shutdown really waits for that, in seconds; absent if unknown, 0 if it does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_seconds: Option<f64>,
}

/// Whether the pods of a node end in order and in time at a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProtectionState {
    /// They do.
    Protected,
    /// They end in order, but with less time or less safety than configured.
    Limited,
    /// Some of them do not.
    Unprotected,
    /// It could not be seen, or this version does not know the value.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Who terminates the pods of a node at a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TerminatedBy {
    /// The agent, which also runs them.
    Agent,
    /// The agent, beside the kubelet that runs them.
    Companion,
    /// The kubelet that runs them.
    Kubelet,
    /// No program does: they are killed.
    None,
    /// It could not be seen, or this version does not know the value.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The fact that decided a [`Protection`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProtectionReason {
    /// The program that terminates the pods holds a shutdown lock that gives enough time.
    LockHeld,
    /// The login manager waits a shorter time than the agent wants.
    DelayTooShort,
    /// The kubelet terminates the same pods as the agent.
    KubeletTerminatesToo,
    /// No kubelet runs that the agent could stand beside.
    NoKubelet,
    /// The agent is set up for another node, container runtime or directory than the kubelet's.
    AnotherKubelet,
    /// The agent does not run.
    NoAgent,
    /// Graceful shutdown is switched off in the agent's configuration.
    Disabled,
    /// The agent holds no shutdown lock.
    LockNotHeld,
    /// The agent rehearses, with a stand-in for the login manager.
    Rehearsal,
    /// The login manager does not wait at all.
    NoDelay,
    /// A kubelet has pods here, and the agent is not its companion.
    NotACompanion,
    /// There is neither an agent nor a kubelet.
    None,
    /// The kubelet, which is alone, has no graceful shutdown.
    KubeletDisabled,
    /// The login manager waits a shorter time than the kubelet wants, so that the kubelet does not delay at all.
    KubeletDelayTooShort,
    /// The kubelet, which is alone, holds no shutdown lock.
    KubeletLockNotHeld,
    /// The agent would wait for an API server that it cannot use (`companionWithoutApi: wait`).
    ApiServerAwaited,
    /// The agent terminates the kubelet's pods without the API server, whose credentials are refused or cannot be used.
    ApiServerUnusable,
    /// The agent could not be asked.
    AgentUnknown,
    /// The login manager could not be asked.
    LockUnknown,
    /// How long the login manager waits could not be seen.
    DelayUnknown,
    /// Whether a kubelet runs could not be seen.
    KubeletUnknown,
    /// The configuration of the kubelet could not be seen.
    KubeletConfigurationUnknown,
    /// A value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

// === impl Protection ===

impl Protection {
    /// Whether the node's pods terminate in order at a shutdown, if perhaps with less time than configured.
    pub fn is_protected(&self) -> bool {
        matches!(self.state, ProtectionState::Protected | ProtectionState::Limited)
    }

    /// Logs the verdict if it is another than the one `before`, and returns that. That a node is protected at the start is
    /// not logged.
    pub fn log_after(&self, before: Option<&Self>) -> bool {
        if before == Some(self) {
            return false;
        }
        let text = &self.text;
        let was = before.map(|before| before.state);
        match self.state {
            ProtectionState::Protected
                if matches!(was, None | Some(ProtectionState::Protected)) => {}
            ProtectionState::Protected => tracing::info!("this node is protected again: {text}"),
            ProtectionState::Limited => {
                tracing::warn!("this node is protected only in part: {text}");
            }
            ProtectionState::Unprotected => tracing::warn!("this node is NOT PROTECTED: {text}"),
            ProtectionState::Unknown => {
                tracing::warn!("it is not known whether this node is protected: {text}");
            }
        }
        true
    }

    /// Whether the node is not healthy for a reason that no other problem of the status has: those of the lock, the plan and
    /// the API server say what to do.
    pub fn is_unexplained(&self) -> bool {
        let is_shown = matches!(
            self.reason,
            ProtectionReason::LockNotHeld
                | ProtectionReason::DelayTooShort
                | ProtectionReason::ApiServerUnusable
                | ProtectionReason::Disabled
        );
        self.state != ProtectionState::Protected && !is_shown
    }
}
