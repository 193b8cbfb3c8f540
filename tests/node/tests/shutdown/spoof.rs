//! Somebody on the bus who is not logind says that the node goes down.

use winddown_node_tests::scenario::{SOON, Scenario, TestResult};

#[tokio::test]
async fn a_shutdown_signal_from_an_unprivileged_user_touches_no_pod_and_is_logged() -> TestResult {
    let test = "a_shutdown_signal_from_an_unprivileged_user_touches_no_pod_and_is_logged";
    let Some(scenario) = Scenario::running(test).await? else { return Ok(()) };
    let before = scenario.untouched_pids().await?;
    // To everybody, which the bus does not bring to the agent, and to each connection of the agent.
    let spoof = "for to in '' $(busctl --no-legend list | awk '$3 == \"winddownd\" {print $1}'); do \
                   setpriv --reuid=65534 --clear-groups dbus-send --system --type=signal \
                     ${to:+--dest=$to} /org/freedesktop/login1 \
                     org.freedesktop.login1.Manager.PrepareForShutdown boolean:true || exit; \
                 done";
    scenario.node.run(&["sh", "-c", spoof]).await?;

    let warned = async || {
        let said = scenario.node.journal_entries(&["--unit=winddown"]).await.unwrap_or_default();
        said.iter().any(|entry| entry.message.contains("ignored a shutdown signal"))
    };
    scenario.node.wait_until("the attempt to be logged", SOON, warned).await?;
    let status = scenario.status().await?;
    assert_eq!(status["shutdown"]["phase"], "idle", "{status}");
    assert_eq!(status["lock"]["state"], "held", "{status}");
    assert_eq!(scenario.untouched_pids().await?, before);
    Ok(())
}
