//! The disposable node itself: what the other node tests take for granted.

use std::error::Error;
use std::time::Duration;

use winddown_node_tests::{Flavour, Node, base_or_skip};

type TestResult = Result<(), Box<dyn Error>>;

#[tokio::test]
async fn a_node_boots_powers_off_through_logind_and_boots_again_with_its_files() -> TestResult {
    let test = "a_node_boots_powers_off_through_logind_and_boots_again_with_its_files";
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else {
        return Ok(());
    };
    let mut node = Node::boot(&base).await?;
    node.run(&["sh", "-c", "echo kept > /var/lib/kept"]).await?;
    // Held for a moment only: logind must honour it and the node must still go down. Whoever listens does
    // so before there is a lock: a signal that nobody heard would leave the shell waiting.
    let mut lock = node
        .command(&[
            "sh",
            "-c",
            "dbus-monitor --system \"type='signal',member='PrepareForShutdown'\" > /run/bus & \
             until grep -q NameLost /run/bus; do sleep 0.05; done; \
             exec systemd-inhibit --what=shutdown --mode=delay --who=test sh -c '\
             until grep -q \"boolean true\" /run/bus; do sleep 0.05; done; \
             echo heard > /var/lib/heard; kill $0' $!",
        ])?
        .kill_on_drop(true)
        .spawn()?;
    node.wait_until("the lock to be listed", Duration::from_secs(10), async || {
        let listed = node.run(&["systemd-inhibit", "--list", "--no-legend"]).await;
        listed.is_ok_and(|text| text.contains("test"))
    })
    .await?;
    node.run(&["systemctl", "poweroff"]).await?;
    node.wait_off(Duration::from_secs(30)).await?;
    lock.wait().await?;
    assert_eq!(node.read("/var/lib/kept")?, "kept\n");
    assert_eq!(node.read("/var/lib/heard")?, "heard\n");
    let said = node.journal(&["--unit=systemd-logind"]).await?;
    assert!(said.contains("System is powering down"), "{said}");

    node.start().await?;
    assert_eq!(node.run(&["cat", "/var/lib/kept"]).await?, "kept\n");
    let boots = node.journal(&["--list-boots"]).await?;
    assert_eq!(boots.lines().count(), 2, "{boots}");
    Ok(())
}

#[tokio::test]
async fn nodes_side_by_side_do_not_see_each_other() -> TestResult {
    let Some(base) =
        base_or_skip("nodes_side_by_side_do_not_see_each_other", Flavour::Plain).await?
    else {
        return Ok(());
    };
    let (one, two) = tokio::join!(Node::boot(&base), Node::boot(&base));
    let (mut one, two) = (one?, two?);
    assert_ne!(one.name(), two.name());
    let seen = one.run(&["systemctl", "show", "--property=ControlGroup", "dbus.service"]).await?;
    assert_eq!(seen.trim(), "ControlGroup=/system.slice/dbus.service");
    one.run(&["systemctl", "stop", "dbus.socket", "dbus.service"]).await?;
    assert_eq!(two.run(&["systemctl", "is-active", "dbus.service"]).await?.trim(), "active");
    one.kill();
    assert_eq!(two.run(&["systemctl", "is-active", "dbus.service"]).await?.trim(), "active");
    assert!(one.run(&["true"]).await.is_err());
    Ok(())
}
