//! What becomes of a pod that asks to start: for the intake, and for who asks without acting.

use std::sync::Arc;

use crate::admission::OccupiedPlaces;
use crate::{
    Admission, KillReason, OtherPods, Pod, PodSyncer, PodWorkers, Rejection, Verdict, VictimPlan,
};

/// How many of the awaited pods are named in a message.
const MAX_NAMED_PODS: usize = 3;

/// What becomes of a pod that asks to start.
#[derive(Clone, Debug)]
pub enum Outlook {
    /// It starts.
    Starts,
    /// It waits for the room of pods that are terminating anyway. The message names some.
    Waits(Arc<str>),
    /// It waits for the room of pods that have to terminate for it.
    Preempts(VictimPlan),
    /// It does not start.
    Refused(Rejection),
}

impl<S: PodSyncer> PodWorkers<S> {
    /// What becomes of a pod that asks to start beside `others`, which are [those on the node](Self::others) and what is
    /// reserved. Only decides.
    pub fn outlook(&self, admission: &Admission, pod: &Pod, others: &OtherPods) -> Outlook {
        match admission.admit(pod, others) {
            Ok(()) => return Outlook::Starts,
            // Ordinary pods are refused, as by the kubelet: their controller can place them elsewhere.
            Err(rejection) if !pod.is_critical() => return Outlook::Refused(rejection),
            Err(_) => {}
        }
        let rejection = match admission.decide(pod, &self.others_in_time(others)) {
            Verdict::Admitted if self.places().leaving.is_empty() => return Outlook::Starts,
            Verdict::Admitted => return Outlook::Waits(self.what_ends()),
            Verdict::Waiting(plan) => return Outlook::Preempts(plan),
            Verdict::Refused(rejection) => rejection,
        };
        // Pods that have not terminated in time are the only remaining hope.
        let at_last = self.others_once(|all| (all.leaving, all.stuck) = Default::default());
        match admission.decide(pod, &at_last.with_reservations_of(others)) {
            Verdict::Refused(_) => Outlook::Refused(rejection),
            Verdict::Admitted | Verdict::Waiting(_) => Outlook::Waits(self.what_ends()),
        }
    }

    /// The pods on the node.
    pub fn others(&self) -> OtherPods {
        self.others_once(|_| ())
    }

    /// The same once those that are terminating in time have left it, with the reservations of `others`.
    pub fn others_in_time(&self, others: &OtherPods) -> OtherPods {
        self.others_once(|places| places.leaving.clear()).with_reservations_of(others)
    }

    /// The pods on the node once those have left it that `leave` removes. Those that the runtime would not stop for a
    /// preemption stay.
    fn others_once(&self, leave: fn(&mut OccupiedPlaces)) -> OtherPods {
        let workers = self.clone();
        OtherPods::of(move || {
            let mut places = workers.places();
            let stays = |pod: &mut Pod| {
                workers.syncer().refuses_stop(pod.uid(), KillReason::Preemption).is_some()
            };
            places.staying.extend(places.non_terminating.extract_if(.., stays));
            leave(&mut places);
            places
        })
    }

    /// Names some of the pods that are terminating.
    fn what_ends(&self) -> Arc<str> {
        let OccupiedPlaces { leaving, stuck, .. } = self.places();
        let ending = leaving.iter().map(|(pod, _)| pod).chain(&stuck);
        let mut names: Vec<String> = ending.map(|pod| pod.pod_ref().to_string()).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(MAX_NAMED_PODS);
        names.truncate(MAX_NAMED_PODS);
        let names = names.join(", ");
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("waiting for terminating pods: {names}{more}").into()
    }
}
