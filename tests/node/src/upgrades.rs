//! Upgrades of the package on a busy node whose pods run, and the way back to an earlier one.
//!
//! A node has the package of an earlier commit. The present one takes its place, gives it back, and takes it again, while
//! programs use all processors, each time with a shutdown afterwards. The judge sees the pods' processes and logind's list
//! of locks as the kernel reports them, compares what both agents say, and reads their log.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::packages::dpkg_file;
use crate::restarts::{Deed, Runtime, Stage, judge};
use crate::scenario::TestResult;
use crate::usage::processors;
use crate::witness::{At, LockWatch, PodWatch, now};

/// How long logind may be without the lock while the package changes.
const AWAY: Duration = Duration::from_millis(50);
/// The programs that use each processor meanwhile.
const BUSY: usize = 2;
/// The configuration stays as the operator wrote it, without a question.
const KEEP: &str = "--force-confold";

/// A change of the package.
#[derive(Debug, Clone)]
pub struct Change {
    /// Whether to the earlier package, or else to the present one.
    pub is_downgrade: bool,
    /// The longest time that logind was without the lock.
    pub away: Duration,
    /// All that was not as it has to be; none if all went well.
    pub faults: Vec<String>,
    /// What the agents logged as a warning or worse.
    pub said: Vec<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_downgrade { "downgrade" } else { "upgrade" };
        write!(f, "{what}, {} ms without the lock", self.away.as_millis())
    }
}

/// Upgrades from the earlier package to the present one, back, and again, and calls `told` with each change. Returns none,
/// after reporting why, if no node can be booted.
///
/// # Errors
/// A deed did not come to its end, or the node does not boot.
pub async fn upgrades(
    test: &str,
    runtime: Runtime,
    [earlier, present]: [&Path; 2],
    mut told: impl FnMut(&Change),
) -> TestResult<Option<Vec<Change>>> {
    let Some(mut stage) = Stage::set(test, runtime, Some(earlier.to_owned())).await? else {
        return Ok(None);
    };
    let shutdown = stage.play(Deed::Shutdown, None).await?;
    stage.boot().await?;
    let mut all = Vec::new();
    for (package, is_downgrade) in [(present, false), (earlier, true), (present, false)] {
        let mut change = under_load(&stage, package, is_downgrade).await?;
        let seen = stage.play(Deed::Shutdown, None).await?;
        stage.boot().await?;
        change.faults.extend(judge(&shutdown, &seen));
        told(&change);
        all.push(change);
    }
    Ok(Some(all))
}

/// Changes the package on a busy node whose pods nothing is done to.
async fn under_load(stage: &Stage, package: &Path, is_downgrade: bool) -> TestResult<Change> {
    let (node, pods) = (&stage.scenario.node, &stage.scenario.pods);
    let (before, logs) = (Facts::of(stage).await?, stage.scenario.logs());
    let mut watch = PodWatch::default();
    watch.add(node, pods)?;
    let lock = LockWatch::start(node).await?;
    let units: Vec<_> = (0..BUSY * processors()?).map(|number| format!("busy-{number}")).collect();
    for unit in &units {
        let run = ["systemd-run", "--quiet", "--collect", "--unit", unit];
        node.run(&[&run[..], &["sh", "-c", "while :; do :; done"]].concat()).await?;
    }
    let begun = (now(), Instant::now());
    dpkg_file(node, &[KEEP, "--install"], package).await?;
    stage.scenario.another_agent_than(&before.agent).await?;
    stage.rests().await?;
    stage.is_asked().await?;
    let mut faults = before.compare(&Facts::of(stage).await?, is_downgrade);
    for unit in &units {
        node.run(&["systemctl", "stop", unit]).await?;
    }
    let ended = watch.seen().into_iter().filter(|life| life.ended.is_some());
    faults.extend(ended.map(|life| format!("{}: its process ended", life.pod)));
    if stage.scenario.logs() != logs {
        faults.push(format!("pods were asked or started: {:?}", stage.scenario.logs()));
    }
    let away = longest_without(&lock.seen(), now());
    if away > AWAY {
        faults.push(format!("logind was without the lock for {away:?}"));
    }
    let said = logged(stage, begun, &mut faults).await?;
    Ok(Change { is_downgrade, away, faults, said })
}

/// What an agent says of itself, of its pods, and of the shutdowns before.
#[derive(Debug)]
struct Facts {
    agent: Value,
    pods: BTreeMap<String, Value>,
    reports: usize,
    /// Reports that it cannot read, each with its file.
    problems: usize,
}

// === impl Facts ===

impl Facts {
    async fn of(stage: &Stage) -> TestResult<Self> {
        let status = stage.scenario.status().await?;
        let of_pod = |pod: &Value| {
            let name = pod["name"].as_str().unwrap_or_default().to_owned();
            (name, serde_json::json!([pod["uid"], pod["phase"], pod["ready"], pod["restarts"]]))
        };
        let list = stage.scenario.text(&["report", "--list", "--output", "json"]).await?;
        let list: Value = serde_json::from_str(&list)?;
        let count = |key: &str| list[key].as_array().map_or(0, Vec::len);
        Ok(Self {
            agent: status["node"]["pid"].clone(),
            pods: status["pods"].as_array().into_iter().flatten().map(of_pod).collect(),
            reports: count("reports"),
            problems: count("problems"),
        })
    }

    /// What the next agent says otherwise. An earlier one need not read what a later one wrote, but names it.
    fn compare(&self, next: &Self, is_downgrade: bool) -> Vec<String> {
        let mut faults = Vec::new();
        if self.agent == next.agent {
            faults.push("no other agent runs".to_owned());
        }
        let (known, all) = (self.reports, self.reports + self.problems);
        if next.reports + next.problems != all || (!is_downgrade && next.reports < known) {
            faults.push(format!("{next:?} after {self:?}"));
        }
        for (name, before) in &self.pods {
            let after = next.pods.get(name);
            if after != Some(before) {
                faults.push(format!("{name}: {after:?} instead of {before}"));
            }
        }
        faults
    }
}

/// What the agents logged since as a warning or worse. An error is a fault, and so is a file that was set aside and not
/// named.
async fn logged(
    stage: &Stage,
    (since, begun): (At, Instant),
    faults: &mut Vec<String>,
) -> TestResult<Vec<String>> {
    let node = &stage.scenario.node;
    let said = async |least: &str| {
        let said =
            node.journal_entries(&["_COMM=winddownd", &format!("--priority={least}")]).await?;
        let since = said.into_iter().filter(|entry| entry.at >= since);
        TestResult::Ok(since.map(|entry| entry.message).collect::<Vec<_>>())
    };
    faults.extend(said("err").await?.into_iter().map(|error| format!("logged: {error}")));
    let find = ["find", "/run/winddown", "/var/lib/winddown", "-name", "*.bad"];
    let (found, journal) = (node.run(&find).await?, stage.journal_since(begun).await);
    let unnamed = found.lines().filter(|path| !journal.contains(path.trim_end_matches(".bad")));
    faults.extend(unnamed.map(|path| format!("{path}: set aside without a word")));
    said("warning").await
}

/// The longest time without the lock until then.
fn longest_without(seen: &[(At, bool)], until: At) -> Duration {
    let ends = seen.iter().skip(1).map(|(at, _)| *at).chain([until]);
    let spans = seen.iter().zip(ends).filter(|((_, held), _)| !held);
    let longest = spans.map(|((from, _), to)| to.saturating_sub(*from)).max();
    Duration::from_nanos(longest.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_the_lock_counts_and_one_that_lasts_to_the_end_too() {
        let longest = |seen: &[(At, bool)]| longest_without(seen, 100).as_nanos();
        assert_eq!(longest(&[(0, true)]), 0);
        assert_eq!(longest(&[(0, true), (10, false), (40, true), (50, false), (60, true)]), 30);
        assert_eq!(longest(&[(0, true), (10, false), (40, true), (50, false)]), 50);
    }
}
