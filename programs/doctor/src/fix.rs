//! The faults that the doctor mends with commands.

use serde::Serialize;

/// Declares [`Fix`] and the list of its variants, so that neither can lack one.
macro_rules! fixes {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A fault for which a finding has commands that anybody can type as they are.
        ///
        /// A test types each on a node with that fault, and asks the doctor again: `tests/node/tests/operator/fixes.rs` has a row
        /// for every variant. What needs a decision, a look or a cluster is no `Fix` but
        /// [`advice`](crate::Finding::advice).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub enum Fix {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Fix {
            /// Every fix.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
        }
    };
}

fixes! {
    /// Only root sees it: run the doctor as root.
    NotPermitted,

    /// The running agent is of another version than this command.
    AgentVersion,
    /// The agent hangs.
    AgentSilent,
    /// The agent is not running, and its unit can be started.
    AgentStopped,
    /// The agent runs, but nothing can reach it at its socket.
    SocketGone,
    /// The lock is held, but its agent hangs.
    LockHolderSilent,
    /// logind is masked or not running.
    LogindStopped,
    /// logind hangs.
    LogindSilent,
    /// logind has not read its configuration again.
    LogindStale,
    /// Another file sets a shorter delay than the agent's file.
    DelayOverridden,
    /// The agent could not write its file for logind.
    DelayNotRaised,

    /// The unit is not installed.
    UnitMissing,
    /// The unit is not installed in an image.
    UnitMissingInImage,
    /// The unit is masked.
    UnitMasked,
    /// systemd has not read the unit's files again.
    UnitStale,
    /// The unit has failed, and its configuration is valid now.
    UnitFailed,
    /// An agent runs that systemd did not start.
    AgentOutsideUnit,
    /// The unit keeps the agent from directories of its configuration.
    PathsClosed,
    /// The unit is not started at boot.
    NotEnabled,
    /// The unit is not started at boot, in an image.
    NotEnabledInImage,
    /// The unit is not stopped before what the agent needs.
    OrderMissing,
    /// systemd stops the agent too early.
    StopTimeShort,
    /// A restart of the agent would kill the pods.
    RestartKillsPods,

    /// The container runtime is not running.
    RuntimeStopped,
    /// The drop-in for the containers' scopes is missing.
    ScopesNotOrdered,
    /// The same in an image.
    ScopesNotOrderedInImage,
    /// The drop-in for the scopes of Docker's containers is missing.
    DockersScopesNotOrdered,
    /// The pods' slice is nearly full of tasks.
    SliceFull,
    /// The node is drained.
    Drained,

    /// A kubelet has pods here, and the agent is not its companion.
    NotACompanion,
    /// The same in an image.
    NotACompanionInImage,
    /// The agent was started before its configuration made it the kubelet's companion.
    CompanionNotStarted,
    /// The configuration is for another kubelet.
    AnotherKubelet,
    /// The same in an image.
    AnotherKubeletInImage,
    /// `mode: companion`, and no kubelet runs.
    KubeletStopped,
    /// The kubelet's own graceful shutdown is switched on.
    KubeletTerminatesPods,
    /// The same in an image.
    KubeletTerminatesPodsInImage,
    /// The kubelet was not restarted after its graceful shutdown was switched off.
    KubeletStale,
    /// logind delays for less than the kubelet's own graceful shutdown needs.
    KubeletDelayShort,
    /// The same in an image.
    KubeletDelayShortInImage,
    /// The kubelet's own graceful shutdown holds no lock.
    KubeletLockLost,

    /// The agent has not read the changed configuration.
    ConfigChanged,
    /// The agent has read changes that take effect when it is restarted.
    ConfigAtRestart,
    /// Users other than root can write manifests.
    ManifestsWritable,
    /// The state directory was removed under the agent.
    StateGone,
    /// All users can write to the control socket.
    SocketOpen,
    /// All users can replace the control socket.
    SocketReplaceable,
    /// The control socket does not have the configured group.
    SocketGroup,
    /// There is no group of the configured name.
    NoGroup,
}
