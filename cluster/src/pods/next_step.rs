//! Decides the next action for a pod.

use winddown_api_client::equality::{is_terminal, is_up_to_date};

use super::known::{ApiPresence, KnownPod};

#[cfg(test)]
mod tests;

/// What the decision about one pod depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodView<'a> {
    /// What is known about it.
    pub(crate) known: &'a KnownPod,
    /// Whether an older pod with this name may still run here.
    pub(crate) has_predecessor: bool,
    /// Whether a newer pod with this name waits for its end.
    pub(crate) is_replaced: bool,
    /// Whether its final status was reported, perhaps by an earlier agent.
    pub(crate) final_status: bool,
    /// Whether the node itself reports the pod as Failed or Succeeded.
    pub(crate) is_over_here: bool,
    /// Whether it runs here although the node was not given it; `None` while that is unknown.
    pub(crate) runs: Option<bool>,
    /// Whether its `activeDeadlineSeconds` have passed while it waited.
    pub(crate) is_overdue: bool,
    /// What to do with pods that run here and that the API was never seen to have.
    pub(crate) orphans: OrphanPolicy,
}

/// What happens to pods that run here and that the API does not have when the agent starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanPolicy {
    /// They are stopped with their own grace period.
    #[default]
    Stop,
    /// They keep running until a new pod needs their name.
    Adopt,
    /// Like [`Adopt`](Self::Adopt), with a warning for each.
    Report,
}

/// The next step for one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodAction {
    /// Everything is as it should be.
    Nothing,
    /// Give it to the node.
    Give,
    /// Give a change of it to the node.
    Change,
    /// Make the node terminate it, or terminate it earlier.
    End,
    /// Take it over as it is in the API, because it runs and has to terminate.
    TakeOver,
    /// Give it to the node as a pod that has terminated, which keeps what is left of it.
    GiveTerminated,
    /// Wait until it is known whether it runs.
    Wait,
    /// Report how it ended, as far as the runtime still knows.
    Conclude,
    /// Report that it has failed, because it waited for longer than it may be active.
    Overdue,
    /// Remove its object from the API.
    Remove,
    /// Look up in the API whether it is gone.
    LookUp,
    /// Leave it alone, and report that once.
    LeaveAlone,
    /// Forget it: nothing is left of it.
    Forget,
}

/// Decides what this pod needs next.
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
    if is_terminal(&known.pod) {
        return when_terminated(view);
    }
    if view.is_overdue && has_only_waited(view) {
        return PodAction::Overdue;
    }
    if known.refused {
        return PodAction::Nothing;
    }
    match &known.given {
        // The node terminates or has terminated it already.
        Some(given) if given.last.is_some() || given.is_ending() => PodAction::Nothing,
        Some(given) if is_up_to_date(&given.pod, &known.pod) => PodAction::Nothing,
        Some(_) => PodAction::Change,
        // It is woken when its predecessor is forgotten.
        None if view.final_status || view.has_predecessor => PodAction::Nothing,
        None if ran_and_may_not_run_again(known) => unless_it_runs(view, PodAction::Give),
        None => PodAction::Give,
    }
}

/// The API does not take this back: such a pod only has to be deleted. One that still runs, because another client wrote
/// that status, is terminated as the kubelet does: its controller has already replaced it. One that terminated before the
/// node knew it, for example in an earlier boot, keeps its logs and containers until its object is deleted.
fn when_terminated(view: PodView<'_>) -> PodAction {
    let known = view.known;
    match (known.runs(), view.runs) {
        (true, _) if view.is_over_here => PodAction::Nothing,
        (true, _) => ending(known),
        (false, _) if known.given.is_some() => PodAction::Nothing,
        (false, Some(true)) => PodAction::TakeOver,
        (false, Some(false)) => PodAction::GiveTerminated,
        (false, None) => PodAction::Wait,
    }
}

/// Decides from what the node reports, never from the status in the API, which may be outdated or
/// may never have been written (<https://github.com/virtual-kubelet/virtual-kubelet/issues/938>).
fn when_deleting(view: PodView<'_>) -> PodAction {
    let known = view.known;
    if known.runs() {
        return ending(known);
    }
    // Another client may have written that it is over, and the record that it runs may be lost.
    let is_over = view.runs == Some(false) && (view.final_status || is_terminal(&known.pod));
    match known.removed {
        true => PodAction::Nothing,
        false if known.given.is_some() || is_over => PodAction::Remove,
        false => unless_it_runs(view, PodAction::TakeOver),
    }
}

/// The step for a pod that ran and has no record here: a record may be lost while its pod runs.
fn unless_it_runs(view: PodView<'_>, then: PodAction) -> PodAction {
    match view.runs {
        Some(true) => then,
        Some(false) => PodAction::Conclude,
        None => PodAction::Wait,
    }
}

fn when_gone(view: PodView<'_>) -> PodAction {
    let known = view.known;
    if !known.runs() {
        PodAction::Forget
    } else if known.was_seen || view.is_replaced || view.orphans == OrphanPolicy::Stop {
        ending(known)
    } else {
        PodAction::LeaveAlone
    }
}

/// The node terminates the pod once it is told, and reports when that is done.
fn ending(known: &KnownPod) -> PodAction {
    match (known.sent_deadline, known.deadline) {
        (Some(told), Some(deadline)) if told <= deadline => PodAction::Nothing,
        (Some(_), None) => PodAction::Nothing,
        _ => PodAction::End,
    }
}

/// Whether nothing of the pod runs, and its end is not known. The node itself terminates what it was given.
fn has_only_waited(view: PodView<'_>) -> bool {
    view.known.given.is_none()
        && !view.final_status
        && view.runs == Some(false)
        && !ran_and_may_not_run_again(view.known)
}

/// Whether the pod ran, but the node does not have it. With `Never` it must not run twice
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/762>).
fn ran_and_may_not_run_again(known: &KnownPod) -> bool {
    let policy = known.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let phase = known.pod.status.as_ref().and_then(|status| status.phase.as_deref());
    policy == Some("Never") && phase == Some("Running")
}
