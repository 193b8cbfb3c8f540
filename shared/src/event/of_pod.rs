//! Events of a pod's containers while the runtime works on them.

use std::sync::Arc;
use std::time::Duration;

use crate::{ContainerKind, PodRef};

/// Something that the kubelet reports as a Kubernetes Event. It is no decision, so no log line and no report has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod.
    pub pod: PodRef,
    /// The container; `None` for the whole pod.
    pub container: Option<(ContainerKind, Arc<str>)>,
    /// What happened.
    pub what: PodEventKind,
}

/// What happened to a container, or to the sandbox of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodEventKind {
    /// Its image is already present.
    ImagePresent {
        /// The image as the spec names it.
        image: String,
    },
    /// Its image is being pulled.
    Pulling {
        /// The image as the spec names it.
        image: String,
    },
    /// Images of the pod are pulled without the credentials that these Secrets have.
    PullSecretsUnused(Vec<String>),
    /// Its image was pulled.
    Pulled {
        /// The image as the spec names it.
        image: String,
        /// The duration of the pull itself, and including the time in the queue.
        took: (Duration, Duration),
        /// The size in bytes.
        size: u64,
    },
    /// Its image could not be pulled.
    PullFailed {
        /// The image as the spec names it.
        image: String,
        /// The error from the runtime.
        error: String,
    },
    /// Its image could not be pulled again, and the next attempt has to wait.
    PullBackOff {
        /// The image as the spec names it.
        image: String,
    },
    /// Its image is not present and may not be pulled.
    NeverPulled {
        /// The image as the spec names it.
        image: String,
    },
    /// It could not be determined whether its image is present.
    InspectFailed {
        /// The image as the spec names it.
        image: String,
        /// The error from the runtime.
        error: String,
    },
    /// It was created.
    Created,
    /// It runs.
    Started,
    /// It could not be created or started.
    Failed {
        /// The cause.
        error: String,
    },
    /// It has exited and waits to be restarted.
    BackOff,
    /// A probe failed once.
    Unhealthy {
        /// The probe.
        probe: ProbeKind,
        /// Its output.
        output: String,
    },
    /// A probe passed, but with a warning.
    ProbeWarned {
        /// The probe.
        probe: ProbeKind,
        /// The warning.
        warning: String,
    },
    /// A probe could not be carried out.
    ProbeErrored {
        /// The probe.
        probe: ProbeKind,
        /// The cause.
        error: String,
    },
    /// It is being stopped.
    Killing(EndCause),
    /// Its postStart hook failed.
    PostStartFailed,
    /// Its preStop hook failed.
    PreStopFailed,
    /// The pod's sandbox is gone.
    SandboxChanged,
    /// The pod's sandbox could not be created.
    SandboxFailed {
        /// The error from the runtime.
        error: String,
    },
    /// The runtime has no network for pods yet.
    NetworkNotReady {
        /// What the runtime reports about it.
        error: String,
    },
}

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Its pod is terminating.
    Pod,
    /// Its definition changed, so it is restarted.
    Changed,
    /// This probe failed too often, so it is restarted.
    Probe(ProbeKind),
    /// Its postStart hook failed.
    PostStart,
}

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Checks whether the container has started.
    Startup,
    /// Checks whether the container can serve requests.
    Readiness,
    /// Checks whether the container has to be restarted.
    Liveness,
}

impl EndCause {
    /// The kubelet's text for a container that is stopped.
    pub fn text(self, container: &str) -> String {
        match self {
            Self::Pod => format!("Stopping container {container}"),
            Self::Changed => {
                format!("Container {container} definition changed, will be restarted")
            }
            Self::Probe(probe) => {
                let probe = probe.as_str().to_lowercase();
                format!("Container {container} failed {probe} probe, will be restarted")
            }
            Self::PostStart => "FailedPostStartHook".to_owned(),
        }
    }
}

impl ProbeKind {
    /// `Startup`, `Readiness` or `Liveness`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}
