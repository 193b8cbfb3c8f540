//! Graceful node shutdown: which pod ends when, with how much time, and the run that makes it so.
//!
//! # Behaviour
//! When the login manager says that the node goes down, [`ShutdownController`] closes the
//! [`AdmissionGate`], plans ([`plan`]) and ends the pods group by group in ascending priority
//! ([`run_plan`]), writes a [`ShutdownReport`] and lets the node go. A shutdown that is called off
//! spares the groups not yet started and opens the gate again.
//!
//! # Time
//! There is one deadline, counted from the signal. Each group is guaranteed the time its plan
//! allows; a group that is done early passes the rest on, so a later group can honour more of its
//! pods' own grace. A [`Budget`] keeps a reserve at the end for what must be said before the node
//! goes.
//!
//! # Design
//! [`Policy`], [`Budget`] and [`plan`] are pure: no clock, no I/O. [`run_plan`] carries a plan out
//! on tokio's clock and knows nothing of login managers, so that a drain runs on it too.

mod budget;
mod controller;
mod drain;
mod gate;
mod plan;
mod plan_json;
mod policy;
mod progress;
mod report;
mod run;
mod state_file;
#[cfg(test)]
mod test_pods;

pub use budget::Budget;
pub use controller::{ShutdownController, ShutdownParts};
pub use drain::{DrainOrder, drain};
pub use gate::AdmissionGate;
pub use plan::{Group, Plan, PlanWarning, PlannedPod, Shrink, plan};
pub use plan_json::{PlanLineError, plan_json_line};
pub use policy::{CRITICAL_PRIORITY, GroupPeriod, Policy, PolicyError};
pub use progress::{GroupProgress, Progress, ProgressPhase, ProgressSender};
pub use report::{
    BudgetReport, GroupReport, Listing, NoticeReport, Outcome, PodEnd, PodReport, ReportSink,
    ReportStore, ShutdownReport, StoreError, Trigger, render_text,
};
pub use run::{RunOrder, RunReport, RunStop, run_plan};
pub use state_file::{StateFile, StateFileError, StateTimes};
