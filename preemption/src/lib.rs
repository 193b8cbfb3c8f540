//! Preemption: which pods end so that a critical pod fits, and why.
//!
//! # Behaviour
//! [`select`] names the pods to end so that what the critical pod lacks becomes free. Two strategies:
//! [`Strategy::Distance`] is the kubelet's heuristic, victim for victim; [`Strategy::Minimal`] takes
//! the best set there is by a fixed order of what matters ([`Criterion`]). [`explain`] says the same
//! with a reason for every pod. [`Preemption`] puts it behind admission.
//!
//! # Design
//! Everything here is a function of its arguments: no clock, no I/O, no random choice. Nothing is
//! ended here either: the caller carries the plan out, checks the fit again, and starts the
//! critical pod only then.

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
