//! Restarts of the agent and of what it leans on, while the node is up.

use std::time::Duration;

use winddown_node_tests::scenario::{
    GROUPS, LOCK_BACK, SOON, Scenario, Setup, TestResult, seven_pods, twenty_pods,
};
use winddown_node_tests::{Suite, on_each_release};

#[tokio::test]
async fn a_restart_of_the_agent_keeps_the_pods_and_the_lock() -> TestResult {
    let test = "a_restart_of_the_agent_keeps_the_pods_and_the_lock";
    let Some(scenario) = Scenario::running(test).await? else { return Ok(()) };
    let before = scenario.untouched_pids().await?;
    let old = scenario.status().await?["node"]["pid"].clone();
    scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    let took = scenario.lock_is_back().await?;
    println!("lock back after a restart: {took:?}");
    assert!(took < LOCK_BACK, "the lock was away for {took:?}");
    assert_ne!(scenario.status().await?["node"]["pid"], old);
    assert_eq!(scenario.untouched_pids().await?, before);
    Ok(())
}

#[tokio::test]
async fn a_killed_agent_comes_back_to_the_same_pods_and_the_lock() -> TestResult {
    let test = "a_killed_agent_comes_back_to_the_same_pods_and_the_lock";
    let Some(scenario) = Scenario::running(test).await? else { return Ok(()) };
    let before = scenario.untouched_pids().await?;
    let old = scenario.status().await?["node"]["pid"].clone();
    scenario
        .node
        .run(&["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "winddown"])
        .await?;
    let took = scenario.another_agent_than(&old).await?;
    println!("lock back after kill -9: {took:?}");
    assert!(took < LOCK_BACK, "the lock was away for {took:?}");
    assert!(scenario.lock_is_listed().await);
    assert_eq!(scenario.untouched_pids().await?, before);
    Ok(())
}

/// What happens to a service.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Restarted,
    Killed,
    /// For three seconds.
    Hung,
}

macro_rules! survives {
    ($($test:ident: $unit:literal, $fate:expr;)*) => {$(
        #[tokio::test]
        async fn $test() -> TestResult {
            survives(stringify!($test), Suite::Bookworm, $unit, $fate).await
        }
    )*};
}

survives! {
    a_restart_of_dbus_leaves_the_pods_alone_and_the_node_protected: "dbus.service", Fate::Restarted;
    dbus_killed_leaves_the_pods_alone_and_the_node_protected: "dbus.service", Fate::Killed;
    dbus_hung_for_a_time_leaves_the_pods_alone_and_the_node_protected: "dbus.service", Fate::Hung;
    logind_killed_leaves_the_pods_alone_and_the_node_protected: "systemd-logind.service", Fate::Killed;
    logind_hung_for_a_time_leaves_the_pods_alone_and_the_node_protected: "systemd-logind.service", Fate::Hung;
}

on_each_release!(
    since 257,
    where_logind_does_not_come_back_to_a_restarted_bus_the_unit_ends_the_pods: loses_logind
);
on_each_release!(a_restart_of_logind_leaves_the_pods_alone_and_the_node_protected: restarts_logind);

/// logind of systemd 257 and 262 is not heard of again when the bus it was on is gone, until it is
/// restarted itself.
async fn loses_logind(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, twenty_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let before = scenario.untouched_pids().await?;
    scenario.node.run(&["systemctl", "restart", "dbus.service"]).await?;
    assert_eq!(scenario.untouched_pids().await?, before);
    // systemctl gives logind up after 25 s, and asks systemd.
    scenario.node.exec(&["systemctl", "poweroff"], LONG).await?;
    scenario.node.wait_off(LONG).await?;
    scenario.assert_ended_in_order()?;
    let report = scenario.newest_report()?;
    assert_eq!(report["trigger"], "unitStop", "{report}");
    assert_eq!(report["outcome"], "clean", "{report}");
    scenario.assert_systemd_killed_nothing().await
}

on_each_release!(
    since 257,
    where_logind_does_not_come_back_to_a_restarted_bus_its_restart_brings_the_lock_back: regains_it
);

async fn regains_it(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, twenty_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let before = scenario.untouched_pids().await?;
    scenario.node.run(&["systemctl", "restart", "dbus.service"]).await?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind.service"]).await?;
    scenario.lock_is_back().await?;
    assert_eq!(scenario.untouched_pids().await?, before);
    Ok(())
}

const LONG: Duration = Duration::from_secs(120);

async fn restarts_logind(test: &str, suite: Suite) -> TestResult {
    survives(test, suite, "systemd-logind.service", Fate::Restarted).await
}

on_each_release!(
    an_agent_killed_in_the_middle_of_a_shutdown_comes_back_and_finishes_it: finishes_it
);
on_each_release!(since 257, one_that_is_restarted_directly_finishes_it_too: finishes_it_directly);

async fn finishes_it(test: &str, suite: Suite) -> TestResult {
    finishes_with(test, suite, "").await
}

async fn finishes_it_directly(test: &str, suite: Suite) -> TestResult {
    finishes_with(test, suite, "[Service]\nRestartMode=direct\n").await
}

async fn finishes_with(test: &str, suite: Suite, drop_in: &str) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, twenty_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.node.write("/etc/systemd/system/winddown.service.d/mode.conf", drop_in, 0o644)?;
    scenario.node.run(&["systemctl", "daemon-reload"]).await?;
    scenario.start().await?;
    scenario.power_off().await?;
    scenario.someone_is_asked().await?;
    scenario
        .node
        .run(&["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "winddown"])
        .await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    // Whoever was asked a moment before the kill, before that was on disk, may be asked again;
    // nothing is lost and nothing is out of order.
    let again = scenario.logs().values().filter(|log| log.terms.len() > 1).count();
    println!("pods that were asked again: {again}");
    scenario.assert_ended_within(Duration::from_secs(4))?;
    // Only what this test itself asked for.
    let expected = ["on client request", "Failed with result 'signal'"];
    scenario.assert_systemd_killed_nothing_but(&expected).await
}

on_each_release!(
    since 257,
    in_the_gap_before_a_restart_a_shutdown_past_logind_ends_no_pod_in_order: falls_into_the_gap
);

/// Why the unit is not restarted directly: systemd gives up a restart that it waits for, in either mode.
async fn falls_into_the_gap(test: &str, suite: Suite) -> TestResult {
    for mode in ["normal", "direct"] {
        let setup = Setup { suite, ..Setup::default() };
        let mut pods = seven_pods();
        // Longer than systemd takes to ask all that is left, on a busy machine too.
        pods[0].stop_ms = 5000;
        let Some(mut scenario) = Scenario::installed_as(test, pods, &setup).await? else {
            return Ok(());
        };
        // The gap is of 0.2 s, which a busy machine would miss.
        let drop_in = format!("[Service]\nRestartMode={mode}\nRestartSec=60\n");
        scenario.node.write("/etc/systemd/system/winddown.service.d/mode.conf", drop_in, 0o644)?;
        scenario.node.run(&["systemctl", "daemon-reload"]).await?;
        scenario.start().await?;
        scenario.agent().await?.kill()?;
        let state = ["systemctl", "show", "--property=SubState", "--value", "winddown"];
        let waits =
            async || scenario.node.run(&state).await.is_ok_and(|state| state == "auto-restart\n");
        scenario.node.wait_until("systemd to be about to restart it", SOON, waits).await?;
        scenario.untouched_pids().await?;
        scenario.node.shut_down(&["systemctl", "start", "--no-block", "poweroff.target"]).await?;
        scenario.node.wait_off(LONG).await?;

        let logs = scenario.logs();
        println!("{mode}: {logs:?}");
        let ended = logs["web-0"].exits.first();
        let asked = scenario.group(GROUPS[2])[0].terms.first().copied();
        let in_order = asked.zip(ended).is_some_and(|(asked, ended)| asked >= *ended);
        assert!(!in_order, "{mode}: they were terminated in order: {logs:?}");
        assert!(scenario.newest_report().is_err(), "{mode}: an agent was there");
    }
    Ok(())
}

async fn survives(test: &str, suite: Suite, unit: &str, fate: Fate) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let before = scenario.untouched_pids().await?;
    let main = async || {
        let main = ["systemctl", "show", "--property=MainPID", "--value", unit];
        scenario.node.run(&main).await.map(|pid| pid.trim().to_owned())
    };
    let (old, send) = (main().await?, async |signal: &str, pid: &str| {
        scenario.node.run(&["sh", "-c", &format!("kill -{signal} {pid}")]).await
    });
    match fate {
        Fate::Restarted => _ = scenario.node.run(&["systemctl", "restart", unit]).await?,
        Fate::Killed => _ = send("KILL", &old).await?,
        Fate::Hung => {
            send("STOP", &old).await?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            scenario.status_from_outside().await?;
            send("CONT", &old).await?;
        }
    }
    // logind itself is back before it can be asked.
    let answers = async || scenario.node.run(&["loginctl", "list-sessions"]).await.is_ok();
    scenario.node.wait_until("logind to answer", SOON, answers).await?;
    let took = scenario.lock_is_back().await?;
    println!("lock back after {unit} was {fate:?}: {took:?}");
    assert!(took < LOCK_BACK, "the lock was away for {took:?}");
    assert_eq!(scenario.untouched_pids().await?, before);
    let is_another = main().await? != old;
    assert_eq!(is_another, !matches!(fate, Fate::Hung), "{unit} was not {fate:?}");

    // Being listed is one thing; what counts is that the next power-off is still heard.
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing_but(&["dbus.service", "systemd-logind.service"]).await
}
