//! A node goes down while CRI-O works, was stopped, hangs or is killed: its pods end as with containerd, by their own
//! logs. With a program that stands in for CRI-O, and with CRI-O itself where `WINDDOWN_CRIO` names one, with both
//! of its cgroup managers.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::sleep;
use winddown_node_tests::TestPod;
use winddown_node_tests::crio::Crio;
use winddown_node_tests::scenario::{Scenario, Setup, TestResult, twenty_pods};
use winddown_runtimes_tests::crio::SLOW_STARTS;

/// How much later than with containerd the first pod may be asked to end.
const LATER: Duration = Duration::from_millis(50);
/// How long before its own log a pod may be said to have been asked: a shell writes the log.
const EARLY: Duration = Duration::from_millis(500);

const STOP: &[&str] = &["systemctl", "stop", "crio"];
const SUSPEND: &[&str] = &["systemctl", "kill", "--signal=STOP", "--kill-whom=main", "crio"];
const KILL: &[&str] = &["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "crio"];
const KILL_AGENT: &[&str] = &["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "winddown"];

/// What happens to CRI-O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Undisturbed,
    /// Stopped before the node goes down.
    Stopped,
    /// Suspended before the node goes down.
    Suspended,
    /// Stopped one second after the first pod was asked to end.
    StoppedMidway,
    /// Suspended then.
    SuspendedMidway,
    /// Killed then.
    Killed,
    /// The same, and so is the agent.
    KilledWithTheAgent,
}

impl Fate {
    /// What is run in the node before it goes down.
    fn before(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Stopped => &[STOP],
            Self::Suspended => &[SUSPEND],
            _ => &[],
        }
    }

    /// What is run in the node while pods end.
    fn midway(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::StoppedMidway => &[STOP],
            Self::SuspendedMidway => &[SUSPEND],
            Self::Killed => &[KILL],
            Self::KilledWithTheAgent => &[KILL, KILL_AGENT],
            Self::Undisturbed | Self::Stopped | Self::Suspended => &[],
        }
    }

    /// How long a group may wait after the one before it.
    fn gap(self) -> Duration {
        match self {
            // The next agent is not told which pods run, so it gives a group all of its 6 s.
            Self::KilledWithTheAgent => Duration::from_secs(7),
            _ => Duration::from_secs(1),
        }
    }
}

/// Four ordinary pods, two of a higher priority, a critical one: 2 s, 0.5 s, 0.4 s.
fn pods() -> Vec<TestPod> {
    let ordinary = (0..4).map(|n| TestPod::new(format!("web-{n}"), 0, 2000));
    let queues = (0..2).map(|n| TestPod::new(format!("queue-{n}"), 1000, 500));
    let critical = [TestPod::new("agent-0", 2_000_000_000, 400)];
    ordinary.chain(queues).chain(critical).collect()
}

/// Powers the node off. Returns how long after the agent heard of that the first pod was asked to end.
async fn power_off(mut scenario: Scenario, fate: Fate) -> TestResult<Duration> {
    scenario.start().await?;
    scenario.all_pods_are("Running").await?;
    for command in fate.before() {
        scenario.node.run(command).await?;
    }
    let asked = scenario.power_off().await?;
    if !fate.midway().is_empty() {
        scenario.someone_is_asked().await?;
        sleep(Duration::from_secs(1)).await;
        for command in fate.midway() {
            scenario.node.run(command).await?;
        }
    }
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    for (name, log) in scenario.logs() {
        assert_eq!(log.terms.len(), 1, "{name}: {log:?}");
    }
    let (first_term, last_exit) = scenario.assert_ended_within(fate.gap())?;
    let kept = scenario.lock_outlived(last_exit).await?;
    assert!(kept < fate.gap(), "the lock was held for {kept:?} for nothing");
    scenario.assert_logind_was_patient().await?;
    let heard = scenario.said_after(asked, "the node goes down").await?;
    let until_first = Duration::from_nanos(first_term.saturating_sub(heard));
    println!(
        "{fate:?}: first SIGTERM {until_first:?} after the announcement, {:?} after the command; last exit after {:?}",
        Duration::from_nanos(first_term - asked),
        Duration::from_nanos(last_exit - asked),
    );
    let logs = scenario.logs();
    let report = scenario.report_after_next_boot().await?;
    if fate != Fate::KilledWithTheAgent {
        assert_eq!(report["outcome"], "clean", "{report}");
    }
    let groups = report["groups"].as_array().into_iter().flatten();
    let reported: Vec<_> =
        groups.flat_map(|group| group["pods"].as_array().into_iter().flatten()).collect();
    assert_eq!(reported.len(), logs.len(), "{report}");
    for pod in reported {
        let name = pod["name"].as_str().unwrap_or_default();
        let log = logs.get(name.trim_end_matches("-winddown-node")).ok_or("another pod")?;
        let Some(offset) = pod["sigtermMs"].as_u64() else {
            assert_eq!(fate, Fate::KilledWithTheAgent, "when {name} was asked is not known: {pod}");
            continue;
        };
        let said = heard + offset * 1_000_000;
        let early = Duration::from_nanos(log.terms[0].saturating_sub(said));
        assert!(early < EARLY, "{name} is said to have been asked {early:?} before it was: {pod}");
    }
    Ok(until_first)
}

/// Held by the test whose node is on: what another node does would be measured, too. It has how long the first stop signal
/// takes with containerd, once that has been measured.
static TURN: Mutex<Option<Duration>> = Mutex::const_new(None);

async fn ends_in_order(test: &str, crio: &Crio, fate: Fate) -> TestResult {
    let mut turn = TURN.lock().await;
    if turn.is_none()
        && let Some(scenario) = Scenario::with_containerd(test, pods()).await?
    {
        *turn = Some(power_off(scenario, Fate::Undisturbed).await?);
    }
    // Without it the test was skipped.
    let Some(usual) = *turn else { return Ok(()) };
    let Some(scenario) = Scenario::with_crio(test, pods(), &Setup::default(), crio).await? else {
        return Ok(());
    };
    let found = power_off(scenario, fate).await?;
    assert!(found <= usual + LATER, "{found:?}, {usual:?} with containerd");
    Ok(())
}

/// Powers a node off while containers are being created.
async fn ends_what_starts(test: &str, crio: &Crio) -> TestResult {
    let (_turn, setup) = (TURN.lock().await, Setup::default());
    let Some(mut scenario) = Scenario::with_crio(test, twenty_pods(), &setup, crio).await? else {
        return Ok(());
    };
    scenario.node.run(&["touch", SLOW_STARTS]).await?;
    scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    scenario.lock_is_back().await?;
    scenario.wait_started(1).await?;
    scenario.power_off().await?;
    let never_ran = scenario.logs().values().filter(|log| log.starts.is_empty()).count();
    assert!(never_ran > 0, "all pods ran already");
    scenario.node.wait_off(Duration::from_secs(60)).await?;
    scenario.assert_systemd_killed_nothing().await
}

fn stand_in(_: &str) -> Option<Crio> {
    Some(Crio::StandIn(PathBuf::from(env!("CARGO_BIN_EXE_crio-stand-in"))))
}

fn real(test: &str) -> Option<Crio> {
    Crio::named(test, "systemd")
}

fn real_on_cgroupfs(test: &str) -> Option<Crio> {
    Crio::named(test, "cgroupfs")
}

macro_rules! on {
    ($crio:ident => $($name:ident: $scene:ident($($fate:ident)?);)*) => {
        mod $crio {
            use super::*;

            $(
                #[tokio::test]
                async fn $name() -> TestResult {
                    let test = concat!(stringify!($crio), "::", stringify!($name));
                    match super::$crio(test) {
                        Some(crio) => $scene(test, &crio $(, Fate::$fate)?).await,
                        None => Ok(()),
                    }
                }
            )*
        }
    };
}

macro_rules! on_both {
    ($($scenes:tt)*) => {
        on! { stand_in => $($scenes)* }
        on! { real => $($scenes)* }
    };
}

on_both! {
    pods_end_in_order_on_cri_o: ends_in_order(Undisturbed);
    pods_end_in_order_while_cri_o_is_stopped: ends_in_order(Stopped);
    pods_end_in_order_while_cri_o_hangs: ends_in_order(Suspended);
    pods_end_in_order_when_cri_o_is_stopped_midway: ends_in_order(StoppedMidway);
    pods_end_in_order_when_cri_o_hangs_midway: ends_in_order(SuspendedMidway);
    pods_end_in_order_when_cri_o_is_killed_midway: ends_in_order(Killed);
    pods_end_in_order_when_cri_o_and_the_agent_are_killed_midway: ends_in_order(KilledWithTheAgent);
    no_process_of_a_container_that_was_only_created_outlives_the_lock: ends_what_starts();
}

// Where containers have no scopes they are in CRI-O's own unit, and systemd itself ends them when that stops or dies.
on! {
    real_on_cgroupfs =>
    pods_end_in_order_on_cri_o: ends_in_order(Undisturbed);
    pods_end_in_order_while_cri_o_hangs: ends_in_order(Suspended);
    pods_end_in_order_when_cri_o_hangs_midway: ends_in_order(SuspendedMidway);
    no_process_of_a_container_that_was_only_created_outlives_the_lock: ends_what_starts();
}
