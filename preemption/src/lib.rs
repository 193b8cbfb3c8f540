#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! Preemption: chooses which pods to stop so that a critical pod fits, and explains why.
//!
//! # Behaviour
//! [`select`] chooses victims so that the resources that the critical pod lacks become free. There are two
//! strategies: [`Strategy::Distance`] is the kubelet's heuristic, victim for victim;
//! [`Strategy::Minimal`] finds the best set by a fixed order of criteria ([`Criterion`]). [`explain`]
//! makes the same choice and gives a reason for every pod. [`PreemptionHandler`] plugs this into admission.
//!
//! # Design
//! Everything here is a pure function of its arguments: no clock, no I/O, no randomness. Nothing here
//! stops a pod either: the caller carries out the plan, checks the fit again, and only then starts the
//! critical pod.
//!
//! `preemption/` only decides: `select` is a function of the arriving pod, the candidates and the shortage;
//! `PreemptionHandler` puts it behind `AdmissionFailureHandler`; the intake ends the victims and checks the fit again.
//! `distance` reproduces the kubelet's heuristic down to the order of float operations, because equal distances decide
//! about victims; an estimate without divisions leaves only near-ties to compute exactly. `minimal` first takes the
//! lowest sufficient priority limit. A covering bound (weights on the resources) then gives the smallest number, and
//! swaps and branch and bound improve the set. Its work is bounded by a number of pods, so the answer is the same on
//! every machine, and `Proof` says up to which criterion the answer is known to be optimal.

mod distance;
mod error;
mod explain;
mod handler;
mod minimal;
mod plan_json;
mod select;
mod table;

pub use error::NoVictims;
pub use explain::{
    ConsideredVictim, PreemptionExplanation, VictimVerdict, explain, explain_admission,
};
pub use handler::PreemptionHandler;
pub use minimal::Criterion;
pub use plan_json::{
    AnswerCandidate, AnswerReasons, CaseError, PlanOptions, PreemptionAnswer, plan_case,
};
pub use select::{Proof, Requirement, Selection, Strategy, StrategyError, select};
