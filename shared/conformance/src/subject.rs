//! What the suite is given.

use std::time::Duration;

use tokio::time::sleep;
use winddown_shared::{Pod, Runtime};

/// A runtime on trial: how to open it, and pods for it.
///
/// Each case gets a subject of its own, with nothing of another case on it. A case stops the pods that it has started; what
/// runs after one that failed is left to the subject's `Drop`.
pub trait RuntimeUnderTest {
    /// The runtime.
    type Runtime: Runtime;

    /// Whether pods run on when the agent is killed. False for a runtime whose pods are part of the agent, such as threads:
    /// the next agent then has to find that none runs.
    const PODS_OUTLIVE_THE_AGENT: bool = true;

    /// How long what has to happen may take: a container starts, exits, is restarted, a call answers. A case is over after
    /// ten times that. A runtime whose containers take long to start on a busy machine says more.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Opens the runtime as an agent does when it starts. The suite drops one before it opens the next, without a word:
    /// as when an agent is killed.
    fn open(&self) -> impl Future<Output = Self::Runtime>;

    /// A pod of this name, with one container that behaves so. Its UID differs from those of pods of other names. By default
    /// [`PodBehaviour::pod`].
    fn pod(&self, name: &str, behaviour: PodBehaviour) -> Pod {
        behaviour.pod(name)
    }

    /// Resolves when the pod's container, which runs, hears signals. The first process of a container that is sent
    /// SIGTERM before it has set its handler runs on. By default after a second.
    fn hears_signals(&self, pod: &Pod) -> impl Future<Output = ()> {
        let _ = pod;
        sleep(Duration::from_secs(1))
    }

    /// Makes what is below the runtime unreachable from now on, such as a daemon that it calls. Returns false, the default,
    /// if there is nothing below it.
    fn cut_off(&self) -> impl Future<Output = bool> {
        async { false }
    }
}

/// How the container of a pod behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodBehaviour {
    /// It runs until it gets SIGTERM, and then exits with code 0 at once. The pod's restart policy is `Always`.
    UntilStopped,
    /// It runs and ignores SIGTERM. The pod's restart policy is `Always`.
    IgnoresSigterm,
    /// It exits with this code within some seconds, without having been asked. The pod's restart policy is `Never`.
    Exits(i32),
    /// The same, each time it is started, with the restart policy `Always`. A restart backoff is less than
    /// [`RuntimeUnderTest::PATIENCE`].
    Crashes(i32),
}
