//! Graceful node shutdown: the plan (which pod stops when, with how much time) and the run that
//! carries it out.
//!
//! # Behaviour
//! When the login manager announces that the node goes down, [`ShutdownController`] closes the
//! [`AdmissionGate`], makes a plan ([`plan`]), stops the pods group by group in ascending priority
//! ([`run_plan`]), writes a [`ShutdownReport`] and releases the node. If the shutdown is called off,
//! groups that have not started are spared and the gate is opened again.
//!
//! A notice that the node goes down at a certain time starts a run, just as the login manager's signal
//! does, and the stop of the agent's unit by a machine that goes down past both ([`UnitStop`]). Each can
//! shorten a run that another started.
//!
//! # Restarts
//! Each step is persisted ([`RunRecord`]) before it takes effect: before pods turn not ready,
//! before a group is requested to stop, before the inhibitor lock is released. The grace periods of the
//! first pods must survive a crash of the machine, so the run waits for the disk. Later steps only need
//! to survive a restart of the agent, so the run waits for memory ([`RecordPlace::is_volatile`]) and the
//! disk follows: after a power cut in the middle of a run, the record may be one group behind. Without a
//! volatile place the run waits for the disk at each step. An agent that finds a record of its own boot
//! first closes the gate, and resumes when it learns of the shutdown: same start, same deadline, the
//! rest of each grace period. A disk that fails or hangs costs a quarter of a second, once.
//!
//! # The end of a run
//! When no container is running any more, the node is released as soon as everything that outlasts the
//! machine is cleaned up: volumes mounted for pods, and the network of pods that have their own.
//! Anything that disappears with the machine anyway (the sandboxes of pods on the host's network,
//! cgroups, plain directories) is cleaned up in the background.
//!
//! # Time
//! There is one deadline, counted from the signal. Each group is guaranteed the time that the plan
//! allows it. A group that finishes early passes the rest on, so that a later group can honour more of
//! its pods' own grace periods. A [`Budget`] keeps a reserve for final statuses and the report.
//!
//! # Design
//! [`Policy`], [`Budget`] and [`plan`] are pure: no clock, no I/O. [`run_plan`] carries out a plan on
//! tokio's clock and knows nothing of login managers, so drains use it too.

mod budget;
mod controller;
mod drain;
mod grace;
mod guard;
mod in_place;
mod journal;
mod json_file;
mod plan;
mod plan_json;
mod policy;
mod progress;
mod record;
mod report;
mod role;
mod run;
mod run_context;
mod start;
mod state_file;
#[cfg(test)]
mod tests;
mod unit_stop;

pub use budget::Budget;
pub use controller::{ShutdownController, ShutdownParts};
pub use drain::{DrainOrder, drain};
pub use guard::{GUARD_LABEL, Guard, GuardPolicy, Hold, HoldState};
pub use in_place::{InPlacePolicy, may_stay, may_survive};
pub use json_file::FileError;
pub use plan::{
    Group, Plan, PlanWarning, PlannedPod, PlannedWork, Shrink, StartGroup, StartPlan, StartRank,
    plan, plan_with, plan_within, start_plan,
};
pub use plan_json::{PlanLineError, plan_json_line};
pub use policy::{CRITICAL_PRIORITY, GroupPeriod, Policy, PolicyError};
pub use progress::{GroupProgress, Progress, ProgressPhase, ProgressSender};
pub use record::{RecordFile, RecordPlace, RunPhase, RunRecord};
pub use report::{
    BootMark, BudgetReport, Evidence, GroupReport, LastBoot, Listing, NoticeReport, Outcome,
    PodEnd, PodReport, PreviousBoot, ReportSink, ReportStore, ShutdownReport, Trigger, WorkOutcome,
    WorkReport, last_boot,
};
pub use role::{ROLE_LABEL, Role};
pub use run::{RunOrder, RunReport, RunStop, run_plan};
pub use start::{
    OrderedStart, PodStart, StartOutcome, StartParts, StartReport, StartedGroup, StartedPod,
};
pub use state_file::{StateFile, StateTimes};
pub use unit_stop::UnitStop;
pub use winddown_shared::{AdmissionGate, BootClock};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
