//! What happens to a pod's containers while the runtime works on them.

use std::sync::Arc;
use std::time::Duration;

use crate::{ContainerKind, PodLabel};

/// Something that the kubelet has a Kubernetes Event for. It is no decision: no log line and no report
/// has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// Which pod.
    pub pod: PodLabel,
    /// Which of its containers; none: the whole pod.
    pub container: Option<(ContainerKind, Arc<str>)>,
    /// What happened.
    pub what: Happening,
}

/// What happened to a container, or to what a pod's containers run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Its image is there.
    ImagePresent {
        /// As the spec names it.
        image: String,
    },
    /// Its image is being pulled.
    Pulling {
        /// As the spec names it.
        image: String,
    },
    /// Its image was pulled.
    Pulled {
        /// As the spec names it.
        image: String,
        /// How long the pull took, and how long with the wait for its turn.
        took: (Duration, Duration),
        /// In bytes.
        size: u64,
    },
    /// Its image could not be pulled.
    PullFailed {
        /// As the spec names it.
        image: String,
        /// What the runtime answered.
        error: String,
    },
    /// Its image could not be pulled again, and the next try has to wait.
    PullBackOff {
        /// As the spec names it.
        image: String,
    },
    /// Its image is not there and may not be pulled.
    NeverPulled {
        /// As the spec names it.
        image: String,
    },
    /// Whether its image is there could not be found out.
    InspectFailed {
        /// As the spec names it.
        image: String,
        /// What the runtime answered.
        error: String,
    },
    /// It was made.
    Created,
    /// It runs.
    Started,
    /// It could not be made or started.
    Failed {
        /// Why.
        error: String,
    },
    /// It has ended and waits to be started again.
    BackOff,
    /// A probe failed once.
    Unhealthy {
        /// Which.
        probe: ProbeKind,
        /// What it answered.
        output: String,
    },
    /// A probe passed, but not as it should.
    ProbeWarned {
        /// Which.
        probe: ProbeKind,
        /// What there is to warn of.
        warning: String,
    },
    /// A probe could not be asked.
    ProbeErrored {
        /// Which.
        probe: ProbeKind,
        /// Why.
        error: String,
    },
    /// It is being ended.
    Killing(EndCause),
    /// Its postStart hook failed.
    PostStartFailed,
    /// Its preStop hook failed.
    PreStopFailed,
    /// What the pod's containers ran in is gone.
    SandboxChanged,
    /// What the pod's containers are to run in could not be made.
    SandboxFailed {
        /// What the runtime answered.
        error: String,
    },
    /// The runtime has no network to offer to pods yet.
    NetworkNotReady {
        /// What the runtime says of it.
        error: String,
    },
}

/// Why a container is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Its pod ends.
    Pod,
    /// It is to be started again with another definition.
    Changed,
    /// It is to be started again, because this probe failed too often.
    Probe(ProbeKind),
    /// Its postStart hook failed.
    PostStart,
}

/// Which of a container's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Whether it has started.
    Startup,
    /// Whether requests may come.
    Readiness,
    /// Whether it has to be started again.
    Liveness,
}
