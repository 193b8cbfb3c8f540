//! Decides the next action for a pod.

use super::equality::{is_terminal, is_up_to_date};
use super::known::{ApiPresence, Known};

#[cfg(test)]
mod tests;

/// How things stand with one pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodView<'a> {
    /// What is known of it.
    pub(crate) known: &'a Known,
    /// An older pod of this name may still run here.
    pub(crate) has_predecessor: bool,
    /// A newer pod of this name waits for its end.
    pub(crate) is_replaced: bool,
    /// Its final status was submitted, perhaps by an earlier agent.
    pub(crate) final_status: bool,
    /// The node itself reports that the pod is Failed or Succeeded.
    pub(crate) is_over_here: bool,
    /// What is done with pods that run here and the API was never seen to have.
    pub(crate) orphans: OrphanPolicy,
}

/// What becomes of pods that run here and that the API does not have when the agent starts.
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
    /// The node is to have it.
    Give,
    /// The node is to have a change of it.
    Change,
    /// The node is to end it, or to end it earlier.
    End,
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
pub(crate) fn next_step(view: PodView<'_>) -> PodAction {
    match view.known.presence {
        ApiPresence::Absent { .. } => PodAction::LookUp,
        ApiPresence::Gone => when_gone(view),
        ApiPresence::Present if view.known.is_deleting() => when_deleting(view),
        ApiPresence::Present => when_wanted(view),
    }
}

fn when_wanted(view: PodView<'_>) -> PodAction {
    let known = view.known;
    // The API does not take this back: such a pod only has to be deleted. One that still runs, because another
    // client wrote that status, is terminated as the kubelet does: its controller has already replaced it.
    if is_terminal(&known.pod) && runs(known) && !view.is_over_here {
        return ending(known);
    }
    if is_terminal(&known.pod) || known.refused {
        return PodAction::Nothing;
    }
    match &known.given {
        // What is ending ends by what was said of its end.
        Some(given) if given.last.is_some() || given.is_ending() => PodAction::Nothing,
        Some(given) if is_up_to_date(&given.pod, &known.pod) => PodAction::Nothing,
        Some(_) => PodAction::Change,
        // A predecessor wakes it when it is forgotten.
        None if view.final_status || view.has_predecessor => PodAction::Nothing,
        None if ran_and_may_not_run_again(known) => PodAction::Lost,
        None => PodAction::Give,
    }
}

/// Deciding from what the node says, never from the status in the API, which may be behind or may
/// never have been written (<https://github.com/virtual-kubelet/virtual-kubelet/issues/938>).
fn when_deleting(view: PodView<'_>) -> PodAction {
    let known = view.known;
    if runs(known) {
        return ending(known);
    }
    let has_end = known.given.is_some() || view.final_status || is_terminal(&known.pod);
    match known.removed {
        true => PodAction::Nothing,
        false if has_end => PodAction::Remove,
        false => PodAction::Lost,
    }
}

fn when_gone(view: PodView<'_>) -> PodAction {
    let known = view.known;
    if !runs(known) {
        PodAction::Forget
    } else if known.was_seen || view.is_replaced || view.orphans == OrphanPolicy::Stop {
        ending(known)
    } else {
        PodAction::LeaveAlone
    }
}

fn runs(known: &Known) -> bool {
    known.given.as_ref().is_some_and(|given| given.last.is_none())
}

/// The node ends it once it is told, and says when that is done.
fn ending(known: &Known) -> PodAction {
    match (known.told_deadline, known.deadline) {
        (Some(told), Some(deadline)) if told <= deadline => PodAction::Nothing,
        (Some(_), None) => PodAction::Nothing,
        _ => PodAction::End,
    }
}

/// The node does not have a pod that ran. With `Never` it must not run twice
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/762>).
fn ran_and_may_not_run_again(known: &Known) -> bool {
    let policy = known.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let phase = known.pod.status.as_ref().and_then(|status| status.phase.as_deref());
    policy == Some("Never") && phase == Some("Running")
}
