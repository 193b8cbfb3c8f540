//! Why each pod is ended or kept.

use std::cmp::Ordering;
use std::fmt;

use winddown_shared::{Pod, ResourceName};

use crate::distance::distance;
use crate::minimal::{Criterion, can_run_elsewhere, is_ending};
use crate::{NoVictims, Requirement, Selection, Strategy, select};

/// A choice, with a reason for every pod.
#[derive(Clone, Debug)]
pub struct Explanation<'a> {
    /// The choice, as [`select`] makes it.
    pub chosen: Result<Selection, NoVictims>,
    /// All pods, in the order in which they were given.
    pub considered: Vec<Considered<'a>>,
}

/// One pod, and what was made of it.
#[derive(Clone, Debug)]
pub struct Considered<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What it frees of each requirement: what the choice counts with.
    pub frees: Vec<Requirement>,
    /// How far it is from all requirements: 0 when it frees all that is lacking, 1 for each resource of
    /// which it frees nothing.
    pub distance: f64,
    /// It has been asked to end already.
    pub is_ending: bool,
    /// What became of it.
    pub why: Why,
}

/// What became of a pod in a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Selected as a victim, with its 1-based rank.
    Taken(usize),
    /// The preemptor may not preempt it.
    NotPreemptable,
    /// No pod ends: all that may be preempted are not enough.
    NotEnough,
    /// Nothing is lacking.
    NothingLacking,
    /// It frees nothing of what is lacking.
    Useless,
    /// Pods of lower classes free enough.
    ClassKept,
    /// Others of its class are as close to what is lacking, or closer.
    Farther,
    /// Pods of lower priorities free enough; none above this one has to end.
    PriorityKept(i32),
    /// In no victim's place it would free enough.
    TooSmall,
    /// In a victim's place it would free enough, but the set would be worse by this at best.
    Worse(Criterion),
}

/// Chooses as [`select`] does and says why, pod by pod.
#[must_use]
pub fn explain<'a>(
    preemptor: &Pod,
    pods: &'a [Pod],
    requirements: &[Requirement],
    strategy: Strategy,
) -> Explanation<'a> {
    let chosen = select(preemptor, pods, requirements, strategy);
    let open: Vec<Requirement> = requirements.iter().filter(|r| r.1 > 0).cloned().collect();
    let reasons = Reasons { preemptor, pods, open: &open, strategy, chosen: &chosen };
    let order = reasons.order();
    let considered = pods.iter().zip(&order).map(|(pod, order)| {
        let requests = pod.accounted_requests();
        let pairs = open.iter().map(|(name, amount)| (*amount, requests.get(name)));
        Considered {
            pod,
            frees: requirements.iter().map(|(r, _)| (r.clone(), requests.get(r))).collect(),
            distance: distance(pairs),
            is_ending: is_ending(pod),
            why: reasons.why(pod, *order),
        }
    });
    let considered = considered.collect();
    Explanation { considered, chosen }
}

struct Reasons<'a> {
    preemptor: &'a Pod,
    pods: &'a [Pod],
    open: &'a [Requirement],
    strategy: Strategy,
    chosen: &'a Result<Selection, NoVictims>,
}

// === impl Reasons ===

impl Reasons<'_> {
    /// For each pod, as which victim it is taken; 0 for none.
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

    fn why(&self, pod: &Pod, order: usize) -> Why {
        if order > 0 {
            return Why::Taken(order);
        }
        if !self.preemptor.may_preempt(pod) {
            return Why::NotPreemptable;
        }
        if self.chosen.is_err() {
            return Why::NotEnough;
        }
        if self.open.is_empty() {
            return Why::NothingLacking;
        }
        if self.open.iter().all(|(resource, _)| frees(pod, resource) == 0) {
            return Why::Useless;
        }
        match self.strategy {
            Strategy::Distance => self.why_not_closest(pod),
            Strategy::Minimal => self.why_not_best(pod),
        }
    }

    fn why_not_closest(&self, pod: &Pod) -> Why {
        let of_its_class = |place: &usize| self.pods[*place].qos() == pod.qos();
        if self.victims().iter().any(of_its_class) { Why::Farther } else { Why::ClassKept }
    }

    /// What the best set is like in which the pod takes the place of a victim.
    fn why_not_best(&self, pod: &Pod) -> Why {
        let victims = || self.victims().iter().map(|place| &self.pods[*place]);
        let most = victims().map(Pod::priority_or_zero).max().unwrap_or(i32::MIN);
        if pod.priority_or_zero() > most {
            return Why::PriorityKept(most);
        }
        let over: Vec<i64> = self
            .open
            .iter()
            .map(|(resource, amount)| {
                let freed = victims().fold(0, |sum: i64, v| sum.saturating_add(frees(v, resource)));
                freed.saturating_sub(*amount)
            })
            .collect();
        let is_enough = |victim: &&Pod| {
            let with_over = self.open.iter().zip(&over);
            with_over.into_iter().all(|((resource, _), over)| {
                over.saturating_add(frees(pod, resource) - frees(victim, resource)) >= 0
            })
        };
        let worse_by = victims().filter(is_enough).map(|victim| self.first_difference(victim, pod));
        worse_by.max().map_or(Why::TooSmall, Why::Worse)
    }

    /// The criterion by which a set changes when `other` takes the place of `victim`.
    fn first_difference(&self, victim: &Pod, other: &Pod) -> Criterion {
        let change: f64 =
            self.open.iter().map(|(r, need)| part(frees(other, r) - frees(victim, r), *need)).sum();
        let weight = change.partial_cmp(&0.0).unwrap_or(Ordering::Equal);
        let born = |pod: &Pod| pod.metadata.creation_timestamp.clone().map(|time| time.0);
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

fn frees(pod: &Pod, resource: &ResourceName) -> i64 {
    pod.accounted_requests().get(resource)
}

#[allow(clippy::cast_precision_loss, reason = "told to people")]
fn part(amount: i64, need: i64) -> f64 {
    amount as f64 / need as f64
}

// === impl Why ===

impl Why {
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
            Self::Farther => "farther",
            Self::PriorityKept(_) => "priorityKept",
            Self::TooSmall => "tooSmall",
            Self::Worse(_) => "worse",
        }
    }
}

/// For people, after the pod's name.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(order) => write!(f, "victim {order}"),
            Self::NotPreemptable => f.write_str("kept: may not be preempted by this pod"),
            Self::NotEnough => f.write_str("kept: ending every candidate would not be enough"),
            Self::NothingLacking => f.write_str("kept: nothing is lacking"),
            Self::Useless => f.write_str("kept: frees nothing of what is lacking"),
            Self::ClassKept => f.write_str("kept: pods of lower QoS classes are enough"),
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
    /// What a set is like that is worse by this.
    const fn worse(self) -> &'static str {
        match self {
            Self::Priority => "it would raise the highest priority",
            Self::Number => "more pods would have to end",
            Self::Overshoot => "it would free more than is needed",
            Self::Ending => "a pod would end that is not ending already",
            Self::Bound => "a pod would end that cannot run elsewhere",
            Self::Class => "a pod of a higher QoS class would end",
            Self::Age => "an older pod would end",
            Self::Identity => "nothing would be better; the UID decides",
        }
    }
}
