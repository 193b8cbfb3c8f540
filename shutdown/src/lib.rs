#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
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
//! Each step is persisted ([`RunRecord`]) before it takes effect: before a group is requested to
//! stop, before the inhibitor lock is released. A step needs to survive a
//! restart of the agent, so the run waits for memory ([`RecordStore::is_volatile`]) and the
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
//!
//! **A restart in the middle.** Each step is persisted before it takes effect. `RunRecord` is the report so far plus the
//! boot clock; it is written before each group is asked to end and before the lock is released. An agent that finds a
//! record of its own boot closes the gate first. When it learns of the shutdown, it resumes with the same start, deadline
//! and group times, and with the rest of each grace; the runtime reports how pods ended in the meantime. `ShutdownSignals`
//! merges the login manager's state with notices and the stop of the agent's unit, the signal of a machine that goes down
//! past both. `Budget::within` only ever reduces time, and `Plan::shorten` divides what
//! is left.
//!
//! **Pods that stay.** `in_place.rs` (pure) decides which pods do not fail because of a reboot. The kill carries that
//! decision (`StatusOverride::restarts_on_node`), the report keeps it for the next agent, and a worker treats a pod that
//! stays as one that has not ended. What a pod of an earlier boot left behind is removed only when every source was read
//! completely. A pod that survives a soft-reboot is asked to end only if a notice says that the node is lost. The run asks
//! the runtime (`survives_soft_reboot`) whether the pod was started that way, because annotations and policies change while
//! pods run.
//!
//! **Two copies of the record.** `/run/winddown` is in memory. Every step waits for that write alone, because most of a run
//! has to survive only the agent. The state directory gets every step afterwards, one write at a time; the latest step
//! wins, and no pod waits for that disk. After a power
//! cut the copy on disk may be a group behind. At the end, a run waits only for what outlasts the machine: mounts, and the
//! network of pods that have their own.
//!
//! **What runs.** `PodKiller::running` has three answers: these pods run, nothing runs, and unknown. The pod workers add
//! what the intake learns from the runtime: pods that run and are in no source (a broken manifest, an unreachable
//! directory, an orphan). A run ends every listed pod, and reads the list again until the runtime has answered or the
//! plan's deadline has come (`run/discovery.rs`); pods found late share the time that is left. While the runtime is silent,
//! a run also asks the pods that the sources want, because they may be running; only the runtime can confirm that they
//! ended. Until it answers, a pod that is in an earlier agent's record but not in the list counts as neither running nor
//! gone. A report that mentions the runtime's silence (`podsUnknown`) is never Clean.
//!
//! **Order.** Unless a period is configured, groups are roles (`shutdown/src/role.rs`): ordinary pods, system pods, the
//! node's own, control plane, etcd. `role/control_plane.rs` recognises the parts of a control plane by one table of names,
//! which it compares with labels, images, containers and the programs of a command line (`role/programs.rs` reads shell
//! scripts and wrappers); only pods that no tenant can make are compared. A configured period switches to the kubelet's
//! priority groups unless `shutdownOrder: role`. In either order, pods without a manifest are a last group of their own,
//! because it is unknown what needs them. Drivers of volumes, devices and networks (`role.rs` recognises them) end in a
//! round of their own at the end of the last group that has time for them. The later roles divide the time that is reserved
//! for them by what their pods ask for (`plan/divide.rs`). The endpoint drain comes before the first group, and is cut
//! before any time that pods ask for. Warnings and `plan shutdown` show `Plan::guaranteed`.
//!
//! **Work of plug-ins.** A plug-in's work during a shutdown (`shared::ShutdownWork`) is part of the plan, which deducts its
//! time from the pods' (`plan/work.rs`), and of the run, which does it between the groups (`run/work.rs`) and before the
//! release (`controller/release.rs`). Sending the last statuses to the cluster is such work; the plan reserves no time for
//! it, so it gets what is left.
//!
//! **The report.** `shutdown/src/report/` holds what is known of a run. The agent writes it as JSON and in no other form.
//! `programs/render/src/report/` turns it into text and a page (`html/`), by pure functions of `ShutdownReport` that
//! share their sentences (`sentences.rs`). `store/names.rs` decides from file names alone which reports to keep:
//! shutdowns by boot, drains and drills separately. At its start the agent collects what earlier agents left (report, run
//! record, boot mark) as `Evidence`; the pure `last_boot` decides how the node went down. If the machine did not wait for a
//! run, its report is made then, from its record.
//!
//! A defect in the planner would hit one agent after the other. So the shutdown controller has a fallback that shares no
//! code with the planner and the run: it asks every pod at once, with the pod's own grace within the time left, waits for
//! all, and records this in the report. If even that fails, the lock is not released: the process exits, and the next one
//! tries.

mod budget;
mod controller;
mod drain;
mod ending_pods;
mod grace;
mod in_place;
mod journal;
mod json_file;
mod plan;
mod plan_json;
mod plan_status;
mod policy;
mod progress;
mod record;
mod report;
mod role;
mod run;
mod run_context;
mod state_file;
#[cfg(test)]
mod tests;
mod unit_stop;

// The foreign type in signatures.
pub use tokio_util::sync::CancellationToken;

pub use budget::{Budget, why_unawaited};
pub use controller::{Objections, ShutdownController, ShutdownParts};
pub use drain::{DrainOrder, drain};
pub use ending_pods::EndingPods;
pub use in_place::{InPlacePolicy, may_stay, may_survive};
pub use json_file::{FileError, JsonFile};
pub use plan::{
    Group, Plan, PlanWarning, PlannedPod, PlannedWork, Shrink, empty_groups, group_index, plan,
    plan_with, plan_within,
};
pub use plan_json::{AnswerGroup, AnswerPod, PlanAnswer, PlanLineError, plan_case};
pub use plan_status::{
    PlanShrink, PlannedBudget, PlannedGroup, PlannedPodStatus, PlannedWorkStatus, ShutdownPlan,
};
pub use policy::{CRITICAL_PRIORITY, GroupPeriod, Policy, PolicyError};
pub use progress::{GroupProgress, Progress, ProgressPhase, ProgressSender};
pub use record::{RecordFile, RecordStore, RunPhase, RunRecord};
pub use report::units;
pub use report::{
    BootMark, BudgetReport, DelayedBy, EndDetail, Evidence, GroupReport, LastBoot, Listing,
    NoticeReport, Outcome, OutcomeText, PodEnd, PodEndText, PodReport, PreviousBoot, ReportSink,
    ReportStore, ShutdownReport, Tone, Trigger, TriggerText, UnstoredReports, WorkOutcome,
    WorkReport, find_last_boot, last_boot,
};
pub use role::{ROLE_LABEL, Role, is_driver};
pub use run::{RunOrder, RunReport, RunStop, run_plan};
pub use state_file::{StateFile, StateTimes};
pub use unit_stop::UnitStop;
pub use winddown_shared::{AdmissionGate, BootClock};
