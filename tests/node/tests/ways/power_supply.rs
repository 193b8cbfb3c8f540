//! Debian's Network UPS Tools on a node, with the driver that plays a power supply: what its battery lasts is the
//! deadline of the pods.

use serde_json::Value;
use winddown_node_tests::packages::add_packages;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::{Node, Suite, in_long_form};

const HOOK: &str = include_str!("../../../../docs/examples/nut/winddown-ups");
const README: &str = include_str!("../../../../docs/examples/nut/README.md");
const NOTICE: &str = "/run/nut/winddown-notice";

/// What the driver plays.
const SUPPLY: &str = "/etc/nut/rack.dev";
/// Beside what the page says; everything asks each second, as nothing else is there to wait for.
const NUT: [(&str, &str); 5] = [
    ("nut.conf", "MODE=standalone\n"),
    ("ups.conf", "[rack]\n  driver = dummy-ups\n  port = rack.dev\n  pollinterval = 1\n"),
    ("upsd.conf", "LISTEN 127.0.0.1 3493\n"),
    ("upsd.users", "[upsmon]\n  password = known\n  upsmon primary\n"),
    (
        "upsmon.conf",
        "MONITOR rack@127.0.0.1 1 upsmon known primary\nPOLLFREQ 1\nPOLLFREQALERT 1\nFINALDELAY 0\n",
    ),
];

const SET_UP: &str = "chown root:nut /etc/nut/* && chmod 640 /etc/nut/*
systemctl daemon-reload && systemd-tmpfiles --create /usr/lib/tmpfiles.d/nut-*.conf
upsdrvctl start && systemctl start nut-server nut-monitor";

#[tokio::test]
async fn the_pods_end_while_the_battery_lasts_and_come_back_with_the_power() -> TestResult {
    let test = "the_pods_end_while_the_battery_lasts_and_come_back_with_the_power";
    if !in_long_form(test, "Debian's packages have to be fetched") {
        return Ok(());
    }
    let more = format!("shutdownNotices: {{file: {NOTICE}}}\n");
    let setup = Setup { suite: Suite::Trixie, more, ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, seven_pods(), &setup).await? else {
        return Ok(());
    };
    install(&scenario.node).await?;
    scenario.start().await?;
    scenario.assert_nothing_was_asked()?;

    let begun = plays(&scenario.node, "OB DISCHRG", 55).await?;
    scenario.someone_is_asked().await?;
    let reported = async || scenario.text(&["report"]).await.is_ok();
    scenario.node.wait_until("the pods to end", SOON, reported).await?;
    // Of 55 s the machine keeps 30.
    let (_, last) = scenario.assert_ended_in_order()?;
    assert!(last < begun + 25 * 1_000_000_000, "{begun} {last}");
    let text = scenario.text(&["report"]).await?;
    println!("{test}: {text}");
    assert!(text.contains("Notice from file: UPS rack@127.0.0.1: ONBATT."), "{text}");

    plays(&scenario.node, "OL", 600).await?;
    let again = async || scenario.logs().values().all(|log| log.starts.len() == 2);
    scenario.node.wait_until("the pods to be back", SOON, again).await?;
    scenario.all_pods_are("Running").await?;
    scenario.lock_is_back().await?;
    assert_eq!(scenario.status().await?["notices"].as_array().map_or(0, Vec::len), 0);

    let begun = plays(&scenario.node, "OB LB DISCHRG", 50).await?;
    scenario.node.wait_off(SOON * 2).await?;
    for (name, log) in scenario.logs() {
        assert_eq!((log.terms.len(), log.exits.len()), (2, 2), "{name}: {log:?}");
        assert!(log.exits[1] < begun + 20 * 1_000_000_000, "{name}: {log:?}");
    }
    let report: Value = scenario.newest_report()?;
    assert_eq!(report["outcome"], "clean", "{report:#}");
    Ok(())
}

/// Lays the tools out, as docs/examples/nut/README.md has it, and starts them.
async fn install(node: &Node) -> TestResult {
    add_packages(node, &["nut-server", "nut-client"])?;
    node.write("/usr/lib/winddown/winddown-ups", HOOK, 0o755)?;
    for (name, text) in NUT {
        node.write(&format!("/etc/nut/{name}"), text, 0o640)?;
    }
    let page = README.lines().map(str::trim);
    let page = page.filter(|line| line.starts_with("NOTIFY") || line.starts_with("SHUTDOWNCMD"));
    let page: Vec<&str> = page.collect();
    assert_eq!(page.len(), 6, "{page:?}");
    let upsmon = format!("{}{}\n", NUT[4].1, page.join("\n"));
    node.write("/etc/nut/upsmon.conf", upsmon, 0o640)?;
    node.write(SUPPLY, supply("OL", 600), 0o640)?;
    node.run(&["sh", "-ec", SET_UP]).await?;
    let online = async || {
        let said = node.run(&["upsc", "rack@127.0.0.1", "ups.status"]).await;
        said.is_ok_and(|said| said.trim() == "OL")
    };
    node.wait_until("the power supply to be on line", SOON, online).await?;
    Ok(())
}

/// Plays this from now on; returns the time, in nanoseconds since 1970.
async fn plays(node: &Node, status: &str, lasts: u32) -> TestResult<u64> {
    // Written into the same file, which the driver may read. It compares whole seconds of the file's time: two
    // changes within one, or a look between the beginning and the end of this one, must not be the same to it.
    let text = supply(status, lasts);
    let write = format!(
        "now=$(stat -c %Y {SUPPLY}) && printf '{text}' >{SUPPLY} && touch -d @$((now + 3600)) {SUPPLY}"
    );
    node.run(&["sh", "-c", &write]).await?;
    Ok(node.run(&["date", "+%s%N"]).await?.trim().parse()?)
}

fn supply(status: &str, lasts: u32) -> String {
    format!("ups.status: {status}\nbattery.runtime: {lasts}\n")
}
