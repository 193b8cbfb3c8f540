//! Graceful node shutdown: which pod ends when, with how much time, and the run that makes it so.
//!
//! # Behaviour
//! When the login manager announces that the node goes down, [`ShutdownController`] closes the
//! [`AdmissionGate`], plans ([`plan`]) and ends the pods group by group in ascending priority
//! ([`run_plan`]), writes a [`ShutdownReport`] and releases the node. A shutdown that is called off
//! spares the groups not yet started and opens the gate again.
//!
//! A notice that the node ends at a certain time starts a run, as the login manager's signal does.
//! Either can shorten a run that the other started.
//!
//! # Restarts
//! Each step is persisted ([`RunRecord`]) before it takes effect: before pods turn not ready,
//! before a group is asked to end, before the lock is released. The graces of the first pods must
//! survive the machine, so the run waits for the disk; later steps must only survive the agent, so
//! the run waits for memory ([`RecordPlace::is_volatile`]) and the disk follows. After a power cut
//! in the middle of a run the record may therefore be one group behind. Without a volatile place
//! the run waits for the disk at each step. An agent that finds a record of its own boot shuts the
//! gate first and resumes when it learns of the shutdown: same start, same deadline, the rest of
//! each grace. A disk that fails or hangs costs a quarter of a second, once.
//!
//! # The end of a run
//! When no container runs any more, the node is released as soon as everything that outlasts the
//! machine is released: what was mounted for pods, and the network of pods that have one of their
//! own. What disappears with the machine anyway (the sandboxes of pods on the host's network,
//! cgroups, plain directories) is cleaned up in the background.
//!
//! # Time
//! There is one deadline, counted from the signal. Each group is guaranteed the time its plan
//! allows; a group that ends early passes the rest on, so a later group can honour more of its
//! pods' own grace. A [`Budget`] keeps a reserve at the end for final statuses and the report.
//!
//! # Design
//! [`Policy`], [`Budget`] and [`plan`] are pure: no clock, no I/O. [`run_plan`] carries a plan out
//! on tokio's clock and knows nothing of login managers, so that a drain runs on it too.

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
pub use winddown_shared::{AdmissionGate, BootClock};
