//! Pods that hold shutdowns: refused, released by an operator and by time, and a shutdown that does not ask.

use serde_json::Value;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::typed::{Typed, enter_all, prepare};
use winddown_node_tests::{Suite, on_each_release};

use crate::typed_pages::marked;

on_each_release!(a_pod_holds_shutdowns_until_it_is_released: is_released);
on_each_release!(a_shutdown_that_does_not_ask_ends_the_pod_that_holds_it: is_not_asked);

/// An hour for pods of `batch`, hardly anything for those of `brief`.
const GUARD: &str =
    "shutdownGuard:\n- {namespace: batch, timeout: 1h}\n- {namespace: brief, timeout: 1s}\n";

async fn is_released(test: &str, suite: Suite) -> TestResult {
    let Some(mut scenario) = holding(test, suite).await? else { return Ok(()) };
    let pod = holder(&scenario).await?;

    let refused = scenario.node.run(asking(suite)).await.err().ok_or("it was not refused")?;
    println!("{test}: {refused}");
    let scheduled = scenario.node.run(&["shutdown", "+60"]).await;
    println!("{test}: shutdown +60: {scheduled:?}");
    // Before systemd 257 a shutdown is scheduled whatever holds it.
    assert_eq!(scheduled.is_ok(), suite == Suite::Bookworm, "{scheduled:?}");
    scenario.node.run(&["shutdown", "-c"]).await?;
    let list = scenario.node.run(&["systemd-inhibit", "--list", "--no-legend"]).await?;
    println!("{test}: {list}");
    assert!(list.contains(&format!("winddown: pod {pod}")), "{list}");
    let said = scenario.text(&["status"]).await?;
    assert!(said.contains(&format!("shutdowns are refused for {pod}")), "{said}");
    let doctor = scenario.text(&["doctor"]).await.unwrap_or_else(|error| error.to_string());
    assert!(doctor.contains("pods block shutdowns, which logind refuses"), "{doctor}");

    // The next agent goes on with the hold, and logind keeps the lock over a restart of its own.
    let status = scenario.status().await?;
    scenario.agent().await?.kill()?;
    scenario.another_agent_than(&status["node"]["pid"]).await?;
    scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    let again = async || guard(&scenario).await.is_some();
    scenario.node.wait_until("the pod to block shutdowns again", SOON, again).await?;
    assert_eq!(holder(&scenario).await?, pod);
    scenario.lock_is_back().await?;
    assert!(blocked(&scenario).await?, "logind has lost the lock");
    scenario.node.run(asking(suite)).await.err().ok_or("it was not refused again")?;
    scenario.assert_nothing_was_asked()?;

    if suite == Suite::Bookworm {
        // A reader of the page does the same, and reboots; the pods are not to start again.
        scenario.node.run(&["systemctl", "disable", "winddown"]).await?;
        prepare(&scenario.node)?;
        enter_all(&mut scenario.node, &page(&pod)).await?;
    } else {
        let answer = scenario.text(&["release", &pod]).await?;
        assert_eq!(answer.trim(), format!("{pod}: blocks shutdowns no longer"));
        let free = async || blocked(&scenario).await.is_ok_and(|blocked| !blocked);
        scenario.node.wait_until("logind to let shutdowns through", SOON, free).await?;
        scenario.node.run(asking(suite)).await?;
        scenario.node.wait_off(SOON).await?;
    }
    scenario.assert_ended_in_order()?;
    let report = scenario.newest_report()?;
    assert!(!report["warnings"].to_string().contains("blocked shutdowns"), "{report:#}");
    Ok(())
}

async fn is_not_asked(test: &str, suite: Suite) -> TestResult {
    let Some(mut scenario) = holding(test, suite).await? else { return Ok(()) };
    let pod = holder(&scenario).await?;
    let past = scenario.node.shut_down(&["systemctl", "poweroff", "--ignore-inhibitors"]).await;
    println!("{test}: {past:?}");
    // Since systemd 257 polkit is asked, for root too, and this node has none.
    assert_eq!(past.is_ok(), suite == Suite::Bookworm, "{past:?}");
    if past.is_err() {
        scenario.assert_nothing_was_asked()?;
        scenario.node.shut_down(&["systemctl", "start", "--no-block", "poweroff.target"]).await?;
    }
    scenario.node.wait_off(SOON).await?;
    scenario.assert_ended_in_order()?;
    let report = scenario.newest_report()?;
    // A machine with a slow disk has other warnings, too.
    let warnings = report["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let held: Vec<&str> =
        warnings.filter(|warning| warning.contains("blocked shutdowns")).collect();
    assert_eq!(
        held,
        [format!("{pod} blocked shutdowns, and this one bypassed logind")],
        "{report:#}"
    );
    Ok(())
}

/// A node with seven pods, one that holds shutdowns, one whose time is over, and one that may not.
async fn holding(test: &str, suite: Suite) -> TestResult<Option<Scenario>> {
    let setup = Setup { suite, more: GUARD.to_owned(), ..Setup::default() };
    let Some(scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(None);
    };
    for (name, namespace) in [("backup", "batch"), ("over", "brief"), ("other", "default")] {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: {namespace}\n  \
             labels: {{winddown.dev/shutdown-guard: 'true'}}\nspec:\n  hostNetwork: true\n  priority: -1\n  \
             containers:\n  - {{name: main, image: host, command: [sleep, '1000']}}\n"
        );
        scenario.node.write(&format!("/etc/winddown/pods/{name}.yaml"), text, 0o644)?;
    }
    scenario.start().await?;
    let one = async || match guard(&scenario).await {
        Some(guard) => {
            // The one whose time is over may not have begun, where there is only one.
            let kept = scenario.node.run(&["cat", "/run/winddown/guard.json"]).await;
            guard["pods"].as_array().is_some_and(|pods| pods.len() == 1)
                && kept.is_ok_and(|kept| kept.contains("\"expired\""))
        }
        None => false,
    };
    let expired = scenario.node.wait_until("one pod to block shutdowns", SOON, one).await;
    if let Err(error) = expired {
        return Err(format!("{error}\n{}", scenario.text(&["status"]).await?).into());
    }
    Ok(Some(scenario))
}

/// What docs/reference/optional-features.md shows, of this pod.
fn page(pod: &str) -> Vec<Typed> {
    let mut typed = marked("docs/reference/optional-features.md", "guard");
    assert_eq!(typed.len(), 2, "{typed:?}");
    for command in &mut typed {
        for line in command.shown.iter_mut().chain([&mut command.line]) {
            *line = line.replace("batch/backup-edge-1", pod);
        }
    }
    typed
}

/// What asks for a shutdown and may be refused: before systemd 257, root only if it wants to be.
const fn asking(suite: Suite) -> &'static [&'static str] {
    match suite {
        Suite::Bookworm => &["systemctl", "poweroff", "--check-inhibitors=yes"],
        _ => &["systemctl", "poweroff"],
    }
}

/// What the status says of the pods that hold shutdowns, once logind refuses them.
async fn guard(scenario: &Scenario) -> Option<Value> {
    let status = scenario.status_from_outside().await.ok()?;
    Some(status["guard"].clone()).filter(|guard| guard["state"] == "held")
}

/// The pod that holds shutdowns.
async fn holder(scenario: &Scenario) -> TestResult<String> {
    let guard = guard(scenario).await.ok_or("no pod blocks shutdowns")?;
    let pod = &guard["pods"][0];
    let text = |field: &str| pod[field].as_str().unwrap_or_default().to_owned();
    assert_eq!(text("namespace"), "batch", "{guard}");
    Ok(format!("{}/{}", text("namespace"), text("name")))
}

/// Whether logind lists a lock that blocks.
async fn blocked(scenario: &Scenario) -> TestResult<bool> {
    let list = scenario.node.run(&["systemd-inhibit", "--list", "--no-legend"]).await?;
    Ok(list.lines().any(|line| line.contains("winddown: pod") && line.contains("block")))
}
