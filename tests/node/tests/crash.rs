//! The agent is killed at every step of a shutdown that it writes down, on a real node: systemd
//! starts it again, and it takes the run up where the record says it stood.
//!
//! The kill comes as it has written the record of that step, from a preloaded library, so that no step is missed.

use std::time::Duration;

use winddown_node_tests::preload;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{PodBehavior, TestPod};

/// The groups' 14 s, and the lame duck's.
const BUDGET: f64 = 15.0;
/// How long two groups may be apart. An agent is started again 0.2 s after it was killed; the rest is
/// for a busy machine, and for being killed twice.
const AWAY: Duration = Duration::from_secs(5);
/// What systemd says of the agents that this test kills.
const EXPECTED: [&str; 2] = ["status=9/KILL", "Failed with result 'signal'"];

/// A step that the record tells.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Pods are not ready, and none was asked.
    LameDuck,
    /// This group is about to be asked.
    Group(usize),
    /// All pods are ended.
    Reporting,
    /// Nothing is left to be done.
    Released,
}

impl Step {
    const ALL: [Self; 6] = [
        Self::LameDuck,
        Self::Group(0),
        Self::Group(1),
        Self::Group(2),
        Self::Reporting,
        Self::Released,
    ];

    /// A text that the record has from then on, and how often.
    fn mark(self) -> (&'static str, usize) {
        match self {
            Self::LameDuck => (r#""phase""#, 1),
            Self::Group(n) => (r#""startedMs""#, n + 1),
            // Also "released", in case that is written at once.
            Self::Reporting => (r#""phase":"re"#, 1),
            Self::Released => (r#""phase":"released""#, 1),
        }
    }
}

macro_rules! killed_at {
    ($($test:ident: $step:expr;)*) => {$(
        #[tokio::test]
        async fn $test() -> TestResult {
            is_killed_at(stringify!($test), &[$step]).await
        }
    )*};
}

killed_at! {
    an_agent_killed_while_pods_turn_unready_finishes_the_shutdown: Step::LameDuck;
    an_agent_killed_as_it_asks_the_first_group_finishes_the_shutdown: Step::Group(0);
    an_agent_killed_as_it_asks_the_second_group_finishes_the_shutdown: Step::Group(1);
    an_agent_killed_as_it_asks_the_last_group_finishes_the_shutdown: Step::Group(2);
    an_agent_killed_before_it_writes_its_report_finishes_the_shutdown: Step::Reporting;
    an_agent_killed_when_all_is_done_does_not_begin_again: Step::Released;
}

#[tokio::test]
async fn an_agent_killed_at_every_step_of_one_shutdown_finishes_it() -> TestResult {
    is_killed_at("an_agent_killed_at_every_step_of_one_shutdown_finishes_it", &Step::ALL).await
}

#[tokio::test]
async fn a_pod_that_was_asked_before_the_kill_gets_the_rest_of_its_grace_and_no_new_one()
-> TestResult {
    let test = "a_pod_that_was_asked_before_the_kill_gets_the_rest_of_its_grace_and_no_new_one";
    let mut deaf = TestPod::new("deaf", 0, 0);
    (deaf.behavior, deaf.grace_seconds) = (PodBehavior::Deaf, 4);
    let Some(mut scenario) = Scenario::installed_with(test, vec![deaf]).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let agent = scenario.agent().await?;
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    agent.kill()?;
    scenario.node.wait_off(SOON).await?;
    let report = scenario.newest_report()?;
    assert_eq!(report["outcome"], "forced", "{report}");
    assert_eq!(report["resumedMs"].as_array().map(Vec::len), Some(1), "{report}");
    let pod = &report["groups"][0]["pods"][0];
    let asked = pod["requestedMs"].as_u64().ok_or("it was not asked")?;
    let ended = pod["exitMs"].as_u64().ok_or("it did not end")?;
    // What is left counts in whole seconds. A new grace would begin after 2 s and end after 6.
    assert!((2900..5500).contains(&(ended - asked)), "{report}");
    Ok(())
}

async fn is_killed_at(test: &str, steps: &[Step]) -> TestResult {
    let setup = Setup { more: "shutdownEndpointDrainPeriod: 1s\n".to_owned(), ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    preload::into_agent(&scenario.node).await?;
    scenario.start().await?;
    preload::kill_at(&scenario.node, steps.iter().map(|step| step.mark())).await?;
    let asked = scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    let said = scenario.node.journal(&["--unit=winddown"]).await?;
    let killed = said.matches("code=killed, status=9/KILL").count();
    assert_eq!(killed, steps.len(), "not every kill met an agent: {said}");

    let (_, last_exit) = scenario.assert_ended_within(AWAY)?;
    scenario.lock_outlived(last_exit).await?;
    scenario.assert_logind_was_patient().await?;
    scenario.assert_systemd_killed_nothing_but(&EXPECTED).await?;
    let took = Duration::from_nanos(scenario.lock_released_at().await? - asked);
    println!("{steps:?}: lock released after {took:?}");
    assert!(took.as_secs_f64() < BUDGET, "it took {took:?}");

    assert_eq!(scenario.reports()?.len(), 1, "one shutdown, one report");
    let report = scenario.newest_report()?;
    assert_eq!(report["outcome"], "clean", "{report}");
    assert_eq!(report["trigger"], "loginManager", "{report}");
    let groups = report["groups"].as_array().into_iter().flatten();
    let pods = groups.map(|group| group["pods"].as_array().map_or(0, Vec::len));
    assert_eq!(pods.collect::<Vec<_>>(), [4, 2, 1], "{report}");
    assert!(report["tookSeconds"].as_f64() < Some(BUDGET), "{report}");
    Ok(())
}
