//! `systemctl soft-reboot`: user space goes down and comes up again under the same kernel, in the same boot
//! by its identifier, with the same `/run`.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{GROUPS, SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::typed::{Typed, enter, prepare};
use winddown_node_tests::{Suite, TestPod, on_each_release};

use crate::typed_pages::marked;

on_each_release!(since 257, a_soft_reboot_ends_all_pods_in_order_and_they_come_back: announced);
on_each_release!(since 257, a_soft_reboot_past_logind_ends_all_pods_in_order: past_logind);
on_each_release!(since 257, a_soft_reboot_of_which_the_kind_was_not_learned_is_not_called_off: not_learned);
on_each_release!(since 257, a_pod_that_may_survive_a_soft_reboot_runs_on_as_the_same_process: survives);
on_each_release!(since 257, a_lock_that_systemd_keeps_over_a_soft_reboot_is_one_lock_afterwards: kept);

async fn announced(test: &str, suite: Suite) -> TestResult {
    reboots_softly(test, suite, &ANNOUNCED).await
}

async fn past_logind(test: &str, suite: Suite) -> TestResult {
    reboots_softly(test, suite, &PAST_LOGIND).await
}

async fn not_learned(test: &str, suite: Suite) -> TestResult {
    reboots_softly(test, suite, &NOT_LEARNED).await
}

async fn kept(test: &str, suite: Suite) -> TestResult {
    reboots_softly(test, suite, &KEPT).await
}

/// Namespaces whose pods may survive, and a pod that asks to.
const MAY_SURVIVE: &str = "rebootInPlace: [{namespace: default, survive: true}]\n";

fn install_survivor(scenario: &Scenario, pod: &TestPod) -> TestResult {
    let mut manifest: Value = serde_json::from_str(&pod.manifest())?;
    manifest["metadata"]["annotations"] = json!({"winddown.dev/on-reboot": "survive"});
    // Its log is written on through the soft reboot.
    manifest["spec"]["containers"].as_array_mut().ok_or("no containers")?.push(json!({
        "name": "clock", "image": "host",
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do cut -d. -f1 /proc/uptime; sleep 1 & wait $!; done"],
    }));
    let path = format!("/etc/winddown/pods/{}.json", pod.name);
    Ok(scenario.node.write(&path, manifest.to_string(), 0o644)?)
}

async fn survives(test: &str, suite: Suite) -> TestResult {
    let (db, web) = (TestPod::new("db", 0, 100), TestPod::new("web", 0, 100));
    let setup = Setup { suite, more: MAY_SURVIVE.to_owned(), ..Setup::default() };
    let pods = vec![db.clone(), web];
    let Some(mut scenario) = Scenario::with_services_as(test, pods, &setup).await? else {
        return Ok(());
    };
    install_survivor(&scenario, &db)?;
    scenario.node.run(&["systemctl", "enable", "winddown"]).await?;
    scenario.start().await?;
    println!("{}", scenario.text(&["plan", "shutdown"]).await?);
    prepare(&scenario.node)?;
    let [before_it, reboot, after_it] = page()?;
    enter(&mut scenario.node, &before_it).await?;
    let pid = scenario.logs()["db"].starts[0].1.to_string();
    // Its start in clock ticks since the boot of the kernel.
    let started = ["cut", "-d", " ", "-f", "22", &format!("/proc/{pid}/stat")];
    let before = scenario.node.run(&started).await?;

    assert_eq!(reboot.line, "sudo systemctl soft-reboot");
    scenario.node.shut_down(&["systemctl", "soft-reboot"]).await?;
    let again = async || scenario.logs()["web"].starts.len() == 2;
    let waited = scenario.node.wait_until("the other pod to be back", SOON * 2, again).await;
    if let Err(error) = waited {
        return Err(format!("{error}\n{:?}", scenario.logs()).into());
    }
    scenario.lock_is_back().await?;
    scenario.node.exec(&["systemctl", "is-system-running", "--wait"], SOON).await?;
    assert_eq!(scenario.node.run(&started).await?, before, "it is the same process");
    let log = scenario.logs()["db"].clone();
    assert_eq!((log.starts.len(), log.terms.len()), (1, 0), "{log:?}");
    // User space has been up for less time than the process.
    let ticks: u64 = before.trim().parse()?;
    let property = "--property=UserspaceTimestampMonotonic";
    let space = scenario.node.run(&["systemctl", "show", "--value", property]).await?;
    let (process, space) =
        (Duration::from_millis(ticks * 10), Duration::from_micros(space.trim().parse()?));
    println!("{test}: process {pid} began {process:?} after the kernel, user space {space:?}");
    assert!(process < space, "{process:?} {space:?}");
    scenario.all_pods_are("Running").await?;
    let status = scenario.status().await?;
    let pods = status["pods"].as_array().into_iter().flatten();
    for pod in pods.filter(|pod| pod["name"].as_str().is_some_and(|name| name.starts_with("db"))) {
        assert_eq!((&pod["restarts"], &pod["ready"]), (&json!(0), &json!(true)), "{pod:#}");
    }
    let report = scenario.newest_report()?;
    assert_eq!(
        (&report["nodeAction"], &report["outcome"]),
        (&"softReboot".into(), &"clean".into())
    );
    enter(&mut scenario.node, &after_it).await?;
    let text = scenario.text(&["report"]).await?;
    assert!(text.contains("survived the soft-reboot"), "{text}");
    // What it says still gets into its log, in which no second is missing.
    let seconds = "cat /var/log/winddown/default_db*/clock/0.log | cut -d ' ' -f 4";
    let seconds = async || scenario.node.run(&["sh", "-c", seconds]).await;
    let so_far = seconds().await?.lines().count();
    let more = async || seconds().await.is_ok_and(|text| text.lines().count() > so_far + 1);
    scenario.node.wait_until("the log to go on", SOON, more).await?;
    let said: Vec<u64> = seconds().await?.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(said.windows(2).all(|pair| pair[1] - pair[0] <= 3), "{said:?}");

    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    let log = scenario.logs()["db"].clone();
    assert_eq!((log.starts.len(), log.terms.len(), log.exits.len()), (1, 1, 1), "{log:?}");
    Ok(())
}

/// What docs/reference/optional-features.md shows, of this test's pod: before the reboot, the reboot, after it.
fn page() -> TestResult<[Typed; 3]> {
    let mut typed = marked("docs/reference/optional-features.md", "reboot");
    for line in typed.iter_mut().flat_map(|command| &mut command.shown) {
        *line = line.replace("databases/db-edge-1", "default/db-winddown-node");
    }
    Ok(typed.try_into().map_err(|typed| format!("three commands: {typed:?}"))?)
}

#[tokio::test]
async fn a_pod_that_would_survive_is_refused_where_systemd_cannot_let_it() -> TestResult {
    let test = "a_pod_that_would_survive_is_refused_where_systemd_cannot_let_it";
    let setup = Setup { suite: Suite::Bookworm, more: MAY_SURVIVE.to_owned(), ..Setup::default() };
    let db = TestPod::new("db", 0, 100);
    let Some(scenario) = Scenario::with_services_as(test, vec![db.clone()], &setup).await? else {
        return Ok(());
    };
    install_survivor(&scenario, &db)?;
    scenario.node.run(&["systemctl", "start", "winddown"]).await?;
    let refused = async || {
        let text = scenario.text(&["status", "-o", "wide"]).await.unwrap_or_default();
        text.contains("systemd 252 stops all services at a soft-reboot: use 257 or later")
    };
    let waited = scenario.node.wait_until("the pod to be refused", SOON, refused).await;
    let text = scenario.text(&["status"]).await?;
    println!("{text}");
    waited.map_err(|error| format!("{error}\n{text}"))?;
    Ok(())
}

/// How the soft reboot is begun, and what the report says of it.
struct Begun {
    go: &'static str,
    trigger: &'static str,
    /// What the unit is given beside what is installed.
    drop_in: &'static str,
}

const ANNOUNCED: Begun =
    Begun { go: "systemctl soft-reboot", trigger: "loginManager", drop_in: "" };
const PAST_LOGIND: Begun =
    Begun { go: "systemctl start --no-block soft-reboot.target", trigger: "unitStop", drop_in: "" };
/// systemd keeps the lock meanwhile.
const KEPT: Begun = Begun { drop_in: "FileDescriptorStorePreserve=yes", ..PAST_LOGIND };
/// The next agent finds the run's record as one leaves it that heard of no kind.
const NOT_LEARNED: Begun = Begun {
    drop_in: "ExecStartPre=-+sed --in-place s/softReboot/unknown/ /run/winddown/shutdown.json \
              /var/lib/winddown/shutdown.json",
    ..PAST_LOGIND
};

async fn reboots_softly(test: &str, suite: Suite, begun: &Begun) -> TestResult {
    let setup = Setup { suite, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    if !begun.drop_in.is_empty() {
        let drop_in = format!("[Service]\n{}\n", begun.drop_in);
        scenario.node.write("/etc/systemd/system/winddown.service.d/test.conf", &drop_in, 0o644)?;
        scenario.node.run(&["systemctl", "daemon-reload"]).await?;
    }
    scenario.node.run(&["systemctl", "enable", "winddown"]).await?;
    scenario.start().await?;
    let boot = boot_id(&scenario).await?;
    let old = scenario.status().await?["node"]["pid"].clone();
    // What still runs when the node goes down holds it up; see `Node::command`.
    scenario.node.shut_down(&["sh", "-c", begun.go]).await?;

    // The old agent may answer until it is gone; its pods do not start again.
    let again = async || scenario.logs().values().all(|log| log.starts.len() == 2);
    let waited = scenario.node.wait_until("the pods to be back", SOON * 2, again).await;
    if let Err(error) = waited {
        return Err(format!("{error}\n{:?}", scenario.logs()).into());
    }
    scenario.lock_is_back().await?;
    scenario.node.exec(&["systemctl", "is-system-running", "--wait"], SOON).await?;
    let counted = ["systemctl", "show", "--property=SoftRebootsCount", "--value"];
    assert_eq!(scenario.node.run(&counted).await?, "1\n");
    assert_eq!(boot_id(&scenario).await?, boot);
    for (name, log) in scenario.logs() {
        assert_eq!((log.terms.len(), log.exits.len()), (1, 1), "{name}: {log:?}");
        assert!(log.exits[0] < log.starts[1].0, "{name} ran twice at a time: {log:?}");
    }
    let mut last = 0;
    for logs in GROUPS.map(|priority| scenario.group(priority)) {
        let first = logs.iter().flat_map(|log| log.terms.iter().copied()).min();
        assert!(first > Some(last), "a group was asked before the one before it had terminated");
        last = logs.iter().flat_map(|log| log.exits.iter().copied()).max().unwrap_or(last);
    }
    assert_eq!(locks(&scenario).await?, 1);

    let report = scenario.newest_report()?;
    assert_eq!(report["trigger"], begun.trigger, "{report}");
    assert_eq!(report["nodeAction"], "softReboot", "{report}");
    assert_eq!(report["outcome"], "clean", "{report}");
    let status = scenario.status().await?;
    assert_ne!(status["node"]["pid"], old, "{status}");
    assert_eq!(status["shutdown"]["phase"], "idle", "{status}");
    assert_eq!(status["admissionClosed"], false, "{status}");
    assert_eq!(status["lastBoot"]["graceful"], true, "{status}");
    assert_eq!(scenario.reports()?.len(), 1);

    // And the next shutdown is a run of its own.
    scenario.power_off().await?;
    scenario.node.wait_off(Duration::from_secs(40)).await?;
    for (name, log) in scenario.logs() {
        assert_eq!(
            (log.starts.len(), log.terms.len(), log.exits.len()),
            (2, 2, 2),
            "{name}: {log:?}"
        );
    }
    let report = scenario.newest_report()?;
    assert_eq!((&report["nodeAction"], &report["outcome"]), (&"powerOff".into(), &"clean".into()));
    assert_eq!(scenario.reports()?.len(), 2);
    Ok(())
}

async fn boot_id(scenario: &Scenario) -> TestResult<String> {
    Ok(scenario.node.run(&["cat", "/proc/sys/kernel/random/boot_id"]).await?)
}

async fn locks(scenario: &Scenario) -> TestResult<usize> {
    let listed = scenario.node.run(&["systemd-inhibit", "--list", "--no-legend"]).await?;
    Ok(listed.lines().filter(|line| line.contains("winddown")).count())
}
