//! preStop hooks run on every way down, also on those that bypass logind: systemd then stops everything that was not
//! told to stay. One that fails stands in the report.

use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult};
use winddown_node_tests::{NodeError, PodLog, Suite, TestPod, in_long_form, on_each_release};

/// The directory that pods write to, and how the files of hooks are named there.
const RAN: &str = "/var/log/pods-under-test/.hook-";
const PAST_LOGIND: &str = "systemctl start --no-block poweroff.target";

on_each_release!(a_hook_of_a_service_runs_when_logind_announces_the_shutdown: announced);
on_each_release!(a_hook_of_a_service_runs_on_a_way_down_past_logind: past_logind);
on_each_release!(a_hook_of_a_service_runs_when_the_first_process_is_told_to_power_off: by_signal);

async fn announced(test: &str, suite: Suite) -> TestResult {
    goes_down(test, suite, "systemd", "systemctl poweroff").await
}

async fn past_logind(test: &str, suite: Suite) -> TestResult {
    goes_down(test, suite, "systemd", PAST_LOGIND).await
}

async fn by_signal(test: &str, suite: Suite) -> TestResult {
    goes_down(test, suite, "systemd", "kill -RTMIN+4 1").await
}

/// Six ways down that logind does not announce, each with each runtime. `short` ones are not left to the long form.
macro_rules! past_logind {
    ($($way:ident: $go:expr, $suite:ident => $($short:ident)* $(, long $($long:ident)*)?;)*) => {$(
        mod $way {
            use super::*;

            $(
                #[tokio::test]
                async fn $short() -> TestResult {
                    let test = concat!(stringify!($way), "::", stringify!($short));
                    goes_down(test, Suite::$suite, stringify!($short), $go).await
                }
            )*
            $($(
                #[tokio::test]
                async fn $long() -> TestResult {
                    let test = concat!(stringify!($way), "::", stringify!($long));
                    if !in_long_form(test, "each way and each runtime is met by another test") {
                        return Ok(());
                    }
                    goes_down(test, Suite::$suite, stringify!($long), $go).await
                }
            )*)?
        }
    )*};
}

past_logind! {
    hooks_run_and_the_report_is_true_on_start_poweroff_target:
        PAST_LOGIND, Bookworm => cri, long process;
    hooks_run_and_the_report_is_true_on_start_reboot_target:
        "systemctl start --no-block reboot.target", Bookworm => process, long systemd cri;
    hooks_run_and_the_report_is_true_on_isolate_poweroff_target:
        "systemctl isolate --no-block poweroff.target", Trixie => systemd, long process cri;
    hooks_run_and_the_report_is_true_on_start_soft_reboot_target:
        "systemctl start --no-block soft-reboot.target", Trixie => systemd, long process cri;
    hooks_run_and_the_report_is_true_on_the_signal_to_power_off:
        "kill -RTMIN+4 1", Bookworm => process, long cri;
    // What systemd-nspawn sends when it is told to end, by SIGTERM.
    hooks_run_and_the_report_is_true_on_the_signal_to_halt:
        "kill -RTMIN+3 1", Trixie => systemd, long process cri;
}

/// Takes down a node with an ordinary pod and a critical one whose hook fails.
async fn goes_down(test: &str, suite: Suite, runtime: &str, way: &str) -> TestResult {
    let pods = vec![TestPod::new("db", 0, 300), TestPod::new("app", 2_000_000_000, 100)];
    let setup = Setup { suite, ..Setup::default() };
    let scenario = match runtime {
        "process" => Scenario::installed_as(test, pods, &setup).await?,
        "systemd" => Scenario::with_services_as(test, pods, &setup).await?,
        "cri" => Scenario::with_containerd_as(test, pods, &setup).await?,
        other => return Err(format!("{other} is no runtime").into()),
    };
    let Some(mut scenario) = scenario else { return Ok(()) };
    for (pod, code) in scenario.pods.iter().zip([0, 3]) {
        let mut manifest: Value = serde_json::from_str(&pod.manifest())?;
        let hook = format!("/bin/date +%s%N >>{RAN}{}; exit {code}", pod.name);
        manifest["spec"]["containers"][0]["lifecycle"] =
            json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", hook]}}});
        let path = format!("/etc/winddown/pods/{}.json", pod.name);
        scenario.node.write(&path, manifest.to_string(), 0o644)?;
    }
    scenario.node.run(&["systemctl", "enable", "winddown"]).await?;
    scenario.start().await?;

    match scenario.node.shut_down(&["sh", "-c", way]).await {
        // Of a node with its own kernel, `isolate` stops first what runs commands there: no answer comes.
        Ok(_) | Err(NodeError::Off) => {}
        Err(error) => return Err(error.into()),
    }
    if way.contains("soft-reboot") {
        // The images of a node with its own kernel are in memory that a soft-reboot frees: no pod starts again there.
        let starts = if scenario.node.has_own_kernel() { 1 } else { 2 };
        let is_through = |log: &PodLog| log.starts.len() == starts && !log.exits.is_empty();
        let through =
            async || scenario.logs().values().all(is_through) && scenario.newest_report().is_ok();
        let waited = scenario.node.wait_until("the pods to be back", SOON * 2, through).await;
        waited.map_err(|error| format!("{error}\n{:?}", scenario.logs()))?;
    } else {
        scenario.node.wait_off(Duration::from_secs(60)).await?;
    }
    let mut last = 0;
    for name in ["db", "app"] {
        let log = scenario.logs()[name].clone();
        let ran = scenario.node.read(&format!("{RAN}{name}")).unwrap_or_default();
        let ran: Vec<u64> = ran.lines().filter_map(|line| line.parse().ok()).collect();
        let ([ran], [term], [exit]) = (&ran[..], &log.terms[..], &log.exits[..]) else {
            return Err(format!("{name} on {way}: hooks at {ran:?}, {log:?}").into());
        };
        assert!(last < *ran && ran < term && term < exit, "{name} on {way}: {ran}, {log:?}");
        last = *exit;
    }
    let report = scenario.newest_report()?;
    let trigger = if way == "systemctl poweroff" { "loginManager" } else { "unitStop" };
    assert_eq!((&report["trigger"], &report["outcome"]), (&trigger.into(), &"clean".into()));
    let pods = report["groups"].as_array().into_iter().flatten();
    let pods: Vec<_> =
        pods.flat_map(|group| group["pods"].as_array().into_iter().flatten()).collect();
    let of = |name: &str| {
        let named = |pod: &&&Value| pod["name"].as_str().is_some_and(|of| of.starts_with(name));
        pods.iter().find(named).map_or("", |pod| pod["remark"].as_str().unwrap_or_default())
    };
    assert_eq!((pods.len(), of("db")), (2, ""), "{report}");
    let said = of("app");
    assert!(said.starts_with("preStop hook of main failed: ") && said.contains('3'), "{report}");
    Ok(())
}
