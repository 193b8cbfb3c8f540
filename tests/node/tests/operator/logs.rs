//! The agent's lines in a real journal: found by their fields, and explained by the catalog.

use serde_json::Value;
use winddown_node_tests::scenario::{SOON, Scenario, TestResult, seven_pods};

const CATALOG: &str = include_str!("../../../../programs/packaging/catalog/winddown.catalog");

#[tokio::test]
async fn decisions_are_found_by_pod_and_phase_and_the_journal_explains_them() -> TestResult {
    let test = "decisions_are_found_by_pod_and_phase_and_the_journal_explains_them";
    let Some(scenario) = Scenario::installed_with(test, seven_pods()).await? else { return Ok(()) };
    let folder = "/usr/lib/systemd/catalog";
    scenario.node.run(&["mkdir", "-p", folder]).await?;
    scenario.node.write(&format!("{folder}/winddown.catalog"), CATALOG, 0o644)?;
    let said = scenario.node.run(&["journalctl", "--update-catalog"]).await?;
    assert_eq!(said, "");
    scenario.start().await?;
    scenario.text(&["drain", "--timeout", "60s"]).await?;

    let ask = async |matches: &[&str]| -> TestResult<Vec<Value>> {
        let arguments = [&["journalctl", "-u", "winddown", "-o", "json"], matches].concat();
        let text = scenario.node.run(&arguments).await?;
        Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    };
    let taken = async || ask(&["KIND=lockTaken"]).await.is_ok_and(|lines| lines.len() == 1);
    scenario.node.wait_until("the line about the lock", SOON, taken).await?;
    let stopped = async || ask(&["KIND=podStopped"]).await.is_ok_and(|lines| lines.len() == 7);
    scenario.node.wait_until("a line for each pod", SOON, stopped).await?;

    let one = &ask(&["KIND=podStopped"]).await?[0];
    let field = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(field("MESSAGE_ID"), "2a3e2ee16eb344bfb1ca40e817938cae", "{one}");
    assert_eq!((field("PHASE"), field("PRIORITY")), ("termination".into(), "5".into()), "{one}");
    assert_eq!(field("SYSLOG_IDENTIFIER"), "winddown", "{one}");
    assert!(!field("POD_UID").is_empty() && field("TOOK_SECONDS").parse::<f64>().is_ok(), "{one}");
    let name = format!("POD_NAME={}", field("POD_NAME"));
    let namespace = format!("POD_NAMESPACE={}", field("POD_NAMESPACE"));
    let its_story = ask(&[&name, &namespace]).await?;
    let kinds: Vec<&str> = its_story.iter().filter_map(|line| line["KIND"].as_str()).collect();
    assert!(kinds.starts_with(&["podAdmitted"]), "{kinds:?}");
    assert!(kinds.ends_with(&["killRequested", "podStopped"]), "{kinds:?}");
    assert_eq!(
        its_story.last().map(|line| &line["_SYSTEMD_UNIT"]),
        Some(&"winddown.service".into())
    );

    let explained =
        scenario.node.run(&["journalctl", "-x", "-u", "winddown", "KIND=podStopped"]).await?;
    println!("{explained}");
    let subject =
        format!("Subject: Pod {}/{} has ended", field("POD_NAMESPACE"), field("POD_NAME"));
    assert!(explained.contains(&subject), "{explained}");
    assert!(!explained.contains('@'), "a field was not filled in:\n{explained}");
    Ok(())
}
