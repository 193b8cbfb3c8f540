//! Decides the next action for a pod.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::WallTime;

use super::deletion::Grace;
use super::equality::{is_terminal, provider_equal};
use super::known::{ApiPresence, Known};
use super::progress::StopAsked;
use crate::provider::ProvidedPod;

#[cfg(test)]
mod tests;

/// How things stand with one pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodView<'a> {
    /// What is known of it.
    pub(crate) known: &'a Known,
    /// What the provider says of it; `None`: it does not know the pod.
    pub(crate) provider: Option<&'a ProvidedPod>,
    /// An older pod of this name may still be with the provider.
    pub(crate) has_predecessor: bool,
    /// A newer pod of this name waits for its end.
    pub(crate) is_replaced: bool,
    /// Its last word was said, perhaps by an earlier agent.
    pub(crate) last_word: bool,
    /// What is done with pods that the provider has and the API was never seen to have.
    pub(crate) orphans: OrphanPolicy,
    /// The time.
    pub(crate) now: Instant,
    /// The API server's clock.
    pub(crate) api_time: WallTime,
    /// How long a provider may take longer than the grace before it is asked to kill.
    pub(crate) kill_slack: Duration,
    /// How often it is asked again.
    pub(crate) kill_every: Duration,
}

/// What becomes of pods that the provider runs and that the API does not have when the agent starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanPolicy {
    /// They are ended with their own grace.
    #[default]
    Stop,
    /// They run on until a new pod needs their name.
    Adopt,
    /// As [`Adopt`](Self::Adopt), and a warning names each.
    Report,
}

/// The next step for one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodAction {
    /// As it should be.
    Nothing,
    /// As it should be until then.
    Until(Instant),
    /// The provider is to have it.
    Create,
    /// The provider is to take over a change.
    Update,
    /// The provider is to end it.
    Stop {
        /// What is left of its grace.
        grace: Duration,
        /// It had its grace and has not ended.
        kill: bool,
    },
    /// The API is to delete it: the provider wants that.
    RequestDeletion {
        /// What is left of the grace that the provider gives it.
        grace: Duration,
    },
    /// Its status must say that its fate is unknown.
    Lost,
    /// Its object can go from the API.
    Remove,
    /// The API is to be asked whether it is gone.
    LookUp,
    /// It is let be, and that is said once.
    LeaveAlone,
    /// Nothing is left of it.
    Forget,
}

/// What this pod needs next.
pub(crate) fn next_step(mut view: PodView<'_>) -> PodAction {
    let known = view.known;
    // It lists the pod and says that it cannot be ended because it is not there: believed once the pod
    // has had its time.
    if known.progress.unknown_to_stop && known.deadline.is_none_or(|end| end <= view.now) {
        view.provider = None;
    }
    match known.presence {
        ApiPresence::Absent { .. } => PodAction::LookUp,
        ApiPresence::Gone => when_gone(view),
        ApiPresence::Present if known.is_deleting() => when_deleting(view),
        ApiPresence::Present => when_wanted(view),
    }
}

fn when_wanted(view: PodView<'_>) -> PodAction {
    let known = view.known;
    // The API's last word: such a pod only has to be deleted.
    if is_terminal(&known.pod) {
        return PodAction::Nothing;
    }
    match view.provider {
        Some(ProvidedPod { pod, .. }) if pod.metadata.deletion_timestamp.is_some() => {
            let grace = Grace::of_deletion(pod, view.api_time).unwrap_or_default();
            PodAction::RequestDeletion { grace }
        }
        Some(provided) if provided.ended || known.progress.refused => PodAction::Nothing,
        Some(provided) if provider_equal(&provided.pod, &known.pod) => PodAction::Nothing,
        Some(_) => PodAction::Update,
        None if view.last_word || known.progress.refused => PodAction::Nothing,
        // It is woken when that one is forgotten.
        None if view.has_predecessor => PodAction::Nothing,
        None if ran_and_may_not_run_again(known) => PodAction::Lost,
        None => PodAction::Create,
    }
}

/// Deciding from what the provider says, never from the status in the API, which may be behind or may
/// never have been written (<https://github.com/virtual-kubelet/virtual-kubelet/issues/938>).
fn when_deleting(view: PodView<'_>) -> PodAction {
    let progress = &view.known.progress;
    match view.provider {
        Some(provided) if !provided.ended => ending(view),
        None if progress.create_open && progress.stop.is_none() => ending(view),
        _ if progress.removed => PodAction::Nothing,
        None if !view.last_word && !is_terminal(&view.known.pod) => PodAction::Lost,
        _ => PodAction::Remove,
    }
}

fn when_gone(view: PodView<'_>) -> PodAction {
    let known = view.known;
    match view.provider {
        Some(provided) if !provided.ended => {
            if known.was_seen || view.is_replaced || view.orphans == OrphanPolicy::Stop {
                ending(view)
            } else {
                PodAction::LeaveAlone
            }
        }
        None if known.progress.create_open && known.progress.stop.is_none() => ending(view),
        _ => PodAction::Forget,
    }
}

fn ending(view: PodView<'_>) -> PodAction {
    let PodView { now, .. } = view;
    let deadline = view.known.deadline.unwrap_or(now);
    let grace = deadline.saturating_duration_since(now);
    match view.known.progress.stop {
        None => PodAction::Stop { grace, kill: false },
        Some(asked) if deadline < asked.deadline => PodAction::Stop { grace, kill: false },
        Some(StopAsked { kill, at, .. }) => {
            let due = match kill {
                _ if view.known.progress.unknown_to_stop => deadline,
                true => at + view.kill_every,
                false => deadline.max(at) + view.kill_slack,
            };
            if now < due {
                PodAction::Until(due)
            } else {
                PodAction::Stop { grace: Duration::ZERO, kill: true }
            }
        }
    }
}

/// The provider does not know a pod that ran. With `Never` it must not run twice
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/762>).
fn ran_and_may_not_run_again(known: &Known) -> bool {
    let policy = known.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let phase = known.pod.status.as_ref().and_then(|status| status.phase.as_deref());
    policy == Some("Never") && (known.progress.created || phase == Some("Running"))
}
