//! A shutdown that is scheduled and then called off before its time.

use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{Suite, on_each_release};

on_each_release!(a_shutdown_in_a_minute_that_is_cancelled_touches_nothing: is_cancelled);

async fn is_cancelled(test: &str, suite: Suite) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let before = scenario.untouched_pids().await?;

    scenario.node.run(&["shutdown", "+1"]).await?;
    assert!(scheduled(&scenario).await?.contains("poweroff"), "nothing was scheduled");
    // logind announces nothing until the minute is over: the node must look as ever.
    let status = scenario.status().await?;
    assert_eq!(status["shutdown"]["phase"], "idle", "{status}");
    assert_eq!(status["admissionClosed"], false, "{status}");

    scenario.node.run(&["shutdown", "-c"]).await?;
    let none = async || scheduled(&scenario).await.is_ok_and(|text| !text.contains("poweroff"));
    scenario.node.wait_until("nothing to be scheduled", SOON, none).await?;
    let status = scenario.status().await?;
    assert_eq!(status["shutdown"]["phase"], "idle", "{status}");
    assert_eq!(status["lock"]["state"], "held", "{status}");
    assert!(scenario.lock_is_listed().await);
    assert_eq!(scenario.untouched_pids().await?, before);

    // And the next one is heard.
    scenario.power_off().await?;
    scenario.node.wait_off(SOON).await?;
    scenario.assert_ended_in_order()?;
    Ok(())
}

/// What logind says is scheduled: a word and a time, the word empty if nothing is.
async fn scheduled(scenario: &Scenario) -> TestResult<String> {
    let property = [
        "busctl",
        "get-property",
        "org.freedesktop.login1",
        "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager",
        "ScheduledShutdown",
    ];
    Ok(scenario.node.run(&property).await?)
}
