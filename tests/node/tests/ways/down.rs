//! The ways down, one row each.

use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::scenario::{Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{Node, Suite, in_long_form};

/// More than the 30 s of the drop-in below.
const SECONDS: [u32; 3] = [24, 8, 8];
const UNATTENDED_UPGRADES: &str =
    "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";

/// How the node is told to go down, and what is expected then.
struct Way {
    /// Commands that are run before the agent is started.
    before: &'static str,
    /// What takes the node down.
    go: &'static str,
    /// Who announces it.
    heard: Heard,
    /// What the node's end looks like from outside.
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Powered off, or halted, which looks the same.
    Off,
    /// Wants to be started again.
    Reboot,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// logind, which the agent waits for with its lock, and what the node will do.
    Logind(&'static str),
    /// Nothing does: systemd just stops the unit, and says what for.
    Stop(&'static str),
}

macro_rules! ways {
    ($($way:ident: $go:expr => $heard:expr, $end:ident $(, before $before:expr)? $(, until $gone:ident)?;)*) => {$(
        mod $way {
            use super::*;

            #[tokio::test]
            async fn ends_all_pods_in_order() -> TestResult {
                let test = concat!(stringify!($way), "::ends_all_pods_in_order");
                takes_the_node_down(test, &WAY, Suite::Bookworm, false).await
            }

            #[tokio::test]
            async fn ends_all_pods_in_order_beside_unattended_upgrades() -> TestResult {
                let test = concat!(
                    stringify!($way), "::ends_all_pods_in_order_beside_unattended_upgrades"
                );
                // The delay is one of logind's, whichever way it is asked.
                if !matches!(stringify!($way), "systemctl_poweroff" | "start_poweroff_target")
                    && !in_long_form(test, "a foreign delay is met on two ways down of the same kinds")
                {
                    return Ok(());
                }
                takes_the_node_down(test, &WAY, Suite::Bookworm, true).await
            }

            #[tokio::test]
            async fn ends_all_pods_in_order_on_systemd_257() -> TestResult {
                let test = concat!(stringify!($way), "::ends_all_pods_in_order_on_systemd_257");
                takes_the_node_down(test, &WAY, Suite::Trixie, false).await
            }

            on_systemd_262!($way $($gone)?);

            const WAY: Way = Way {
                before: concat!("true", $("; ", $before)?),
                go: $go,
                heard: $heard,
                end: End::$end,
            };
        }
    )*};
}

macro_rules! on_systemd_262 {
    ($way:ident) => {
        #[tokio::test]
        async fn ends_all_pods_in_order_on_systemd_262() -> TestResult {
            let test = concat!(stringify!($way), "::ends_all_pods_in_order_on_systemd_262");
            takes_the_node_down(test, &WAY, Suite::Sid, false).await
        }
    };
    // It is no way down any more.
    ($way:ident sid) => {};
}

/// `shutdown +1` whose minute is over: the same call, with the time that is left at its end.
macro_rules! schedule {
    ($kind:literal) => {
        concat!(
            "busctl call org.freedesktop.login1 /org/freedesktop/login1 \
             org.freedesktop.login1.Manager ScheduleShutdown st ",
            $kind,
            " $(date -d '1 second' +%s%6N)"
        )
    };
}

ways! {
    // What people type, old and new.
    systemctl_poweroff: "systemctl poweroff" => Heard::Logind("powerOff"), Off;
    systemctl_reboot: "systemctl reboot" => Heard::Logind("reboot"), Reboot;
    systemctl_halt: "systemctl halt" => Heard::Logind("halt"), Off;
    shutdown_now: "shutdown now" => Heard::Logind("powerOff"), Off;
    shutdown_r_now: "shutdown -r now" => Heard::Logind("reboot"), Reboot;
    init_6: "init 6" => Heard::Logind("reboot"), Reboot, until sid;
    systemctl_kexec: "systemctl kexec" => Heard::Logind("kexec"), Reboot,
        before "mount -t tmpfs tmpfs /sys/kernel; echo 1 >/sys/kernel/kexec_loaded";
    // logind tells their kind only in its announcement.
    scheduled_shutdown: schedule!("poweroff") => Heard::Logind("powerOff"), Off;
    scheduled_reboot: schedule!("reboot") => Heard::Logind("reboot"), Reboot;
    scheduled_halt: schedule!("halt") => Heard::Logind("halt"), Off;
    scheduled_kexec: schedule!("kexec") => Heard::Logind("kexec"), Reboot,
        before "mount -t tmpfs tmpfs /sys/kernel; echo 1 >/sys/kernel/kexec_loaded";
    // In place of the power key. A service that blocks idleness keeps the node up until then.
    idle_action: "systemctl stop awake" => Heard::Logind("powerOff"), Off,
        before "printf '[Login]\\nIdleAction=poweroff\\nIdleActionSec=1\\n' \
            >/etc/systemd/logind.conf.d/idle.conf; \
            systemd-run --quiet --unit=awake systemd-inhibit --what=idle --mode=block sleep 1h; \
            until systemd-inhibit --list --no-legend | grep -q idle; do sleep 0.05; done; \
            systemctl restart systemd-logind";
    // logind is not asked.
    start_poweroff_target: "systemctl start --no-block poweroff.target" => Heard::Stop("powerOff"), Off;
    start_reboot_target: "systemctl start --no-block reboot.target" => Heard::Stop("reboot"), Reboot;
    isolate_poweroff_target: "systemctl isolate --no-block poweroff.target" => Heard::Stop("powerOff"), Off;
    // Ctrl-Alt-Del.
    sigint_to_the_first_process: "kill -INT 1" => Heard::Stop("reboot"), Reboot;
    // What a hypervisor or `machinectl poweroff` sends.
    power_off_signal_to_the_first_process: "kill -RTMIN+4 1" => Heard::Stop("powerOff"), Off;
}

async fn takes_the_node_down(
    test: &str,
    way: &Way,
    suite: Suite,
    beside_upgrades: bool,
) -> TestResult {
    let setup = Setup { suite, seconds: SECONDS, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    if beside_upgrades {
        let drop_in = "[Login]\n# delay\nInhibitDelayMaxSec=30\n";
        scenario.node.write(UNATTENDED_UPGRADES, drop_in, 0o644)?;
        scenario.node.run(&["systemctl", "restart", "systemd-logind"]).await?;
    }
    scenario.node.run(&["sh", "-c", way.before]).await?;
    scenario.start().await?;
    let status = scenario.status().await?;
    let budget = f64::from(SECONDS.iter().sum::<u32>());
    assert!(status["lock"]["delaySeconds"].as_f64() >= Some(budget), "{status}");
    assert_eq!(status["shutdownPlan"]["availableSeconds"], budget, "{status}");

    scenario.node.shut_down(&["bash", "-c", way.go]).await?;
    let ended = scenario.node.wait_off(Duration::from_secs(60)).await?;
    let expected = if way.end == End::Reboot { Node::REBOOTED } else { 0 };
    assert_eq!(ended.code(), Some(expected), "the node ended otherwise");

    let (_, last_exit) = scenario.assert_ended_in_order()?;
    if let Heard::Logind(_) = way.heard {
        scenario.lock_outlived(last_exit).await?;
        scenario.assert_logind_was_patient().await?;
    }
    scenario.assert_systemd_killed_nothing().await?;
    let report = scenario.newest_report()?;
    let (trigger, action) = match way.heard {
        Heard::Logind(action) if suite > Suite::Bookworm => ("loginManager", action.into()),
        // Its logind has no word for it but in what it was asked to do at once.
        Heard::Logind(_)
            if way.go.contains("ScheduleShutdown") || way.before.contains("IdleAction") =>
        {
            ("loginManager", Value::Null)
        }
        Heard::Logind(action) => ("loginManager", action.into()),
        Heard::Stop(action) => ("unitStop", action.into()),
    };
    assert_eq!(report["trigger"], trigger, "{report}");
    assert_eq!(report["nodeAction"], action, "{report}");
    assert_eq!(report["outcome"], "clean", "{report}");
    assert_eq!(report["budget"]["podsSeconds"], budget, "{report}");
    // logind says who scheduled a shutdown, but not who called for one at once.
    let by = &report["requestedBy"];
    let scheduled = way.go.contains("ScheduleShutdown");
    assert_eq!(by["scheduledFor"].is_string(), scheduled, "{report}");
    assert_eq!(by["uid"].as_u64(), scheduled.then_some(0), "{report}");
    Ok(())
}
