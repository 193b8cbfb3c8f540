//! A kubelet that is part of another program's service, as in k3s, and so cannot be stopped.

use std::time::Duration;

use winddown_node_tests::scenario::TestResult;

use super::machine::{Ends, Machine, STATIC};
use super::{DOWN, say};

/// Until winddown has seen a container that was restarted.
const SEEN: Duration = Duration::from_secs(1);

/// Moves the kubelet's service into another one, in which it is not alone.
const EMBED: &str = "cd /etc/systemd/system
systemctl stop kubelet
sed \"s,^ExecStart=\\(.*\\),ExecStart=/bin/sh -c '\\1 \\& exec sleep infinity',\" kubelet.service >k3s.service
rm kubelet.service
systemctl daemon-reload
systemctl start k3s";

impl Machine {
    /// From now on the kubelet is part of `k3s.service`.
    async fn embed_kubelet(&self) -> TestResult {
        let node = &self.scenario.node;
        node.run(&["sh", "-ec", EMBED]).await?;
        // A kubelet that has not been told its pods yet restarts none.
        self.eventually("the kubelet knows its pods", async || {
            let journal = node.journal(&["--unit=k3s", "--grep=SyncLoop ADD.*source=.api"]).await;
            journal.is_ok_and(|journal| journal.contains("agent-0"))
        })
        .await?;
        node.run(&["systemctl", "restart", "winddown"]).await?;
        self.agent_knows_all().await
    }
}

#[tokio::test]
async fn what_a_kubelet_that_cannot_be_stopped_restarts_is_stopped_again_and_reported() -> TestResult
{
    let test = "what_a_kubelet_that_cannot_be_stopped_restarts_is_stopped_again_and_reported";
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    machine.embed_kubelet().await?;
    machine.cut_off().await;
    let asked = machine.scenario.power_off().await?;
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, &machine);
    let released = machine.scenario.lock_released_at().await?;
    let report = machine.scenario.newest_report()?;
    let groups = report["groups"].as_array().into_iter().flatten();
    let pods = groups.flat_map(|group| group["pods"].as_array().into_iter().flatten());
    let seen = released - u64::try_from(SEEN.as_nanos())?;
    let (logs, mut restarted) = (machine.scenario.logs(), 0);
    for pod in pods {
        let name = pod["name"].as_str().unwrap_or_default();
        if name.starts_with(STATIC) {
            continue;
        }
        let (log, remark) = (&logs[name], pod["remark"].as_str().unwrap_or_default());
        println!("{name}: {:?}, {remark}", log.starts);
        let says = remark.contains("the kubelet restarted it");
        match log.starts.get(1) {
            Some((at, _)) if *at < seen => assert!(says, "{name}: {remark}"),
            Some(_) => {}
            None => assert!(!says, "{name} was not restarted: {remark}"),
        }
        restarted += usize::from(says);
    }
    assert!(restarted > 0, "the kubelet restarted nothing that was seen: {report:#}");
    Ok(())
}
