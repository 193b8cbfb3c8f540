//! Whether the containers of a pod that is asked to stop have stopped for good. Pure.

use tokio::time::Instant;

use crate::known::KUBELET_LEARNS;
use crate::local_node::RuntimePodState;

/// What the API server and the container runtime have shown of the pod so far.
#[derive(Debug)]
pub(super) struct SeenPod {
    /// Since when the API server has said that the pod has ended or is gone.
    told: Option<Instant>,
    /// Whether a container of it ran at any time.
    ran: bool,
    /// Whether one ran when the API server accepted the request, or later.
    ran_when_accepted: bool,
    had_sandbox: bool,
}

/// What else is known when the container runtime answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// When the runtime was asked.
    pub(super) begun: Instant,
    /// When the API server accepted a request to stop the pod.
    pub(super) accepted: Option<Instant>,
    pub(super) is_going_down: bool,
}

// === impl SeenPod ===

impl SeenPod {
    /// `ran`: whether a container of the pod ran before.
    pub(super) fn new(ran: bool) -> Self {
        Self { told: None, ran, ran_when_accepted: false, had_sandbox: false }
    }

    /// Takes in what the API server says now: whether the pod has ended or is gone.
    pub(super) fn told(&mut self, has_ended: bool) {
        self.told = has_ended.then(|| self.told.unwrap_or_else(Instant::now));
    }

    /// Whether the API server had said that the pod has ended before the runtime was asked.
    pub(super) fn is_told(&self, look: Look) -> bool {
        look.is_after(self.told)
    }

    /// Takes in what the runtime answers. Returns whether nothing of the pod runs, and nothing will again.
    pub(super) fn has_stopped(&mut self, state: &RuntimePodState, look: Look) -> bool {
        let runs = !state.running.is_empty();
        self.ran |= runs;
        self.ran_when_accepted = runs || (self.ran_when_accepted && look.is_after(look.accepted));
        self.had_sandbox |= state.has_sandbox;
        !runs
            && (self.is_told(look)
                || self.is_taken_down(state, look)
                || self.has_exited(look)
                || self.never_ran(look))
    }

    /// Whether a kubelet that was asked to stop the pod has stopped its sandbox. The API server learns of that a second or
    /// two later.
    fn is_taken_down(&self, state: &RuntimePodState, look: Look) -> bool {
        (self.ran || self.had_sandbox) && !state.has_sandbox && look.is_after(look.accepted)
    }

    /// Whether its containers have exited after the request was accepted. That is enough while the node goes down: where
    /// many pods stop, the sandboxes take as long again.
    fn has_exited(&self, look: Look) -> bool {
        look.is_going_down && self.ran_when_accepted
    }

    /// Whether nothing of it ever ran, and the kubelet has learnt of the request, so that it starts nothing either.
    fn never_ran(&self, look: Look) -> bool {
        let learnt = look.accepted.map(|at| at + KUBELET_LEARNS);
        look.is_going_down && !self.ran && look.is_after(learnt)
    }
}

// === impl Look ===

impl Look {
    fn is_after(self, at: Option<Instant>) -> bool {
        at.is_some_and(|at| at <= self.begun)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pod_has_stopped_when_nothing_of_it_runs_and_the_kubelet_will_start_nothing() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let learnt = u64::try_from(KUBELET_LEARNS.as_millis()).unwrap();
        let [runs, sandbox, none] =
            [(true, true), (false, true), (false, false)].map(|(runs, has_sandbox)| {
                let running = runs.then(|| "a".to_owned()).into_iter().collect();
                RuntimePodState { running, has_sandbox }
            });
        let (up, down) = (false, true);
        // Each answer with its time; the last one counts.
        for (what, is_going_down, told, accepted, ran, answers, wanted) in [
            ("it runs", down, Some(0), Some(0), true, vec![(1, &runs)], false),
            ("said to have ended", up, Some(0), None, false, vec![(0, &none)], true),
            ("asked before that was said", up, Some(2), None, true, vec![(1, &none)], false),
            ("no sandbox", up, None, Some(1), true, vec![(1, &none)], true),
            ("no sandbox, not accepted", up, None, None, true, vec![(1, &none)], false),
            ("no sandbox, accepted later", up, None, Some(2), true, vec![(1, &none)], false),
            ("a sandbox", up, None, Some(1), true, vec![(0, &runs), (1, &sandbox)], false),
            ("a sandbox alone", up, None, Some(1), false, vec![(0, &sandbox), (1, &none)], true),
            ("never any sandbox", up, None, Some(1), false, vec![(9000, &none)], false),
            ("exited", down, None, Some(1), true, vec![(0, &runs), (1, &sandbox)], true),
            (
                "exited before it was accepted",
                down,
                None,
                Some(2),
                true,
                vec![(0, &runs), (1, &sandbox), (2, &sandbox)],
                false,
            ),
            ("never ran", down, None, Some(0), false, vec![(learnt, &sandbox)], true),
            ("not learnt yet", down, None, Some(1), false, vec![(learnt, &sandbox)], false),
            ("never ran, stays up", up, None, Some(0), false, vec![(learnt, &sandbox)], false),
        ] {
            let mut seen = SeenPod { told: told.map(at), ..SeenPod::new(ran) };
            let accepted = accepted.map(at);
            let stopped = answers.into_iter().map(|(ms, state)| {
                seen.has_stopped(state, Look { begun: at(ms), accepted, is_going_down })
            });
            assert_eq!(stopped.last(), Some(wanted), "{what}");
        }
    }
}
