//! Preemption: chooses which pods to stop so that a critical pod fits, and explains why.
//!
//! # Behaviour
//! [`select`] chooses victims so that the resources that the critical pod lacks become free. There are two
//! strategies: [`Strategy::Distance`] is the kubelet's heuristic, victim for victim;
//! [`Strategy::Minimal`] finds the best set by a fixed order of criteria ([`Criterion`]). [`explain`]
//! makes the same choice and gives a reason for every pod. [`Preemption`] plugs this into admission.
//!
//! # Design
//! Everything here is a pure function of its arguments: no clock, no I/O, no randomness. Nothing here
//! stops a pod either: the caller carries out the plan, checks the fit again, and only then starts the
//! critical pod.

mod distance;
mod error;
mod explain;
mod handler;
mod minimal;
mod plan_json;
mod select;
mod table;

pub use error::NoVictims;
pub use explain::{Considered, Explanation, Why, explain};
pub use handler::Preemption;
pub use minimal::Criterion;
pub use plan_json::{PlanLineError, PlanOptions, plan_json_line};
pub use select::{Proof, Requirement, Selection, Strategy, StrategyError, select};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
