//! The candidates' amounts, as columns of numbers.

use winddown_shared::{Pod, QosClass, Requests};

use crate::{NoVictims, Requirement};

/// The candidates, by class: the lists that are gone through over and over hold numbers only.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// What has to become free, without what is met already.
    pub(crate) open: Vec<Requirement>,
    /// Best effort, burstable, guaranteed.
    pub(crate) lanes: [Lane; 3],
}

/// Pods of one class, in the order in which they were given until some are taken out.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// Where each is in the list that was given.
    pub(crate) place: Vec<usize>,
    pub(crate) memory: Vec<i64>,
    pub(crate) cpu: Vec<i64>,
    /// For each open requirement, what each pod frees of it.
    pub(crate) amounts: Vec<Vec<i64>>,
}

/// No lane: the pod may not be preempted.
const SPARED: u8 = 3;

// === impl Table ===

impl Table {
    pub(crate) fn new(
        charge: fn(&Pod) -> &Requests,
        preemptor: &Pod,
        pods: &[Pod],
        requirements: &[Requirement],
    ) -> Self {
        let is_open = |requirement: &&Requirement| requirement.1 > 0;
        let open: Vec<Requirement> = requirements.iter().filter(is_open).cloned().collect();
        let mut sizes = [0; 4];
        let lane_of = |pod: &Pod| {
            let lane = if preemptor.may_preempt(pod) { lane(pod.qos()) } else { SPARED };
            sizes[usize::from(lane)] += 1;
            lane
        };
        let lane_of_each: Vec<u8> = pods.iter().map(lane_of).collect();
        let mut lanes = [0, 1, 2].map(|lane: usize| Lane::new(open.len(), sizes[lane]));
        for (place, (pod, lane)) in pods.iter().zip(lane_of_each).enumerate() {
            if let Some(lane) = lanes.get_mut(usize::from(lane)) {
                lane.push(place, charge(pod), &open);
            }
        }
        Self { open, lanes }
    }

    /// What all pods of a lane free of an open requirement.
    pub(crate) fn sum(&self, lane: usize, requirement: usize) -> i64 {
        let amounts = &self.lanes[lane].amounts[requirement];
        amounts.iter().fold(0, |sum: i64, amount| sum.saturating_add(*amount))
    }

    /// Whether all candidates together free enough.
    pub(crate) fn is_enough(&self) -> Result<(), NoVictims> {
        let mut lacking = self.open.clone();
        for (requirement, (_, amount)) in lacking.iter_mut().enumerate() {
            for lane in 0..self.lanes.len() {
                *amount = amount.saturating_sub(self.sum(lane, requirement));
            }
        }
        lacking.retain(|(_, amount)| *amount > 0);
        if lacking.is_empty() { Ok(()) } else { Err(NoVictims { lacking }) }
    }
}

fn lane(class: QosClass) -> u8 {
    match class {
        QosClass::BestEffort => 0,
        QosClass::Burstable => 1,
        QosClass::Guaranteed => 2,
    }
}

// === impl Lane ===

impl Lane {
    fn new(requirements: usize, pods: usize) -> Self {
        Self {
            place: Vec::with_capacity(pods),
            memory: Vec::with_capacity(pods),
            cpu: Vec::with_capacity(pods),
            amounts: (0..requirements).map(|_| Vec::with_capacity(pods)).collect(),
        }
    }

    fn push(&mut self, place: usize, requests: &Requests, open: &[Requirement]) {
        self.place.push(place);
        self.memory.push(requests.memory_bytes());
        self.cpu.push(requests.cpu_milli());
        for (column, (resource, _)) in self.amounts.iter_mut().zip(open) {
            column.push(requests.get(resource));
        }
    }
}
