//! What happens now to the containers of a pod that is asked to end. Pure.
//!
//! The API server learns of the end in any case (`asking.rs`). What else happens depends on who can act:
//!
//! | the API server | the pod | who stops its containers |
//! |---|---|---|
//! | answers | no preStop hook | winddown, as soon as the API server has told the end to those that watch its pods |
//! | answers | with a preStop hook | the kubelet, which runs the hook |
//! | away, or does not tell the end | any | winddown, hooks included, and the kubelet is held before |
//! | refuses this pod's end | any | winddown, hooks included, and again if the kubelet restarts them |
//!
//! So each hook is run by exactly one of the two: by the kubelet if it can have learnt of the request, otherwise by winddown.
//! And a kubelet starts nothing again: it learns of the end before it can see an exit.

use tokio::time::Instant;

use super::super::api_outage::ApiVerdict;

/// What is known of a pod and of those who can stop it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopView {
    /// What happens already.
    pub(super) current: StopStep,
    /// Whether the node goes down.
    pub(super) is_going_down: bool,
    /// Whether containers may be stopped without the API server's consent.
    pub(super) may_stop_without_api: bool,
    /// Whether only the container runtime has described the pod.
    pub(super) is_found: bool,
    /// Whether the kubelet is kept stopped.
    pub(super) is_kubelet_held: bool,
    /// What is known of the API server.
    pub(super) api: ApiVerdict,
    /// Whether the kubelet can be relied on to learn of the pod's end.
    pub(super) reaches_kubelet: bool,
    /// Whether the API server answers, and has not accepted or not told the end for so long that it is not waited for.
    pub(super) is_late: bool,
    /// Whether it refuses the end of this pod.
    pub(super) is_denied: bool,
    /// Whether the pod has preStop hooks.
    pub(super) has_hooks: bool,
    /// Whether the kubelet was told a later end than that of the grace period.
    pub(super) is_untold: bool,
    /// Whether just the time for the stop signal is left, and the container runtime does not answer, through which the
    /// kubelet would send it.
    pub(super) is_last_call: bool,
    /// Whether the grace period is over, and a kubelet that was told would have ended the pod; if it was told a later
    /// end, whether just the time for the stop signal is left.
    pub(super) is_over: bool,
}

/// What happens now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopStep {
    /// Nothing: the API server or the kubelet is to act.
    Wait,
    /// The containers are stopped. The kubelet, which is told as well, starts nothing again and gives the volumes back.
    BesideKubelet,
    /// The containers are stopped by a node that has no use of its kubelet, which is held before.
    InsteadOfKubelet(Absence),
    /// The containers are stopped although the kubelet runs, which other pods need. What it restarts is stopped again.
    DespiteKubelet(Absence),
}

/// Why the kubelet does not end the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// The API server has never listed the pod.
    Unlisted,
    /// The API server does not answer.
    Api,
    /// The API server refuses the end of this pod.
    Denied,
    /// The kubelet is held.
    Kubelet,
    /// It was told, and has not ended the pod in time.
    Late,
    /// It was told, and cannot end the pod without the container runtime.
    Runtime,
    /// It runs the pod's hooks, and was told a later end.
    Untold,
}

/// What happens now to the pod's containers.
pub(super) fn next_step(view: StopView) -> StopStep {
    if !view.is_going_down {
        return StopStep::Wait;
    }
    if view.may_stop_without_api {
        if view.is_found && !(view.has_hooks && view.reaches_kubelet) {
            return StopStep::InsteadOfKubelet(Absence::Unlisted);
        }
        // A stop that is under way beside the kubelet needs it no more.
        if view.is_kubelet_held && view.current != StopStep::BesideKubelet {
            return StopStep::InsteadOfKubelet(Absence::Kubelet);
        }
        let is_late = view.is_late && !view.is_denied;
        if !view.reaches_kubelet && (view.api == ApiVerdict::Away || is_late) {
            return StopStep::InsteadOfKubelet(Absence::Api);
        }
        if !view.reaches_kubelet && view.is_late {
            return StopStep::DespiteKubelet(Absence::Denied);
        }
        if view.is_over && !view.is_untold {
            return StopStep::DespiteKubelet(Absence::Late);
        }
        if view.is_last_call && view.has_hooks {
            return StopStep::DespiteKubelet(Absence::Runtime);
        }
    }
    // The API server has accepted the pod's end, if for a later time.
    if view.is_over && view.is_untold {
        return StopStep::DespiteKubelet(Absence::Untold);
    }
    match view.reaches_kubelet && !view.has_hooks {
        true => StopStep::BesideKubelet,
        false => StopStep::Wait,
    }
}

/// Whether the hooks of a pod that winddown stops instead of the kubelet are winddown's to run: the kubelet was held
/// before it could learn of the end, or the API server has not accepted it.
pub(super) fn runs_hooks(accepted: Option<Instant>, held: Option<Instant>) -> bool {
    accepted.is_none_or(|accepted| held.is_some_and(|held| held <= accepted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use StopStep::*;

    const CALM: StopView = StopView {
        current: Wait,
        is_going_down: true,
        may_stop_without_api: true,
        is_found: false,
        is_kubelet_held: false,
        api: ApiVerdict::Answers,
        reaches_kubelet: false,
        is_late: false,
        is_denied: false,
        has_hooks: false,
        is_untold: false,
        is_last_call: false,
        is_over: false,
    };

    #[test]
    fn a_pod_is_stopped_by_the_one_who_can_as_soon_as_nothing_objects() {
        let away = StopView { api: ApiVerdict::Away, ..CALM };
        let hooks = StopView { has_hooks: true, ..CALM };
        let told = StopView { reaches_kubelet: true, ..CALM };
        let wait = StopView { may_stop_without_api: false, ..CALM };
        let instead = InsteadOfKubelet;
        for (what, view, wanted) in [
            ("not told", CALM, Wait),
            ("the server is not probed yet", StopView { api: ApiVerdict::Unknown, ..CALM }, Wait),
            ("told", told, BesideKubelet),
            ("a hook, not accepted", hooks, Wait),
            ("a hook, accepted", StopView { reaches_kubelet: true, ..hooks }, Wait),
            (
                "a hook, the runtime is away",
                StopView { reaches_kubelet: true, is_last_call: true, ..hooks },
                DespiteKubelet(Absence::Runtime),
            ),
            (
                "a hook, time over",
                StopView { reaches_kubelet: true, is_over: true, ..hooks },
                DespiteKubelet(Absence::Late),
            ),
            (
                "a hook, a shorter grace that was not told",
                StopView { reaches_kubelet: true, is_untold: true, is_over: true, ..hooks },
                DespiteKubelet(Absence::Untold),
            ),
            ("away", away, instead(Absence::Api)),
            ("away, with a hook", StopView { has_hooks: true, ..away }, instead(Absence::Api)),
            ("away after it told", StopView { reaches_kubelet: true, ..away }, BesideKubelet),
            (
                "away after it accepted, with a hook",
                StopView { reaches_kubelet: true, has_hooks: true, ..away },
                Wait,
            ),
            (
                "answers, but does not accept or tell",
                StopView { is_late: true, ..CALM },
                instead(Absence::Api),
            ),
            ("refuses, not late", StopView { is_denied: true, ..CALM }, Wait),
            (
                "refuses",
                StopView { is_late: true, is_denied: true, ..hooks },
                DespiteKubelet(Absence::Denied),
            ),
            (
                "refused, away",
                StopView { is_late: true, is_denied: true, ..away },
                instead(Absence::Api),
            ),
            (
                "the kubelet is held",
                StopView { is_kubelet_held: true, ..hooks },
                instead(Absence::Kubelet),
            ),
            (
                "the kubelet is held before the stop beside it begins",
                StopView { is_kubelet_held: true, ..told },
                instead(Absence::Kubelet),
            ),
            (
                "the kubelet is held in the course of the stop beside it",
                StopView { current: BesideKubelet, is_kubelet_held: true, ..told },
                BesideKubelet,
            ),
            (
                "the kubelet is held beside a stop that takes too long",
                StopView { current: BesideKubelet, is_kubelet_held: true, is_over: true, ..told },
                DespiteKubelet(Absence::Late),
            ),
            ("never listed", StopView { is_found: true, ..away }, instead(Absence::Unlisted)),
            (
                "never listed, and its hook runs",
                StopView { is_found: true, reaches_kubelet: true, has_hooks: true, ..away },
                Wait,
            ),
            ("waits for the server", wait, Wait),
            ("waits, away", StopView { api: ApiVerdict::Away, is_over: true, ..wait }, Wait),
            ("waits, told", StopView { reaches_kubelet: true, ..wait }, BesideKubelet),
            (
                "waits, a hook, a shorter grace that was not told",
                StopView {
                    reaches_kubelet: true,
                    is_untold: true,
                    is_over: true,
                    has_hooks: true,
                    ..wait
                },
                DespiteKubelet(Absence::Untold),
            ),
            ("the node stays up", StopView { is_going_down: false, is_over: true, ..away }, Wait),
        ] {
            assert_eq!(next_step(view), wanted, "{what}");
        }
    }

    #[test]
    fn a_hook_is_run_by_the_kubelet_if_that_can_have_learnt_of_the_end_and_otherwise_by_winddown() {
        let early = Instant::now();
        let late = early + std::time::Duration::from_secs(1);
        for (accepted, held, wanted) in [
            (None, None, true),
            (None, Some(early), true),
            (Some(early), None, false),
            (Some(early), Some(late), false),
            (Some(late), Some(early), true),
        ] {
            assert_eq!(runs_hooks(accepted, held), wanted, "{accepted:?} {held:?}");
        }
    }
}
