//! Explains why each pod is chosen or kept.

use std::cmp::Ordering;
use std::fmt;

use winddown_shared::{Pod, ResourceName};

use crate::distance::distance;
use crate::minimal::{Criterion, born, can_run_elsewhere, is_ending};
use crate::select::{Charge, select_for_admission};
use crate::{NoVictims, Requirement, Selection, Strategy, select};

/// A choice, with a reason for every pod.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PreemptionExplanation<'a> {
    /// The choice, as [`select`] makes it.
    pub chosen: Result<Selection, NoVictims>,
    /// All pods, in the order in which they were given.
    pub considered: Vec<ConsideredVictim<'a>>,
}

/// One pod and the decision about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsideredVictim<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// How much it frees of each requirement, as the choice counts it.
    pub frees: Vec<Requirement>,
    /// Its distance from all requirements: 0 if it frees everything that is lacking, plus up to 1 for each
    /// resource that it does not free in full.
    pub distance: f64,
    /// Whether the pod is terminating already: it has a deletion timestamp.
    pub is_ending: bool,
    /// Why it was chosen or kept.
    pub verdict: VictimVerdict,
}

/// Why a pod was chosen or kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VictimVerdict {
    /// Selected as a victim, with its 1-based rank.
    Taken(usize),
    /// The preemptor may not preempt it.
    NotPreemptable,
    /// There are no victims: all preemptable pods together would not free enough.
    NotEnough,
    /// Nothing is lacking.
    NothingLacking,
    /// It frees none of the lacking resources.
    Useless,
    /// Pods of lower QoS classes free enough.
    ClassKept,
    /// Victims of higher QoS classes are needed anyway; with them, the pod's own class is not.
    HigherClassTaken,
    /// Other pods of its class are as close to what is lacking, or closer.
    Farther,
    /// Pods up to this priority free enough, and the pod's own is higher.
    PriorityKept(i32),
    /// It would not free enough in the place of any victim.
    TooSmall,
    /// It would free enough in a victim's place, but even the best such swap makes the set worse by this
    /// criterion.
    Worse(Criterion),
}

/// Makes the same choice as [`select`], with a reason for every pod.
#[must_use]
pub fn explain<'a>(
    preemptor: &Pod,
    pods: &'a [Pod],
    requirements: &[Requirement],
    strategy: Strategy,
) -> PreemptionExplanation<'a> {
    let chosen = select(preemptor, pods, requirements, strategy);
    of_choice(preemptor, pods, requirements, strategy, (Pod::accounted_requests, chosen))
}

/// Makes the choice that [`PreemptionHandler`](crate::PreemptionHandler) makes when a pod is admitted, with a reason for
/// every pod.
#[must_use]
pub fn explain_admission<'a>(
    preemptor: &Pod,
    pods: &'a [Pod],
    requirements: &[Requirement],
    strategy: Strategy,
) -> PreemptionExplanation<'a> {
    let chosen = select_for_admission(preemptor, pods, requirements, strategy);
    of_choice(preemptor, pods, requirements, strategy, chosen)
}

fn of_choice<'a>(
    preemptor: &Pod,
    pods: &'a [Pod],
    requirements: &[Requirement],
    strategy: Strategy,
    (charge, chosen): (Charge, Result<Selection, NoVictims>),
) -> PreemptionExplanation<'a> {
    let open: Vec<Requirement> = requirements.iter().filter(|r| r.1 > 0).cloned().collect();
    let reasons = Reasons { preemptor, pods, open: &open, strategy, charge, chosen: &chosen };
    let order = reasons.order();
    let considered = pods.iter().zip(&order).map(|(pod, order)| {
        let requests = charge(pod);
        let pairs = open.iter().map(|(name, amount)| (*amount, requests.get(name)));
        ConsideredVictim {
            pod,
            frees: requirements.iter().map(|(r, _)| (r.clone(), requests.get(r))).collect(),
            distance: distance(pairs),
            is_ending: is_ending(pod),
            verdict: reasons.verdict(pod, *order),
        }
    });
    let considered = considered.collect();
    PreemptionExplanation { considered, chosen }
}

struct Reasons<'a> {
    preemptor: &'a Pod,
    pods: &'a [Pod],
    open: &'a [Requirement],
    strategy: Strategy,
    charge: Charge,
    chosen: &'a Result<Selection, NoVictims>,
}

// === impl Reasons ===

impl Reasons<'_> {
    /// Returns the 1-based rank of each pod among the victims; 0 if it is not one.
    fn order(&self) -> Vec<usize> {
        let mut order = vec![0; self.pods.len()];
        for (at, place) in self.victims().iter().enumerate() {
            order[*place] = at + 1;
        }
        order
    }

    fn victims(&self) -> &[usize] {
        self.chosen.as_ref().map_or(&[], |selection| &selection.victims)
    }

    fn frees(&self, pod: &Pod, resource: &ResourceName) -> i64 {
        (self.charge)(pod).get(resource)
    }

    fn verdict(&self, pod: &Pod, order: usize) -> VictimVerdict {
        if order > 0 {
            return VictimVerdict::Taken(order);
        }
        if !self.preemptor.may_preempt(pod) {
            return VictimVerdict::NotPreemptable;
        }
        if self.chosen.is_err() {
            return VictimVerdict::NotEnough;
        }
        if self.open.is_empty() {
            return VictimVerdict::NothingLacking;
        }
        if self.open.iter().all(|(resource, _)| self.frees(pod, resource) == 0) {
            return VictimVerdict::Useless;
        }
        match self.strategy {
            Strategy::Distance => self.why_not_closest(pod),
            Strategy::Minimal => self.why_not_best(pod),
        }
    }

    fn why_not_closest(&self, pod: &Pod) -> VictimVerdict {
        let classes = || self.victims().iter().map(|place| self.pods[*place].qos());
        if classes().any(|class| class == pod.qos()) {
            VictimVerdict::Farther
        } else if classes().any(|class| class > pod.qos()) {
            VictimVerdict::HigherClassTaken
        } else {
            VictimVerdict::ClassKept
        }
    }

    /// Compares the victims with the best set in which the pod takes a victim's place.
    fn why_not_best(&self, pod: &Pod) -> VictimVerdict {
        let victims = || self.victims().iter().map(|place| &self.pods[*place]);
        let most = victims().map(Pod::priority_or_zero).max().unwrap_or(i32::MIN);
        if pod.priority_or_zero() > most {
            return VictimVerdict::PriorityKept(most);
        }
        let over: Vec<i64> = self
            .open
            .iter()
            .map(|(resource, amount)| {
                let freed =
                    victims().fold(0, |sum: i64, v| sum.saturating_add(self.frees(v, resource)));
                freed.saturating_sub(*amount)
            })
            .collect();
        let is_enough = |victim: &&Pod| {
            let with_over = self.open.iter().zip(&over);
            with_over.into_iter().all(|((resource, _), over)| {
                over.saturating_add(self.frees(pod, resource) - self.frees(victim, resource)) >= 0
            })
        };
        let worse_by = victims().filter(is_enough).map(|victim| self.first_difference(victim, pod));
        worse_by.max().map_or(VictimVerdict::TooSmall, VictimVerdict::Worse)
    }

    /// Returns the first criterion by which the set changes when `other` takes the place of `victim`.
    fn first_difference(&self, victim: &Pod, other: &Pod) -> Criterion {
        let change: f64 = self
            .open
            .iter()
            .map(|(r, need)| part(self.frees(other, r) - self.frees(victim, r), *need))
            .sum();
        let weight = change.partial_cmp(&0.0).unwrap_or(Ordering::Equal);
        let differences = [
            (Criterion::Overshoot, weight != Ordering::Equal),
            (Criterion::Ending, is_ending(victim) != is_ending(other)),
            (Criterion::Bound, can_run_elsewhere(victim) != can_run_elsewhere(other)),
            (Criterion::Class, victim.qos() != other.qos()),
            (Criterion::Age, born(victim) != born(other)),
        ];
        let first = differences.into_iter().find(|(_, differs)| *differs);
        first.map_or(Criterion::Identity, |(criterion, _)| criterion)
    }
}

#[allow(clippy::cast_precision_loss, reason = "told to people")]
fn part(amount: i64, need: i64) -> f64 {
    amount as f64 / need as f64
}

// === impl VictimVerdict ===

impl VictimVerdict {
    /// The name of the reason in JSON.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Taken(_) => "taken",
            Self::NotPreemptable => "notPreemptable",
            Self::NotEnough => "notEnough",
            Self::NothingLacking => "nothingLacking",
            Self::Useless => "useless",
            Self::ClassKept => "classKept",
            Self::HigherClassTaken => "higherClassTaken",
            Self::Farther => "farther",
            Self::PriorityKept(_) => "priorityKept",
            Self::TooSmall => "tooSmall",
            Self::Worse(_) => "worse",
        }
    }
}

/// Formats the reason for people, to follow the pod's name.
impl fmt::Display for VictimVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(order) => write!(f, "victim {order}"),
            Self::NotPreemptable => f.write_str("kept: may not be preempted by this pod"),
            Self::NotEnough => f.write_str("kept: preempting every candidate would not be enough"),
            Self::NothingLacking => f.write_str("kept: nothing is lacking"),
            Self::Useless => f.write_str("kept: frees nothing of what is lacking"),
            Self::ClassKept => f.write_str("kept: pods of lower QoS classes are enough"),
            Self::HigherClassTaken => f.write_str(
                "kept: victims of higher QoS classes are needed anyway; with them, its own class is not",
            ),
            Self::Farther => f.write_str(
                "kept: others of its class were as close to what was lacking, or closer",
            ),
            Self::PriorityKept(most) => {
                write!(f, "kept: pods up to priority {most} are enough")
            }
            Self::TooSmall => f.write_str("kept: would not be enough in any victim's place"),
            Self::Worse(criterion) => {
                write!(f, "kept: in a victim's place {}", criterion.worse())
            }
        }
    }
}

impl Criterion {
    /// Describes a set that is worse by this criterion.
    const fn worse(self) -> &'static str {
        match self {
            Self::Priority => "it would raise the highest priority",
            Self::Number => "more pods would be preempted",
            Self::Overshoot => "it would free more than is needed",
            Self::Ending => "a pod would be preempted that is not terminating already",
            Self::Bound => "a pod would be preempted that cannot run elsewhere",
            Self::Class => "a pod of a higher QoS class would be preempted",
            Self::Age => "an older pod would be preempted",
            Self::Identity => "nothing would be better; the UID decides",
        }
    }
}
