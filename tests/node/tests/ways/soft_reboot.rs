//! `systemctl soft-reboot`: user space goes down and comes up again under the same kernel, in the same boot
//! by its identifier, with the same `/run`.

use std::time::Duration;

use winddown_node_tests::scenario::{GROUPS, SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{Suite, on_each_release};

on_each_release!(since 257, a_soft_reboot_ends_all_pods_in_order_and_they_come_back: announced);
on_each_release!(since 257, a_soft_reboot_past_logind_ends_all_pods_in_order: past_logind);
on_each_release!(since 257, a_soft_reboot_of_which_the_kind_was_not_learned_is_not_called_off: not_learned);
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
    scenario.node.run(&["sh", "-c", begun.go]).await?;

    // The old agent may answer until it is gone; its pods do not start again.
    let again = async || scenario.logs().values().all(|log| log.starts.len() == 2);
    let waited = scenario.node.wait_until("the pods to be back", SOON * 2, again).await;
    if let Err(error) = waited {
        let journal = scenario.node.journal(&["--lines=80"]).await.unwrap_or_default();
        return Err(format!("{error}\n{:?}\n{journal}", scenario.logs()).into());
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
        assert!(first > Some(last), "a group was asked before the one before it had ended");
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
    scenario.wait_off(Duration::from_secs(40)).await?;
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
