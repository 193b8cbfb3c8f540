//! What a pod needs next.

use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::WallTime;

use super::deletion::Grace;
use super::equality::{is_terminal, provider_equal};
use super::known::{Known, Standing};
use super::marks::StopAsked;
use crate::provider::ProvidedPod;

#[cfg(test)]
mod tests;

/// How things stand with one pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
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
pub(crate) enum Step {
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
    /// Its status has to say that nobody knows what became of it.
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
pub(crate) fn next_step(mut sight: Sight<'_>) -> Step {
    let known = sight.known;
    // It lists the pod and says that it cannot be ended because it is not there: believed once the pod
    // has had its time.
    if known.marks.unknown_to_stop && known.deadline.is_none_or(|end| end <= sight.now) {
        sight.provider = None;
    }
    match known.standing {
        Standing::Absent { .. } => Step::LookUp,
        Standing::Gone => when_gone(sight),
        Standing::Present if known.is_deleting() => when_deleting(sight),
        Standing::Present => when_wanted(sight),
    }
}

fn when_wanted(sight: Sight<'_>) -> Step {
    let known = sight.known;
    // The API's last word: such a pod only has to be deleted.
    if is_terminal(&known.pod) {
        return Step::Nothing;
    }
    match sight.provider {
        Some(ProvidedPod { pod, .. }) if pod.metadata.deletion_timestamp.is_some() => {
            let grace = Grace::of_deletion(pod, sight.api_time).unwrap_or_default();
            Step::RequestDeletion { grace }
        }
        Some(provided) if provided.ended || known.marks.refused => Step::Nothing,
        Some(provided) if provider_equal(&provided.pod, &known.pod) => Step::Nothing,
        Some(_) => Step::Update,
        None if sight.last_word || known.marks.refused => Step::Nothing,
        // It is woken when that one is forgotten.
        None if sight.has_predecessor => Step::Nothing,
        None if ran_and_may_not_run_again(known) => Step::Lost,
        None => Step::Create,
    }
}

/// Deciding from what the provider says, never from the status in the API, which may be behind or may
/// never have been written (<https://github.com/virtual-kubelet/virtual-kubelet/issues/938>).
fn when_deleting(sight: Sight<'_>) -> Step {
    let marks = &sight.known.marks;
    match sight.provider {
        Some(provided) if !provided.ended => ending(sight),
        None if marks.create_open && marks.stop.is_none() => ending(sight),
        _ if marks.removed => Step::Nothing,
        None if !sight.last_word && !is_terminal(&sight.known.pod) => Step::Lost,
        _ => Step::Remove,
    }
}

fn when_gone(sight: Sight<'_>) -> Step {
    let known = sight.known;
    match sight.provider {
        Some(provided) if !provided.ended => {
            if known.was_seen || sight.is_replaced || sight.orphans == OrphanPolicy::Stop {
                ending(sight)
            } else {
                Step::LeaveAlone
            }
        }
        None if known.marks.create_open && known.marks.stop.is_none() => ending(sight),
        _ => Step::Forget,
    }
}

fn ending(sight: Sight<'_>) -> Step {
    let Sight { now, .. } = sight;
    let deadline = sight.known.deadline.unwrap_or(now);
    let grace = deadline.saturating_duration_since(now);
    match sight.known.marks.stop {
        None => Step::Stop { grace, kill: false },
        Some(asked) if deadline < asked.deadline => Step::Stop { grace, kill: false },
        Some(StopAsked { kill, at, .. }) => {
            let due = match kill {
                _ if sight.known.marks.unknown_to_stop => deadline,
                true => at + sight.kill_every,
                false => deadline.max(at) + sight.kill_slack,
            };
            if now < due {
                Step::Until(due)
            } else {
                Step::Stop { grace: Duration::ZERO, kill: true }
            }
        }
    }
}

/// The provider does not know a pod that ran. With `Never` it must not run twice
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/762>).
fn ran_and_may_not_run_again(known: &Known) -> bool {
    let policy = known.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let phase = known.pod.status.as_ref().and_then(|status| status.phase.as_deref());
    policy == Some("Never") && (known.marks.created || phase == Some("Running"))
}
