//! What the stop of a pod is made of, whatever runs its containers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use winddown_shared::{
    ContainerExit, ContainerKind, Grace, Pod, PodStopped, PodUid, StoppedContainer, error_chain,
};

use crate::entry::Entry;

/// The grace of a pod that does not name one, as the API server sets it.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// The longest time before the end of a grace at which a container that still waits, for others or for
/// its preStop hook, is asked to end. The kubelet gives as much beyond the grace
/// (`minimumGracePeriodInSeconds`).
const LAST_CALL: Duration = Duration::from_secs(2);
/// The exit code of a container that SIGKILL ended.
pub const KILLED: i32 = 137;
/// The reason of an end that was not seen; its exit code is made up.
pub const UNKNOWN_END: &str = "ContainerStatusUnknown";

/// What ran when a stop began; kept so that a second stop tells the same.
#[derive(Clone, Debug, Default)]
pub struct StopRecord {
    /// The containers that ran.
    pub names: Vec<Arc<str>>,
    /// When the first was asked to end.
    pub signalled_at: Option<Instant>,
    /// When nothing ran any more.
    pub stopped_at: Option<Instant>,
}

impl StopRecord {
    /// Notes that a container runs.
    pub fn add(&mut self, name: &Arc<str>) {
        if !self.names.contains(name) {
            self.names.push(Arc::clone(name));
        }
    }

    /// How it went, now that nothing runs. `end_of` gives how a container ended.
    pub fn finish(
        &mut self,
        end_of: impl FnMut(&Arc<str>) -> Option<StoppedContainer>,
    ) -> PodStopped {
        if !self.names.is_empty() {
            self.stopped_at.get_or_insert_with(Instant::now);
        }
        PodStopped {
            signalled_at: self.signalled_at,
            stopped_at: self.stopped_at,
            containers: self.names.iter().filter_map(end_of).collect(),
        }
    }
}

/// Whether SIGKILL ended it, from any sender: an earlier agent's request may take effect only now.
pub fn was_killed(exit: &ContainerExit) -> bool {
    exit.exit_code == KILLED && &*exit.reason != UNKNOWN_END
}

/// The default grace of a pod's containers.
pub fn grace_of(pod: &Pod) -> Duration {
    pod.own_grace().unwrap_or(DEFAULT_GRACE)
}

/// The containers of a pod, for the order in which they end.
pub trait Containers {
    /// In the spec's order: name, kind, whether it runs.
    fn containers(&self) -> impl Iterator<Item = (&str, ContainerKind, bool)>;
}

/// Resolves when a sidecar may go: no regular container runs, nor a sidecar that started after it; or when
/// less than `last_call` of the grace is left. Cancel-safe.
pub async fn turn<S: Containers>(entry: &Entry<S>, name: &str, grace: Grace, last_call: Duration) {
    let is_free = |state: &S| !is_needed(name, state.containers());
    tokio::select! {
        () = entry.wait_for(|state| is_free(state).then_some(())) => {}
        () = last_call_of(grace, last_call) => {}
    }
}

/// Whether a sidecar may not be asked to end yet: a container that is no sidecar runs, or a sidecar that
/// comes after it. `containers` are all of the pod in the spec's order: name, kind, whether it runs.
fn is_needed<'a>(
    name: &str,
    containers: impl IntoIterator<Item = (&'a str, ContainerKind, bool)>,
) -> bool {
    let mut is_later = false;
    containers.into_iter().any(|(other, kind, runs)| {
        if other == name {
            is_later = true;
            return false;
        }
        runs && (is_later || kind != ContainerKind::Sidecar)
    })
}

/// Runs a container's preStop hook until `last_call` is left of the grace: the container is to see SIGTERM
/// before SIGKILL, however long its hook takes. `run` is given the time it has; what it gives is dropped
/// when that is over before.
pub async fn pre_stop<E: std::error::Error>(
    pod: &PodUid,
    container: &str,
    grace: Grace,
    last_call: Duration,
    run: impl AsyncFnOnce(Duration) -> Result<(), E>,
) {
    let time = grace.remaining().saturating_sub(last_call);
    if time.is_zero() {
        return;
    }
    tokio::select! {
        biased;
        () = last_call_of(grace, last_call) => {
            let left = format!("{last_call:.1?}");
            tracing::warn!(%pod, container, left, "the preStop hook took all but the last of the grace");
        }
        outcome = run(time) => if let Err(error) = outcome {
            tracing::warn!(%pod, container, error = error_chain(&error), "the preStop hook failed");
        },
    }
}

/// How long before the end of a grace a container that still waits is asked to end: in its last quarter, at
/// most 2 s.
pub fn last_call(grace: &Grace) -> Duration {
    (grace.remaining() / 4).min(LAST_CALL)
}

/// Resolves `before` the end of the grace, following every shortening. Cancel-safe.
async fn last_call_of(mut grace: Grace, before: Duration) {
    loop {
        let at = grace.kill_at().checked_sub(before).unwrap_or_else(Instant::now);
        tokio::select! {
            () = sleep_until(at) => return,
            () = grace.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use ContainerKind::{Init, Regular, Sidecar};

    use super::*;

    #[test]
    fn a_sidecar_is_needed_by_all_but_the_sidecars_before_it() {
        let needed = |running: &[&str]| {
            let all = [
                ("init", Init),
                ("early", Sidecar),
                ("proxy", Sidecar),
                ("late", Sidecar),
                ("main", Regular),
            ];
            is_needed("proxy", all.map(|(name, kind)| (name, kind, running.contains(&name))))
        };
        for (running, expected) in [
            (&["proxy"][..], false),
            (&["proxy", "early"], false),
            (&["proxy", "late"], true),
            (&["proxy", "main"], true),
            (&["proxy", "init"], true),
        ] {
            assert_eq!(needed(running), expected, "{running:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_is_over_when_it_is_done_or_at_the_last_call_of_the_grace_however_that_came() {
        let (pod, secs) = (PodUid::new("u"), Duration::from_secs);
        let took = async |grace: Grace, length: Duration| {
            let (began, last_call) = (Instant::now(), last_call(&grace));
            let run = async |left| {
                tokio::time::sleep(length.min(left)).await;
                Err(std::fmt::Error)
            };
            pre_stop(&pod, "main", grace, last_call, run).await;
            began.elapsed()
        };
        assert_eq!(took(Grace::fixed(secs(30)), secs(3)).await, secs(3));
        // SIGTERM comes before SIGKILL.
        assert_eq!(took(Grace::fixed(secs(30)), secs(60)).await, secs(28));
        assert_eq!(took(Grace::fixed(secs(2)), secs(60)).await, Duration::from_millis(1500));
        let (sender, grace) = Grace::until(Instant::now() + secs(30));
        let shorter = async {
            tokio::time::sleep(secs(1)).await;
            sender.shorten_to(Instant::now() + secs(5));
        };
        let (took_shortened, ()) = tokio::join!(took(grace.clone(), secs(60)), shorter);
        assert_eq!(took_shortened, secs(4));
        tokio::time::sleep(secs(2)).await;
        assert_eq!(took(grace, secs(60)).await, Duration::ZERO, "nothing is left of it");
    }
}
