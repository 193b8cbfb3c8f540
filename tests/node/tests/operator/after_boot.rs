//! What the node says of its last shutdown after it came up again.

use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::scenario::{SOON, Scenario, TestResult, seven_pods};

#[tokio::test]
async fn after_each_boot_one_line_says_how_the_node_went_down() -> TestResult {
    let test = "after_each_boot_one_line_says_how_the_node_went_down";
    let mut pods = seven_pods();
    // Slow enough for the power to fail meanwhile.
    pods[0].stop_ms = 4000;
    let Some(mut scenario) = Scenario::installed_with(test, pods).await? else { return Ok(()) };
    scenario.start().await?;
    assert_eq!(scenario.status().await?["lastBoot"], Value::Null, "there was no boot before");

    scenario.power_off().await?;
    scenario.node.wait_off(SOON).await?;
    let said = says_after_boot(&mut scenario).await?;
    assert!(said.starts_with("clean shutdown: 7 pods exited by themselves in "), "{said}");
    a_page_names_all_pods(&scenario).await?;

    // An agent that is started again has no news to tell.
    scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    scenario.lock_is_back().await?;
    assert_eq!(lines(&scenario, &said).await?, 1, "it was said twice: {said}");

    scenario.node.kill();
    let said = says_after_boot(&mut scenario).await?;
    assert!(said.starts_with("the node went down without a shutdown: "), "{said}");

    // In the middle of the first group: one pod needs 4 s, the others half a second at most, and a second later their
    // ends are on disk.
    let before = asked(&scenario);
    scenario.power_off().await?;
    let more = async || asked(&scenario) > before;
    scenario.node.wait_until("a pod to be asked", SOON, more).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    scenario.node.kill();
    let said = says_after_boot(&mut scenario).await?;
    assert!(said.starts_with("cut-off shutdown: "), "{said}");
    assert!(said.contains("3 pods had terminated, 1 still terminating, 3 not asked yet"), "{said}");
    assert!(said.ends_with("still terminating: default/web-0-winddown-node"), "{said}");
    let report = scenario.newest_report()?;
    assert_eq!(report["outcome"], "cutOff", "{report}");

    // One report of each boot that had a shutdown.
    let list = scenario.text(&["report", "--list"]).await?;
    println!("{list}");
    assert_eq!(scenario.reports()?.len(), 2, "{list}");
    Ok(())
}

/// Switches the node on and returns what `status` says of the boot before, which the journal must
/// say as well, once.
async fn says_after_boot(scenario: &mut Scenario) -> TestResult<String> {
    scenario.node.start().await?;
    scenario.lock_is_back().await?;
    let status = scenario.status().await?;
    let said = status["lastBoot"]["text"].as_str().ok_or_else(|| status.to_string())?.to_owned();
    println!("{said}");
    assert_eq!(lines(scenario, &said).await?, 1, "{said}");
    let text = scenario.text(&["status"]).await?;
    assert!(text.contains("last boot"), "{text}");
    Ok(said)
}

/// How often the journal of this boot has that line.
async fn lines(scenario: &Scenario, line: &str) -> TestResult<usize> {
    let said = scenario.node.journal_entries(&["--boot", "--unit=winddown"]).await?;
    Ok(said.iter().filter(|entry| entry.message.contains(line)).count())
}

/// How often pods were asked to end, over all boots.
fn asked(scenario: &Scenario) -> usize {
    scenario.logs().values().map(|log| log.terms.len()).sum()
}

async fn a_page_names_all_pods(scenario: &Scenario) -> TestResult {
    let page = scenario.text(&["report", "-o", "html"]).await?;
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"), "{page}");
    for pod in &scenario.pods {
        assert!(page.contains(&pod.name), "{} is missing in {page}", pod.name);
    }
    Ok(())
}
