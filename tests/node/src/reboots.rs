//! Reboots in a row, each with other pods and another fault, and what has to be true of every one.
//!
//! Chance decides, from a seed that is printed: the same seed gives the same pods and the same
//! faults, though not the same microsecond.

mod chance;
mod judge;
mod plan;
mod table;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::scenario::{SOON, Scenario, Setup, TestResult};
use crate::{Node, Process, install_pods, remove_pods};

pub use chance::Chance;
pub use plan::{Fault, Round, Way};
pub use table::{END_OF_TABLE, START_OF_TABLE, table};

/// How long a node may take to go down: more than the budget and all of systemd's own work.
const DOWN: Duration = Duration::from_secs(60);
/// How long an agent that hangs is left hanging. Its watchdog would wait for 30 s.
const HANG: Duration = Duration::from_millis(400);

/// How one round went.
#[derive(Debug, Clone)]
pub struct Row {
    /// What chance had chosen.
    pub round: Round,
    /// From the boot's end until the lock was held and every pod ran.
    pub up_after: Duration,
    /// How long the run took by the agent's own count.
    pub took: f64,
    /// What the report calls it.
    pub outcome: String,
    /// How often the report says that a later agent took the run up.
    pub resumed: usize,
}

/// Reboots one node `rounds` times. `told` hears of each round that was clean. Nothing, after saying
/// so, where no node can be booted.
///
/// # Errors
/// The first round that was not clean: what was wrong, which round of which seed, and the journal.
pub async fn run(
    test: &str,
    rounds: u32,
    seed: u64,
    mut told: impl FnMut(u32, &Row),
) -> TestResult<Option<Vec<Row>>> {
    let mut chance = Chance::new(seed);
    let mut rows = Vec::new();
    let mut next = Round::draw(&mut chance);
    let setup = Setup::default();
    let Some(mut scenario) = Scenario::installed_as(test, next.pods.clone(), &setup).await? else {
        return Ok(None);
    };
    for number in 1..=rounds {
        let round = std::mem::replace(&mut next, Round::draw(&mut chance));
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

/// From a node that is up to the same node off, and all that is to be said about it.
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

/// Faults that strike while nothing else happens. The node is whole again afterwards.
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

/// Faults that strike while pods are ending.
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
