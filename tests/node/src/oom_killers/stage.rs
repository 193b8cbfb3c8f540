//! A node with one of the programs, on which all scenes are played one after the other.

use std::time::Duration;

use super::killer::{Killer, POD};
use super::scene::{Pod, SCENES, Scene};
use super::table::Row;
use super::{FEW_TASKS, LOGS, SHORT_MIB};
use crate::Need;
use crate::scenario::{Scenario, Setup, TestResult};

const WATCHER: &str = "/usr/local/bin/beside-oom-killers";
/// Longer than a watcher ever runs.
const LIMIT: Duration = Duration::from_secs(300);

/// Plays all scenes with one of the programs on its own node.
///
/// # Errors
/// There is no such node, or something went wrong on it.
pub async fn run(killer: Killer) -> TestResult<Vec<Row>> {
    let thresholds = format!("memory.available: {SHORT_MIB}Mi, pid.available: '{FEW_TASKS}'");
    let setup = Setup {
        needs: &[Need::Controllers, Need::Pressure],
        more: format!("evictionHard: {{{thresholds}, nodefs.available: 50Mi}}\n"),
        ..Setup::default()
    };
    let scenario = Scenario::installed_as(killer.name(), Vec::new(), &setup).await?;
    let scenario = scenario.ok_or("there is no emulated machine here")?;
    let node = &scenario.node;
    let own = std::env::current_exe()?;
    node.install(&own, WATCHER)?;
    node.install(&own.with_file_name("pressure-pod"), POD)?;
    node.run(&["mkdir", LOGS]).await?;
    killer.start(&scenario).await?;
    let mut rows = Vec::new();
    for scene in SCENES {
        let row = play(&scenario, killer, scene).await;
        if row.is_err() || std::env::var_os("WINDDOWN_LOUD").is_some() {
            println!("{}", killer.journal(node).await);
        }
        rows.push(row?);
        println!("{}", rows.last().map(Row::line).unwrap_or_default());
    }
    Ok(rows)
}

async fn play(scenario: &Scenario, killer: Killer, scene: Scene) -> TestResult<Row> {
    let node = &scenario.node;
    for pod in scene.others {
        killer.start_pod(node, *pod).await?;
    }
    hold(scenario, scene.others).await?;
    let names = scene.others.iter().map(|pod| pod.name);
    let watch: Vec<&str> =
        [WATCHER, "watch", scene.culprit.name].into_iter().chain(names).collect();
    let (seen, started) =
        tokio::join!(node.exec(&watch, LIMIT), killer.start_pod(node, scene.culprit));
    started?;
    let seen = seen?;
    let seen = serde_json::from_str(&seen.stdout)
        .map_err(|_| format!("{}: {}{}", scene.title, seen.stdout, seen.stderr))?;
    killer.end_pods(node, &[scene.others, &[scene.culprit]].concat()).await?;
    Ok(Row { killer: killer.name(), scene, seen })
}

/// Waits until pods have allocated their memory.
async fn hold(scenario: &Scenario, pods: &[Pod]) -> TestResult {
    let held = pods.iter().map(|pod| {
        format!(
            "[ \"$(ps -o rss= -p \"$(pgrep -of '^{POD} {LOGS}/{} hold')\")\" -gt {} ]",
            pod.name,
            pod.does.1 * 1024
        )
    });
    let held = held.collect::<Vec<_>>().join(" && ");
    let holds = async || scenario.node.run(&["sh", "-c", &held]).await.is_ok();
    let waited = scenario.node.wait_until("pods to hold their memory", LIMIT, holds).await;
    waited.map(drop).map_err(Into::into)
}
