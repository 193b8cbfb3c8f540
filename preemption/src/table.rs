//! The candidates, grouped by QoS class.

use winddown_shared::{Pod, QosClass, Requests};

use crate::{NoVictims, Requirement};

/// The pods among which victims are chosen.
#[derive(Debug)]
pub(crate) struct CandidateTable<'a> {
    /// The requirements that are not met yet.
    pub(crate) open: Vec<Requirement>,
    /// The candidates of the classes best effort, burstable and guaranteed, in this order.
    pub(crate) lanes: [Lane<'a>; 3],
}

/// The candidates of one class, in the order in which they were given.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    pub(crate) pods: Vec<VictimCandidate<'a>>,
    /// How much all of them together free of each open requirement.
    pub(crate) sums: Vec<i64>,
}

/// A pod that may be preempted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimCandidate<'a> {
    /// The pod's index in the given list.
    pub(crate) place: usize,
    /// The resources that it frees.
    pub(crate) requests: &'a Requests,
}

// === impl CandidateTable ===

impl<'a> CandidateTable<'a> {
    pub(crate) fn new(
        charge: fn(&Pod) -> &Requests,
        preemptor: &Pod,
        pods: &'a [Pod],
        requirements: &[Requirement],
    ) -> Self {
        let is_open = |requirement: &&Requirement| requirement.1 > 0;
        let open: Vec<Requirement> = requirements.iter().filter(is_open).cloned().collect();
        let mut lanes = [(); 3].map(|()| Vec::with_capacity(pods.len()));
        for (place, pod) in pods.iter().enumerate() {
            if preemptor.may_preempt(pod) {
                lanes[lane(pod.qos())].push(VictimCandidate { place, requests: charge(pod) });
            }
        }
        let lanes = lanes.map(|pods| Lane::new(pods, &open));
        Self { open, lanes }
    }

    /// Checks that all candidates together free enough.
    pub(crate) fn is_enough(&self) -> Result<(), NoVictims> {
        let mut lacking = self.open.clone();
        for (requirement, (_, amount)) in lacking.iter_mut().enumerate() {
            for lane in &self.lanes {
                *amount = amount.saturating_sub(lane.sums[requirement]);
            }
        }
        lacking.retain(|(_, amount)| *amount > 0);
        if lacking.is_empty() { Ok(()) } else { Err(NoVictims { lacking }) }
    }
}

fn lane(class: QosClass) -> usize {
    match class {
        QosClass::BestEffort => 0,
        QosClass::Burstable => 1,
        QosClass::Guaranteed => 2,
    }
}

// === impl Lane ===

impl<'a> Lane<'a> {
    fn new(pods: Vec<VictimCandidate<'a>>, open: &[Requirement]) -> Self {
        let sum = |(resource, _): &Requirement| {
            pods.iter().fold(0, |sum: i64, pod| sum.saturating_add(pod.requests.get(resource)))
        };
        Self { sums: open.iter().map(sum).collect(), pods }
    }
}
