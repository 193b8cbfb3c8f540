//! What any runtime must do (the cases of `shared/conformance`), what ours have in common besides (`suite`), and the CRI
//! runtime against a scripted runtime (`behaviour`, `faults`, `starts`, `outages`, `crio`), a real containerd (`real`,
//! `held`, `many`, `streams`), both (`ephemeral`) and systemd's on a small service manager (`managed`, `services`). What
//! the cases, `suite`, `notices`, `managed` and `commands` say is also played on systemd itself, by
//! programs/tests/services.rs.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod bed;
mod behaviour;
mod beside;
mod commands;
mod containerd;
mod crio;
mod elsewhere;
mod ephemeral;
mod faults;
mod front;
mod held;
mod managed;
mod many;
mod notices;
mod outages;
mod real;
mod services;
mod stage;
mod stages;
mod starts;
mod stats;
mod streams;
mod suite;
mod told;
mod units;

use stage::{OnStage, Stage};
use stages::{Fake, Processes, Real, Services};
use winddown_runtime_conformance::{RuntimeUnderTest, for_each_case};

macro_rules! on_stage {
    ($module:ident $from:ident $stage:ident => $($scenario:ident)*) => {
        mod $module {
            use crate::stage::Stage as _;

            $(
                #[tokio::test]
                async fn $scenario() {
                    match crate::$stage::missing() {
                        None => crate::$from::$scenario(&crate::$stage::set().await).await,
                        Some(why) => crate::bed::skip(stringify!($scenario), why),
                    }
                }
            )*
        }
    };
}

/// The same with the pods of the suite, as for a runtime of one's own.
struct ReadyMade<S>(S);

impl<S: Stage> RuntimeUnderTest for ReadyMade<S> {
    type Runtime = S::Runtime;

    async fn open(&self) -> S::Runtime {
        self.0.open().await
    }
}

/// What any runtime must do: the cases that runtimes of others run as well.
macro_rules! keeps_promises {
    ($module:ident $subject:ident $stage:ident => $($case:ident)*) => {
        mod $module {
            use crate::stage::{Stage as _, kept};

            $(
                #[tokio::test]
                async fn $case() {
                    match crate::$stage::missing() {
                        None => {
                            let subject = crate::$subject(crate::$stage::set().await);
                            kept(winddown_runtime_conformance::cases::$case(&subject).await);
                        }
                        Some(why) => crate::bed::skip(stringify!($case), why),
                    }
                }
            )*
        }
    };
}

for_each_case! { [keeps_promises] any_on_fake OnStage Fake }
for_each_case! { [keeps_promises] any_on_containerd OnStage Real }
for_each_case! { [keeps_promises] any_on_processes OnStage Processes }
for_each_case! { [keeps_promises] ready_made_on_processes ReadyMade Processes }
for_each_case! { [keeps_promises] any_on_services OnStage Services }
suite::common_scenarios!(on_stage on_fake suite Fake);
suite::common_scenarios!(on_stage on_containerd suite Real);
suite::common_scenarios!(on_stage on_processes suite Processes);
suite::common_scenarios!(on_stage on_services suite Services);
on_stage! { looked_into_on_fake ephemeral Fake =>
    a_container_to_look_into_a_running_pod_runs_once
}
on_stage! { looked_into_on_containerd ephemeral Real =>
    a_container_to_look_into_a_running_pod_runs_once
}
notices::notice_scenarios!(on_stage told_on_containerd notices Real);
notices::notice_scenarios!(on_stage told_on_processes notices Processes);
notices::notice_scenarios!(on_stage told_on_services notices Services);
managed::managed_scenarios!(on_stage on_managed_services managed Services);
commands::command_scenarios!(on_stage beside_processes commands Processes);
commands::command_scenarios!(on_stage beside_services commands Services);
on_stage! { at_a_terminal commands Processes => a_terminal_controls_its_command }
