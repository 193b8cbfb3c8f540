//! The invariants of every shutdown, whatever its pods and its fault.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{Fault, Round, Way};
use crate::scenario::{GROUPS, Scenario, Setup, TestResult, group_of, has_unknown_end};
use crate::{PodBehavior, PodLog, TestPod};

/// The time beyond the budget that logind allows, plus half a second for the difference of the clocks.
const BEYOND: f64 = 2.5;
/// systemd's messages about an agent that was killed by a fault.
const OF_THE_KILLED: [&str; 2] = ["status=9/KILL", "Failed with result 'signal'"];

/// Fails if the shutdown violated an invariant.
pub(super) async fn judge(
    scenario: &Scenario,
    round: &Round,
    setup: &Setup,
    report: &Value,
) -> TestResult {
    let logs = scenario.logs();
    let may_ask_twice = matches!(round.fault, Fault::AgentKilledAfter(_));
    for pod in &round.pods {
        ended_as_it_should(pod, &logs[&pod.name], may_ask_twice)?;
    }
    in_order(round, &logs)?;
    reported(round, setup, report)?;
    if round.way != Way::PastLogind {
        scenario.assert_logind_was_patient().await?;
        let last = logs.values().flat_map(|log| log.exits.iter().copied()).max().unwrap_or(0);
        scenario.lock_outlived(last).await?;
    }
    let killed = matches!(round.fault, Fault::AgentKilledBefore | Fault::AgentKilledAfter(_));
    let expected: &[&str] = if killed { &OF_THE_KILLED } else { &[] };
    scenario.assert_systemd_killed_nothing_but(expected).await
}

fn ended_as_it_should(pod: &TestPod, log: &PodLog, may_ask_twice: bool) -> TestResult {
    let asked = match pod.behavior {
        PodBehavior::Stuck => log.terms.is_empty(),
        _ if may_ask_twice => !log.terms.is_empty(),
        _ => log.terms.len() == 1,
    };
    let exits = usize::from(pod.behavior == PodBehavior::Willing);
    if log.starts.len() == 1 && asked && log.exits.len() == exits {
        return Ok(());
    }
    Err(format!("{} ({:?}) did not end as it should: {log:?}", pod.name, pod.behavior).into())
}

/// Checks that no group is asked to stop before the pods of earlier groups that exit by themselves have done so.
fn in_order(round: &Round, logs: &BTreeMap<String, PodLog>) -> TestResult {
    let of_group = |group: usize| {
        round.pods.iter().filter(move |pod| group_of(pod) == group).map(|pod| &logs[&pod.name])
    };
    for group in 1..GROUPS.len() {
        let first = of_group(group).filter_map(|log| log.terms.first()).min();
        let before = (0..group).flat_map(of_group).flat_map(|log| &log.exits).max();
        if let (Some(first), Some(before)) = (first, before)
            && first < before
        {
            return Err(format!("group {group} was asked before the one below it ended").into());
        }
    }
    Ok(())
}

/// Checks that the report agrees with what the pods recorded, and with the configured time.
fn reported(round: &Round, setup: &Setup, report: &Value) -> TestResult {
    let heard = if round.way == Way::PastLogind { "unitStop" } else { "loginManager" };
    if report["trigger"] != heard {
        return Err(format!("the report does not say {heard}: {report}").into());
    }
    let budget = Duration::from_secs(u64::from(setup.seconds.iter().sum::<u32>())).as_secs_f64();
    if !report["tookSeconds"].as_f64().is_some_and(|took| took < budget + BEYOND) {
        return Err(format!("it took longer than the {budget} s there were: {report}").into());
    }
    let groups = report["groups"].as_array().into_iter().flatten();
    let pods = groups.flat_map(|group| group["pods"].as_array().into_iter().flatten());
    let pods: BTreeMap<&str, &Value> =
        pods.filter_map(|pod| Some((pod["name"].as_str()?, pod))).collect();
    if pods.len() != round.pods.len() {
        return Err(format!("the report has pods that are not there: {report}").into());
    }
    let mut outcome = "clean";
    for pod in &round.pods {
        let name = format!("{}-winddown-node", pod.name);
        let said = pods.get(name.as_str()).copied().unwrap_or(&Value::Null);
        if has_unknown_end(said) && matches!(round.fault, Fault::AgentKilledAfter(_)) {
            continue;
        }
        let expected = match pod.behavior {
            PodBehavior::Willing
            | PodBehavior::Hog
            | PodBehavior::NeverReady
            | PodBehavior::Holding
            | PodBehavior::Staying => "exited",
            PodBehavior::Deaf | PodBehavior::Stuck => {
                outcome = "forced";
                "killed"
            }
        };
        if said["end"] != expected {
            return Err(format!("{name} is not reported as {expected}: {report}").into());
        }
    }
    if report["outcome"] != outcome {
        return Err(format!("the report does not say {outcome}: {report}").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::in_order;
    use crate::reboots::{Fault, Round, Way};
    use crate::{PodLog, TestPod};

    #[test]
    fn a_group_that_is_asked_too_early_is_noticed() {
        let pods = vec![TestPod::new("low", 0, 0), TestPod::new("high", 1000, 0)];
        let round = Round { pods, fault: Fault::None, way: Way::Systemctl };
        let log = |asked, gone| PodLog {
            starts: vec![],
            terms: vec![asked],
            told: vec![],
            exits: vec![gone],
        };
        let logs = |high_asked| {
            [("low".to_owned(), log(1, 5)), ("high".to_owned(), log(high_asked, 9))].into()
        };
        assert!(in_order(&round, &logs(6)).is_ok());
        assert!(in_order(&round, &logs(4)).is_err());
    }
}
