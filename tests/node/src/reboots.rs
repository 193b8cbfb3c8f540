//! Reboots in a row, each with other pods and another fault, and invariants that must hold for each.
//!
//! The choices are random, from a seed that is printed: the same seed gives the same pods and the same faults, though
//! not to the microsecond.

mod judge;
mod plan;
mod seeded_rng;
mod table;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::scenario::{SOON, Scenario, Setup, TestResult};
use crate::{Node, Process, install_pods, remove_pods};

pub use plan::{Fault, Round, Way};
pub use seeded_rng::SeededRng;
pub use table::{END_OF_TABLE, START_OF_TABLE, table};

/// How long a node may take to shut down: longer than the budget and all of systemd's own work.
const DOWN: Duration = Duration::from_secs(60);
/// How long an agent is suspended. Its watchdog would wait for 30 s.
const HANG: Duration = Duration::from_millis(400);

/// The result of a round.
#[derive(Debug, Clone)]
pub struct Row {
    /// The round that was drawn.
    pub round: Round,
    /// The time from the end of the boot until the lock was held and every pod ran.
    pub up_after: Duration,
    /// The duration of the shutdown according to the agent, in seconds.
    pub took: f64,
    /// The outcome in the report.
    pub outcome: String,
    /// How often a later agent resumed the shutdown, according to the report.
    pub resumed: usize,
}

/// Reboots one node `rounds` times. Calls `told` for each clean round. Returns none, after reporting why, if no node
/// can be booted.
///
/// # Errors
/// The first round that was not clean: what was wrong, the round and the seed, and the journal.
pub async fn run(
    test: &str,
    rounds: u32,
    seed: u64,
    mut told: impl FnMut(u32, &Row),
) -> TestResult<Option<Vec<Row>>> {
    let mut rng = SeededRng::new(seed);
    let mut rows = Vec::new();
    let mut next = Round::draw(&mut rng);
    let setup = Setup::default();
    let Some(mut scenario) = Scenario::installed_as(test, next.pods.clone(), &setup).await? else {
        return Ok(None);
    };
    for number in 1..=rounds {
        let round = std::mem::replace(&mut next, Round::draw(&mut rng));
        let row = match reboot(&mut scenario, &round, &setup).await {
            Ok(row) => row,
            Err(error) => {
                let journal = scenario.node.journal(&["--boot", "--lines=200"]).await;
                let journal = journal.unwrap_or_else(|error| error.to_string());
                let logs = scenario.logs();
                return Err(format!(
                    "round {number} of seed {seed}: {error}\n{round:#?}\n{logs:#?}\n{journal}"
                )
                .into());
            }
        };
        told(number, &row);
        rows.push(row);
        remove_pods(&scenario.node)?;
        install_pods(&scenario.node, &next.pods)?;
        scenario.pods.clone_from(&next.pods);
        scenario.node.start().await?;
    }
    Ok(Some(rows))
}

/// Plays a round, from a running node until it is off, and checks everything about it.
async fn reboot(scenario: &mut Scenario, round: &Round, setup: &Setup) -> TestResult<Row> {
    let booted = Instant::now();
    scenario.start().await?;
    let up_after = booted.elapsed();
    scenario.assert_nothing_was_asked()?;
    before(scenario, round.fault).await?;
    scenario.assert_nothing_was_asked()?;

    let agent = scenario.agent().await?;
    scenario.node.run(&["bash", "-c", round.way.command()]).await?;
    during(scenario, round.fault, &agent).await?;
    let ended = scenario.node.wait_off(DOWN).await?;
    if ended.code() != Some(Node::REBOOTED) {
        return Err(format!("the node did not ask for a reboot: {ended}").into());
    }
    let report = scenario.newest_report()?;
    judge::judge(scenario, round, setup, &report).await?;
    Ok(Row {
        round: round.clone(),
        up_after,
        took: report["tookSeconds"].as_f64().unwrap_or_default(),
        outcome: report["outcome"].as_str().unwrap_or_default().to_owned(),
        resumed: report["resumedMs"].as_array().map_or(0, Vec::len),
    })
}

/// Applies faults that strike while nothing else happens. Afterwards the node works again.
async fn before(scenario: &Scenario, fault: Fault) -> TestResult {
    match fault {
        Fault::AgentKilledBefore => {
            let old = scenario.status().await?["node"]["pid"].clone();
            scenario.agent().await?.kill()?;
            scenario.another_agent_than(&old).await?;
        }
        Fault::AgentRestarted => restart(scenario, "winddown").await?,
        Fault::DbusRestarted => restart(scenario, "dbus").await?,
        Fault::LogindRestarted => restart(scenario, "systemd-logind").await?,
        _ => return Ok(()),
    }
    let answers = async || scenario.node.run(&["loginctl", "list-sessions"]).await.is_ok();
    scenario.node.wait_until("logind to answer", SOON, answers).await?;
    scenario.lock_is_back().await?;
    Ok(())
}

async fn restart(scenario: &Scenario, unit: &str) -> TestResult {
    scenario.node.run(&["systemctl", "restart", unit]).await?;
    Ok(())
}

/// Applies faults that strike while pods are terminating.
async fn during(scenario: &Scenario, fault: Fault, agent: &Process) -> TestResult {
    match fault {
        Fault::AgentKilledAfter(delay) => {
            scenario.someone_is_asked().await?;
            sleep(delay).await;
            agent.kill()?;
        }
        Fault::AgentHangsAfter(delay) => {
            scenario.someone_is_asked().await?;
            sleep(delay).await;
            agent.hang()?;
            sleep(HANG).await;
            agent.go_on()?;
        }
        _ => {}
    }
    Ok(())
}
