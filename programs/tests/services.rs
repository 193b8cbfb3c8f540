//! The runtimes' black-box suite on a real systemd.
//!
//! Each test is one case of `shared/conformance`, one scenario of `tests/runtimes/tests/suite/suite.rs`, `notices.rs`,
//! `managed.rs` or `commands.rs`, or one of this file. It boots a disposable node, runs this program in it for that scenario alone, and fails with the
//! program's output. The long form runs all of them again, one after the other, in a node with systemd 257 and in one
//! with 262, which have all controllers of version 2. Scenarios that need a misbehaving service manager (lost answers,
//! hangs, units that vanish without notice) run only on the scripted one: `tests/runtimes/tests/suite/services.rs`.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

#[path = "../../tests/runtimes/tests/suite/bed.rs"]
#[allow(dead_code, reason = "made for other stages as well")]
mod bed;
#[path = "../../tests/runtimes/tests/suite/commands.rs"]
mod commands;
#[path = "../../tests/runtimes/tests/suite/managed.rs"]
mod managed;
#[path = "services/node.rs"]
mod node;
#[path = "../../tests/runtimes/tests/suite/notices.rs"]
mod notices;
#[path = "services/real.rs"]
mod real;
#[path = "../../tests/runtimes/tests/suite/stage.rs"]
#[allow(dead_code, reason = "made for other stages as well")]
mod stage;
#[path = "../../tests/runtimes/tests/suite/suite.rs"]
mod suite;

use node::play_all;
use winddown_node_tests::on_each_release;

macro_rules! in_a_node {
    ($module:ident $from:ident => $($scenario:ident)*) => {
        mod $module {
            use crate::stage::Stage as _;

            $(
                #[tokio::test]
                async fn $scenario() {
                    if crate::node::is_here() {
                        crate::$from::$scenario(&crate::real::Systemd::set().await).await;
                    } else {
                        let test = concat!(stringify!($module), "::", stringify!($scenario));
                        crate::node::play(test).await;
                    }
                }
            )*
        }
    };
}

/// What any runtime must do.
macro_rules! keeps_promises {
    ($module:ident => $($case:ident)*) => {
        mod $module {
            use crate::stage::{OnStage, Stage as _, kept};

            $(
                #[tokio::test]
                async fn $case() {
                    if crate::node::is_here() {
                        let subject = OnStage(crate::real::Systemd::set().await);
                        kept(winddown_runtime_conformance::cases::$case(&subject).await);
                    } else {
                        let test = concat!(stringify!($module), "::", stringify!($case));
                        crate::node::play(test).await;
                    }
                }
            )*
        }
    };
}

winddown_runtime_conformance::for_each_case! { [keeps_promises] any }
suite::common_scenarios!(in_a_node common suite);
notices::notice_scenarios!(in_a_node told notices);
managed::managed_scenarios!(in_a_node as_services managed);
commands::command_scenarios!(in_a_node beside_services commands);
in_a_node! { at_a_terminal commands => a_terminal_controls_its_command }
real::real_scenarios!(in_a_node only_on_systemd real);
on_each_release!(since 257, all_of_it_holds_on_cgroup_v2: play_all);
