//! Somebody outside says when the node ends.

use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};

#[tokio::test]
async fn a_deadline_given_by_an_operator_ends_the_pods_and_its_withdrawal_brings_them_back()
-> TestResult {
    let test = "a_deadline_given_by_an_operator_ends_the_pods_and_its_withdrawal_brings_them_back";
    let Some(scenario) = Scenario::installed_with(test, seven_pods()).await? else { return Ok(()) };
    scenario.start().await?;
    let said = scenario.text(&["drain", "--deadline", "10s", "--reason", "battery at 5 %"]).await?;
    println!("{said}");
    scenario.assert_ended_in_order()?;
    let status = scenario.status().await?;
    assert_eq!(status["admissionClosed"], true, "{status}");
    let text = scenario.text(&["status"]).await?;
    assert!(text.contains("battery at 5 %"), "{text}");
    let report = scenario.newest_report()?;
    assert_eq!(report["trigger"], "notice", "{report}");
    assert_eq!(report["notice"]["source"], "operator", "{report}");
    assert!(report["budget"]["podsSeconds"].as_f64() < Some(10.0), "{report}");

    println!("{}", scenario.text(&["undrain"]).await?);
    let again = async || scenario.logs().values().all(|log| log.starts.len() == 2);
    scenario.node.wait_until("the pods to be back", SOON, again).await?;
    scenario.lock_is_back().await?;
    assert_eq!(scenario.status().await?["admissionClosed"], false);
    Ok(())
}

#[tokio::test]
async fn after_a_notice_in_a_file_has_ended_the_pods_the_power_off_waits_for_nothing() -> TestResult
{
    let test = "after_a_notice_in_a_file_has_ended_the_pods_the_power_off_waits_for_nothing";
    let more = "shutdownNotices:\n  file: /run/winddown/notice\n".to_owned();
    let setup = Setup { more, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    scenario.node.write("/run/winddown/notice", "60s spot instance is taken back\n", 0o644)?;
    let ended = async || scenario.logs().values().all(|log| log.exits.len() == 1);
    scenario.node.wait_until("the pods to end", SOON, ended).await?;
    let done =
        async || scenario.status().await.is_ok_and(|status| status["shutdown"]["phase"] == "done");
    scenario.node.wait_until("the run to be over", SOON, done).await?;
    scenario.lock_is_back().await?;

    let asked = scenario.power_off().await?;
    scenario.node.wait_off(SOON).await?;
    let waited = std::time::Duration::from_nanos(scenario.lock_released_at().await? - asked);
    println!("`systemctl poweroff` to lock released: {waited:?}");
    assert!(waited.as_secs_f64() < 2.0, "logind was held for {waited:?} for nothing");
    scenario.assert_ended_in_order()?;
    scenario.assert_systemd_killed_nothing().await?;
    let said = scenario.report_after_next_boot().await?;
    assert_eq!(said["trigger"], "notice", "{said}");
    Ok(())
}

#[tokio::test]
async fn a_drain_is_called_off_in_its_first_group_and_no_agent_resumes_it() -> TestResult {
    let test = "a_drain_is_called_off_in_its_first_group_and_no_agent_resumes_it";
    let pods = vec![
        TestPod::new("web-0", 0, 4000),
        TestPod::new("queue-0", 1000, 300),
        TestPod::new("agent-0", 2_000_000_000, 200),
    ];
    let Some(scenario) = Scenario::installed_with(test, pods).await? else { return Ok(()) };
    scenario.start().await?;
    scenario.node.run(&["systemd-run", "--collect", "winddown", "drain"]).await?;
    scenario.someone_is_asked().await?;
    let text = scenario.text(&["status"]).await?;
    assert!(text.contains("the node is being drained: 3 pods remaining"), "{text}");
    println!("{}", scenario.text(&["undrain"]).await?);
    let again = async || scenario.logs()["web-0"].starts.len() == 2;
    scenario.node.wait_until("the pod that was asked to be back", SOON, again).await?;
    scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    scenario.lock_is_back().await?;
    let status = scenario.status().await?;
    assert!(status["admissionClosedBy"].is_null() && status["drain"].is_null(), "{status}");
    for (name, log) in scenario.logs() {
        let asked = usize::from(name == "web-0");
        assert_eq!((log.terms.len(), log.starts.len()), (asked, 1 + asked), "{name}: {log:?}");
    }
    Ok(())
}

/// A drain, a notice that is withdrawn and a shutdown that logind gives up, on one node.
#[tokio::test]
async fn a_drained_node_stays_drained_until_the_operator_ends_the_drain() -> TestResult {
    let test = "a_drained_node_stays_drained_until_the_operator_ends_the_drain";
    let more = "shutdownNotices:\n  file: /run/winddown/notice\n".to_owned();
    let setup = Setup { more, ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    scenario.start().await?;
    let closed_by = async |reasons: &[&str]| {
        let said = scenario.status().await.unwrap_or_default();
        said["admissionClosedBy"] == serde_json::json!(reasons)
    };
    let drained =
        || scenario.logs().values().all(|log| (log.starts.len(), log.exits.len()) == (1, 1));
    println!("{}", scenario.text(&["drain"]).await?);
    assert!(closed_by(&["drain"]).await && drained());

    let old = scenario.status().await?["node"]["pid"].clone();
    scenario.node.run(&["systemctl", "kill", "--signal=KILL", "winddown"]).await?;
    let another = async || {
        let said = scenario.status().await.unwrap_or_default();
        let is_drained = said["admissionClosedBy"] == serde_json::json!(["drain"]);
        said["node"]["pid"].is_u64() && said["node"]["pid"] != old && is_drained
    };
    scenario.node.wait_until("another agent to know of the drain", SOON, another).await?;

    scenario.node.write("/run/winddown/notice", "60s spot instance is taken back\n", 0o644)?;
    let both = async || closed_by(&["notice", "drain"]).await;
    scenario.node.wait_until("the notice to be in force", SOON, both).await?;
    println!("{}", scenario.text(&["status"]).await?);
    scenario.node.run(&["rm", "/run/winddown/notice"]).await?;
    let one = async || closed_by(&["drain"]).await;
    scenario.node.wait_until("the notice to be withdrawn", SOON, one).await?;

    // Another lock keeps logind waiting while its job is made impossible.
    let lock = ["systemd-inhibit", "--what=shutdown", "--mode=delay", "sleep", "60"];
    let unit = ["systemd-run", "--unit=another-lock", "--collect"];
    scenario.node.run(&[&unit[..], &lock[..]].concat()).await?;
    let listed = async || {
        let list = scenario.node.run(&["systemd-inhibit", "--list"]).await.unwrap_or_default();
        list.contains("sleep 60")
    };
    scenario.node.wait_until("the other lock", SOON, listed).await?;
    scenario.power_off().await?;
    let both = async || closed_by(&["shutdown", "drain"]).await;
    scenario.node.wait_until("the shutdown to be heard of", SOON, both).await?;
    scenario.node.run(&["systemctl", "mask", "--runtime", "poweroff.target"]).await?;
    scenario.node.run(&["systemctl", "stop", "another-lock"]).await?;
    let one = async || closed_by(&["drain"]).await;
    scenario.node.wait_until("logind to give up", SOON, one).await?;
    scenario.lock_is_back().await?;
    assert!(drained(), "{:?}", scenario.logs());

    println!("{}", scenario.text(&["undrain"]).await?);
    let again = async || scenario.logs().values().all(|log| log.starts.len() == 2);
    scenario.node.wait_until("the pods to be back", SOON, again).await?;
    assert!(scenario.status().await?["admissionClosedBy"].is_null());
    Ok(())
}
