//! An agent that cannot start: it is tried less and less often, never given up, and back as soon as it can.

use std::time::Duration;

use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{Scenario, TestResult};

/// How long starts are counted.
const WATCHED: Duration = Duration::from_secs(15);
/// One try in ten seconds.
const BACK: Duration = Duration::from_secs(20);

#[tokio::test]
async fn starts_that_fail_for_whatever_reason_do_not_flood_the_journal_and_end_by_themselves()
-> TestResult {
    let test =
        "starts_that_fail_for_whatever_reason_do_not_flood_the_journal_and_end_by_themselves";
    let pods = vec![TestPod::new("web", 0, 100)];
    let Some(scenario) = Scenario::with_services(test, pods).await? else { return Ok(()) };
    scenario.start().await?;
    let node = &scenario.node;
    // The programs of nodes are links to one file: another file takes the name.
    for broken in ["mv /root/false /usr/bin/winddownd", "rm /usr/bin/winddownd"] {
        let break_it = format!(
            "cp /bin/false /root/false; mv /usr/bin/winddownd /root/kept; {broken}
             systemctl restart --no-block winddown"
        );
        node.run(&["sh", "-c", &break_it]).await?;
        tokio::time::sleep(WATCHED).await;
        let restarts = ["systemctl", "show", "-P", "NRestarts", "winddown"];
        let count: u32 = node.run(&restarts).await?.trim().parse()?;
        assert!((1..=9).contains(&count), "{broken}: {count} starts in {WATCHED:?}");
        node.run(&["mv", "-f", "/root/kept", "/usr/bin/winddownd"]).await?;
        let is_back = async || scenario.status_from_outside().await.is_ok();
        node.wait_until("the agent to be back by itself", BACK, is_back).await?;
        scenario.lock_is_back().await?;
    }
    scenario.assert_nothing_was_asked()
}

#[tokio::test]
async fn a_file_in_the_sockets_place_keeps_no_agent_from_starting() -> TestResult {
    let test = "a_file_in_the_sockets_place_keeps_no_agent_from_starting";
    let pods = vec![TestPod::new("web", 0, 100)];
    let Some(scenario) = Scenario::with_services(test, pods).await? else { return Ok(()) };
    let socket = "/run/winddown/winddown.sock";
    for in_the_way in ["echo hi >$0", "mkdir $0", "ln -s /etc/passwd $0"] {
        let stop = format!("systemctl stop winddown; mkdir -p /run/winddown; {in_the_way}");
        scenario.node.run(&["sh", "-ec", &stop, socket]).await?;
        scenario.start().await?;
    }
    // Removed under the agent: it makes another.
    let agent = scenario.status().await?["node"]["pid"].clone();
    scenario.node.run(&["rm", socket]).await?;
    scenario.lock_is_back().await?;
    assert_eq!(scenario.status().await?["node"]["pid"], agent);
    Ok(())
}
