//! Every command, typed by a user who is nobody.

use std::time::Duration;

use winddown_node_tests::TestPod;
use winddown_node_tests::scenario::{SOON, Scenario, TestResult};

const DONE: i32 = 0;
const FAILED: i32 = 1;
const REFUSED: i32 = 6;

/// What is typed, the exit code, and a part of what is said.
const COMMANDS: &[(&str, i32, &str)] = &[
    ("status", REFUSED, "run it again with sudo"),
    ("status -o json", REFUSED, "run it again with sudo"),
    ("plan shutdown", REFUSED, "run it again with sudo"),
    ("plan start", REFUSED, "run it again with sudo"),
    ("plan eviction", REFUSED, "run it again with sudo"),
    ("plan preemption", REFUSED, "run it again with sudo"),
    ("report", REFUSED, "run it again with sudo"),
    ("report --list", REFUSED, "run it again with sudo"),
    ("report --start", FAILED, "no ordered start has been reported"),
    ("report --check", REFUSED, "run it again with sudo"),
    ("doctor", DONE, "sudo winddown doctor"),
    ("drain", REFUSED, "run it again with sudo"),
    ("undrain", REFUSED, "run it again with sudo"),
    ("kill web", REFUSED, "run it again with sudo"),
    ("release web", REFUSED, "run it again with sudo"),
    ("install", REFUSED, "run it again with sudo"),
    ("install --start", REFUSED, "run it again with sudo"),
    ("install --companion", REFUSED, "run it again with sudo"),
    ("install --root /srv/image", REFUSED, "run it again with sudo"),
    ("uninstall", REFUSED, "run it again with sudo"),
    ("uninstall --purge", REFUSED, "run it again with sudo"),
    ("config check", DONE, "valid"),
    ("config show", DONE, "runtime"),
    ("config default", DONE, "runtime"),
    ("schema doctor", DONE, "fixId"),
    ("man", DONE, "winddown"),
    ("completions bash", DONE, "winddown"),
    ("version", DONE, "winddown"),
];

#[tokio::test]
async fn every_command_tells_a_user_who_may_not_that_root_may() -> TestResult {
    let test = "every_command_tells_a_user_who_may_not_that_root_may";
    let pods = vec![TestPod::new("web", 0, 100)];
    let Some(mut scenario) = Scenario::installed_with(test, pods).await? else { return Ok(()) };
    scenario.start().await?;
    // There is a report from now on.
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(30)).await?;
    scenario.node.start().await?;
    scenario.start().await?;
    let again = async || scenario.logs()["web"].starts.len() == 2;
    scenario.node.wait_until("the pod to start again", SOON, again).await?;
    let ended = scenario.logs();
    scenario.node.run(&["mkdir", "-p", "/srv/image"]).await?;
    let limit = Duration::from_secs(60);
    let mut wrong = Vec::new();
    for (typed, code, part) in COMMANDS {
        let line =
            format!("cd /; setpriv --reuid 65534 --regid 65534 --clear-groups winddown {typed}");
        let ran = scenario.node.exec(&["sh", "-c", &line], limit).await?;
        let said = ran.stdout + &ran.stderr;
        if ran.status.code() != Some(*code) || !said.contains(part) {
            wrong.push(format!("winddown {typed}: {}\n{said}", ran.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(scenario.logs(), ended);
    Ok(())
}
